"""Preflight checks: fail before loading a model or starting an engine."""

import logging
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, NonNegativeInt, PositiveInt

from arc_refinery.config import BACKENDS, Lora, ModelConfig
from arc_refinery.errors import InputError
from arc_refinery.files import read_json, reading
from arc_refinery.models.shape import names_of, read_by_library, weight_names, without_module
from arc_refinery.sampling.gpus import check_mig

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
GENERATION_CONFIG = "generation_config.json"
_LAYER = re.compile(r"(?:model\.(?:language_model\.)?)?layers\.(\d+)\.")

logger = logging.getLogger(__name__)


class _LoraSettings(BaseModel):
    """The keys of an adapter's settings that have no default here."""

    r: PositiveInt
    peft_type: Literal["LORA"]
    lora_alpha: int | float


class _GenerationSettings(BaseModel):
    eos_token_id: NonNegativeInt | list[NonNegativeInt] | None = None


def check_model(model: ModelConfig, adapter: Path | None) -> Any:
    """Return the tokenizer; raise `InputError` if the backend is not installed, or window or adapter do not fit."""
    backend = BACKENDS[model.backend]
    if backend.package and find_spec(backend.package) is None:
        raise InputError(f"backend is {model.backend}, which is not installed here; see docs/run.md, or use another")
    if backend.has_own_memory:
        check_mig()
    if model.use_4bit_quantization and find_spec("bitsandbytes") is None:
        raise InputError("4-bit weights need bitsandbytes and a GPU; see docs/run.md, or do not quantize")
    network, tokenizer = check_folder(model)
    positions = getattr(network.get_text_config(), "max_position_embeddings", None)
    if positions is not None and model.window > positions:
        raise InputError(
            f"{model.path}: the window (--max-model-len) is {model.window} tokens; expected at most {positions}, the "
            "max_position_embeddings in this model's config.json"
        )
    if adapter is not None:
        check_adapter(adapter, model, network)
    return tokenizer


def check_folder(model: ModelConfig) -> tuple[Any, Any]:
    """Return a model's config.json and its tokenizer; raise `InputError` unless its files belong together."""
    from transformers import AutoConfig

    with read_by_library(model.path, "config.json"):
        network = AutoConfig.from_pretrained(model.path)
    _check_end_tokens(Path(model.path, GENERATION_CONFIG), network)
    _check_layers(model.path, network)
    return network, _checked_tokenizer(model.path, network)


def check_trained(model: ModelConfig, lora: Lora, start: Path | None) -> None:
    """Raise `InputError` unless a model can be trained with this adapter, from the one in the folder `start`."""
    network, _ = check_folder(model)
    matrices = [
        name.removesuffix(".weight") for name, weights in _modules(network)[""].named_parameters() if weights.ndim > 1
    ]
    if unknown := without_module(lora.target_modules, [*matrices, "lm_head"]):  # which may be the embedding's
        raise InputError(
            f"lora.target_modules: {model.path} has no module {unknown[0]}; it has {', '.join(names_of(matrices))}"
        )
    if lora.lora_r > (width := network.get_text_config().hidden_size):
        raise InputError(f"lora.lora_r: is {lora.lora_r}; expected at most {width}, the hidden size of {model.path}")
    if start is not None:
        check_adapter(start, model, network)


def check_answers_end(tokenizer: Any) -> None:
    """Raise `ModelError` if the chat template ends an answer with a token that does not end a completion."""
    from arc_refinery.models.chat import ANSWERED, ids_after_answer
    from arc_refinery.models.tokenizers import end_tokens

    if tokenizer.chat_template:  # else prompts were rendered with another model's
        ids_after_answer(tokenizer, end_tokens(tokenizer.name_or_path, tokenizer), ANSWERED)


def adapter_config(adapter: Path) -> dict[str, Any]:
    """Return the settings that peft saved with an adapter."""
    path = adapter / ADAPTER_CONFIG
    if not path.exists():
        raise InputError(f"{path}: no such file; expected a folder with a LoRA adapter as peft saves it")
    content: dict[str, Any] = read_json(path, "the settings of a LoRA adapter as peft saves them", _LoraSettings)
    return content


def _check_end_tokens(path: Path, network: Any) -> None:
    """Check the tokens that end a completion: where the file cannot be read, transformers silently has others."""
    if not path.exists():
        return  # transformers then takes config.json's
    expected = "the generation settings of a model; download the model again"
    ends = read_json(path, expected, _GenerationSettings).get("eos_token_id")
    n_tokens = network.get_text_config().vocab_size
    listed = ends if isinstance(ends, list) else [] if ends is None else [ends]
    if wrong := [end for end in listed if end >= n_tokens]:
        raise InputError(
            f"{path}: has the end token {wrong[0]!r}; expected eos_token_id to be one or several of the model's "
            f"{n_tokens} token ids; download the model again"
        )


def _check_layers(model_path: str, network: Any) -> None:
    """Check that the weights have no more layers than config.json: the libraries leave out what they do not expect."""
    n_layers = network.get_text_config().num_hidden_layers
    n_layers += getattr(network.get_text_config(), "num_nextn_predict_layers", None) or 0  # they predict further tokens
    numbers = [int(layer[1]) for name in weight_names(Path(model_path)) if (layer := _LAYER.match(name))]
    if (n_stored := max(numbers, default=-1) + 1) > n_layers:
        raise InputError(
            f"{model_path}: its config.json has {n_layers} layers, but its weights have {n_stored}, of which the last "
            "would be left out; download the model again"
        )


