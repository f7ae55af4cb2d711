"""Everything we pass to the installed libraries, or read of them, exists: keywords, variables, methods, attributes.

Each test takes the libraries of the environment it runs in. `make test` runs this file in the default environment and
with vLLM's CPU build (tests/workflow/test_vllm.py), `make check-gpu-envs` in those for GPUs.
"""

import ast
import dataclasses
import importlib
import inspect
import itertools
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from checkout import ROOT, TINY, TRACKERS

from arc_refinery.config import Imitation, Lengths, Lora, ModelConfig, PolicyGradient
from arc_refinery.config.trl_keywords import SET_BY, known_keywords
from arc_refinery.errors import InputError
from arc_refinery.refining.config import Grpo
from arc_refinery.sampling import library_arguments
from arc_refinery.sampling.backends import Decoding
from arc_refinery.tool_use.config import Generation

PACKAGE = ROOT / "workflow/arc_refinery"
MODEL = ModelConfig(path=TINY, window=1024)
LORA = Lora(lora_r=2)
GENERATION = Generation(max_turn_tokens=64, max_episode_tokens=256)
LENGTHS = Lengths(max_completion_length=48, max_seq_length=1024)

needs_vllm = pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed in this environment")
needs_unsloth = pytest.mark.skipif(find_spec("unsloth") is None, reason="Unsloth is not installed in this environment")


def source_of(package: str) -> Path:
    """Folder of an installed package, which is not imported."""
    spec = find_spec(package)
    if spec is None:
        return TRACKERS / package
    assert spec.origin is not None
    return Path(spec.origin).parent


# keywords


def sft_keywords(on_gpu: bool = False) -> dict[str, Any]:
    return library_arguments.sft_settings(MODEL, Imitation(learning_rate=1e-4), 0, Path("work"), on_gpu)


def grpo_keywords(on_gpu: bool = False, **settings: Any) -> dict[str, Any]:
    training = Grpo.model_validate({"learning_rate": 1e-4} | settings)
    rollouts = library_arguments.refining_rollouts(LENGTHS)
    return library_arguments.grpo_settings(MODEL, training, rollouts, 0, Path("work"), on_gpu, has_heldout=True)


def tool_keywords(**settings: Any) -> dict[str, Any]:
    training = PolicyGradient.model_validate({"learning_rate": 1e-4} | settings)
    rollouts = library_arguments.tool_rollouts(training, max_turn_tokens=512, enable_thinking=True, stop_id=7)
    return library_arguments.grpo_settings(MODEL, training, rollouts, 0, Path("work"), False, has_heldout=True)


KEYWORDS = {
    "trl.SFTConfig": [sft_keywords(), sft_keywords(on_gpu=True)],
    "trl.GRPOConfig": [
        grpo_keywords(),
        grpo_keywords(on_gpu=True, trl={"entropy_coef": 0.1}),
        grpo_keywords(n_processes=2, prompts_per_step=2),
        grpo_keywords(steps_per_generation=2),
        grpo_keywords(sampler="vllm-colocate", sleep_mode=True),
        tool_keywords(),
        tool_keywords(sampler="vllm-colocate"),
    ],
    "peft.LoraConfig": [library_arguments.lora_adapter(LORA)],
    "transformers.BitsAndBytesConfig": [library_arguments.four_bits("bfloat16")],
}


