"""The interface of samplers: prompts in, completions out.

prompt       id "mirror/turn1-000", n_predictions 2
sample()     yields {"mirror/turn1-000": [completion, completion]}
completion   text "```python\\n[...]    return grid\\n```", n_tokens 4, finish_reason "stop", logprob -1.88
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from arc_refinery.records import Prompt


@dataclass(frozen=True, slots=True)
class Completion:
    text: str
    n_tokens: int  # including the end token
    finish_reason: str  # "stop", or "length" if the completion was truncated
    logprob: float  # sum over the tokens, natural logarithm, temperature 1


@dataclass(frozen=True, slots=True)
class Decoding:
    """Sampling settings; each prompt's own seed is derived from `seed` and the prompt's id."""

    temperature: float  # 0: greedy
    top_p: float
    max_output_tokens: int
    seed: int


Sampled = dict[str, list[Completion]]  # the `n_predictions` completions of each prompt, by its id


class Sampler(Protocol):
    def sample(self, prompts: Sequence[Prompt]) -> Iterator[Sampled]:
        """Yield prompts as they finish, in any order; what was sampled together is yielded together."""
        ...
