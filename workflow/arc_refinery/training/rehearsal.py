"""A rehearsal before the first step: one forward and backward pass over the longest rows that a training can meet.

Prompts come in random order, and the longest one may come after hours. So a training on a GPU begins with a pass over
rows of the greatest length, in GRPO made of dummy tokens, and ends there if they do not fit:

    rehearsal: 16 rows of up to 9,700 tokens take .. GiB (estimate ..) beside .. GiB; .. of .. GiB are reserved

It goes through the functions of an update. Weights, gradients, optimizer, random numbers and metrics are afterwards as
they were.
"""

import logging
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import TrainerCallback

from arc_refinery.config import ModelConfig
from arc_refinery.errors import InputError
from arc_refinery.models.shape import shape_of
from arc_refinery.sampling.gpu_memory import GIB, WIDTH, training_pass
from arc_refinery.training.last_step import RandomState
from arc_refinery.training.shared_prefix import IGNORED

METRICS = ("_metrics", "_total_train_tokens")  # attributes of TRL's trainers that a pass changes

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LongestPass:
    """The longest rows that are read together."""

    inputs: Callable[[], dict[str, Any]]  # makes what the trainer's `compute_loss` takes
    n_rows: int
    length: int  # tokens of the longest row
    n_scored: int  # tokens of the longest row that carry loss
    n_prompts: int  # that are read once for all rows; 0: each row reads its own, padded

    def estimate(self, model: ModelConfig) -> str:
        """Return the GiB that the pass takes by `gpu_memory`, or that the model's sizes are unknown."""
        try:
            shape = shape_of(model.path)
        except InputError:
            return "unknown"
        n_prompts = self.n_prompts if shape.attends_to_all else 0
        items = training_pass(shape, WIDTH[model.dtype], self.n_rows, self.length, self.n_scored, n_prompts)
        return f"{sum(items.values()) / GIB:.1f}"

    def __str__(self) -> str:
        return f"{self.n_rows} rows of up to {self.length:,} tokens"


def longest_of_grpo(trainer: Any, length: int, n_scored: int) -> LongestPass:
    """Return a pass of rows of `length` tokens, of which the last `n_scored` are the completion."""
    n_rows, n_prompt = trainer.args.per_device_train_batch_size, max(1, length - n_scored)
    n_of_step = n_rows * trainer.args.steps_per_generation * trainer.accelerator.num_processes
    passes = torch.arange(n_of_step).view(-1, n_rows) // trainer.num_generations  # the number of each row's prompt
    prompts = max(passes, key=lambda rows: len(rows.unique()))

    def inputs() -> dict[str, Any]:
        batch: dict[str, Tensor] = {
            "prompt_ids": prompts.unsqueeze(1).repeat(1, n_prompt),
            "prompt_mask": torch.ones(n_rows, n_prompt, dtype=torch.long),
            "completion_ids": torch.zeros(n_rows, n_scored, dtype=torch.long),
            "completion_mask": torch.ones(n_rows, n_scored, dtype=torch.long),
            "advantages": torch.ones(n_rows),
            "num_items_in_batch": torch.tensor(n_of_step * n_scored),
        }
        for name in ("old_per_token_logps", "ref_per_token_logps", "importance_sampling_ratio"):
            batch[name] = torch.zeros(n_rows, n_scored)
        return {name: tensor.to(trainer.accelerator.device) for name, tensor in batch.items()}

    n_prompts = len(prompts.unique()) if trainer._shares_prompts else 0
    return LongestPass(inputs, n_rows, length, n_scored, n_prompts)


def longest_of_sft(trainer: Any) -> LongestPass:
    """Return a pass of the longest rows."""
    n_rows = min(trainer.args.per_device_train_batch_size, len(trainer.train_dataset))
    rows = sorted(trainer.train_dataset, key=lambda row: len(row["input_ids"]))[-n_rows:]

    def inputs() -> dict[str, Any]:
        batch: dict[str, Any] = trainer._prepare_inputs(trainer.data_collator(rows))
        return batch

    n_scored = max(sum(label != IGNORED for label in row["labels"]) for row in rows)
    return LongestPass(inputs, n_rows, len(rows[-1]["input_ids"]), n_scored, n_prompts=n_rows)


class Rehearsal(TrainerCallback):
    """Rehearses each time that a training begins or resumes. By then the network is wrapped as in every step."""

    def __init__(self, trainer: Any, longest: LongestPass, model: ModelConfig) -> None:
        self.trainer = trainer
        self.longest = longest
        self.model = model

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if not torch.cuda.is_available():
            return
        held = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        try:
            run_pass(self.trainer, self.longest.inputs())
        except torch.OutOfMemoryError as error:
            raise InputError(
                f"GPU memory: {self.longest}, the longest pass of this training, do not fit. Raise "
                "gradient_accumulation_steps for fewer rows per pass, lower max_seq_length (tool use: model.window) or "
                "the share of vLLM in the trainer (gpu_memory_utilization), or ask for a larger GPU "
                f"(resources.train.gpu_mem_mb). `arc-refinery doctor memory` estimates what fits. PyTorch: {error}"
            ) from None
        logger.info(
            "rehearsal: %s take %.1f GiB (estimate %s) beside %.1f GiB; %.1f of %.1f GiB are reserved",
            self.longest,
            (torch.cuda.max_memory_allocated() - held) / GIB,
            self.longest.estimate(self.model),
            held / GIB,
            torch.cuda.max_memory_reserved() / GIB,
            torch.cuda.get_device_properties().total_memory / GIB,
        )
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()  # so that steps log their own


def run_pass(trainer: Any, inputs: dict[str, Any]) -> None:
    """Run the forward and backward pass of an update, without any other effect."""
    network = trainer.model_wrapped
    random, was_training = RandomState(), network.training
    metrics = {name: deepcopy(getattr(trainer, name)) for name in METRICS if hasattr(trainer, name)}
    trainer.current_gradient_accumulation_steps = trainer.args.gradient_accumulation_steps  # as each step does
    network.train()
    with trainer.compute_loss_context_manager():
        loss = trainer.compute_loss(network, inputs)
    trainer.accelerator.backward(loss)
    network.zero_grad()
    network.train(was_training)
    for name, value in metrics.items():
        setattr(trainer, name, value)
    random.restore()
