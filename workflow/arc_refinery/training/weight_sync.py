"""Send the trainer's weights to vLLM, and check that they arrive.

A published run sampled for days from weights that never changed.

vLLM, in the trainer's process, gets the adapter before it samples. Before the first step, the adapter is changed
visibly and sent to vLLM. The log-probabilities that vLLM gives its own completion are then compared with the trainer's,
with and without the change.
"""

import logging
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from arc_refinery.errors import InputError

SHIFT = 0.5  # nats per token by which the moved adapter must change the log-probabilities of a completion
# Factor of the scale from one try to the next. Far from the trained weights, two libraries in 16 bits differ by nats:
# with a factor of 2, one of three adapters of a model of 1.5B parameters on an H200 ended at 5.3 nats with the change
# and 5.5 without it.
GROWTH = 1.25

logger = logging.getLogger(__name__)


def adapter_alone(generation: Any) -> Iterator[tuple[str, Tensor]]:
    """Load the adapter into vLLM in this process (`colocated.Engine`), and yield none of the weights, which stay."""
    generation.llm.load(generation.model)
    return iter(())


@torch.no_grad()
def check_that_sampler_follows(trainer: Any, prompt_ids: list[int]) -> None:
    """Raise `InputError` unless the sampler's log-probabilities move with the trainer's adapter."""
    adapter = {
        name: weights for name, weights in trainer.model.named_parameters() if "lora_B" in name and ".default." in name
    }
    original = {name: weights.detach().clone() for name, weights in adapter.items()}
    before, _ = _sample(trainer, prompt_ids)
    _move(trainer, adapter, original, prompt_ids, before)
    sampled, theirs = _sample(trainer, prompt_ids)
    moved = _logprobs(trainer, prompt_ids, sampled)
    for name, weights in adapter.items():
        weights.copy_(original[name])
    unmoved = _logprobs(trainer, prompt_ids, sampled)
    trainer.vllm_generation.sync_weights()
    to_moved, to_unmoved = (theirs - moved).abs().mean().item(), (theirs - unmoved).abs().mean().item()
    logger.info("sampler check: %.3f nats/token from the moved adapter, %.3f without it", to_moved, to_unmoved)
    if not to_moved < to_unmoved / 2:
        raise InputError(
            "the sampler does not follow the training: after the adapter was changed, the sampler's log-probabilities "
            f"differed by {to_moved:.3f} nats per token from the trainer's with the change, and by {to_unmoved:.3f} "
            "from those without it. vLLM's weights are not updated. Check that trl and vllm have the versions of "
            "envs/gpu.txt"
        )


def _sample(trainer: Any, prompt_ids: list[int]) -> tuple[list[int], Tensor]:
    """Sample a completion with the trainer's weights; return its ids and the sampler's log-probability of each."""
    trainer.vllm_generation.sync_weights()
    _, (sampled, *_), (logprobs, *_), _ = trainer.vllm_generation.generate(
        prompts=[prompt_ids], images=None, num_generations=1, profiler=nullcontext()
    )
    return sampled, torch.tensor([token[0] for token in logprobs])


def _move(
    trainer: Any, adapter: dict[str, Any], original: dict[str, Tensor], prompt_ids: list[int], completion_ids: list[int]
) -> None:
    """Move the adapter in a random direction until a completion's log-probabilities have changed by `SHIFT`."""
    rng = torch.Generator().manual_seed(0)
    directions = {name: torch.randn(weights.shape, generator=rng).to(weights) for name, weights in adapter.items()}
    unmoved, scale = _logprobs(trainer, prompt_ids, completion_ids), 1e-3
    while True:
        for name, weights in adapter.items():
            weights.copy_(original[name] + scale * directions[name])
        moved = _logprobs(trainer, prompt_ids, completion_ids)
        if (moved - unmoved).abs().mean() > SHIFT or scale > 1e3:
            return
        scale *= GROWTH


def _logprobs(trainer: Any, before: list[int], tokens: list[int]) -> Tensor:
    """Return the trainer's log-probability of each of `tokens` after `before`, at the sampling temperature."""
    ids = torch.tensor([before + tokens], device=trainer.accelerator.device)
    logprobs, _, _ = trainer._get_per_token_logps_and_entropies(
        trainer.model, ids, torch.ones_like(ids), logits_to_keep=len(tokens)
    )
    values: Tensor = logprobs[0].float().cpu()
    return values
