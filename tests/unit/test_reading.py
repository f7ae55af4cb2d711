"""What own results add beside controls, and what training adds to that, counted by hand."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from handmade import finished, results_of, settings
from messages import Wording

from arc_refinery import config
from arc_refinery.domains.arc.config import ArcExperiment
from arc_refinery.evaluation.attempts import Results, with_outcomes
from arc_refinery.evaluation.intervals import estimate_difference
from arc_refinery.reporting import reading
from arc_refinery.reporting.kind import reported
from arc_refinery.reporting.markdown import difference_text
from arc_refinery.reporting.publish import Attachments
from arc_refinery.reporting.report import compose

ARMS: dict[str, list[dict[str, Any]]] = {
    "base": [{}, {}],
    "base-twin": [{}, {"feedback": "twin"}],
    "trained": [{}, {"adapter": "trained"}],
    "trained-twin": [{}, {"adapter": "trained", "feedback": "twin"}],
    "trained-none": [{}, {"adapter": "trained", "feedback": "none"}],
}
COMPARISONS = [["base", "base-twin"], ["trained", "trained-twin"], ["trained", "trained-none"]]
# S is right, w is not. The first two attempts refine one that gave a wrong value, the others one that raised
ANSWERS = {
    "base": {"a": "Swww", "b": "Swww"},
    "base-twin": {"a": "wwww", "b": "wwSw"},
    "trained-seed-0": {"a": "SSSw", "b": "wwSw"},
    "trained-seed-1": {"a": "SSww", "b": "wwSS"},
    "trained-seed-2": {"a": "Swww", "b": "wwww"},
    "trained-twin-seed-0": {"a": "Swww", "b": "wwww"},
    "trained-twin-seed-1": {"a": "wwSw", "b": "Swww"},
    "trained-twin-seed-2": {"a": "wwww", "b": "wwww"},
    **{f"trained-none-seed-{seed}": {"a": "SSSS", "b": "SSSS"} for seed in range(3)},
}


def experiment(arms: Mapping[str, Sequence[Mapping[str, Any]]], comparisons: Sequence[Sequence[str]]) -> ArcExperiment:
    content = settings({name: [{"n_predictions": 4, **turn} for turn in turns] for name, turns in arms.items()})
    content["evaluation"]["comparisons"] = comparisons
    training = {"seeds": [0, 1, 2], "grpo": {"learning_rate": 1e-3}, "max_completion_length": 16, "max_seq_length": 100}
    trained = {"problems": {"source": "generator"}, "parts": {"tasks_per_part": 5}, "training": training}
    return config.validate_experiment(content | trained, "test", ArcExperiment)


def attempt(branch: str, task: str, index: int, letter: str) -> dict[str, Any]:
    is_first = branch == "turn1"
    return {
        "attempt_id": f"{task}/{branch}/{index}",
        "parent_id": "" if is_first else f"{task}/turn1/{index // 2}",
        "task_id": task,
        "sample": index,
        "status": "error" if letter == "e" else "ok",
        "solved": letter == "S",
        # of the first two alone
        "likeness": float("nan") if is_first or index > 1 else (0.9 if "twin" in branch else 0.5) + index / 10,
        "reference_logprob": float("nan") if is_first or "none" in branch else -0.5 if "twin" in branch else -0.25,
    }


def results(settings: ArcExperiment, answers: Mapping[str, Mapping[str, str]]) -> Results:
    letters = {"turn1": dict.fromkeys("abc", "we")} | {f"{arm}-turn2": tasks for arm, tasks in answers.items()}
    branches = {
        branch: with_outcomes(
            pd.DataFrame(
                attempt(branch, task, index, letter)
                for task, text in tasks.items()
                for index, letter in enumerate(text)
                if letter != "-"
            )
        )
        for branch, tasks in letters.items()
    }
    return results_of(settings.arms, branches, "abc")


def cells(table: str) -> dict[str, list[str]]:
    """Cells of a Markdown table by the first two of each line."""
    lines = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
    return {f"{line[0]}, {line[1]}": line[2:] for line in lines}


@pytest.fixture(scope="module")
def blocks() -> list[str]:
    settings = experiment(ARMS, COMPARISONS)
    return reading.section(settings, results(settings, ANSWERS))


def test_own_results_are_compared_with_each_control(blocks: list[str], wording: Wording):
    explained, _, table, *_ = blocks
    rows = cells(table)
    assert list(rows) == [
        "`base`, turn 2: right, `twin`",
        "`base`, turn 2: likelihood of the right program, `twin`",
        "`trained`, turn 2: right, `twin`",
        "`trained`, turn 2: likelihood of the right program, `twin`",
        "`trained`, turn 2: right, `none`",
    ]
    likelihood = rows["`trained`, turn 2: likelihood of the right program, `twin`"]
    assert likelihood == ["2", "−25.0", "−50.0", "+25.0 [+25.0, +25.0]", "+25.0, +25.0, +25.0"]
    n_tasks, own, control, difference, per_training = rows["`base`, turn 2: right, `twin`"]
    assert [n_tasks, own, control, per_training] == ["2", "25.0 %", "12.5 %", "–"]  # a 1/4 - 0, b 1/4 - 1/4
    assert difference == difference_text(estimate_difference([[0.25, 0.25]], [[0.0, 0.25]]))
    n_tasks, own, control, difference, per_training = rows["`trained`, turn 2: right, `twin`"]
    # of seeds 0, 1, 2: a 3/4, 2/4, 1/4 and b 1/4, 2/4, 0; with a twin a 1/4, 1/4, 0 and b 0, 1/4, 0
    assert [n_tasks, own, control, per_training] == ["2", "37.5 %", "12.5 %", "+37.5, +25.0, +12.5"]
    own_rates, control_rates = [[0.75, 0.25], [0.5, 0.5], [0.25, 0.0]], [[0.25, 0.0], [0.25, 0.25], [0.0, 0.0]]
    assert difference == difference_text(estimate_difference(own_rates, control_rates))
    assert difference.startswith("+25.0 [")
    assert "`twin`, the results of another" in explained and "`none`, no results." in explained
    wording(explained)


def test_training_adds_the_difference_of_the_differences(blocks: list[str]):
    # `none` was not sampled without training
    (title, (n_tasks, trained, untrained, difference, per_training)), (_, likelihood) = cells(blocks[3]).items()
    assert title == "`trained` − `base`, turn 2: right, `twin`"
    assert likelihood[1:3] == ["+25.0", "+25.0"] and likelihood[3].startswith("+0.0")
    assert [n_tasks, trained, untrained] == ["2", "+25.0", "+12.5"]
    # 37.5, 25 and 12.5, minus 12.5
    assert per_training == "+25.0, +12.5, +0.0"
    # trained: a 2/4, 1/4, 1/4 and b 1/4, 1/4, 0; untrained: a 1/4, b 0
    by_hand = estimate_difference([[0.5, 0.25], [0.25, 0.25], [0.25, 0.0]], [[0.25, 0.0]] * 3)
    assert difference == difference_text(by_hand) and difference.startswith("+12.5 [")


def test_attempts_are_split_by_the_failure_of_what_they_refine(blocks: list[str], wording: Wording):
    folded, explained, table, _ = blocks[4].split("\n\n")
    assert folded.startswith("<details>")
    rows = cells(table)
    found = {
        title.removesuffix(", `twin`"): (*line[:3], line[3].partition(" [")[0].strip("*"), line[4])
        for title, line in rows.items()
        if title.endswith("`twin`")
    }
    assert found == {
        "`base`, turn 2: right after an exception": ("2", "0.0 %", "25.0 %", "−25.0", "–"),
        "`base`, turn 2: right after a wrong value": ("2", "50.0 %", "0.0 %", "+50.0", "–"),
        "`base`, turn 2: likeness to the refined program": ("2", "55.0 %", "95.0 %", "−40.0", "–"),
        "`trained`, turn 2: right after an exception": ("2", "33.3 %", "8.3 %", "+25.0", "+50.0, +25.0, +0.0"),
        "`trained`, turn 2: right after a wrong value": ("2", "41.7 %", "16.7 %", "+25.0", "+25.0, +25.0, +25.0"),
        "`trained`, turn 2: likeness to the refined program": (
            *("2", "55.0 %", "95.0 %", "−40.0", "−40.0, −40.0, −40.0"),
        ),
    }
    wording(explained)


def test_only_programs_that_both_arms_refine_are_compared():
    """Where the control lacks the program that raised, its easier half would be compared with the whole."""
    settings = experiment({name: ARMS[name] for name in ("base", "base-twin")}, [])
    answers = {"base": {"a": "wwSS", "b": "Swww"}, "base-twin": {"a": "Sw--", "b": "wwww", "c": "SSSS"}}
    (_, (n_tasks, own, control, *_)), *others = cells(reading.section(settings, results(settings, answers))[2]).items()
    assert [n_tasks, own, control] == ["2", "12.5 %", "25.0 %"]  # a 0 and 1/2, b 1/4 and 0
    assert len(others) == 1  # the likelihood


def test_arms_pair_that_are_equal_but_for_the_feedback_of_a_turn():
    arms: dict[str, list[dict[str, Any]]] = {
        "usual": [{}, {}, {}],
        "form": [{}, {"form": "residual"}, {}],
        "twin": [{}, {}, {"feedback": "twin"}],
        "none": [{}, {"feedback": "none"}, {"feedback": "none"}],
        "placebo": [{}, {"feedback": "twin"}, {}],
        "trained-none": [{}, {"adapter": "seed-0", "feedback": "none"}, {}],
        "first": [{"adapter": "seed-0"}, {"feedback": "none"}, {}],
        "single": [{}],
    }
    # the first arm is compared with all; two controls are no pair, and each pair counts once
    others = [["none", "twin"], ["usual", "twin"], ["form", "none"], ["none", "placebo"]]
    pairs = reading.feedback_pairs(experiment(arms, others))
    assert [(pair.own, pair.control, len(pair.turns) - 1, pair.title) for pair in pairs] == [
        ("usual", "form", 2, "`residual`"),
        ("usual", "twin", 3, "`twin`"),
        ("usual", "none", 2, "`none`"),
        ("usual", "placebo", 2, "`twin`"),
        ("twin", "none", 2, "`none`"),  # they differ in turn 2 already, where `twin` has own results
        ("form", "none", 2, "`none`"),
    ]


def test_the_first_screen_has_the_first_set_and_other_sections_theirs(tmp_path: Path):
    content = settings(
        {"base": [{"n_predictions": 2}] * 2, "none": [{"n_predictions": 2}, {"n_predictions": 2, "feedback": "none"}]}
    )
    answers = {
        "turn1": {"a": "ww", "b": "ww"},
        "base-turn2": {"a": "Sw", "b": "ww"},
        "none-turn2": {"a": "ww", "b": "ww"},
    }
    _, folder = finished(tmp_path, content, answers, ["a", "b"])
    shutil.copytree(folder / "small", folder / "other")
    shutil.copy(folder / "tasks/small.parquet", folder / "tasks/other.parquet")
    content["evaluation"]["sets"] *= 2
    content["evaluation"]["sets"][1] = content["evaluation"]["sets"][0] | {"name": "other"}
    of_kind = reported(config.validate_experiment(content, "test", ArcExperiment), folder)
    of_kind.write_attempts()
    first_screen, *sections = "\n\n".join(compose(of_kind, Attachments("tiny/report"))).split("\n## ")
    row = "| `base`, turn 2: right | `none` | 2 | 25.0 % | 0.0 % | +25.0 ["
    has_row = [section.partition("\n")[0] for section in sections if row in section]
    assert row in first_screen and has_row == ["Set `other` (2 tasks)"]


def test_without_a_control_there_is_nothing_to_say():
    settings = experiment({"base": ARMS["base"], "trained": ARMS["trained"]}, [])
    assert reading.section(settings, results(settings, ANSWERS)) == []
