"""Errors that the user can fix. The CLI prints the message without a traceback."""

from collections.abc import Sequence


class InputError(ValueError):
    """Bad input. The message names the file and the field, what was expected, and what to do."""


def span(lengths: Sequence[int]) -> str:
    """Return the smallest and the largest of these numbers, as a message has them."""
    shortest, longest = min(lengths), max(lengths)
    return f"{shortest:,} to {longest:,}" if shortest < longest else f"{longest:,}"


class NoRoomError(InputError):
    """Prompts are too long for the model's window."""

    def __init__(
        self, where: object, n_prompts: int, too_long: Sequence[int], window: int, answer: int, advice: str
    ) -> None:
        """`too_long` has the lengths of those among `n_prompts`; `answer` is the longest answer, in tokens."""
        n = len(too_long)
        which = f"none of {n:,} prompts fits" if n == n_prompts else f"{n:,} of {n_prompts:,} prompts are too long"
        super().__init__(
            f"{where}: {which}: {span(too_long)} tokens, but the window of {window:,} minus {answer:,} for the answer "
            f"leaves {window - answer:,}. {advice}"
        )


class ModelError(InputError):
    """A model's folder cannot be used; the message says what is missing."""


class NotFiniteError(ModelError):
    """A network predicts what is not a finite number."""

    def __init__(self, model: str) -> None:
        super().__init__(
            f"{model}: its predictions are not finite numbers; its weights or those of its adapter are damaged or too "
            "large. Download or train it again, or set another dtype"
        )
