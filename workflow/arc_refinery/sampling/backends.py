"""The interface of samplers: token ids in, token ids and log-probabilities out. A new one: docs/development.md.

request      id "half-turn/0", group "half-turn", 42 ids, n 16 (docs/one_step.py)
sample()     yields {"half-turn/0": [sample, sample, ...]}
sample       6 ids, the last of them an end token; finish_reason "stop", logprob -1.77
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Protocol

from arc_refinery.config import BACKENDS, ModelConfig


@dataclass(frozen=True, slots=True)
class Decoding:
    temperature: float  # 0: greedy
    top_p: float
    max_output_tokens: int
    seed: int = 0
    top_k: int = 0  # 0: all tokens
    stop_token: str = ""  # ends a turn, also where it is not the tokenizer's end token


@dataclass(frozen=True, slots=True)
class Request:
    """A context to continue `n` times."""

    request_id: str
    group: str  # requests of different groups are never sampled together by transformers
    ids: Sequence[int]
    n: int
    seed: int


@dataclass(frozen=True, slots=True)
class Sample:
    ids: list[int]  # including the end token
    finish_reason: str  # "stop", or "length" if the sample was truncated
    logprob: float  # sum over the ids, natural logarithm, temperature 1


Sampled = dict[str, list[Sample]]  # the `n` samples of each request, by its id


class Report(Protocol):
    def __call__(self, n_ended: int, n_tokens: int, note: str = "") -> None:
        """Take the numbers of samples that ended and of new tokens, and what to show beside them."""


def no_report(n_ended: int, n_tokens: int, note: str = "") -> None:
    """Ignore progress."""


class Sampler(Protocol):
    ends: frozenset[int]  # ids that end a sample
    report: Report  # called while samples are made; turns do not count as samples

    def sample(self, requests: Sequence[Request]) -> Iterator[Sampled]:
        """Yield requests as they finish, in any order; what was sampled together is yielded together."""
        ...

    def sample_turns(self, contexts: Sequence[list[int]], seeds: Sequence[int]) -> list[list[int]]:
        """Continue each context once, all together; a turn includes the end token if it was reached.

        The result may depend on which contexts are passed together, because padding changes how floats are summed:
        callers pass the same ones whatever the number of jobs.
        """
        ...


def open_sampler(
    model: ModelConfig,
    adapter: Path | None,
    decoding: Decoding,
    tokenizer: Any,
    report: Report = no_report,
) -> Sampler:
    """Load a model for sampling; `tokenizer` is its own."""
    sampler: Sampler = resolve_name(BACKENDS[model.backend].sampler)(model, adapter, decoding, tokenizer)
    sampler.report = report
    return sampler
