"""Prompts as rows of a data set of TRL, and back."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from arc_refinery.grids import as_grid
from arc_refinery.prompts import Message, split_prefix
from arc_refinery.records import Prompt
from arc_refinery.refine.grading import Answer
from arc_refinery.tasks import Pair

if TYPE_CHECKING:
    from datasets import IterableDataset


@dataclass(frozen=True, slots=True)
class TrainingPrompt:
    """One conversation that waits for an answer, and the task as it shows it."""

    messages: tuple[Message, ...]  # with the beginning of the answer, where answers have one
    prefix: str  # that beginning
    train: tuple[Pair, ...]
    test: tuple[Pair, ...]  # those with known outputs

    def answered(self, text: str) -> Answer:
        """A whole answer, to be executed on all pairs."""
        inputs, truths = zip(*((pair.input, pair.output) for pair in self.train + self.test), strict=True)
        return Answer(text, inputs, truths)

    @property
    def parent(self) -> str | None:
        """The answer that is refined; None in a first turn."""
        said = [message["content"] for message in self.messages if message["role"] == "assistant"]
        said = said[:-1] if self.prefix else said
        return said[-1] if said else None


def streamed(read: Callable[[], Iterator[Prompt]]) -> "IterableDataset":
    """Rows that are made as they are needed, each time anew, so that memory does not grow with their number."""
    from datasets import IterableDataset

    def rows() -> Iterator[dict[str, Any]]:
        yield from map(row_of, read())

    return IterableDataset.from_generator(rows)


def row_of(prompt: Prompt) -> dict[str, Any]:
    """`prompt` is what TRL renders; the other columns are what the answer begins with and is executed on."""
    asked, prefix = split_prefix(prompt.messages)
    return {
        "prompt": asked,
        "assistant_prefix": prefix,
        "train": _lists(prompt.train),
        "test": _lists(prompt.test),
    }


def _lists(pairs: Sequence[Pair]) -> list[dict[str, Any]]:
    known = [pair for pair in pairs if pair.output.size]  # of Kaggle's tests the output may be unknown
    return [{"input": pair.input.tolist(), "output": pair.output.tolist()} for pair in known]


def prompt_of_row(row: dict[str, Any]) -> TrainingPrompt:
    """What a row asks."""
    messages = [Message(role=message["role"], content=message["content"]) for message in row["prompt"]]
    prefix = row["assistant_prefix"]
    begun = [Message(role="assistant", content=prefix)] if prefix else []
    return TrainingPrompt((*messages, *begun), prefix, _pairs(row["train"]), _pairs(row["test"]))


def _pairs(rows: Sequence[dict[str, Any]]) -> tuple[Pair, ...]:
    return tuple(Pair(as_grid(row["input"]), as_grid(row["output"])) for row in rows)
