"""TRL's GRPO trainer with shared prompts, advantages by name, dropped groups, timings, and a check of vLLM's weights.

Methods of `Trainer` are in the order in which TRL calls them. With Unsloth, import this module after it: Unsloth
replaces the base class.
"""

import logging
import resource
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, Protocol

import torch
from accelerate.utils import gather_object
from datasets import Dataset, IterableDataset
from torch import Tensor
from torch.utils.data import Sampler
from transformers import set_seed
from trl import GRPOTrainer
from trl.trainer.utils import RepeatSampler

from arc_refinery.config import PolicyGradient
from arc_refinery.config.grpo import GROUP, OTHERS
from arc_refinery.errors import InputError
from arc_refinery.models.shared_attention import enable_layouts
from arc_refinery.sampling.library_arguments import SEEDS
from arc_refinery.sampling.rows import sample_rows
from arc_refinery.sandbox import Executor
from arc_refinery.seeding import stream, stream_seed
from arc_refinery.training import shared_prefix
from arc_refinery.training.adapters import read_weights
from arc_refinery.training.advantages import Group, OwnAdvantage, of_completions, of_turns
from arc_refinery.training.last_step import SavesLastStep
from arc_refinery.training.log import MEASURED
from arc_refinery.training.rewards import Scored
from arc_refinery.training.samples import Samples, TermValue, spans
from arc_refinery.training.weight_sync import adapter_alone, check_that_sampler_follows

logger = logging.getLogger(__name__)

TIMED = ("sampling", "reward", "tools")  # parts of a step; the rest is the update


@dataclass(frozen=True, slots=True)
class TrainingData:
    """Rows of a TRL dataset: `prompt`, and any other columns that the environment needs."""

    train: Dataset | IterableDataset
    heldout: Dataset | None

    @classmethod
    def split(cls, rows: Sequence[dict[str, Any]], n_heldout: int, seed: int) -> "TrainingData":
        """Hold out `n_heldout` rows from training, at random."""
        if not rows:
            raise InputError("there are no prompts to train on: no row is left of the files that the training reads")
        if n_heldout >= len(rows):
            raise InputError(f"n_heldout = {n_heldout} leaves nothing to train on: there are {len(rows)} prompts")
        held_out = set(stream(seed, "heldout prompts").permutation(len(rows)).tolist()[:n_heldout])
        train = [row for index, row in enumerate(rows) if index not in held_out]
        heldout = [rows[index] for index in sorted(held_out)]
        return cls(Dataset.from_list(train), Dataset.from_list(heldout) if heldout else None)


class Environment(Protocol):
    """The prompts to train on, and how completions are sampled and scored; each kind of experiment has one."""

    data: TrainingData

    def identity(self) -> dict[str, Any]:
        """Return everything that affects the trained adapter, for the hash that rejects stale checkpoints."""
        ...

    def arguments(self) -> dict[str, Any]:
        """Return the environment's part of `GRPOConfig`: `max_completion_length`, ..."""
        ...

    @property
    def longest_completion(self) -> int:
        """Tokens of the longest completion, with all of its turns and what is between them."""
        ...

    def trainer(self, tokenizer: Any, ends: list[int], **arguments: Any) -> "Trainer":
        """Return the trainer; `ends` are the token ids that end a completion."""
        ...


class Scorer(Protocol):
    """Scores completions; called with the arguments of a reward function of TRL."""

    @property
    def name(self) -> str:
        """Part of the names of TRL's metrics."""

    @property
    def executors(self) -> tuple[Executor, ...]:
        """Sandboxes that run programs."""

    def __call__(self, *arguments: Any, **named: Any) -> Scored: ...


# The rows of the data set that a batch samples for, trainer -> tokens, and what the scorer gets, as a `rollout_func`
Rollout = Callable[[list[dict[str, Any]], Any], dict[str, Any]]


