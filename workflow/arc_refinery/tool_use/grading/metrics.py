"""Metrics of episodes with tools: votes, pass rates with and without calls, tools, turns, lengths of texts.

Eight episodes on one question answer 9, 23, 9, nothing, 9, 23, 10, 9:

maj@8    the answer 9, with 4 of 7 votes
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

import pandas as pd

from arc_refinery.records.tool_use import Episode, EpisodeMessage
from arc_refinery.tool_use.calls.formats import FORMATS, HERMES, CallFormat
from arc_refinery.tool_use.calls.tool import Fault
from arc_refinery.tool_use.calls.turns import parse_turn
from arc_refinery.tool_use.grading.answers import normalized

FAULTS: tuple[str, ...] = get_args(Fault)
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


def majority_is_correct(episodes: Sequence[Episode]) -> float:
    """Return 1 if the most frequent answer of a question's episodes is correct, else 0.

    Episodes without an answer do not vote; without any vote the result is 0. Of answers with equally many votes, the
    one that was given first counts, in the order of the episodes.
    """
    votes = Counter(episode.answer for episode in episodes if episode.answer)
    if not votes:
        return 0.0
    winner = max(votes, key=votes.__getitem__)  # the first of equals: a Counter keeps the order of the first votes
    return float(any(episode.reward == 1.0 for episode in episodes if episode.answer == winner))


def pass_rates(questions: Sequence[Sequence[Episode]], with_calls: bool) -> list[float]:
    """Return the share of correct episodes with calls, or without, of each question that has such episodes."""
    groups = [[episode for episode in group if bool(episode.calls) == with_calls] for group in questions]
    return [sum(episode.reward == 1.0 for episode in group) / len(group) for group in groups if group]


def calls_by_tool(episodes: Sequence[Episode]) -> pd.DataFrame:
    """Return one row per tool that was called: its calls, how many were faulty, and how many had each fault.

    The tool is empty for calls that named no existing one.
    """
    counts = Counter((call.tool, call.fault) for episode in episodes for call in episode.calls)
    rows = []
    for tool in sorted({tool for tool, _ in counts}):
        n_by_fault = {fault: counts[tool, fault] for fault in FAULTS}
        n_faulty = sum(n_by_fault.values())
        rows.append({"tool": tool, "calls": counts[tool, ""] + n_faulty, "faulty": n_faulty, **n_by_fault})
    return pd.DataFrame(rows, columns=["tool", "calls", "faulty", *FAULTS])


def calls_by_turn(texts: Sequence[EpisodeTexts]) -> pd.DataFrame:
    """Return one row per turn 1, 2, ...: the episodes that have it, and their calls in it."""
    longest = max((len(episode.calls_of_turns) for episode in texts), default=0)
    calls_per_turn = [
        [episode.calls_of_turns[turn] for episode in texts if len(episode.calls_of_turns) > turn]
        for turn in range(longest)
    ]
    rows = [{"turn": turn, "episodes": len(calls), "calls": sum(calls)} for turn, calls in enumerate(calls_per_turn, 1)]
    return pd.DataFrame(rows, columns=["turn", "episodes", "calls"])


def answers_found(episodes: Sequence[Episode], texts: Sequence[EpisodeTexts]) -> pd.DataFrame:
    """Return two rows: the episodes that a result shows the correct answer, and the others; how many are correct."""
    rows = []
    pairs = list(zip(episodes, texts, strict=True))
    for is_found in (True, False):
        rewards = [episode.reward for episode, text in pairs if text.shows_answer == is_found]
        rows.append({"found": is_found, "episodes": len(rewards), "correct": rewards.count(1.0)})
    return pd.DataFrame(rows)
