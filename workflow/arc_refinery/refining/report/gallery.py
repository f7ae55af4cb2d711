"""Report section with single tasks: a first attempt, the feedback that the model got, and the refined attempt."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from arc_refinery import records
from arc_refinery.config import DOMAINS
from arc_refinery.domains.domain import Domain, GradedAttempt, load_domain
from arc_refinery.domains.prompts import opening, split_prefix
from arc_refinery.evaluation.attempts import Results
from arc_refinery.evaluation.metrics import SOLVED
from arc_refinery.refining.config import Arm, Refining
from arc_refinery.refining.graded import program_of, read_attempts
from arc_refinery.reporting.kind import PerTask
from arc_refinery.reporting.markdown import fenced, folded
from arc_refinery.reporting.outcomes import refining_pairs
from arc_refinery.reporting.publish import Attachments

FIRST, REFINED = "first program", "refined program"
N_SHOWN = 2  # tasks per class
MAX_PROGRAM, MAX_FEEDBACK, MAX_UNFOLDED = 60, 100, 12  # lines
ONLY_BY_REFINING, ONLY_BY_BASELINE = "Solved only by refining", "Solved only by the baseline"
NOBODY = "Solved by nobody"
RULES = f"""\
Tasks are chosen by fixed rules: of each class the first {N_SHOWN} in the set's order that have the attempts shown.