class PromptOrder(Sampler[int]):
    """Rows of a dataset in the order of `sampler`, as a function of the epoch's number.

    TRL's sampler draws the next order from a generator that only ever runs forward, so a training that is resumed in
    its third epoch would begin with the order of the first. transformers calls `set_epoch` before each epoch.
    """

    def __init__(self, sampler: RepeatSampler) -> None:
        self.sampler = sampler

    def set_epoch(self, epoch: int) -> None:
        self.sampler.generator.manual_seed(self.sampler.seed)
        for _ in range(epoch):
            torch.randperm(self.sampler.num_samples, generator=self.sampler.generator)

    def __iter__(self) -> Iterator[int]:
        return iter(self.sampler)

    def __len__(self) -> int:
        return len(self.sampler)


class Trainer(SavesLastStep, GRPOTrainer):
    _buffered_inputs: Any  # TRL's: the passes of a step
    # Of the batch that `_generate_and_score_completions` is at, in this process; TRL calls rollout and reward without
    _rows: list[dict[str, Any]]
    _scored: Scored
    _completion_ids: list[list[int]]  # with what is between the turns of each
    _log_probs: Tensor  # of the pass that the loss is at

    def __init__(
        self,
        settings: PolicyGradient,
        scorer: Scorer,
        rollout: Rollout | None = None,
        feedback_loss: float = 0.0,  # weight
        **arguments: Any,
    ) -> None:
        def reward(**named: Any) -> list[float]:
            with self.timed("reward"):
                self._scored, self._completion_ids = scorer(**named), named["completion_ids"]
            return [completion.reward for completion in self._scored.completions]

        reward.__name__ = scorer.name
        if rollout:
            arguments["rollout_func"] = lambda *_: rollout(self._rows, self)
        super().__init__(reward_funcs=reward, **arguments)
        self.settings = settings
        self.steps_per_batch = settings.steps_per_batch
        self.scorer = scorer
        self.feedback_loss = feedback_loss
        self.samples: Samples | None = None  # keeps what is sampled in training
        self._batch_metrics: dict[str, float] = {}
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._sampler_was_checked = not self.use_vllm
        self._of_turns: Callable[[Group], list[list[float]]] | None = None  # a number per completion, or per turn
        if settings.own_advantage:
            self._of_turns = OwnAdvantage(settings.own_advantage)
        elif settings.advantage == OTHERS:
            self._of_turns = of_turns
        self._shares_prompts = settings.shared_prefix == "auto" and self._share_prompts()
        if self.accelerator.num_processes > 1:
            # Now, because an evaluation before the first step would prepare the network as it is. Accelerate would
            # then not wrap it, and each process would keep its own gradients, without an error.
            self.model_wrapped = self.accelerator.prepare(self.model)
            # On CPUs, accelerate calls the device of several processes cpu:0, where torch cannot load an optimizer
            torch.serialization.register_package(
                0, lambda _: None, lambda storage, device: storage if device == "cpu:0" else None
            )
        if settings.opens_vllm:  # Unsloth shares its weights with its vLLM
            self.vllm_generation._iter_named_params = partial(adapter_alone, self.vllm_generation)

    def _share_prompts(self) -> bool:
        network = self.accelerator.unwrap_model(self.model).get_base_model()
        if reason := "Unsloth has its own attention" if self.settings.trains_with_unsloth else enable_layouts(network):
            logger.info("prompts are not shared between completions: %s", reason)
        elif not self.use_vllm:
            network.generate = partial(network.generate, custom_generate=sample_rows)
        return not reason

    def get_train_dataloader(self) -> Any:
        """Let the order of prompts follow the epoch also in an epoch that is resumed.

        Then a sampler that skips batches is around accelerate's, and `set_epoch` reaches no further than that one.
        """
        loader = super().get_train_dataloader()
        if self.accelerator.num_processes > 1:
            loader.batch_sampler.set_epoch = loader.batch_sampler.batch_sampler.sampler.set_epoch
        return loader

    def _get_train_sampler(self, *arguments: Any, **named: Any) -> PromptOrder:
        return PromptOrder(super()._get_train_sampler(*arguments, **named))

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        """Also load the trained adapter: transformers 5.17 loads only the other one, the KL term's reference."""
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        read_weights(model or self.model, Path(resume_from_checkpoint))

    def training_step(self, *arguments: Any, **named: Any) -> Tensor:
        with self.timed("step"):
            loss: Tensor = super().training_step(*arguments, **named)
        if self._step % self.current_gradient_accumulation_steps == 0:
            seconds, self._seconds = self._seconds, defaultdict(float)
            parts = {part: seconds[part] for part in TIMED}
            update = seconds["step"] - sum(parts.values())
            for part, value in {"step": seconds["step"], **parts, "update": update}.items():
                self._metrics["train"][f"{MEASURED}seconds/{part}"].append(value)
            self._metrics["train"][f"{MEASURED}share_of_reward"].append(seconds["reward"] / seconds["step"])
            peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            self._metrics["train"][f"{MEASURED}trainer_mb"].append(peak_mb)
            if torch.cuda.is_available():
                self._metrics["train"][f"{MEASURED}gpu_mb"].append(torch.cuda.max_memory_allocated() / 2**20)
            if self.scorer.executors:
                sandbox_mb = sum(executor.peak_mb for executor in self.scorer.executors)
                self._metrics["train"][f"{MEASURED}sandbox_mb"].append(sandbox_mb)
        return loss

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        """Add the seconds in this context to one of `TIMED`, or to "step"."""
        started = time.perf_counter()
        yield
        if self.model.training:
            self._seconds[part] += time.perf_counter() - started

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        """Keep the completions of a prompt in one pass: TRL shuffles those of a batch over its passes.

        TRL logs a batch's metrics with its first step only; the other steps get them here.
        """
        buffered = self._buffered_inputs
        inputs = super()._prepare_inputs(generation_batch)
        if not self.model.training:
            return inputs
        if self._buffered_inputs is buffered:
            if self._step % self.args.gradient_accumulation_steps == 0:
                self._metrics["train"] |= {name: [value] for name, value in self._batch_metrics.items()}
            return inputs
        self._batch_metrics = {name: fmean(values) for name, values in self._metrics["train"].items()}
        if self._shares_prompts or self.settings.steps_per_generation > 1:
            self._buffered_inputs = shared_prefix.group_by_prompt(self._buffered_inputs)
        return self._buffered_inputs[self._step % len(self._buffered_inputs)]

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        self._rows = inputs
        batch: dict[str, Any] = super()._generate_and_score_completions(inputs)
        is_due = self.use_vllm and self.model.training and self.state.global_step % self.args.save_steps == 0
        if is_due and not (self.settings.importance_sampling_correction or self.settings.trains_with_unsloth):
            self._log_gap(batch)
        completions, rank = gather_object(list(self._scored.completions)), self.accelerator.process_index
        rewards = torch.tensor([completion.reward for completion in completions], dtype=torch.float32)
        rewards = rewards.view(-1, self.num_generations)
        own = slice(rank * len(inputs), (rank + 1) * len(inputs))
        if self._of_turns:
            starts = range(0, len(completions), self.num_generations)
            groups = (completions[start : start + self.num_generations] for start in starts)
            of_all = [turns for group in groups for turns in self._of_turns(group)]
            batch["advantages"] = self._by_token(batch, of_all[own])
        elif self.settings.advantage != GROUP:  # which is TRL's
            advantages = of_completions(rewards, self.settings)
            batch["advantages"] = advantages.flatten()[own].to(batch["advantages"])
        is_kept = torch.tensor([not completion.failed for completion in self._scored.completions])
        if self.settings.drop_zero_variance:
            differ = rewards != rewards[:, :1]
            if self._of_turns:  # turns of episodes with equal rewards can differ
                teaches = gather_object(batch["advantages"].reshape(len(inputs), -1).any(1).tolist())
                differ |= torch.tensor(teaches).view(rewards.shape)
            is_kept &= differ.any(1, keepdim=True).expand_as(rewards).flatten()[own]
        if self.settings.drop_zero_variance or not is_kept.all():
            batch["completion_mask"] = batch["completion_mask"] * is_kept.to(batch["completion_mask"]).unsqueeze(1)
            carries_loss = batch["completion_mask"] * batch.get("tool_mask", 1)
            batch["num_items_in_batch"] = (
                self.accelerator.gather(carries_loss.sum()).sum().to(batch["num_items_in_batch"])
            )
        if self.feedback_loss and self.model.training:
            batch["feedback_mask"] = self._feedback_mask(batch["completion_mask"])
            batch["n_feedback"] = self.accelerator.gather(batch["feedback_mask"].sum()).sum()
        if self.samples and self.model.training:
            kept = gather_object(self._samples(batch))
            if self.accelerator.is_main_process:
                self.samples.add(self.state.global_step + 1, kept)
        return batch

    def _generate_single_turn(self, prompt_ids: list[list[int]], *arguments: Any, **named: Any) -> Any:
        if not self._sampler_was_checked:
            check_that_sampler_follows(self, prompt_ids[0])
            self._sampler_was_checked = True
        if self.use_vllm:
            # vLLM seeds this process alike for every run when it starts, and its own random state is in no checkpoint
            address = ("completions", self.state.global_step, self.accelerator.process_index, *map(str, prompt_ids))
            set_seed(stream_seed(self.args.seed, *address) % SEEDS)
        with self.timed("sampling"):
            return super()._generate_single_turn(prompt_ids, *arguments, **named)

    def _by_token(self, batch: Mapping[str, Tensor], own: list[list[float]]) -> Tensor:
        """Return an advantage per completion, (rows,), or per token, (rows, tokens), if turns differ.

        `own` has a number for each completion of this process, or one for each of its turns.
        """
        advantages = batch["advantages"]
        if all(len(turns) == 1 for turns in own):
            return advantages.new_tensor([turns[0] for turns in own])
        by_token = advantages.new_zeros(batch["completion_ids"].shape)
        for row, (completion, turns) in enumerate(zip(self._scored.completions, own, strict=True)):
            every = turns if len(turns) > 1 else turns * completion.n_turns
            numbers = torch.tensor(completion.turns, device=by_token.device)
            by_token[row, : len(numbers)] = by_token.new_tensor([0.0, *every])[numbers]
        return by_token

    def _feedback_mask(self, completion_mask: Tensor) -> Tensor:
        """Return 1 for the tokens between two turns, (rows, tokens): feedback and what the chat template has there."""
        mask = torch.zeros_like(completion_mask)
        for row, completion in enumerate(self._scored.completions):
            mask[row, : len(completion.turns)] = torch.tensor([turn == 0 for turn in completion.turns])
        return mask * completion_mask  # without the completions that carry no loss

    def _samples(self, batch: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return what is kept of each completion of this process: fields of `TrainingSample`."""
        samples = []
        for row, (ids, completion) in enumerate(zip(self._completion_ids, self._scored.completions, strict=True)):
            is_sampled = [turn > 0 for turn in completion.turns] or [True] * len(ids)
            samples.append(
                {
                    "name": completion.name,
                    "spans": spans(self.processing_class, ids, is_sampled),
                    "is_truncated": completion.truncated,
                    "status": completion.status,
                    "solved": completion.solved,
                    "reward": float(completion.reward),
                    "terms": tuple(TermValue(term, float(values[row])) for term, values in self._scored.terms.items()),
                    "advantages": _by_turn(batch["advantages"][row], completion.turns),
                    "sampler_logprob": self._mean(batch.get("sampling_per_token_logps"), row, is_sampled),
                    "trainer_logprob": None
                    if completion.truncated and self.settings.mask_truncated_completions  # TRL does not read it
                    else self._mean(batch.get("old_per_token_logps"), row, is_sampled),
                }
            )
        return samples

    def _mean(self, log_probs: Tensor | None, row: int, is_sampled: Sequence[bool]) -> float | None:
        """Return the mean over the sampled tokens of a row; Unsloth has them in other columns."""
        if log_probs is None or self.settings.trains_with_unsloth:
            return None
        return float(log_probs[row, : len(is_sampled)][torch.tensor(is_sampled, device=log_probs.device)].mean())

    @torch.no_grad()
    def _log_gap(self, batch: dict[str, Any]) -> None:
        """Log how far vLLM's log-probabilities are off: TRL does so only to correct them."""
        ids, mask = (torch.cat([batch[f"prompt_{name}"], batch[f"completion_{name}"]], 1) for name in ("ids", "mask"))
        n_columns = batch["completion_ids"].shape[1]
        log_probs, *_ = self._get_per_token_logps_and_entropies(self.model, ids, mask, logits_to_keep=n_columns)
        counted = (batch["completion_mask"] * batch.get("tool_mask", 1)).bool()
        gaps = (log_probs - batch["sampling_per_token_logps"]).abs()[counted]
        total, n_tokens = self.accelerator.reduce(torch.stack([gaps.sum(), counted.sum()])).tolist()
        if n_tokens:
            self._metrics["train"]["sampling/sampling_logp_difference/mean"].append(total / n_tokens)

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: Tensor,
        attention_mask: Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        **named: Any,
    ) -> Any:
        """Score in batches of a training step's size: TRL scores all held-out completions at once, in more memory."""
        batch_size = min(batch_size or len(input_ids), self.args.per_device_train_batch_size)
        if not self._shares_prompts:
            scored = super()._get_per_token_logps_and_entropies(
                model, input_ids, attention_mask, logits_to_keep, batch_size=batch_size, **named
            )
        else:
            batches: list[tuple[Tensor, Tensor]] = []
            for ids, mask in zip(input_ids.split(batch_size), attention_mask.split(batch_size), strict=True):
                with self.accelerator.autocast():
                    batches.append(shared_prefix.log_probs(model, ids, mask, logits_to_keep))
            scored = *(torch.cat(parts) for parts in zip(*batches, strict=True)), None
        if self.feedback_loss:
            self._log_probs = scored[0]
        return scored

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        """Add the loss of feedback, of the log-probabilities that TRL has just computed for that of the policy."""
        loss: Tensor = super()._compute_loss(model, inputs)
        if "feedback_mask" not in inputs:  # weight 0, held-out prompts, the rehearsal
            return loss
        n_passes = self.current_gradient_accumulation_steps
        # As `dapo`, which see: `n_feedback` is of all processes and of the steps of a batch, the loss that of a pass
        n_tokens = inputs["n_feedback"].clamp(min=1.0) / self.accelerator.num_processes
        n_tokens = n_tokens * n_passes / self.args.steps_per_generation
        feedback = -(self._log_probs * inputs["feedback_mask"]).sum() / n_tokens
        del self._log_probs  # and the graph
        if inputs["n_feedback"]:
            mean = self.accelerator.gather(feedback.detach()).mean().item() * n_passes
            self._metrics["train"]["loss/feedback"].append(mean)  # their mean over the passes is logged
        total: Tensor = loss + self.feedback_loss * feedback
        return total

    def _save_checkpoint(self, *arguments: Any, **named: Any) -> None:
        if self.samples and self.accelerator.is_main_process:
            self.samples.save(self.state.global_step)
        super()._save_checkpoint(*arguments, **named)

    def measurements(self) -> list[dict[str, Any]]:
        """Return seconds and memory of each step."""
        return [
            {"step": entry["step"]}
            | {name.removeprefix(MEASURED): value for name, value in entry.items() if name.startswith(MEASURED)}
            for entry in self.state.log_history
            if "reward" in entry
        ]


def _by_turn(advantages: Tensor, turns: Sequence[int]) -> tuple[float, ...]:
    """Return the advantage of each turn, or of all; `advantages` is that of a completion, or of each of its tokens."""
    if not advantages.dim():
        return (advantages.item(),)
    return tuple(advantages[turns.index(turn)].item() for turn in sorted({*turns} - {0}))
