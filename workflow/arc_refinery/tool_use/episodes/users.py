"""The user of an episode, who reads each answer of the model and replies or ends the episode (docs/tool-use.md).

question    "Greta has 134 tiles. [...]"
assistant   "<think>\\n[...]\\n</think>\\n\\n#### 5"
user        "That is not right. Please check your work and answer again."
assistant   "<think>\\n[...]\\n</think>\\n\\n#### 0"
user        None: the episode ends, and its last answer counts
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from arc_refinery.config.own_code import OwnCode
from arc_refinery.config.own_functions import OwnFunction
from arc_refinery.files import content_hash
from arc_refinery.records.tool_use import EpisodeMessage, Question
from arc_refinery.sandbox import Executor
from arc_refinery.tool_use.calls.formats import HERMES, CallFormat
from arc_refinery.tool_use.calls.turns import parse_turn
from arc_refinery.tool_use.grading.rewards import grade_episodes

Executors = tuple[Executor | None, Executor | None]  # run programs; compare their values

NOT_RIGHT = "That is not right. Please check your work and answer again."


@dataclass(frozen=True, slots=True)
class OpenEpisode:
    """An episode whose last turn is an answer, as a user reads it."""

    question: Question
    messages: tuple[EpisodeMessage, ...]  # after the question: roles `assistant`, `tool` and `user`
    is_correct: bool  # the answer
    call_format: CallFormat = HERMES

    @property
    def answer(self) -> str:
        """The last turn without its thinking."""
        return parse_turn(self.messages[-1].content, self.call_format).answer or ""


Reply = Callable[[OpenEpisode], str | None]


def check_again(episode: OpenEpisode) -> str | None:
    """Reply to a wrong answer that it is wrong, and nothing else."""
    return None if episode.is_correct else NOT_RIGHT


@dataclass(frozen=True, slots=True)
class User:
    """The user of one episode."""

    question: Question
    reply: Reply
    executors: Executors  # for answers that are programs


class Users:
    """The users of sets of questions."""

    def __init__(self, by_set: Mapping[str, str] | None = None, executors: Executors = (None, None)) -> None:
        """Import the files of own users; raise `InputError` if one cannot be used."""
        self._names = dict(by_set or {})
        self._replies = {name: _reply(user) for name, user in self._names.items()}
        self._executors = executors

    def of(self, question: Question) -> User | None:
        """Return the user who replies to answers to a question."""
        reply = self._replies.get(question.question_id.partition("/")[0])
        return reply and User(question, reply, self._executors)

    def identity(self) -> dict[str, Any]:
        """Return what determines the replies; empty without users."""
        if not self._names:
            return {}
        files = sorted({code.path for user in self._names.values() if (code := OwnCode.parse(user))})
        return {"users": self._names, "files_of_users": content_hash(files) if files else ""}


def ask_users(
    answered: Sequence[tuple[User, Sequence[EpisodeMessage]]], call_format: CallFormat = HERMES
) -> list[str | None]:
    """Return the replies to the last turns of several episodes, which are answers; None ends an episode.

    The users must share their executors.
    """
    if not answered:
        return []
    turns, questions = [messages[-1].content for _, messages in answered], [user.question for user, _ in answered]
    grades = grade_episodes(turns, questions, *answered[0][0].executors, call_format)
    return [
        user.reply(OpenEpisode(user.question, tuple(messages), grade.reward == 1.0, call_format))
        for (user, messages), grade in zip(answered, grades, strict=True)
    ]


def _reply(user: str) -> Reply:
    code = OwnCode.parse(user)
    if code:
        return _own_reply(code)
    match user:
        case "check-again":
            return check_again
        case _:
            raise ValueError(f"{user} is not a user")


def _own_reply(code: OwnCode) -> Reply:
    function = OwnFunction(code)

    def reply(episode: OpenEpisode) -> str | None:
        about = f"the question {episode.question.question_id}"
        text = function(episode, about)
        if text is None:
            return None
        if not isinstance(text, str) or not text.strip():
            raise function.error(about, f"returned {text!r:.80}; expected a text, or None to end the episode")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise function.error(about, f"returned {text!r:.80}, which UTF-8 cannot write ({error.reason})") from None
        return text

    return reply
