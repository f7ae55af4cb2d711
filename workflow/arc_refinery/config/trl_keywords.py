"""Keywords of TRL's trainers: keys that have their names, and others that a config passes on, checked without TRL.

{"top_entropy_quantile": 0.2}    passes
{"top_entropie_quantile": 0.2}   top_entropie_quantile is not a keyword of GRPOConfig in TRL 1.16.0; expected [...]
{"num_train_epochs": 2}          num_train_epochs: set the key `epochs` instead
"""

import ast
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pydantic import BaseModel

TRL = "a keyword of TRL's trainers with the same name"  # `beta: Annotated[float, TRL]`
Keyword = bool | int | float | str
# Classes whose fields are the keywords, by the files of packages that define them
SOURCES = {
    ("transformers", "training_args.py"): "TrainingArguments",
    ("trl", "trainer/base_config.py"): "_BaseConfig",
    ("trl", "trainer/grpo_config.py"): "GRPOConfig",
}
_BATCH = "num_generations, prompts_per_step or gradient_accumulation_steps"
# Keywords that this project sets, and the key that decides; None: no key does
SET_BY = {
    "bf16": "model.dtype",
    "chat_template_kwargs": "generation.enable_thinking",
    "ddp_find_unused_parameters": None,
    "disable_tqdm": None,
    "eval_steps": "save_steps",
    "eval_strategy": "n_heldout",
    "fp16": "model.dtype",
    "generation_batch_size": _BATCH,
    "generation_kwargs": None,
    "gradient_checkpointing": None,
    "importance_sampling_level": None,
    "logging_steps": None,
    "max_completion_length": "max_completion_length or generation.max_turn_tokens",
    "num_generations_eval": "num_generations",
    "num_iterations": None,
    "num_train_epochs": "epochs",
    "optim": "optimizer",
    "output_dir": None,
    "per_device_eval_batch_size": _BATCH,
    "per_device_train_batch_size": _BATCH,
    "project": None,
    "resume_from_checkpoint": None,
    "reward_weights": "rewards",
    "run_name": None,
    "save_only_model": None,
    "save_strategy": None,
    "save_total_limit": None,
    "seed": "seed",
    "use_cpu": None,
    "use_vllm": "sampler",
    "vllm_enable_sleep_mode": "sleep_mode",
    "vllm_gpu_memory_utilization": "gpu_memory_utilization",
    "vllm_group_port": None,
    "vllm_importance_sampling_clip_max": None,
    "vllm_importance_sampling_correction": "importance_sampling_correction",
    "vllm_importance_sampling_mode": None,
    "vllm_max_model_length": "model.window",
    "vllm_mode": "sampler",
    "warmup_steps": "warmup_ratio",
}


def keywords_of(section: BaseModel) -> dict[str, Any]:
    """Return the values of the keys that are marked as keywords of TRL."""
    return section.model_dump(
        include={name for name, field in type(section).model_fields.items() if TRL in field.metadata}
    )


def check_keywords(keywords: Mapping[str, Keyword], keys: Collection[str]) -> None:
    """Raise `ValueError` unless TRL has the keywords, with such values, and none is one that our `keys` set."""
    for name, value in keywords.items():
        if name in keys or name in SET_BY:
            key = name if name in keys else SET_BY[name]
            raise ValueError(
                f"{name}: set the key `{key}` instead" if key else f"{name} is set by this project; remove it"
            )
        annotations = known_keywords()
        if not annotations:  # TRL is not installed here, but where the job runs
            continue
        trl = f"GRPOConfig in TRL {version('trl')}"
        if name not in annotations:
            close = ", ".join(get_close_matches(name, annotations)) or "those of its documentation"
            raise ValueError(f"{name} is not a keyword of {trl}; expected {close}")
        types = {node.id for node in ast.walk(ast.parse(annotations[name])) if isinstance(node, ast.Name)}
        kinds = {type(value).__name__} | ({"float"} if type(value) is int else set())
        if types <= {"bool", "int", "float", "str", "dict", "list", "Any"} and not kinds & types:
            raise ValueError(f"{name} is {value!r:.100}; expected {annotations[name]}, as {trl} has it")


@cache
def known_keywords() -> dict[str, str]:
    """Return the annotation of each keyword of the installed TRL; nothing where it is not installed."""
    keywords: dict[str, str] = {}
    for (package, file), name in SOURCES.items():
        spec = find_spec(package)
        path = Path(spec.submodule_search_locations[0], file) if spec and spec.submodule_search_locations else None
        if path is None or not path.is_file():
            return {}
        tree = ast.parse(path.read_text())
        (cls,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
        fields = (node for node in cls.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name))
        keywords |= {field.target.id: ast.unparse(field.annotation) for field in fields}  # type: ignore[union-attr]
    return keywords
