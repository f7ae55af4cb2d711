"""Report section on the episodes of a set: votes, pass rates with and without calls, tools, turns.

Eight episodes on one question answer 9, 23, 9, nothing, 9, 23, 10, 9:

maj@8    the answer 9, with 4 of 7 votes
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import get_args

import numpy as np
import pandas as pd

from arc_refinery.evaluation.attempts import Results
from arc_refinery.evaluation.intervals import estimate
from arc_refinery.evaluation.metrics import PASS_RATE
from arc_refinery.reporting.markdown import estimate_text, markdown_table, percent, share_text, write_csv
from arc_refinery.reporting.publish import Attachments
from arc_refinery.tool_use.calls.tool import Fault
from arc_refinery.tool_use.config import ToolArm, ToolUse
from arc_refinery.tool_use.grading.domains import domain_of

FAULTS: tuple[str, ...] = get_args(Fault)
NO_TOOL = "(none recognised)"  # the call is not readable, or names no existing tool


def section(experiment: ToolUse, results: Results, files: Attachments) -> list[str]:
    """Return Markdown blocks; tables are added to `files`."""
    name, domain = results.name, experiment.sets[results.name].domain
    has_votes = domain == "arc" or not domain_of(domain).answers_are_programs  # programs that differ may do the same
    episodes = {arm.name: results.attempts_of_arm(arm) for arm in experiment.arms}
    tables = {
        "tools": _stacked({arm: calls_by_tool(rows) for arm, rows in episodes.items()}),
        "turns": _stacked({arm: calls_by_turn(rows) for arm, rows in episodes.items()}),
        "votes": votes(results, episodes, has_votes=has_votes),
    }
    if domain == "text":
        tables["found"] = _stacked({arm: answers_found(rows) for arm, rows in episodes.items()})
    maj = f"maj@{experiment.evaluation.n_predictions}"
    links = {kind: files.add(f"{name}-{kind}.csv", partial(write_csv, table)) for kind, table in tables.items()}
    by_tool = tables["tools"]
    return [
        "### Votes, and episodes with and without calls",
        _votes_table(experiment, results, has_votes),
        f"{maj}: share of questions whose most frequent answer is correct. Pass rates: share of correct episodes, mean "
        "over the questions that have such episodes. Episodes choose to call, so the difference between these rates is "
        f"not the effect of calling. [As CSV]({links['votes']}).",
        "### Calls by tool",
        _tools_table(by_tool) if len(by_tool) else "No episode calls a tool.",
        f"[As CSV]({links['tools']}).{_other_calls(episodes)}",
        "### Calls by turn",
        _turns_table(tables["turns"], list(episodes)),
        f"Calls per episode that has the turn, and the number of these episodes. [As CSV]({links['turns']}).",
        *(_found_section(tables["found"], list(episodes), links["found"]) if "found" in tables else []),
    ]


def majority(results: Results, episodes: pd.DataFrame) -> list[float]:
    """Return for each question whether the most frequent answer is correct.

    Episodes without an answer do not vote; without any vote the result is 0. Of answers with equally many votes, the
    one that was given first counts.
    """
    is_right: dict[str, float] = {}
    for question, rows in episodes[episodes["answer"] != ""].groupby("task_id"):
        ((answer, _),) = Counter(rows["answer"]).most_common(1)  # the first one of equals
        is_right[str(question)] = float(rows.loc[rows["answer"] == answer, "solved"].any())
    return [is_right.get(question, 0.0) for question in results.task_ids]


def pass_rates(results: Results, episodes: pd.DataFrame, with_calls: bool) -> tuple[int, list[float]]:
    """Return the number of episodes with calls, or without, and the share of correct ones per question with some."""
    rows = episodes[episodes["is_calling"] == with_calls]
    rates = results.per_task(rows, list(dict.fromkeys(rows["task_id"])))[PASS_RATE]
    return len(rows), [float(rate) for rate in rates]


def votes(results: Results, episodes: Mapping[str, pd.DataFrame], has_votes: bool) -> pd.DataFrame:
    """Return one row per arm: shares of questions and of episodes, and the numbers of episodes and questions.

    `has_votes`: whether equal answers can be counted; two programs are almost never written in the same words.
    """
    rows = []
    for arm, of_arm in episodes.items():
        row: dict[str, object] = {"arm": arm, "maj_at_k": np.mean(majority(results, of_arm)) if has_votes else None}
        for kind, with_calls in (("with_calls", True), ("without_calls", False)):
            n_episodes, rates = pass_rates(results, of_arm, with_calls)
            row |= {
                f"pass_rate_{kind}": np.mean(rates) if rates else None,
                f"episodes_{kind}": n_episodes,
                f"questions_{kind}": len(rates),
            }
        rows.append(row)
    return pd.DataFrame(rows)


def calls_by_tool(episodes: pd.DataFrame) -> pd.DataFrame:
    """Return one row per tool that was called: its calls, how many were faulty, and how many had each fault.

    The tool is empty for calls that named no existing one.
    """
    calls = pd.DataFrame([call for row in episodes["calls"] for call in row], columns=["tool", "fault"])
    counts = pd.crosstab(calls["tool"], calls["fault"]).reindex(columns=["", *FAULTS], fill_value=0)
    faulty = counts[list(FAULTS)].sum(axis=1)
    return counts.assign(calls=counts[""] + faulty, faulty=faulty).reset_index()[["tool", "calls", "faulty", *FAULTS]]


def calls_by_turn(episodes: pd.DataFrame) -> pd.DataFrame:
    """Return one row per turn 1, 2, ...: the episodes that have it, and their calls in it."""
    longest = max(map(len, episodes["calls_of_turns"]), default=0)
    by_turn = [[calls[turn] for calls in episodes["calls_of_turns"] if len(calls) > turn] for turn in range(longest)]
    rows = [{"turn": turn, "episodes": len(calls), "calls": sum(calls)} for turn, calls in enumerate(by_turn, 1)]
    return pd.DataFrame(rows, columns=["turn", "episodes", "calls"])


def answers_found(episodes: pd.DataFrame) -> pd.DataFrame:
    """Return two rows: the episodes that a result shows the correct answer, and the others; how many are correct."""
    right = {found: episodes.loc[episodes["shows_answer"] == found, "solved"] for found in (True, False)}
    return pd.DataFrame(
        [{"found": found, "episodes": len(rows), "correct": int(rows.sum())} for found, rows in right.items()]
    )


def _stacked(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    return pd.concat([table.assign(arm=arm) for arm, table in tables.items()], ignore_index=True)[
        ["arm", *next(iter(tables.values()))]
    ]


def _votes_table(experiment: ToolUse, results: Results, has_votes: bool) -> str:
    def majority_text(arms: Sequence[ToolArm]) -> str:
        right = [majority(results, results.attempts_of_arm(arm)) for arm in arms] if has_votes else []
        return estimate_text(estimate(right)) if right else "–"

    def rate_text(arm: ToolArm, with_calls: bool) -> str:
        n_episodes, rates = pass_rates(results, results.attempts_of_arm(arm), with_calls)
        return f"{share_text(rates)} (episodes: {n_episodes}, questions: {len(rates)})" if rates else "–"

    rows: list[list[object]] = []
    for name, arms in experiment.repetitions.items():
        if len(arms) > 1:
            rows.append([f"`{name}`, mean of {len(arms)}", majority_text(arms), "–", "–", "–"])
        for arm in arms:
            calls = f"{results.attempts_of_arm(arm)['n_calls'].mean():.2f}"
            rows.append([f"`{arm.name}`", majority_text([arm]), calls, rate_text(arm, True), rate_text(arm, False)])
    rates = [f"pass rate of episodes {which} calls" for which in ("with", "without")]
    return markdown_table(["arm", f"maj@{experiment.evaluation.n_predictions}", "calls per episode", *rates], rows)


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


def _other_calls(episodes: Mapping[str, pd.DataFrame]) -> str:
    """Return a note on answers that look like calls; empty if there are none."""
    counts = {arm: int(rows["answers_with_call"].sum()) for arm, rows in episodes.items()}
    listing = ", ".join(f"`{arm}` {n}" for arm, n in counts.items() if n)
    return f" Answers that look like calls of another format, and were not run: {listing}." if listing else ""


def _turns_table(by_turn: pd.DataFrame, arms: Sequence[str]) -> str:
    cells = {
        (row["arm"], row["turn"]): f"{row['calls'] / row['episodes']:.2f} ({row['episodes']})"
        for row in by_turn.to_dict("records")
    }
    turns = range(1, int(by_turn["turn"].max()) + 1)
    rows = [[turn, *(cells.get((arm, turn), "–") for arm in arms)] for turn in turns]
    return markdown_table(["turn", *(f"`{arm}`" for arm in arms)], rows)


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
