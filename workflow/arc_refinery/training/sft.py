"""Supervised fine-tuning with a LoRA adapter, by TRL; an interrupted run resumes from its last checkpoint.

Rows are tokenised here, not by TRL, one segment at a time: prompts get the token ids that sampling sees, completions
those that the model would sample. Only the latter carry loss.
"""

import json
import logging
import resource
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import PreTrainedTokenizerBase, PrinterCallback, TrainerCallback
from transformers.integrations import TensorBoardCallback, is_tensorboard_available
from trl import SFTConfig, SFTTrainer
from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

from arc_refinery import records
from arc_refinery.config import ROWS, TUNING, Imitation, Lora, ModelConfig, marked
from arc_refinery.errors import InputError
from arc_refinery.files import append, writing
from arc_refinery.models.shared_attention import enable_layouts, side_by_side
from arc_refinery.models.tokenizers import load_tokenizer
from arc_refinery.records.tool_use import Segment
from arc_refinery.sampling.checks import check_trained
from arc_refinery.sampling.library_arguments import sft_settings
from arc_refinery.training.adapters import fault_of_adapter, open_network, write_adapter
from arc_refinery.training.callbacks import OneLineProgress
from arc_refinery.training.checkpoints import claim, newest, remove
from arc_refinery.training.last_step import SavesLastStep
from arc_refinery.training.log import Line, write_lines
from arc_refinery.training.rehearsal import Rehearsal, longest_of_sft

LOGGED_METRICS = ("step", "epoch", "loss", "learning_rate", "grad_norm", "mean_token_accuracy", "entropy")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SftRow:
    """One demonstration."""

    demonstration_id: str
    segments: tuple[Segment, ...]


def train_sft(
    rows: Iterable[SftRow],
    model: ModelConfig,
    lora: Lora,
    training: Imitation,
    seed: int,
    output: Path,
    work: Path,
    measurements: Path | None = None,
    tensorboard: Path | None = None,
) -> None:
    """Write the adapter and `training.jsonl` to the folder `output`; checkpoints go to the folder `work`.

    The order of the rows does not matter. `measurements` is a JSON lines file for seconds and memory, which differ
    from run to run; `tensorboard` is a folder for the curves.
    """
    rows = sorted(rows, key=lambda row: row.demonstration_id)
    check_trained(model, lora, None)
    torch.set_num_threads(model.n_threads)
    claim(work, _identity(rows, model, lora, training, seed))
    last = newest(work)
    trainer = open_trainer(rows, model, lora, training, seed, work)
    if last:
        logger.info("%s: training resumes from this checkpoint", last)
    trainer.add_callback(Rehearsal(trainer, longest_of_sft(trainer), model))
    with writing(tensorboard or work):  # checkpoints and measurements name themselves
        if measurements:
            trainer.add_callback(_Measurements(measurements, resumes=last is not None))
        if tensorboard:
            if not is_tensorboard_available():
                raise InputError(
                    "--tensorboard: the package tensorboard is not installed; install it, or omit the flag"
                )
            from torch.utils.tensorboard import SummaryWriter

            trainer.add_callback(TensorBoardCallback(SummaryWriter(str(tensorboard))))
        trainer.train(resume_from_checkpoint=str(last) if last else None)
    write_adapter(trainer.model, output, lambda folder: write_lines(folder / "training.jsonl", _steps(trainer)))
    remove(work)


def open_trainer(
    rows: Sequence[SftRow], model: ModelConfig, lora: Lora, training: Imitation, seed: int, work: Path
) -> SFTTrainer:
    """Return TRL's trainer of a fresh adapter; it draws each epoch's row order from the seed."""
    tokenizer = load_tokenizer(model.path)
    network = open_network(model, lora, None, seed)
    collate = None  # TRL's, which pads
    if reason := enable_layouts(network.get_base_model()):
        logger.info("rows are padded: %s", reason)
    else:
        collate = partial(_side_by_side, DataCollatorForLanguageModeling(tokenizer.pad_token_id, padding_free=True))
    trainer = _Trainer(
        model=network,
        processing_class=tokenizer,
        args=SFTConfig(**sft_settings(model, training, seed, work, on_gpu=torch.cuda.is_available())),
        train_dataset=dataset(rows, tokenizer),
        data_collator=collate,
        callbacks=[_StopsAtNaN(), OneLineProgress({"loss": "loss"})],
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


class _StopsAtNaN(TrainerCallback):
    """Ends a training whose weights are not finite numbers any more, before they are saved."""

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        if fault := fault_of_adapter(model):
            raise InputError(
                f"step {state.global_step}: {fault}: the training has diverged. Lower learning_rate = "
                f"{args.learning_rate:g} or max_grad_norm = {args.max_grad_norm:g}"
            )


class _Trainer(SavesLastStep, SFTTrainer):
    """TRL's, which also saves its last step at SIGTERM."""


def dataset(rows: Sequence[SftRow], tokenizer: PreTrainedTokenizerBase) -> Dataset:
    """Return rows of `input_ids` and `completion_mask` (1 on tokens that the model should write), both (length,)."""
    return Dataset.from_list([_tokens(row, tokenizer) for row in rows])


def _side_by_side(collate: DataCollatorForLanguageModeling, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the network's arguments for rows in one row, without padding."""
    batch = collate(rows)
    arguments = side_by_side(batch["input_ids"], [len(row["input_ids"]) for row in rows])
    return {**arguments, "labels": batch["labels"]}


def _tokens(row: SftRow, tokenizer: PreTrainedTokenizerBase) -> dict[str, list[int]]:
    pieces = [
        (list(tokenizer(segment.text, add_special_tokens=False)["input_ids"]), segment.is_sampled)
        for segment in row.segments
    ]
    return {
        "input_ids": [token for ids, _ in pieces for token in ids],
        "completion_mask": [int(is_sampled) for ids, is_sampled in pieces for _ in ids],
    }


def _identity(rows: Sequence[SftRow], model: ModelConfig, lora: Lora, training: Imitation, seed: int) -> str:
    """Return a hash of everything that affects the adapter."""
    return records.settings_hash(
        {
            "method": "sft",
            "model": model.model_dump(include={"path", "dtype", "n_threads"}),
            "lora": lora.model_dump(),
            "training": training.model_dump(exclude=marked(type(training), TUNING, ROWS)),
            "seed": seed,
            "rows": [asdict(row) for row in rows],
        }
    )


def _steps(trainer: SFTTrainer) -> list[Line]:
    # Without TRL's summary, which covers only the steps since a kill
    steps = [entry for entry in trainer.state.log_history if "loss" in entry]
    return [{name: entry[name] for name in LOGGED_METRICS if name in entry} for entry in steps]


class _Measurements(TrainerCallback):
    """Writes seconds per step and peak memory, which must not go into result files."""

    def __init__(self, path: Path, resumes: bool) -> None:
        self.path = path
        self.started = 0.0
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            if not resumes:
                path.unlink(missing_ok=True)

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.started = time.monotonic()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        measured = {
            "step": state.global_step,
            "seconds/step": time.monotonic() - self.started,
            "trainer_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        }
        if torch.cuda.is_available():
            measured["gpu_mb"] = torch.cuda.max_memory_allocated() // 2**20
        append(self.path, json.dumps(measured) + "\n")
