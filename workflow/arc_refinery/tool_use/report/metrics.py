"""Report section on the episodes of a set: votes, pass rates with and without calls, tools, turns, lengths of texts."""

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import pandas as pd

from arc_refinery.evaluation.intervals import estimate
from arc_refinery.reporting.markdown import estimate_text, markdown_table, percent, share_text, write_csv
from arc_refinery.reporting.publish import Attachments
from arc_refinery.tool_use.config import ToolArm, ToolUse
from arc_refinery.tool_use.grading.evaluated import EvaluatedQuestions
from arc_refinery.tool_use.grading.metrics import (
    FAULTS,
    answers_found,
    calls_by_tool,
    calls_by_turn,
)

NO_TOOL = "(none recognised)"  # the call is not readable, or names no existing tool


def section(experiment: ToolUse, results: EvaluatedQuestions, files: Attachments) -> list[str]:
    """Return Markdown blocks; tables are added to `files`."""
    name = results.settings.name
    arms = [arm.name for arm in experiment.arms]
    by_tool = _stacked({arm: calls_by_tool(results.episodes_of_arm(arm)) for arm in arms})
    by_turn = _stacked({arm: calls_by_turn(results.texts_of_arm(arm)) for arm in arms})
    lengths = text_lengths(results, arms)
    tables = {"tools": by_tool, "turns": by_turn, "lengths": lengths, "votes": votes(results, arms)}
    if results.settings.form == "text":
        tables["found"] = _stacked(
            {arm: answers_found(results.episodes_of_arm(arm), results.texts_of_arm(arm)) for arm in arms}
        )
    maj = f"maj@{experiment.evaluation.n_predictions}"
    links = {kind: files.add(f"{name}-{kind}.csv", partial(write_csv, table)) for kind, table in tables.items()}
    return [
        "### Votes, and episodes with and without calls",
        markdown_table(*_votes(experiment, results)),
        f"{maj}: share of questions whose most frequent answer is correct. Pass rates: share of correct episodes, mean "
        "over the questions that have such episodes. Episodes choose to call, so the difference between these rates is "
        f"not the effect of calling. [As CSV]({links['votes']}).",
        "### Calls by tool",
        _tools_table(by_tool) if len(by_tool) else "No episode calls a tool.",
        f"[As CSV]({links['tools']}).{_other_calls(results, arms)}",
        "### Calls by turn",
        markdown_table(*_turns(by_turn, arms)),
        f"Calls per episode that has the turn, and the number of these episodes. [As CSV]({links['turns']}).",
        *(_found_section(tables["found"], arms, links["found"]) if "found" in tables else []),
        "### Lengths of thoughts and results",
        markdown_table(*_lengths(lengths)),
        "In characters: the thoughts of a whole episode, and each result that the model read. "
        f"[As CSV]({links['lengths']}).",
    ]


def votes(results: EvaluatedQuestions, arms: Sequence[str]) -> pd.DataFrame:
    """Return one row per arm: shares of questions and of episodes, and the numbers of episodes and questions."""
    rows = []
    for arm in arms:
        majority = np.mean(results.majority(arm)) if _has_votes(results) else None
        row: dict[str, object] = {"arm": arm, "maj_at_k": majority}
        for kind, with_calls in (("with_calls", True), ("without_calls", False)):
            rates = results.pass_rates(arm, with_calls)
            row |= {
                f"pass_rate_{kind}": np.mean(rates) if rates else None,
                f"episodes_{kind}": sum(bool(episode.calls) == with_calls for episode in results.episodes_of_arm(arm)),
                f"questions_{kind}": len(rates),
            }
        rows.append(row)
    return pd.DataFrame(rows)


def text_lengths(results: EvaluatedQuestions, arms: Sequence[str]) -> pd.DataFrame:
    """Return two rows per arm, on thoughts and on results: their number, and mean, median and maximum of characters."""
    rows = []
    for arm in arms:
        texts = results.texts_of_arm(arm)
        lengths = {
            "thoughts": [text.n_thought_chars for text in texts],
            "results": [n_chars for text in texts for n_chars in text.result_chars],
        }
        for what, values in lengths.items():
            sizes = {"mean": np.mean(values), "median": np.median(values), "longest": max(values)} if values else {}
            rows.append({"arm": arm, "text": what, "number": len(values), **sizes})
    return pd.DataFrame(rows, columns=["arm", "text", "number", "mean", "median", "longest"])