- *{ONLY_BY_REFINING}*: solved by `{{arm}}`, not by `{{baseline}}`. Shown: the first refining attempt that solves it, and the attempt that it refines.
- *{ONLY_BY_BASELINE}*: solved by `{{baseline}}`, not by `{{arm}}`. Shown: the best incorrect attempt of turn 1, which is refined first, and the first attempt to refine it.
- *{NOBODY}*: solved by no arm of the experiment. Shown: as for *{ONLY_BY_BASELINE}*."""  # noqa: E501
NEVER_SEEN = "\n\nThe model never sees {}: neither what they expect nor results on them."


@dataclass(frozen=True, slots=True)
class GalleryItem:
    """A task and two attempts on it; the second refines the first."""

    task_id: str
    first_id: str
    second_id: str
    turn: int  # turn of the second attempt


def section(
    experiment: Refining,
    folder: Path,
    results: Results,
    metrics: PerTask,
    files: Attachments,
) -> list[str]:
    """Return Markdown blocks on some tasks of a set; their pictures are added to `files`.

    `folder`: the experiment's results. `metrics`: `per_task` of each of its arms.
    """
    pair = pair_to_show(experiment)
    if pair is None:
        return ["No arm refines, so there are no refining attempts to show."]
    arm, baseline = pair
    domain = load_domain(experiment.domain)
    classes = choose(results, arm, baseline, _solved(metrics))
    all_items = [item for _, items in classes.values() for item in items]
    if not all_items:
        return [f"No task had anything to refine in `{arm.name}`, so there are no refining attempts to show."]
    shown = _read(domain, experiment, folder, results.name, arm, all_items)
    rules = RULES.format(arm=arm.name, baseline=baseline.name)
    blocks = [rules + (NEVER_SEEN.format(domain.hidden) if _hides(experiment) else "")]
    for title, (n, items) in classes.items():
        number = f"{n} {'task' if n == 1 else 'tasks'}, {len(items) or 'none'} of them shown" if n else "no task"
        blocks.append(f"**{title}**: {number}.")
        for item in items:
            task, attempts = shown[item]
            name = f"gallery/{results.name}-{re.sub(r'[^A-Za-z0-9._-]', '-', item.task_id)}.png"
            blocks += [
                f"#### `{item.task_id}`: {title.lower()}",
                *_attempts(domain, results.name, task, attempts, files, name, is_small=False),
                programs_block(domain, *attempts.values()),
            ]
    return blocks


def repaired(
    experiment: Refining,
    folder: Path,
    results: Results,
    metrics: PerTask,
    files: Attachments,
) -> list[str]:
    """Return blocks on one repaired program, of a task that only refining solves if there is one; none if none is."""
    pair = pair_to_show(experiment)
    if pair is None:
        return []
    arm, baseline = pair
    _, items = choose(results, arm, baseline, _solved(metrics))[ONLY_BY_REFINING]
    if not items:
        refined = _refined(results, arm)
        items = _first_items(refined[refined["solved"]], results.task_ids)
    if not items:
        return []
    domain = load_domain(experiment.domain)
    ((task, attempts),) = _read(domain, experiment, folder, results.name, arm, items[:1]).values()
    first, second = attempts.values()
    programs = [program_of(domain, graded) for graded in attempts.values()]
    blocks = [
        f"**A task that `{arm.name}` solved with a later attempt** (`{task.task_id}` of `{results.name}`). The prompt "
        "of the second program shows the first one and what it gave."
        + (f" It never sees {domain.hidden}." if _hides(experiment) else ""),
        *_attempts(domain, results.name, task, attempts, files, f"gallery/{results.name}-repaired.png", is_small=True),
    ]
    if max(len(program.splitlines()) for program in programs) > MAX_UNFOLDED:
        return [*blocks, programs_block(domain, first, second)]
    return [
        *blocks,
        f"First program{_fenced(programs[0], domain.language, MAX_PROGRAM)}",
        f"Refined program{_fenced(programs[1], domain.language, MAX_PROGRAM)}",
        folded(
            "Feedback in the prompt",
            *_shown(domain, second.prompt),
            f"Feedback{_fenced(_feedback(second), 'text', MAX_FEEDBACK)}",
        ),
    ]


def _attempts(
    domain: Domain,
    set_name: str,
    task: Any,
    attempts: Mapping[str, GradedAttempt],
    files: Attachments,
    name: str,
    is_small: bool,
) -> list[str]:
    """Return the picture of a task and of what attempts gave, or a list of it if the domain draws none."""
    if not domain.pictures:
        listing = "\n".join(
            f"{label}: {line}" if not number else line
            for label, graded in attempts.items()
            for number, line in enumerate(domain.verdict_lines(graded))
        )
        return [_fenced(listing, "text", MAX_FEEDBACK).removeprefix(":\n\n")]
    facts = [f"of the {label}, {domain.pictures.facts_in_words(task, graded)}" for label, graded in attempts.items()]
    seen = f"Task {task.task_id} of {set_name}: inputs, expected outputs, and outputs {'; '.join(facts)}"
    return [f"![{seen}]({files.add(name, partial(domain.pictures.draw, task, attempts, is_small))})"]


def _hides(experiment: Refining) -> bool:
    """Return whether prompts show no hidden check; whether those of a domain of one's own do, is not known."""
    return experiment.domain in DOMAINS and bool(load_domain(experiment.domain).hidden)


def pair_to_show(experiment: Refining) -> tuple[Arm, Arm] | None:
    """Return an arm that refines and its baseline: the primary comparison's first one, else the last.

    Controls only if no other arm refines.
    """
    pairs = refining_pairs(experiment) or [(arm, experiment.arms[0]) for arm in experiment.arms if len(arm.turns) > 1]
    informed = [(arm, baseline) for arm, baseline in pairs if not arm.is_control]
    primary = experiment.evaluation.primary
    names = {arm.name for arm in experiment.arms_called(primary.arms[0])} if primary else set()
    asked = [pair for pair in informed if pair[0].name in names]
    return next(reversed(asked or informed or pairs), None)


