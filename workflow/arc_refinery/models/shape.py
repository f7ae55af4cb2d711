"""A model's folder: sizes from its config.json without transformers, torch or network access; damage to its files."""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, PositiveInt

from arc_refinery.errors import ModelError
from arc_refinery.files import check_regular, checked, decode_json, read_json, reading

_AGAIN = "; download the model again"
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_SMALL = 1_000_000  # bytes; settings are smaller, vocabularies are not


@contextmanager
def read_by_library(folder: str | Path, file: str) -> Iterator[None]:
    """Raise `ModelError` for anything that a library raises while it reads a file of a model or an adapter.

    transformers, peft and tokenizers check few keys and types: a wrong one ends in whatever its use raises.
    """
    if Path(folder).is_dir():
        _check_files(Path(folder))
    elif not _HUB_NAME.fullmatch(str(folder)):
        raise ModelError(f"{folder}: no such folder; expected one with a model, or a name on the hub: owner/name")
    with reading(Path(folder, file), "correct the path, or get the files again", kind=ModelError):
        try:
            yield
        except RuntimeError as error:
            if "CUDA out of memory" in str(error):
                raise ModelError(
                    f"{Path(folder, file)}: does not fit into the GPU's free memory; end other jobs on this GPU, or "
                    "ask for a larger one (`arc-refinery doctor memory` estimates what fits)"
                ) from None
            if "ignore_mismatched_sizes" not in str(error):  # transformers prints the shapes as a table
                raise
            raise ModelError(
                f"{Path(folder, file)}: its weights have other shapes than config.json says; get the files again"
            ) from None


def _check_files(folder: Path) -> None:
    """Raise `InputError` for settings that are not valid JSON, and for pipes, which some libraries wait for."""
    for path in sorted(folder.iterdir()):
        if path.suffix in (".json", ".safetensors", ".jinja"):
            check_regular(path)
        if path.suffix == ".json" and path.is_file() and path.stat().st_size < _SMALL:
            read_json(path, f"settings or a vocabulary{_AGAIN}", dict[str, Any])


@dataclass(frozen=True, slots=True)
class Shape:
    """A dense decoder with gated MLPs, such as Llama, Qwen and Mistral."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    tie_word_embeddings: bool
    attends_to_all: bool = True  # earlier tokens, in all layers, without dropout
    has_head_norms: bool = False  # normalises each query and key head, as in Qwen3

    @property
    def queries(self) -> int:
        """Width of all query heads together."""
        return self.num_attention_heads * self.head_dim

    @property
    def keys(self) -> int:
        """Width of all key heads together; the same for values."""
        return self.num_key_value_heads * self.head_dim

    @property
    def matrices(self) -> dict[str, tuple[int, int]]:
        """(inputs, outputs) of the matrices of one layer, by the names that `target_modules` takes."""
        hidden, inner = self.hidden_size, self.intermediate_size
        return {
            "q_proj": (hidden, self.queries),
            "k_proj": (hidden, self.keys),
            "v_proj": (hidden, self.keys),
            "o_proj": (self.queries, hidden),
            "gate_proj": (hidden, inner),
            "up_proj": (hidden, inner),
            "down_proj": (inner, hidden),
        }

    @property
    def n_in_matrices(self) -> int:
        """Parameters of the matrices of all layers, which 4-bit loading packs."""
        return self.num_hidden_layers * sum(inputs * outputs for inputs, outputs in self.matrices.values())

    @property
    def n_parameters(self) -> int:
        """All parameters except biases and norms of single heads."""
        embeddings = self.vocab_size * self.hidden_size * (1 if self.tie_word_embeddings else 2)
        norms = (2 * self.num_hidden_layers + 1) * self.hidden_size
        return self.n_in_matrices + embeddings + norms

    def n_in_adapter(self, rank: int, modules: tuple[str, ...]) -> int:
        """Parameters of a LoRA adapter: rank x (inputs + outputs) per matrix."""
        widths = sum(inputs + outputs for name, (inputs, outputs) in self.matrices.items() if name in modules)
        return self.num_hidden_layers * rank * widths

    def kv_bytes_per_token(self, width: int) -> int:
        """Bytes of the keys and values of one token in all layers, `width` bytes per number."""
        return 2 * self.num_hidden_layers * self.keys * width


class _Sizes(BaseModel):
    """The keys of config.json that a shape is made of."""

    hidden_size: PositiveInt
    intermediate_size: PositiveInt
    num_hidden_layers: PositiveInt
    num_attention_heads: PositiveInt
    vocab_size: PositiveInt
    num_key_value_heads: PositiveInt | None = None
    head_dim: PositiveInt | None = None
    layer_types: list[Literal["full_attention", "sliding_attention"]] | None = None


# Keys of config.json of layers that are not counted: experts, compressed keys and values, state spaces
_OTHER_LAYERS = re.compile(r"expert|^moe|_lora_rank$|^mamba|^ssm|^linear_(num|key|value)|hybrid")
# With the layers of `Shape`; the value: whether the embedding is also the last matrix if config.json does not say so
_COUNTED = dict.fromkeys(("llama", "mistral", "qwen2", "qwen3", "phi3", "olmo2", "granite"), False)
_COUNTED |= dict.fromkeys(("gemma", "gemma2", "cohere", "smollm3"), True)


class _Index(BaseModel):
    weight_map: dict[str, Any]


# Sizes as published. The 8B model is a fine-tuned Llama-3.1-8B.
PUBLISHED_SHAPES = {
    "barc0/Llama-3.1-ARC-Potpourri-Induction-8B": Shape(4096, 14336, 32, 32, 8, 128, 128256, False),
    "Qwen/Qwen3-1.7B": Shape(2048, 6144, 28, 16, 8, 128, 151936, True, has_head_norms=True),
    "Qwen/Qwen2.5-Coder-0.5B-Instruct": Shape(896, 4864, 24, 14, 2, 64, 151936, True),
}


def shape_of(model_path: str) -> Shape:
    """Return the shape of a model (folder or hub name); raise `InputError` if its config.json is not here."""
    if model_path in PUBLISHED_SHAPES:
        return PUBLISHED_SHAPES[model_path]
    path = Path(model_path, "config.json")
    if not path.exists():
        path = _cached(model_path)
    expected = "the config.json of a dense decoder, such as Llama and Qwen3"
    config = read_json(path, expected, dict[str, Any])
    if other := [key for key in config if _OTHER_LAYERS.search(key) and config[key]]:
        raise ModelError(f"{path}: has {other[0]}; expected {expected}")
    checked(_Sizes, config, str(path), expected)
    if (model_type := config.get("model_type")) not in _COUNTED:
        has = f"the model_type {model_type!r}" if model_type else "no model_type"
        raise ModelError(f"{path}: has {has}; expected {expected}")
    return _shape(config)


def weight_names(folder: Path) -> list[str]:
    """Return the names of the weights in a model's folder; none if it has no safetensors files."""
    index, single = folder / "model.safetensors.index.json", folder / "model.safetensors"
    if index.is_file():
        return list(read_json(index, f"an index of weights{_AGAIN}", _Index)["weight_map"])
    if not single.is_file():
        return []
    with single.open("rb") as file:
        n_bytes = int.from_bytes(file.read(8), "little")
        if n_bytes > single.stat().st_size - 8:
            raise ModelError(f"{single}: is cut short{_AGAIN}")
        header = decode_json(file.read(n_bytes), str(single), f"weights{_AGAIN}", dict[str, Any])
    return [name for name in header if name != "__metadata__"]


