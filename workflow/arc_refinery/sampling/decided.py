"""Answers that a file decides, in place of a model's: a whole run in seconds, to try a domain, a wording, a report.

    {"task_id": "double", "turn": 1, "answer": "```python\\ndef double(n):\\n    return n + 2\\n```"}
    {"turn": 2, "answer": "I do not know."}    of tasks without an own one in turn 2

Several answers of a task in a turn are those of its attempts, one after the other, and again from the first. In tool
use, a task is a question, and a turn a message of the model. Tokens are words.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

from arc_refinery.config import ModelConfig
from arc_refinery.config.answers import read_decided
from arc_refinery.errors import InputError
from arc_refinery.files import content_hash
from arc_refinery.sampling.backends import Decoding, Report
from arc_refinery.sampling.endpoint import Answer, Endpoint, Question, ask

Ask = Callable[[Sequence[Question], Decoding, Report], Iterable[tuple[str, Answer]]]


def open_answers(model: ModelConfig, run: Path | None) -> Ask:
    """Return what answers questions: a server (`Endpoint.of`), or a file."""
    if model.answers_file:
        return Decided(model.answers_file).answers
    return partial(ask, Endpoint.of(model, run))


class Decided:
    def __init__(self, path: Path) -> None:
        """Read a file; raises `InputError` for a row that is no answer."""
        self.path, self.fingerprint, self._answers = path, content_hash([path])[:12], read_decided(path)

    def answers(
        self, questions: Sequence[Question], decoding: Decoding, report: Report
    ) -> Iterator[tuple[str, Answer]]:
        for question in questions:
            text = self._of(question)
            n_read = sum(len(message["content"].split()) for message in question.messages)
            answer = Answer({"content": text}, n_read, len(text.split()), "stop", str(self.path), "", self.fingerprint)
            yield question.question_id, answer

    def _of(self, question: Question) -> str:
        task, turn = question.task_id, question.turn
        bare = task.partition("/")[2] or task  # in tool use, behind the set's name
        for key in ((task, turn), (task, None), (bare, turn), (bare, None), (None, turn), (None, None)):
            if texts := self._answers.get(key):
                return texts[question.number % len(texts)]
        raise InputError(
            f"{self.path}: has no answer for the task {task} in turn {turn}; add a row for it, or one without `task_id`"
        )
