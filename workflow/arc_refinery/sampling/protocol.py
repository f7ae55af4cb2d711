"""What a sampler is."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from arc_refinery.records import Prompt


@dataclass(frozen=True, slots=True)
class Completion:
    text: str
    n_tokens: int  # the end token included
    finish_reason: str  # "stop", or "length" where the completion was cut
    logprob: float  # sum over the tokens, natural logarithm, temperature 1


@dataclass(frozen=True, slots=True)
class Decoding:
    """How completions are drawn; a prompt's seed comes from `seed` and the prompt's id."""

    temperature: float  # 0: the likeliest token, always
    top_p: float
    max_output_tokens: int
    seed: int


class Sampler(Protocol):
    def sample(self, prompts: Sequence[Prompt]) -> Iterator[tuple[str, list[Completion]]]:
        """Each prompt's id and its `n_predictions` completions, as they finish: in any order."""
        ...
