"""Does the sampler's network follow the trainer's? A published run sampled for days from weights that never changed.

vLLM holds a copy of the weights, inside the trainer's process or on a server, and TRL sends it new ones before it
samples. Before the first step the adapter is moved so far that it shows, sent over, and what the sampler says of its
own completion is compared with what the trainer says, moved and not.
"""

import logging
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import torch
from peft.tuners.lora import LoraLayer
from torch import Tensor

from arc_refinery.errors import InputError

SHIFT = 0.5  # nats a token by which the moved adapter must change the log-probabilities of a completion

logger = logging.getLogger(__name__)


@torch.no_grad()
def merged_weights(generation: Any) -> Iterator[tuple[str, Tensor]]:
    """The weights of `generation.model` with its adapter merged in, one at a time, under the names that vLLM expects.

    Replaces TRL's `_iter_named_params` (1.16), which merges into the weights themselves and subtracts the adapter
    again. In bfloat16 that leaves a rounding error in the base at every step (trl issue 6688): training would continue
    from another base than the one the adapter is evaluated on.
    """
    model = generation.model
    for name, parameter in model.named_parameters():
        if model.prefix in name or "original_module" in name:
            continue
        weight = parameter.data
        owner = model.get_submodule(name.rpartition(".")[0].removesuffix(".base_layer"))
        if isinstance(owner, LoraLayer) and name.endswith(".base_layer.weight"):
            for adapter in owner.active_adapters:
                weight = (weight.float() + owner.get_delta_weight(adapter).float()).to(parameter.dtype)
        plain = name.removeprefix("base_model.model.").replace(".base_layer", "")
        yield generation._fix_param_name_to_vllm(plain, extra_prefixes=["modules_to_save.default."]), weight


class SamplerError(InputError):
    """vLLM samples from other weights than those that are trained."""


@torch.no_grad()
def check_that_sampler_follows(trainer: Any, prompt_ids: list[int]) -> None:
    """Raise `SamplerError` unless the sampler's log-probabilities move with the trainer's adapter."""
    adapter = {
        name: weights for name, weights in trainer.model.named_parameters() if "lora_B" in name and ".default." in name
    }
    kept = {name: weights.detach().clone() for name, weights in adapter.items()}
    before, _ = _sample(trainer, prompt_ids)
    _move(trainer, adapter, kept, prompt_ids, before)
    sampled, heard = _sample(trainer, prompt_ids)
    moved = _logprobs(trainer, prompt_ids, sampled)
    for name, weights in adapter.items():
        weights.copy_(kept[name])
    unmoved = _logprobs(trainer, prompt_ids, sampled)
    trainer.vllm_generation.sync_weights()
    to_moved, to_unmoved = (heard - moved).abs().mean().item(), (heard - unmoved).abs().mean().item()
    logger.info("sampler check: %.3f nats/token from the moved adapter, %.3f without it", to_moved, to_unmoved)
    if not to_moved < to_unmoved / 2:
        raise SamplerError(
            "the sampler does not follow the training: when the adapter was changed, the sampler's log-probabilities "
            f"were {to_moved:.3f} nats a token from the trainer's with the change, and {to_unmoved:.3f} without. Its "
            "weights are not updated. Check that trl and vllm have the versions of envs/gpu.txt and, with "
            "sampler: vllm-server, that the server was started by `trl vllm-serve` with the model of model.path"
        )


def _sample(trainer: Any, prompt_ids: list[int]) -> tuple[list[int], Tensor]:
    """A completion by the sampler with the trainer's weights, and what it says of each token's log-probability."""
    trainer.vllm_generation.sync_weights()
    _, (sampled, *_), (said, *_), _ = trainer.vllm_generation.generate(
        prompts=[prompt_ids], images=None, num_generations=1, profiler=nullcontext()
    )
    return sampled, torch.tensor([token[0] for token in said])


def _move(
    trainer: Any, adapter: dict[str, Any], kept: dict[str, Tensor], prompt_ids: list[int], completion_ids: list[int]
) -> None:
    """Move the adapter in a random direction, farther and farther, until a completion's tokens are graded otherwise."""
    rng = torch.Generator().manual_seed(0)
    directions = {name: torch.randn(weights.shape, generator=rng).to(weights) for name, weights in adapter.items()}
    unmoved, scale = _logprobs(trainer, prompt_ids, completion_ids), 1e-3
    while True:
        for name, weights in adapter.items():
            weights.copy_(kept[name] + scale * directions[name])
        moved = _logprobs(trainer, prompt_ids, completion_ids)
        if (moved - unmoved).abs().mean() > SHIFT or scale > 1e3:
            return
        scale *= 2


def _logprobs(trainer: Any, before: list[int], tokens: list[int]) -> Tensor:
    """The trainer's log-probability of each of `tokens` after `before`, at the sampling temperature."""
    ids = torch.tensor([before + tokens], device=trainer.accelerator.device)
    logprobs, _, _ = trainer._get_per_token_logps_and_entropies(
        trainer.model, ids, torch.ones_like(ids), logits_to_keep=len(tokens)
    )
    of_tokens: Tensor = logprobs[0].float().cpu()
    return of_tokens