def choose(results: Results, arm: Arm, baseline: Arm, solved: pd.DataFrame) -> dict[str, tuple[int, list[GalleryItem]]]:
    """Return, by class, the number of its tasks and the items to show, by `RULES`.

    `solved`: one row per task, in the set's order; one column of booleans per arm.
    """
    refined = _refined(results, arm)
    solving = refined[refined["solved"]]
    by_refining, by_baseline = solved[arm.name], solved[baseline.name]
    classes = {
        ONLY_BY_REFINING: (by_refining & ~by_baseline, solving),
        ONLY_BY_BASELINE: (by_baseline & ~by_refining, refined),
        NOBODY: (~solved.any(axis=1), refined),
    }
    return {
        title: (int(is_in.sum()), _first_items(attempts, list(solved.index[is_in])))
        for title, (is_in, attempts) in classes.items()
    }


def _refined(results: Results, arm: Arm) -> pd.DataFrame:
    turns = range(2, len(arm.turns) + 1)
    return pd.concat([results.attempts_of_turn(arm, turn) for turn in turns], ignore_index=True)


def _solved(metrics: PerTask) -> pd.DataFrame:
    return pd.DataFrame({name: by_task[SOLVED] == 1.0 for name, by_task in metrics.items()})


def _first_items(attempts: pd.DataFrame, task_ids: Sequence[str]) -> list[GalleryItem]:
    """Return the first attempt on each of the first tasks that have any."""
    rows = {row["task_id"]: row for row in attempts.drop_duplicates("task_id").to_dict("records")}
    first_rows = [rows[task_id] for task_id in task_ids if task_id in rows][:N_SHOWN]
    return [GalleryItem(row["task_id"], row["parent_id"], row["attempt_id"], int(row["turn"])) for row in first_rows]


def _read(
    domain: Domain, experiment: Refining, folder: Path, name: str, arm: Arm, items: Sequence[GalleryItem]
) -> dict[GalleryItem, tuple[Any, dict[str, GradedAttempt]]]:
    """Read the task of each item, and its two attempts by label."""
    attempts: dict[str, GradedAttempt] = {}
    for turn in sorted({item.turn for item in items}):
        for branch, column in ((arm.branch(turn - 1), "first_id"), (arm.branch(turn), "second_id")):
            ids = [getattr(item, column) for item in items if item.turn == turn]
            attempts |= read_attempts(domain, experiment.files(folder, name, branch), ids)
    tasks = {task.task_id: task for task in records.read(folder / f"tasks/{name}.parquet", domain.task_class)}
    return {
        item: (tasks[item.task_id], {FIRST: attempts[item.first_id], REFINED: attempts[item.second_id]})
        for item in items
    }


def programs_block(domain: Domain, first: GradedAttempt, second: GradedAttempt) -> str:
    """Return the first program, its feedback and the second program as a collapsed block."""
    turn = second.attempt.turn
    blocks = [
        "<details><summary>First program, feedback, refined program</summary>",
        *_shown(domain, second.prompt),
        f"First program (turn {turn - 1}){_fenced(program_of(domain, first), domain.language, MAX_PROGRAM)}",
        f"Feedback{_fenced(_feedback(second), 'text', MAX_FEEDBACK)}",
        f"Refined program (turn {turn}){_fenced(program_of(domain, second), domain.language, MAX_PROGRAM)}",
        "</details>",
    ]
    return "\n\n".join(blocks)


def _shown(domain: Domain, prompt: Any) -> list[str]:
    """Return how a prompt shows the task: in another form than the picture, or, without a picture, its first turn."""
    if domain.pictures:
        return [text for text in [domain.pictures.changes(prompt)] if text]
    question = opening(split_prefix(prompt.messages)[0])[-1]["content"]
    return [f"Task{_fenced(str(question), 'text', MAX_FEEDBACK)}"]


def _feedback(graded: GradedAttempt) -> str:
    """Return the last message that the model read before it answered."""
    messages, _ = split_prefix(graded.prompt.messages)
    return str(messages[-1]["content"])


def _fenced(text: str, language: str, most: int) -> str:
    """Return what follows a title: a text as a fenced block."""
    return f":\n\n{fenced(text, language, most)}" if text else ": none."
