"""Log-probabilities of given answers with transformers: they are read, nothing is sampled.

    prompt    [60, 7, 12]
    answer    [5, 9, 2], the last id an end token
    yields    ln p(5 | 60, 7, 12) + ln p(9 | 60, 7, 12, 5) + ln p(2 | 60, 7, 12, 5, 9), such as -1.77

Texts are read side by side, without padding; how floats are summed depends on what is read together.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from arc_refinery.config import ModelConfig
from arc_refinery.models.shared_attention import enable_layouts, side_by_side
from arc_refinery.sampling.rows import check_finite
from arc_refinery.sampling.transformers_sampler import load_network

TOKENS_TOGETHER = 8192  # less than is sampled together: each token of an answer has a row of the whole vocabulary


class GivenAnswer(NamedTuple):
    prompt: list[int]
    answer: list[int]  # including the end token

    @property
    def ids(self) -> list[int]:
        return [*self.prompt, *self.answer]


def answer_logprobs(model: ModelConfig, adapter: Path | None, given: Sequence[GivenAnswer]) -> Iterator[float]:
    """Yield the log-probability of each answer after its prompt, in order: temperature 1, natural logarithm."""
    torch.set_num_threads(model.n_threads)
    network = load_network(model, adapter, "cuda" if torch.cuda.is_available() else "cpu")
    shares = not enable_layouts(network)
    for batch in batches(given, TOKENS_TOGETHER if shares else 0):
        yield from _of_batch(network, batch, shares)


def batches(given: Sequence[GivenAnswer], largest: int) -> Iterator[list[GivenAnswer]]:
    """Yield texts of at most `largest` tokens together, at least one."""
    batch: list[GivenAnswer] = []
    n_tokens = 0
    for text in given:
        if batch and n_tokens + len(text.ids) > largest:
            yield batch
            batch, n_tokens = [], 0
        batch.append(text)
        n_tokens += len(text.ids)
    if batch:
        yield batch


@torch.inference_mode()
def _of_batch(network: Any, batch: Sequence[GivenAnswer], shares: bool) -> list[float]:
    ids = torch.tensor([[token for text in batch for token in text.ids]], device=network.device)
    arguments = side_by_side(ids, [len(text.ids) for text in batch]) if shares else {"input_ids": ids}
    ends = torch.tensor([len(text.ids) for text in batch]).cumsum(0).tolist()
    # the token before predicts each token of an answer
    places = [
        place for end, text in zip(ends, batch, strict=True) for place in range(end - len(text.answer) - 1, end - 1)
    ]
    keep = torch.tensor(places, device=network.device)
    logits = network(**arguments, logits_to_keep=keep, use_cache=False).logits[0]
    sums = []
    for rows, text in zip(logits.split([len(text.answer) for text in batch]), batch, strict=True):
        answer = torch.tensor(text.answer, device=network.device).unsqueeze(1)
        logprobs = rows.float().log_softmax(-1).gather(1, answer)
        check_finite(logprobs, network)
        sums.append(float(logprobs.double().sum()))
    return sums
