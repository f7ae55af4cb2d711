"""Sample one shard of a file of prompts; an interrupted job resumes where it stopped.

A resumed job writes the same attempts as an uninterrupted one.
"""

import hashlib
import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import compress
from pathlib import Path

from tqdm import tqdm

from arc_refinery import records
from arc_refinery.config import PROMPTS, TUNING, PromptedModel, marked
from arc_refinery.errors import InputError, ModelError
from arc_refinery.prompts import split_prefix
from arc_refinery.records import Attempt, Prompt
from arc_refinery.sampling.checks import ADAPTER_WEIGHTS, check_sampling
from arc_refinery.sampling.progress import Progress
from arc_refinery.sampling.protocol import Completion, Decoding, Sampled, Sampler

logger = logging.getLogger(__name__)


def open_sampler(model: PromptedModel, adapter: Path | None, decoding: Decoding) -> Sampler:
    match model.backend:
        case "transformers":
            from arc_refinery.sampling.transformers_sampler import TransformersSampler

            return TransformersSampler(model, adapter, decoding)
        case "vllm":
            from arc_refinery.sampling.vllm_sampler import VllmSampler

            return VllmSampler(model, adapter, decoding)


def shard_of(prompts: Sequence[Prompt], shard: int, n_shards: int) -> list[Prompt]:
    """Return the prompts of a shard (`records.in_shard`)."""
    if not 0 <= shard < n_shards:
        raise InputError(f"shard {shard} of {n_shards}: expected 0..{n_shards - 1}")
    return list(compress(prompts, records.in_shard([prompt.task_id for prompt in prompts], shard, n_shards)))


def sample_shard(
    prompts: Sequence[Prompt], model: PromptedModel, adapter: Path | None, decoding: Decoding, output: Path
) -> Iterator[Attempt]:
    """Yield the attempts of each prompt, in order; progress is kept next to `output` (progress.py)."""
    check_sampling(prompts, model, adapter, decoding.max_output_tokens)
    progress = Progress(output, _identity(prompts, model, adapter, decoding))
    done = {
        prompt_id: [Completion(**one) for one in completions]
        for entry in progress.entries
        for prompt_id, completions in entry.items()
    }
    missing = [prompt for prompt in prompts if prompt.prompt_id not in done]
    if done:
        n_done = len(prompts) - len(missing)
        logger.info("%s: %d of %d prompts were sampled before", progress.path, n_done, len(prompts))
    if missing:
        done |= _sample(missing, model, adapter, decoding, progress, len(prompts))
    for prompt in prompts:
        for number, completion in enumerate(done[prompt.prompt_id]):
            yield _attempt(prompt, number, completion, model, adapter, decoding)


def _identity(prompts: Sequence[Prompt], model: PromptedModel, adapter: Path | None, decoding: Decoding) -> str:
    """Hash everything that affects the completions, so that progress with other settings is not reused."""
    weights = "" if adapter is None else hashlib.sha256((adapter / ADAPTER_WEIGHTS).read_bytes()).hexdigest()
    requests = [(prompt.prompt_id, prompt.text, prompt.n_predictions) for prompt in prompts]
    return records.settings_hash(
        {
            "progress": 2,  # counts up when the form of an entry changes, or how floats are summed
            "model": model.model_dump(exclude=marked(PromptedModel, PROMPTS, TUNING)),
            "adapter": weights,
            "decoding": asdict(decoding),
            "prompts": requests,
        }
    )


def _sample(
    prompts: Sequence[Prompt],
    model: PromptedModel,
    adapter: Path | None,
    decoding: Decoding,
    progress: Progress,
    n_total: int,
) -> Sampled:
    sampler = open_sampler(model, adapter, decoding)
    sampled: Sampled = {}
    with tqdm(total=n_total, initial=n_total - len(prompts), unit="prompt", mininterval=5) as bar:
        for batch in sampler.sample(prompts):
            if any(math.isnan(one.logprob) for completions in batch.values() for one in completions):
                raise ModelError(
                    f"{model.path}: its probabilities are not numbers; are its weights, or those of its adapter, "
                    f"damaged, or too large for {model.dtype}? Download the model again, or set another dtype"
                )
            sampled |= batch
            # one line, so that prompts that were sampled together are never resumed apart
            progress.add({prompt_id: list(map(asdict, completions)) for prompt_id, completions in batch.items()})
            bar.update(len(batch))
    return sampled


def _attempt(
    prompt: Prompt, number: int, completion: Completion, model: PromptedModel, adapter: Path | None, decoding: Decoding
) -> Attempt:
    return Attempt(
        attempt_id=records.attempt_id(prompt.prompt_id, number),
        prompt_id=prompt.prompt_id,
        task_id=prompt.task_id,
        turn=prompt.turn,
        parent_id=prompt.parent_id,
        model=model.path,
        adapter=str(adapter or ""),
        seed=decoding.seed,
        temperature=decoding.temperature,
        top_p=decoding.top_p,
        augmentation=prompt.augmentation,
        train_order=prompt.train_order,
        completion=split_prefix(prompt.messages)[1] + completion.text,
        n_prompt_tokens=prompt.n_tokens,
        n_tokens=completion.n_tokens,
        finish_reason=completion.finish_reason,
        logprob=completion.logprob,
    )