@pytest.mark.parametrize("name", KEYWORDS)
def test_training_libraries_take_every_keyword(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    module, _, attribute = name.partition(".")
    taken = getattr(importlib.import_module(module), attribute)
    named = {
        parameter.name
        for parameter in inspect.signature(taken).parameters.values()
        if parameter.kind != inspect.Parameter.VAR_KEYWORD
    }
    for keywords in KEYWORDS[name]:
        assert keywords.keys() <= named
        if keywords.get("use_cpu", True):  # the others refuse without a GPU
            taken(**keywords)


def test_the_keywords_read_from_sources_are_the_fields_of_the_class():
    from trl import GRPOConfig

    fields = {field.name for field in dataclasses.fields(GRPOConfig)}
    assert known_keywords().keys() == fields
    assert SET_BY.keys() <= fields


def test_a_keyword_that_we_set_is_no_one_elses():
    ours = {name for keywords in KEYWORDS["trl.GRPOConfig"] for name in keywords} - {"entropy_coef"}  # from `trl`
    assert ours <= Grpo.model_fields.keys() | SET_BY.keys()
    assert {name for key in SET_BY.values() if key for name in re.findall(r"\w+", key)} <= NAMED_KEYS


# keys that messages name
NAMED_KEYS = {
    *Grpo.model_fields,
    *Lengths.model_fields,
    *ModelConfig.model_fields,
    *Generation.model_fields,
    *("or", "and", "model", "generation", "seed"),
}


def test_further_keywords_reach_trl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from trl import GRPOConfig

    monkeypatch.chdir(tmp_path)
    config = GRPOConfig(**grpo_keywords(trl={"top_entropy_quantile": 0.25, "delta": 2, "log_completions": True}))
    assert (config.top_entropy_quantile, config.delta, config.log_completions) == (0.25, 2, True)


def test_the_optimizers_are_those_of_transformers():
    from transformers.training_args import OptimizerNames

    assert set(library_arguments.OPTIMIZERS.values()) <= {name.value for name in OptimizerNames}
    keywords = grpo_keywords(on_gpu=True, optimizer="adamw_8bit", weight_decay=0.01)
    assert (keywords["optim"], keywords["weight_decay"]) == ("adamw_8bit", 0.01)
    with pytest.raises(InputError, match="optimizer `adamw_8bit`: bitsandbytes needs a GPU, but there is none; set it"):
        grpo_keywords(optimizer="adamw_8bit")


@needs_vllm
@pytest.mark.parametrize("on_gpu", [False, True])
@pytest.mark.parametrize("rank", [None, 8])
def test_vllms_engine_takes_every_keyword(rank: int | None, on_gpu: bool):
    from vllm import LLM
    from vllm.engine.arg_utils import EngineArgs

    keywords = library_arguments.vllm_engine(MODEL, rank, 0, on_gpu)
    if rank:
        keywords |= library_arguments.vllm_colocated("bfloat16", rank, 0.5)
    inspect.signature(LLM).bind(**keywords)
    assert keywords.keys() <= {field.name for field in dataclasses.fields(EngineArgs)}


@needs_vllm
def test_vllm_keeps_its_weights_while_it_sleeps(monkeypatch: pytest.MonkeyPatch):
    from vllm import LLM

    from arc_refinery.training.colocated import Engine

    levels: list[int] = []
    inspect.signature(LLM.sleep).bind(object(), 1)
    inspect.signature(LLM.wake_up).bind(object(), tags=["weights"])
    monkeypatch.setattr(LLM, "sleep", lambda _, level: levels.append(level))
    Engine.sleep(object.__new__(Engine), level=2)  # as TRL calls it
    assert levels == [1]  # after level 2, TRL would have to send the weights again


def test_trl_wakes_vllm_before_the_adapter_is_loaded_and_lets_it_sleep_after_sampling(monkeypatch: pytest.MonkeyPatch):
    from trl.generation import vllm_generation

    from arc_refinery.training.weight_sync import adapter_alone

    monkeypatch.setattr(vllm_generation, "SamplingParams", MagicMock(), raising=False)  # missing without vLLM
    generation = MagicMock(mode="colocate", enable_sleep_mode=True, _llm_weights_sleeping=True, tensor_parallel_size=1)
    generation.configure_mock(structured_outputs_regex=None, generation_kwargs={})
    generation._iter_named_params = partial(adapter_alone, generation)
    sync_weights, generate = (getattr(vllm_generation.VLLMGeneration, name) for name in ("sync_weights", "generate"))
    generation.sync_weights = partial(sync_weights, generation)
    arguments: dict[str, Any] = {"prompts": [[1]], "images": None, "num_generations": 1}
    generate(generation, **arguments)  # the weights sleep, so it also loads the adapter
    generation.sync_weights()  # before the next step
    generate(generation, **arguments)
    called = [(name.rpartition(".")[2], named) for name, _, named in generation.llm.mock_calls]
    names = ("wake_up", "load", "load_weights", "reset_prefix_cache", "generate", "sleep")
    order = [(name, named if name != "generate" else {}) for name, named in called if name in names]
    step: list[Any] = [("wake_up", {"tags": ["weights"]}), ("load", {}), ("reset_prefix_cache", {})]
    step += [("wake_up", {"tags": ["kv_cache"]}), ("generate", {}), ("sleep", {"level": 2})]
    assert order == 2 * step


@needs_vllm
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_vllm_takes_how_tokens_are_drawn(temperature: float):
    from vllm import SamplingParams

    attempt = SamplingParams(**library_arguments.vllm_attempt(Decoding(temperature, 0.9, 48), n=1, seed=2**40 + 5))
    assert (attempt.max_tokens, attempt.seed) == (48, 5)
    decoding = Decoding(temperature, 0.9, 64, top_k=20)
    turn = SamplingParams(**library_arguments.vllm_turn(decoding, [9, 7], seed=2**40 + 5))
    assert (turn.max_tokens, turn.seed, turn.stop_token_ids) == (64, 5, [7, 9])
    assert turn.top_k == (20 if temperature else 0)  # greedy: vLLM keeps all


@needs_unsloth
def test_unsloth_takes_every_keyword():
    """Read in its source: importing Unsloth takes a GPU and replaces parts of TRL."""
    training = Grpo(learning_rate=1e-4)
    model_keywords = library_arguments.unsloth_model(MODEL, LORA, training, None, 0, on_gpu=True)
    assert model_keywords.keys() <= parameters_of("loader.py", "FastLanguageModel", "from_pretrained")
    # FastLanguageModel hands these on
    adapter_keywords = library_arguments.unsloth_adapter(LORA, 0, on_gpu=True)
    assert adapter_keywords.keys() <= parameters_of("llama.py", "FastLlamaModel", "get_peft_model")


def parameters_of(file: str, owner: str, method: str) -> set[str]:
    """Those that a method of Unsloth's names: a keyword that its `**kwargs` take may do nothing."""
    tree = ast.parse((source_of("unsloth") / "models" / file).read_text())
    (cls,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == owner)
    (function,) = (node for node in cls.body if isinstance(node, ast.FunctionDef) and node.name == method)
    return {argument.arg for argument in [*function.args.args, *function.args.kwonlyargs]}


# environment variables

# Packages that read the variables of each first word; one of those installed must name the variable
READERS = {
    "VLLM": ("vllm",),
    "UNSLOTH": ("unsloth", "unsloth_zoo"),
    "HF": ("huggingface_hub",),
    "WANDB": ("wandb",),
    "TRACKIO": ("trackio",),
    "TENSORBOARD": ("transformers",),
    "MASTER": ("accelerate",),
}
NAMED = re.compile(r"\b(?:VLLM|UNSLOTH|HF|WANDB|TRACKIO)_[A-Z0-9_]*[A-Z0-9](?![\w*])")


def variables() -> dict[str, set[str]]:
    """Variables of libraries that our code sets, or that docs, rules and profiles name, by their first word."""
    patterns = ("workflow/**/*.py", "rules/*.smk", "profiles/**/*", "docs/*.md", "config/*.md", "README.md")
    files = [path for pattern in patterns for path in ROOT.glob(pattern) if path.is_file()]
    names = {name for path in files for name in NAMED.findall(path.read_text())}
    for path in PACKAGE.rglob("*.py"):
        names |= set(variables_set_in(ast.parse(path.read_text())))
    words = itertools.groupby(sorted(names), key=lambda name: name.partition("_")[0])
    return {word: set(group) for word, group in words}


def variables_set_in(tree: ast.AST) -> Iterator[str]:
    """Of `os.environ["NAME"] = ...` and `os.environ.setdefault("NAME", ...)`."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Subscript(value=owner, slice=ast.Constant(value=str(name)))]):
                pass
            case ast.Call(func=ast.Attribute(value=owner, attr="setdefault"), args=[ast.Constant(value=str(name)), *_]):
                pass
            case _:
                continue
        if ast.unparse(owner) == "os.environ":
            yield name


def test_variables_are_found():
    names = variables()
    of_openmp = {"OMP"}  # read by torch's libgomp (test_command_line.py)
    assert names.keys() == READERS.keys() | of_openmp  # a new one: say which package reads it
    assert {"VLLM_WORKER_MULTIPROC_METHOD", "VLLM_NO_USAGE_STATS"} <= names["VLLM"]
    assert {"UNSLOTH_COMPILE_LOCATION", "UNSLOTH_DISABLE_STATISTICS"} <= names["UNSLOTH"]


@pytest.mark.slow
@pytest.mark.parametrize("word", READERS)
def test_every_variable_is_read_by_a_library(word: str):
    installed = [package for package in READERS[word] if find_spec(package) or (TRACKERS / package).exists()]
    if not installed:
        pytest.skip(f"{READERS[word][0]} is not installed in this environment")
    texts = [path.read_text() for package in installed for path in source_of(package).rglob("*.py")]
    assert {name for name in variables()[word] if not any(f'"{name}"' in text for text in texts)} == set()


@needs_vllm
def test_vllm_starts_its_processes_afresh(monkeypatch: pytest.MonkeyPatch):
    """On a GPU every job would die in a forked engine."""
    from vllm import envs
    from vllm.utils.system_utils import get_mp_context

    from arc_refinery.sampling.gpus import set_vllm_variables

    monkeypatch.setattr(os, "environ", os.environ.copy())
    os.environ.pop("VLLM_WORKER_MULTIPROC_METHOD", None)
    set_vllm_variables()
    assert variables()["VLLM"] <= envs.environment_variables.keys()
    assert get_mp_context().get_start_method() == "spawn"


def test_every_command_sets_them_before_anything_imports_vllm():
    code = "import os, sys; from arc_refinery.cli import main; sys.argv = ['', 'train', '--help']\n"
    code += "try: main()\nfinally: print('vllm' in sys.modules, os.environ['VLLM_USE_FLASHINFER_SAMPLER'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "False 0", done.stderr


# methods and attributes of TRL

# Methods of TRL's and transformers' trainers that our class of the given name (in training/) overrides. If they renamed
# one, ours would silently never be called.
OVERRIDDEN = {
    "Trainer": frozenset(
        {
            "training_step",
            "_compute_loss",
            "_generate_and_score_completions",
            "_generate_single_turn",
            "_get_per_token_logps_and_entropies",
            "_get_train_sampler",
            "_load_from_checkpoint",
            "_prepare_inputs",
            "_save_checkpoint",
            "get_train_dataloader",
        }
    ),
    "ToolTrainer": frozenset({"_tool_call_loop"}),
}

# Names of TRL's objects in our modules: its trainer, or its copy of the weights in vLLM
TRAINER, GENERATION_OF_TRL = "GRPOTrainer", "generation.vllm_generation.VLLMGeneration"
OWNERS = {
    "training/trainer.py": {"self": TRAINER, "super()": TRAINER, "self.vllm_generation": GENERATION_OF_TRL},
    "tool_use/training/environment.py": {"self": TRAINER},
    "training/weight_sync.py": {
        "trainer": TRAINER,
        "trainer.vllm_generation": GENERATION_OF_TRL,
        "generation": GENERATION_OF_TRL,
    },
    "refining/rollout.py": {"trainer": TRAINER},
    "training/grpo.py": {"trainer": TRAINER},
    "training/rehearsal.py": {"trainer": TRAINER},
}


@pytest.mark.parametrize(
    ("module", "name"), [("training.trainer", "Trainer"), ("tool_use.training.environment", "ToolTrainer")]
)
def test_methods_that_we_replace_are_there(module: str, name: str):
    ours = getattr(importlib.import_module(f"arc_refinery.{module}"), name)
    base = ours.__bases__[-1]  # beside it: what saves the last step
    defined = {attribute for attribute in vars(ours) if not attribute.startswith("__")}
    assert {attribute for attribute in defined if hasattr(base, attribute)} == OVERRIDDEN[name]


def test_what_saves_the_last_step_is_called_by_transformers():
    from transformers import Trainer, TrainerCallback

    from arc_refinery.training.last_step import SavesLastStep

    replaced = {name for name in vars(SavesLastStep) if not name.startswith("__") and hasattr(Trainer, name)}
    assert replaced == {"train", "_run_epoch", "_save_checkpoint", "_maybe_log_save_evaluate"}
    assert "self._run_epoch(" in inspect.getsource(Trainer)
    assert "self._maybe_log_save_evaluate(" in inspect.getsource(Trainer)
    assert "self._save_checkpoint(" in inspect.getsource(Trainer)
    inspect.signature(Trainer._save_checkpoint).bind(object(), object(), trial=None)
    assert "on_pre_optimizer_step" in inspect.getsource(Trainer) and hasattr(TrainerCallback, "on_pre_optimizer_step")


def test_accelerate_takes_every_flag_and_starts_the_processes_with_torchrun():
    from accelerate.commands import launch

    python, option, module, *words = library_arguments.accelerate_launch(2, ["arc-refinery", "train", "--seed", "1"])
    assert (python, option, module) == (sys.executable, "-m", launch.__name__)
    args, _, _ = launch._validate_launch_command(launch.launch_command_parser().parse_args(words))
    assert (args.num_processes, args.num_machines, args.mixed_precision, args.dynamo_backend) == (2, 1, "no", "no")
    assert args.multi_gpu and args.no_python and not args.cpu and args.gpu_ids == "all"
    assert (args.training_script, args.training_script_args) == ("arc-refinery", ["train", "--seed", "1"])
    assert "main_process_port == 0" in inspect.getsource(launch.prepare_multi_gpu_env)  # then it looks for a free one
    assert "multi_gpu_launcher(args)" in inspect.getsource(launch.launch_command)
    assert "distrib_run.run(args)" in inspect.getsource(launch.multi_gpu_launcher)


def test_methods_that_we_replace_take_what_trl_passes():
    from arc_refinery.tool_use.training.environment import ToolTrainer

    names = frozenset().union(*OVERRIDDEN.values())
    used = set()
    for cls in bases_of(TRAINER):
        for node in ast.walk(syntax_of(cls)):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=name)) if name in names:
                    bind(getattr(ToolTrainer, name), node)
                case ast.Attribute(value=ast.Name(id="self"), attr=name) if name in names:
                    used.add(name)
    assert used == names


@pytest.mark.parametrize("file", OWNERS)
def test_what_we_read_and_call_of_trl_is_there(file: str):
    tree = ast.parse((PACKAGE / file).read_text())
    ours = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name in OVERRIDDEN]
    read_in: list[ast.AST] = [*ours] or [tree]
    n_read, unknown = 0, set()
    for node in itertools.chain.from_iterable(map(ast.walk, read_in)):
        read = node.func if isinstance(node, ast.Call) else node
        if not isinstance(read, ast.Attribute) or ast.unparse(read.value) not in OWNERS[file]:
            continue
        n_read += 1
        theirs = bases_of(OWNERS[file][ast.unparse(read.value)])
        if not any(read.attr in attributes_of(cls) for cls in theirs):
            unknown.add(ast.unparse(read))
        elif isinstance(node, ast.Call) and read.attr != "__init__" and hasattr(theirs[0], read.attr):
            bind(getattr(theirs[0], read.attr), node)
    assert n_read > 0
    assert unknown - {f"{owner}.{name}" for owner in ("self", "trainer") for name in own_attributes()} == set()


def own_attributes() -> set[str]:
    """Those of our trainers."""
    trees = [
        ast.parse((PACKAGE / file).read_text()) for file in ("training/trainer.py", "tool_use/training/environment.py")
    ]
    classes = [node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)]
    return {name for cls in classes if cls.name in OVERRIDDEN for name in attributes_in(cls)}


@cache
def bases_of(name: str) -> list[type]:
    """A class of TRL and those of TRL and transformers that it is derived from."""
    module, _, attribute = f"trl.{name}".rpartition(".")
    mro = getattr(importlib.import_module(module), attribute).__mro__
    return [cls for cls in mro if cls.__module__.startswith(("trl", "transformers"))]


@cache
def attributes_of(cls: type) -> frozenset[str]:
    return frozenset([*dir(cls), *attributes_in(syntax_of(cls))])


def attributes_in(tree: ast.AST) -> Iterator[str]:
    """Methods of a class, and attributes that it gives itself."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                yield name


def syntax_of(cls: type) -> ast.Module:
    return ast.parse(inspect.getsource(cls))


def bind(method: Any, call: ast.Call) -> None:
    """Raise `TypeError` where a method does not take what a call passes; `*` and `**` may hold the rest."""
    positional = [argument for argument in call.args if not isinstance(argument, ast.Starred)]
    named = {keyword.arg: None for keyword in call.keywords if keyword.arg is not None}
    is_whole = len(positional) == len(call.args) and len(named) == len(call.keywords)
    signature = inspect.signature(method)
    (signature.bind if is_whole else signature.bind_partial)(object(), *positional, **named)
