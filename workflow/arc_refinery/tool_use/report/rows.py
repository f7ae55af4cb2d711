"""The rows of the table of attempts (evaluation/attempts.py), from the episodes of a tool-use experiment."""

import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from arc_refinery import records
from arc_refinery.answers import normalized
from arc_refinery.config import inputs
from arc_refinery.evaluation import attempts
from arc_refinery.evaluation.attempts import ArmRows
from arc_refinery.evaluation.sides import check_rows
from arc_refinery.records import RecordError
from arc_refinery.records.tool_use import Episode, Question
from arc_refinery.reporting.kind import settings_hash
from arc_refinery.tool_use.calls.formats import CALL_FORMAT, FORMATS, HERMES, CallFormat
from arc_refinery.tool_use.calls.turns import parse_turn
from arc_refinery.tool_use.config import ToolArm, ToolUse
from arc_refinery.tool_use.episodes.episodes import calls_by_turn
from arc_refinery.tool_use.grading.domains import ask

CALL = pa.struct([("tool", pa.string()), ("fault", pa.string())])
EXTRA = pa.schema(
    [
        ("answer", pa.string()),
        ("calls", pa.list_(CALL)),  # tool: empty if no tool has that name; fault: empty if nothing was wrong
        ("n_faulty_calls", pa.int64()),
        ("is_calling", pa.bool_()),
        ("n_thought_chars", pa.int64()),
        ("result_chars", pa.list_(pa.int64())),  # of each result that the model read
        ("calls_of_turns", pa.list_(pa.int64())),  # answered calls in each turn of the model
        ("shows_answer", pa.bool_()),  # a result contains the correct answer
        ("answers_with_call", pa.bool_()),  # the answer looks like a call of another format, which is not run
    ]
)
_PYTHON_CALLS = re.compile(r"\[\w+\(.*\)\]", re.DOTALL)  # [f(x=1)], as Llama 3.2 may write them
# {"name": "f", "arguments": {}} without tags
_JSON_CALL = re.compile(r'^[ \t]*\{\s*"name"\s*:\s*"[^"\n]*"\s*,\s*"(?:parameters|arguments)"\s*:', re.MULTILINE)
CUT = ("truncated", "tokens")  # endings at a limit of tokens


def write_attempts(experiment: ToolUse, folder: Path) -> None:
    """Write the table of attempts; raises `RecordError` for records that the settings did not make."""
    questions = {name: read_questions(folder, name) for name in experiment.set_names}
    tasks = {
        name: {row.question_id: sha256(repr(row).encode()).hexdigest()[:16] for row in rows.values()}
        for name, rows in questions.items()
    }
    rows = _rows(experiment, folder, questions)
    attempts.write(folder / attempts.TABLE, experiment, tasks, EXTRA, rows, settings_hash(experiment))


def read_questions(folder: Path, name: str) -> dict[str, Question]:
    path = folder / f"questions/{name}.parquet"
    questions = {question.question_id: question for question in records.read(path, Question)}
    if not questions:
        raise RecordError(f"{path}: has no questions, so nothing can be compared")
    return questions


def episode_files(experiment: ToolUse, folder: Path, name: str, arm: str) -> list[Path]:
    return [folder / name / arm / f"{shard:03d}.parquet" for shard in range(experiment.n_shards(name))]


def _rows(experiment: ToolUse, folder: Path, questions: Mapping[str, Mapping[str, Question]]) -> Iterator[ArmRows]:
    for name, of_set in questions.items():
        order = {question_id: index for index, question_id in enumerate(of_set)}
        files = {arm.name: episode_files(experiment, folder, name, arm.name) for arm in experiment.arms}
        check_arms_differ(experiment, name, files)
        for arm in experiment.arms:
            rows = pd.DataFrame(_episodes(experiment, folder, name, arm, of_set))
            rows["sample"] = rows.groupby("task_id").cumcount()
            rows["tokens"] += rows["n_prompt_tokens"] / rows.groupby("task_id")["task_id"].transform("size")
            yield ArmRows(name, arm.name, rows.sort_values("task_id", key=lambda ids: ids.map(order), kind="stable"))


