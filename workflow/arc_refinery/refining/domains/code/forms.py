"""Names of wordings and forms of feedback, which the config knows."""

from pathlib import Path
from typing import Literal, get_args

PLAIN = "plain"
FeedbackForm = Literal["failing-tests", "traceback", "verdict-only"]
FORMS: tuple[FeedbackForm, ...] = get_args(FeedbackForm)
TEXTS = (
    *("system", "task", "starter", "tests", "request"),  # first turn
    *("passed", "returned", "compared", "raised", "not_run", "traceback", "frame", "correct"),  # later turns
)


def wording_files(name: str) -> list[Path]:
    """Return the files of a wording; the built-in one has none."""
    return [] if name == PLAIN else [Path(name, f"{text}.txt") for text in TEXTS]
