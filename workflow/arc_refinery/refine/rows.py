"""Convert prompts to rows of a TRL dataset and back. A row:

    {"prompt": [{"role": "user", "content": "\\ninput 1x2\\n1 10\\noutput 1x2\\n1 01"}], "assistant_prefix": "",
     "train": [{"input": [[1, 0]], "output": [[0, 1]]}], "test": [{"input": [[2, 0]], "output": [[0, 2]]}]}

Pairs are in the form shown in the prompt; test pairs without known outputs are left out.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from arc_refinery.arc.grids import as_grid
from arc_refinery.arc.tasks import Pair
from arc_refinery.prompts import Message, split_prefix
from arc_refinery.records import Prompt
from arc_refinery.refine.grading import Answer

if TYPE_CHECKING:
    from datasets import IterableDataset


@dataclass(frozen=True, slots=True)
class TrainingPrompt:
    """A conversation to be answered, and the task in the form shown in it."""

    messages: tuple[Message, ...]  # the last one is the prefix of the answer, if there is one
    prefix: str  # beginning of the answer; may be empty
    train: tuple[Pair, ...]
    test: tuple[Pair, ...]  # those with known outputs

    def answer(self, text: str) -> Answer:
        """Return a whole answer, to be executed on all pairs."""
        inputs, truths = zip(*((pair.input, pair.output) for pair in self.train + self.test), strict=True)
        return Answer(text, inputs, truths)

    @property
    def parent(self) -> str | None:
        """The answer to refine; None in a first turn."""
        answers = [message["content"] for message in self.messages if message["role"] == "assistant"]
        answers = answers[:-1] if self.prefix else answers
        return answers[-1] if answers else None


def streamed(read: Callable[[], Iterator[Prompt]]) -> "IterableDataset":
    """Return rows that are generated on demand in each epoch, so that memory does not grow with their number."""
    from datasets import IterableDataset

    def rows() -> Iterator[dict[str, Any]]:
        yield from map(row_of, read())

    return IterableDataset.from_generator(rows)


def row_of(prompt: Prompt) -> dict[str, Any]:
    """Return a row: `prompt` for TRL to render, the prefix of the answer, and the pairs to execute it on."""
    conversation, prefix = split_prefix(prompt.messages)
    return {
        "prompt": conversation,
        "assistant_prefix": prefix,
        "train": _lists(prompt.train),
        "test": _lists(prompt.test),
    }


def _lists(pairs: Sequence[Pair]) -> list[dict[str, Any]]:
    known = [pair for pair in pairs if pair.output.size]  # Kaggle's test outputs may be unknown
    return [{"input": pair.input.tolist(), "output": pair.output.tolist()} for pair in known]


def prompt_of_row(row: dict[str, Any]) -> TrainingPrompt:
    """Return the prompt of a row."""
    messages = [Message(role=message["role"], content=message["content"]) for message in row["prompt"]]
    prefix = row["assistant_prefix"]
    beginning = [Message(role="assistant", content=prefix)] if prefix else []
    return TrainingPrompt((*messages, *beginning), prefix, _pairs(row["train"]), _pairs(row["test"]))


def _pairs(rows: Sequence[dict[str, Any]]) -> tuple[Pair, ...]:
    return tuple(Pair(as_grid(row["input"]), as_grid(row["output"])) for row in rows)