def _episodes(
    experiment: ToolUse, folder: Path, name: str, arm: ToolArm, questions: Mapping[str, Question]
) -> Iterator[dict[str, Any]]:
    n_shards, evaluation = experiment.n_shards(name), experiment.evaluation
    source, has_tools = folder / f"questions/{name}.parquet", arm.tools and experiment.tools_of(name)
    for shard, path in enumerate(episode_files(experiment, folder, name, arm.name)):
        batches = records.batches_of_shard([*questions], evaluation.questions_per_batch, shard, n_shards)
        records.check_episodes(path, source, [*chain.from_iterable(batches)], evaluation.n_predictions)
        check_episodes(experiment, path, arm.name)
        call_format = FORMATS[records.notes(path).get(CALL_FORMAT, HERMES.name)]  # earlier versions had one
        for episode in records.read(path, Episode):
            if not has_tools and any(call.tool for call in episode.calls):
                raise RecordError(
                    f"{path}: {episode.episode_id} calls a tool, but the arm {arm.name} has none; is it of another "
                    f"arm? {records.remake(path)}"
                )
            question = questions[episode.question_id]
            correct_text = ask(question, "correct") if question.domain == "text" else ""
            is_answer, is_right = episode.ending == "answer", episode.reward == 1.0
            yield {
                "turn": 1,
                "branch": arm.name,
                "task_id": episode.question_id,
                "attempt_id": episode.episode_id,
                "prompt_id": episode.question_id,
                "parent_id": "",
                "model": episode.model,
                "seed": episode.seed,
                "status": "ok" if is_answer else episode.ending,
                "error_type": "",
                "fingerprint": sha256(episode.answer.encode()).hexdigest()[:16] if is_answer else "",
                "score": episode.reward,
                "shown_solved": is_right,
                "solved": is_right,
                "n_prompt_tokens": episode.n_prompt_tokens,
                "n_tokens": episode.n_tokens,
                "tokens": float(episode.n_tokens),
                "tokens_unshared": episode.n_prompt_tokens + episode.n_tokens,
                "finish_reason": "length" if episode.ending in CUT else "stop",
                "answer": episode.answer,
                "n_calls": len(episode.calls),
                "calls": [{"tool": call.tool, "fault": call.fault} for call in episode.calls],
                "n_faulty_calls": sum(bool(call.fault) for call in episode.calls),
                "is_calling": bool(episode.calls),
                **columns_of_texts(episode, call_format, correct_text),
            }


def columns_of_texts(episode: Episode, call_format: CallFormat, correct_text: str) -> dict[str, Any]:
    """Return the columns that need an episode's messages; `correct_text` is the answer, if it is a text."""
    turns = [parse_turn(message.content, call_format) for message in episode.messages if message.role == "assistant"]
    results = [message.content for message in episode.messages if message.role == "tool"]
    return {
        "n_thought_chars": sum(len(turn.thinking) for turn in turns),
        "result_chars": [*map(len, results)],
        "calls_of_turns": [*map(len, calls_by_turn(episode.messages, episode.calls))],
        "shows_answer": any(_contains(result, correct_text) for result in results),
        "answers_with_call": (
            episode.ending == "answer" and bool(turns) and _looks_like_call(turns[-1].answer or "", call_format)
        ),
    }


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


def check_episodes(experiment: ToolUse, path: Path, arm: str) -> None:
    """Raise `RecordError` unless the episodes in a file are of this arm, as far as they say."""
    generation = experiment.generation
    expected = {
        "model": ("model.path", inputs.model_path(experiment)),
        "adapter": (f"the adapter of the arm {arm}", experiment.adapter_of(arm) or ""),
        "seed": ("seed", experiment.seed),
        "temperature": ("generation.temperature", generation.temperature),
        "top_p": ("generation.top_p", generation.top_p),
    }
    check_rows(path, Episode, expected)


def check_arms_differ(experiment: ToolUse, questions: str, files: Mapping[str, list[Path]]) -> None:
    """Raise `RecordError` unless the files of an arm were made with the same settings, and other arms with others."""
    owners: dict[str, tuple[str, Path]] = {}
    for arm, paths in files.items():
        made_with = {path: records.settings_of(path) for path in paths}
        for path, settings in made_with.items():
            if settings != made_with[paths[0]]:
                raise RecordError(f"{path}: was made with other settings than {paths[0]}. {records.remake(path)}")
        other, path = owners.setdefault(made_with[paths[0]], (arm, paths[0]))
        if _settings_of_arm(experiment, questions, arm) != _settings_of_arm(experiment, questions, other):
            raise RecordError(
                f"{paths[0]}: was made with the settings of {path}, but the arms {other} and {arm} differ; one file is "
                f"a copy. {records.remake(paths[0])}"
            )


def _settings_of_arm(experiment: ToolUse, questions: str, arm: str) -> tuple[Any, ...]:
    settings = experiment.arm(arm)
    tools = experiment.tools_of(questions) if settings.tools else ()
    return tools, experiment.adapter_of(arm)
