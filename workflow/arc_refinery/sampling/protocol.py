"""What a sampler is."""

from collections.abc import Sequence
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

    temperature: float
    top_p: float
    max_output_tokens: int
    seed: int


class Sampler(Protocol):
    prompts_at_once: int  # how many prompts the backend likes to get in one call

    def sample(self, prompts: Sequence[Prompt]) -> list[list[Completion]]:
        """`n_predictions` completions for each prompt, in order. The same prompt gives the same ones in any company."""
        ...