def _has_votes(results: EvaluatedQuestions) -> bool:
    """Return whether equal answers can be counted: two programs are almost never written in the same words."""
    return results.settings.form != "mbpp"


def _stacked(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    return pd.concat([table.assign(arm=arm) for arm, table in tables.items()], ignore_index=True)[
        ["arm", *next(iter(tables.values()))]
    ]


def _votes(experiment: ToolUse, results: EvaluatedQuestions) -> tuple[list[str], list[list[object]]]:
    rows: list[list[object]] = []
    for name, arms in experiment.repetitions.items():
        if len(arms) > 1:
            rows.append([f"`{name}`, mean of {len(arms)}", _majority_text(results, arms), "–", "–"])
        for arm in arms:
            by_calls = [_rate_text(results, arm.name, with_calls) for with_calls in (True, False)]
            rows.append([f"`{arm.name}`", _majority_text(results, [arm]), *by_calls])
    maj = f"maj@{experiment.evaluation.n_predictions}"
    return ["arm", maj, "pass rate of episodes with calls", "pass rate of episodes without calls"], rows


def _majority_text(results: EvaluatedQuestions, arms: Sequence[ToolArm]) -> str:
    return estimate_text(estimate([results.majority(arm.name) for arm in arms])) if _has_votes(results) else "–"


def _rate_text(results: EvaluatedQuestions, arm: str, with_calls: bool) -> str:
    rates = results.pass_rates(arm, with_calls)
    if not rates:
        return "–"
    n_episodes = sum(bool(episode.calls) == with_calls for episode in results.episodes_of_arm(arm))
    return f"{share_text(rates)} (episodes: {n_episodes}, questions: {len(rates)})"


def _tools_table(by_tool: pd.DataFrame) -> str:
    faults = [fault for fault in FAULTS if by_tool[fault].any()]
    rows = [
        [
            f"`{row['arm']}`",
            f"`{row['tool']}`" if row["tool"] else NO_TOOL,
            row["calls"],
            percent(row["faulty"] / row["calls"]),
            *(row[fault] for fault in faults),
        ]
        for row in by_tool.to_dict("records")
    ]
    return markdown_table(["arm", "tool", "calls", "faulty", *(fault.replace("_", " ") for fault in faults)], rows)


def _other_calls(results: EvaluatedQuestions, arms: Sequence[str]) -> str:
    """Return a note on answers that look like calls; empty if there are none."""
    counts = {arm: sum(text.answers_with_call for text in results.texts_of_arm(arm)) for arm in arms}
    listing = ", ".join(f"`{arm}` {n}" for arm, n in counts.items() if n)
    return f" Answers that look like calls of another format, and were not run: {listing}." if listing else ""


def _turns(by_turn: pd.DataFrame, arms: Sequence[str]) -> tuple[list[str], list[list[object]]]:
    cells = {
        (row["arm"], row["turn"]): f"{row['calls'] / row['episodes']:.2f} ({row['episodes']})"
        for row in by_turn.to_dict("records")
    }
    rows: list[list[object]] = []
    for turn in range(1, int(by_turn["turn"].max()) + 1):
        rows.append([turn, *(cells.get((arm, turn), "–") for arm in arms)])
    return ["turn", *(f"`{arm}`" for arm in arms)], rows


def _found_section(table: pd.DataFrame, arms: Sequence[str], link: str) -> list[str]:
    rows: list[list[object]] = []
    for arm in arms:
        rows_of_arm = table[table["arm"] == arm].set_index("found")
        n, correct = rows_of_arm["episodes"], rows_of_arm["correct"]
        rates = [f"{percent(correct[kind] / n[kind])} of {n[kind]}" if n[kind] else "–" for kind in (True, False)]
        rows.append([f"`{arm}`", percent(n[True] / n.sum()), *rates])
    return [
        "### Answers found",
        markdown_table(["arm", "episodes that found it", "correct of these", "correct of the others"], rows),
        f"Found: a result of a call contains the correct answer. [As CSV]({link}).",
    ]


def _lengths(lengths: pd.DataFrame) -> tuple[list[str], list[list[object]]]:
    rows: list[list[object]] = []
    for row in lengths.to_dict("records"):
        sizes = [f"{row['mean']:.1f}", f"{row['median']:.1f}", f"{row['longest']:.0f}"] if row["number"] else ["–"] * 3
        rows.append([f"`{row['arm']}`", row["text"], row["number"], *sizes])
    return ["arm", "", "number", "mean", "median", "longest"], rows
