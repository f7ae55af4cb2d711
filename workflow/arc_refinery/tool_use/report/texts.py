"""Sizes of the texts of episodes, and what these contain, for the table of attempts."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from arc_refinery.records.tool_use import Episode, EpisodeMessage
from arc_refinery.tool_use.calls.formats import FORMATS, HERMES, CallFormat
from arc_refinery.tool_use.calls.turns import parse_turn
from arc_refinery.tool_use.grading.answers import normalized

_PYTHON_CALLS = re.compile(r"\[\w+\(.*\)\]", re.DOTALL)  # [f(x=1)], as Llama 3.2 may write them
# {"name": "f", "arguments": {}} without tags
_JSON_CALL = re.compile(r'^[ \t]*\{\s*"name"\s*:\s*"[^"\n]*"\s*,\s*"(?:parameters|arguments)"\s*:', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class EpisodeTexts:
    """Sizes of the texts of an episode."""

    n_thought_chars: int  # in all its thoughts
    result_chars: tuple[int, ...]  # per result that the model read
    calls_of_turns: tuple[int, ...]  # answered calls in each turn of the model
    shows_answer: bool = False  # whether a result contains the correct answer
    answers_with_call: bool = False  # whether the answer looks like a call of another format, which is not run


def measure_texts(episode: Episode, call_format: CallFormat = HERMES, answer: str = "") -> EpisodeTexts:
    """Measure the texts of an episode that has its messages; `answer` is the correct one, if it is a text."""
    turns = [parse_turn(message.content, call_format) for message in episode.messages if message.role == "assistant"]
    results = [message.content for message in episode.messages if message.role == "tool"]
    calls = _calls_of_turns(episode.messages, len(episode.calls))
    return EpisodeTexts(
        sum(len(turn.thinking) for turn in turns),
        tuple(map(len, results)),
        calls,
        any(_contains(result, answer) for result in results),
        episode.ending == "answer" and bool(turns) and _looks_like_call(turns[-1].answer or "", call_format),
    )


def _looks_like_call(text: str, call_format: CallFormat) -> bool:
    others = (other for other in FORMATS.values() if other.name != call_format.name)
    return (
        any(other.start(text) < len(text) for other in others)
        or _PYTHON_CALLS.fullmatch(text.strip()) is not None
        or _JSON_CALL.search(text) is not None
    )


def _contains(text: str, answer: str) -> bool:
    """Return whether a text has an answer as whole words or as a whole number."""
    words = re.escape(normalized(answer))
    return bool(words) and re.search(rf"(?<![\w.-]){words}(?!\w|\.\d)", normalized(text)) is not None


def _calls_of_turns(messages: Sequence[EpisodeMessage], n_calls: int) -> tuple[int, ...]:
    """Count the results that follow each turn. Results without room in the episode are not among the messages."""
    counts: list[int] = []
    for message in messages:
        if message.role == "assistant":
            counts.append(0)
        elif message.role == "tool":
            counts[-1] += 1
    if counts:
        counts[-1] += n_calls - sum(counts)
    return tuple(counts)
