"""Functions of one's own that run in the job's process and get an episode: rewards, and users who reply."""

import traceback
from pathlib import Path
from typing import Any, Protocol

from arc_refinery.config.own_code import OwnCode
from arc_refinery.errors import InputError
from arc_refinery.records.questions import Question
from arc_refinery.sandbox.child import describe
from arc_refinery.tool_use.tools.in_process import GRACE_SECONDS, TimeIsUp, defined_by, time_limit, without_exit

MAX_SECONDS = 600.0  # of a call: what takes longer will hardly end


class OnQuestion(Protocol):
    """An episode, finished or not."""

    @property
    def question(self) -> Question: ...


class OwnFunction:
    """A function of an episode; its errors name the file, the function, the line and the question."""

    def __init__(self, code: OwnCode) -> None:
        """Import the file; raise `InputError` if it cannot be used."""
        self._code = code
        self._function = defined_by(code)

    def __call__(self, episode: OnQuestion) -> Any:
        try:
            with time_limit(MAX_SECONDS, GRACE_SECONDS), without_exit():
                return self._function(episode)
        except TimeIsUp as error:
            fault = f"was still running after {MAX_SECONDS:g} s, {self._where(error)}; make it faster"
            raise self.error(episode, fault) from error
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            name, message, _ = describe(error)
            fault = f"raised {name} {self._where(error)}: {message}".removesuffix(": ") + "; correct it"
            raise self.error(episode, fault) from error

    def error(self, episode: OnQuestion, fault: str) -> InputError:
        return InputError(f"{self._code}, on the question {episode.question.question_id}: {fault}")

    def _where(self, error: BaseException) -> str:
        """Return the last line of the file that led to an error."""
        own = self._code.path.resolve()
        frames = traceback.extract_tb(error.__traceback__)
        lines = (frame.lineno for frame in reversed(frames) if Path(frame.filename).resolve() == own)
        return next((f"in line {line}" for line in lines), "in another file")