def _checked_tokenizer(model_path: str, network: Any) -> Any:
    """Return the tokenizer, if its tokens are rows of the model's embedding, and the model's end tokens among them."""
    from arc_refinery.models.tokenizers import load_tokenizer

    n_rows = network.get_text_config().vocab_size
    tokenizer = load_tokenizer(model_path)
    last = max(tokenizer.get_vocab().values(), default=-1)
    ends = network.get_text_config().eos_token_id
    unknown = [end for end in (ends if isinstance(ends, list) else [ends]) if type(end) is int and end > last]
    if last >= n_rows or unknown:
        other = f"ends completions with the token {unknown[0]}" if last < n_rows else f"has {n_rows} tokens"
        raise InputError(
            f"{model_path}: its tokenizer is that of another model: its last token is {last}, but config.json {other}; "
            "download the model again"
        )
    return tokenizer


def check_adapter(adapter: Path, model: ModelConfig, network: Any) -> None:
    """Check that the adapter has the matrices that its settings promise, in the shapes of the model's modules.

    The name of its base model proves nothing, because folders are moved: a different name only logs a warning.
    """
    base_name = str(adapter_config(adapter).get("base_model_name_or_path") or "")
    weights = adapter / ADAPTER_WEIGHTS
    shapes = adapter_shapes(adapter)
    empty = _modules(network)
    modules = {
        name: (module.in_features, module.out_features)
        for name, module in empty.items()
        if hasattr(module, "in_features")
    }
    for key, shape in shapes.items():
        module, side, _ = key.removeprefix("base_model.model.").partition(".lora_")
        end, axis = (0, 1) if key.endswith("lora_A.weight") else (1, 0)
        if side and (module not in modules or modules[module][end] != shape[axis]):
            expected = f"has {modules[module]}" if module in modules else "has no such module"
            raise InputError(
                f"{weights}: was made for another base model (its {ADAPTER_CONFIG} says {base_name!r}): "
                f"{key} is {shape}, but {model.path} {expected}; give this model's adapter, or this adapter's model"
            )
    promised = _promised(adapter, empty[""])
    if missing := sorted(promised.keys() - shapes.keys()):
        raise InputError(
            f"{weights}: lacks {len(missing)} of the {len(promised)} matrices that its {ADAPTER_CONFIG} promises, such "
            f"as {missing[0]}; save the adapter again"
        )
    if unused := sorted(key for key in shapes.keys() - promised.keys() if ".lora_" in key):  # peft drops them
        raise InputError(
            f"{weights}: {len(unused)} of its {len(shapes)} matrices would be left out by its {ADAPTER_CONFIG}, such "
            f"as {unused[0]}; do the two files belong together? Save the adapter again"
        )
    if other := [key for key, shape in promised.items() if shapes[key] != shape]:
        raise InputError(
            f"{weights}: {other[0]} is {shapes[other[0]]}, but with the rank in its {ADAPTER_CONFIG} it would be "
            f"{promised[other[0]]}; save the adapter again"
        )
    if Path(base_name).name != Path(model.path).name:
        logger.warning("%s: its settings name the base model %r; it is used with %s", adapter, base_name, model.path)


def adapter_shapes(adapter: Path) -> dict[str, tuple[int, ...]]:
    """Return the shape of each matrix of an adapter that has both matrices of every module, all of finite numbers."""
    import torch
    from safetensors import safe_open

    weights = adapter / ADAPTER_WEIGHTS
    if not weights.exists():
        pickled = weights.with_suffix(".bin")
        found = f"only {pickled.name}, a pickle, which may run code" if pickled.exists() else "no such file"
        raise InputError(
            f"{weights}: {found}; expected a folder with a LoRA adapter as peft saves it, with safe_serialization=True"
        )
    with reading(weights, "save the adapter again"), safe_open(weights, "pt") as file:
        matrices = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    if wrong := [key for key, m in matrices.items() if not (m.is_floating_point() and torch.isfinite(m).all())]:
        raise InputError(
            f"{weights}: {len(wrong)} of its {len(matrices)} matrices hold values that are not finite numbers, such as "
            f"{wrong[0]}; train the adapter again, with a lower learning rate"
        )
    shapes = {key: tuple(matrix.shape) for key, matrix in matrices.items()}
    if whole := sorted(key for key in shapes if ".lora_" not in key or ".lora_embedding_" in key):
        names = ", ".join(
            dict.fromkeys(re.sub(r"^base_model\.model\.|\.base_layer\b.*|\.lora_.*|\.\w+$", "", key) for key in whole)
        )
        raise InputError(
            f"{weights}: also holds whole modules or embeddings ({names}), which are not supported; train it without "
            "modules_to_save and embeddings in target_modules, or save it with save_embedding_layers=False"
        )
    modules = {key.partition(".lora_")[0] for key in shapes}
    halves = [name for name in modules if not {f"{name}.lora_A.weight", f"{name}.lora_B.weight"} <= shapes.keys()]
    if halves or not shapes:
        raise InputError(f"{weights}: lacks weights of {min(halves, default='every module')}; save the adapter again")
    return shapes


def _modules(network: Any) -> dict[str, Any]:
    """Return the modules of a network by name, itself under the empty one, without allocating its weights."""
    import torch
    from transformers import AutoModelForCausalLM

    with read_by_library(network.name_or_path, "config.json"), torch.device("meta"):
        return dict(AutoModelForCausalLM.from_config(network).named_modules())


def _promised(adapter: Path, network: Any) -> dict[str, tuple[int, ...]]:
    """Return the shapes of an adapter's matrices on this network, by the settings that peft saved with it."""
    import torch
    from peft import LoraConfig, get_peft_model, get_peft_model_state_dict

    with read_by_library(adapter, ADAPTER_CONFIG), torch.device("meta"):
        adapted = get_peft_model(network, LoraConfig.from_pretrained(adapter))
    return {key: tuple(matrix.shape) for key, matrix in get_peft_model_state_dict(adapted).items() if ".lora_" in key}