def missing_weights(folder: Path) -> list[str]:
    """Return the files of weights that a model's folder lacks."""
    for stem in ("model.safetensors", "pytorch_model.bin"):
        if (index := folder / f"{stem}.index.json").is_file():
            files = read_json(index, f"an index of weights{_AGAIN}", _Index)["weight_map"].values()
            return sorted({str(name) for name in files if not (folder / str(name)).is_file()})
    has_any = any(path.is_file() for end in ("safetensors", "bin") for path in folder.glob(f"*.{end}"))
    return [] if has_any else ["model.safetensors"]


def without_module(targets: Iterable[str], modules: Iterable[str]) -> list[str]:
    """Return the names in `lora.target_modules` that no module of a network has: peft leaves them out in silence."""
    words_of_names = (name.split(".") for name in modules)
    ends = {".".join(words[start:]) for words in words_of_names for start in range(len(words))}
    return [target for target in targets if target not in ends]


def names_of(modules: Iterable[str]) -> list[str]:
    """Return the last words of the names of modules."""
    return sorted({name.rpartition(".")[2] for name in modules})


def _cached(model_path: str) -> Path:
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        cached = try_to_load_from_cache(model_path, "config.json")
    except HFValidationError:  # a folder's path is not a hub name
        cached = None
    if not isinstance(cached, str):
        raise ModelError(
            f"{model_path}: its sizes are unknown, because its config.json is not here; set model.path to the "
            f"model's folder, or download the file: hf download {model_path} config.json"
        )
    return Path(cached)


def _shape(config: dict[str, Any]) -> Shape:
    heads = config["num_attention_heads"]
    return Shape(
        hidden_size=config["hidden_size"],
        intermediate_size=config["intermediate_size"],
        num_hidden_layers=config["num_hidden_layers"],
        num_attention_heads=heads,
        num_key_value_heads=config.get("num_key_value_heads") or heads,
        head_dim=config.get("head_dim") or config["hidden_size"] // heads,
        vocab_size=config["vocab_size"],
        tie_word_embeddings=config.get("tie_word_embeddings", _COUNTED[config["model_type"]]),
        attends_to_all=not attention_obstacle(config),
        has_head_norms=config.get("model_type") == "qwen3",
    )


def attention_obstacle(config: Mapping[str, Any]) -> str:
    """Return why a model's prompts cannot be read once for many completions, by its config.json; empty if they can."""
    layers = set(config.get("layer_types") or ["full_attention"])
    slides = config.get("sliding_window") and config.get("use_sliding_window", True)
    if slides or layers != {"full_attention"}:
        return "not all of its layers attend to all earlier tokens"
    if config.get("attention_dropout") or config.get("attn_pdrop"):
        return "its attention has dropout"
    if config.get("num_experts") or config.get("num_local_experts"):
        return "it is a mixture of experts"
    return ""
