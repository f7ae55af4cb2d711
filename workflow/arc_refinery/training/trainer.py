"""TRL's GRPO trainer with best-of-k advantages, dropped groups, timings, and a check of vLLM's weights.

With Unsloth, import this module after it: Unsloth replaces the base class.
"""

import resource
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor
from trl import GRPOTrainer

from arc_refinery.config import PolicyGradient
from arc_refinery.sandbox import Executor
from arc_refinery.training.adapters import read_weights
from arc_refinery.training.advantages import best_of_k_advantages
from arc_refinery.training.log import MEASURED
from arc_refinery.training.weight_sync import check_that_sampler_follows, merged_weights

PARTS = ("sampling", "reward", "tools")  # timed parts of a step; the rest is the update


class Rewarder(Protocol):
    """A reward function of TRL."""

    rewards: list[float]  # of the last call

    @property
    def executor(self) -> Executor | None:
        """Sandbox that runs programs; None if no programs are run."""

    def __call__(self, *arguments: Any, **named: Any) -> list[float]: ...


class Trainer(GRPOTrainer):
    def __init__(self, settings: PolicyGradient, scorer: Rewarder, **arguments: Any) -> None:
        super().__init__(reward_funcs=scorer, **arguments)
        self.settings = settings
        self.scorer = scorer
        self.rows: list[dict[str, Any]] = []  # of the current batch of prompts
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._sampler_was_checked = not self.use_vllm
        if self.use_vllm and self.accelerator.num_processes == 1:
            self.vllm_generation._iter_named_params = partial(merged_weights, self.vllm_generation)

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        """Add the seconds in this context to one of `PARTS`, or to "step"."""
        started = time.perf_counter()
        yield
        if self.model.training:
            self._seconds[part] += time.perf_counter() - started

    def training_step(self, *arguments: Any, **named: Any) -> Tensor:
        with self.timed("step"):
            loss: Tensor = super().training_step(*arguments, **named)
        if self._step % self.current_gradient_accumulation_steps == 0:
            seconds, self._seconds = self._seconds, defaultdict(float)
            parts = {part: seconds[part] for part in PARTS}
            update = seconds["step"] - sum(parts.values())
            for part, value in {"step": seconds["step"], **parts, "update": update}.items():
                self._metrics["train"][f"{MEASURED}seconds/{part}"].append(value)
            self._metrics["train"][f"{MEASURED}share_of_reward"].append(seconds["reward"] / seconds["step"])
            peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            self._metrics["train"][f"{MEASURED}trainer_mb"].append(peak_mb)
            if self.scorer.executor:
                self._metrics["train"][f"{MEASURED}sandbox_mb"].append(self.scorer.executor.peak_mb)
        return loss

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        """Also load the trained adapter: transformers 5.17 loads only the other one, the KL term's reference."""
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        read_weights(model or self.model, Path(resume_from_checkpoint))

    def _get_per_token_logps_and_entropies(
        self, model: Any, input_ids: Tensor, *arguments: Any, batch_size: int | None = None, **named: Any
    ) -> Any:
        """Score in batches of a training step's size: TRL scores all held-out completions at once, in more memory."""
        batch_size = min(batch_size or len(input_ids), self.args.per_device_train_batch_size)
        return super()._get_per_token_logps_and_entropies(model, input_ids, *arguments, batch_size=batch_size, **named)

    def _generate_single_turn(self, prompt_ids: list[list[int]], *arguments: Any, **named: Any) -> Any:
        if not self._sampler_was_checked:
            check_that_sampler_follows(self, prompt_ids[0])
            self._sampler_was_checked = True
        with self.timed("sampling"):
            return super()._generate_single_turn(prompt_ids, *arguments, **named)

    def _calculate_rewards(self, *arguments: Any, **named: Any) -> Tensor:
        with self.timed("reward"):
            rewards: Tensor = super()._calculate_rewards(*arguments, **named)
        return rewards

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        self.rows = inputs
        scored: dict[str, Any] = super()._generate_and_score_completions(inputs)
        rewards = torch.tensor(self.scorer.rewards).view(-1, self.settings.num_generations)
        if self.settings.pass_at_k > 1:
            advantages = best_of_k_advantages(rewards, self.settings.pass_at_k, self.settings.scale_rewards)
            scored["advantages"] = advantages.flatten().to(scored["advantages"])
        if self.settings.drop_zero_variance:
            differ = (rewards != rewards[:, :1]).any(1, keepdim=True).expand_as(rewards).flatten()
            scored["completion_mask"] = scored["completion_mask"] * differ.to(scored["completion_mask"]).unsqueeze(1)
            carries_loss = scored["completion_mask"] * scored.get("tool_mask", 1)
            scored["num_items_in_batch"] = carries_loss.sum().to(scored["num_items_in_batch"])
        return scored
