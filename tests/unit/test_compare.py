"""Two experiments or arms against each other: who solved what, on which tasks, and what is refused."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkout import ROOT
from factories import make_task
from handmade import WRONG, finished, settings
from messages import Wording, line_with

from arc_refinery import records
from arc_refinery.arc.tasks import Pair, Task
from arc_refinery.config import ConfigError, load_experiment, validate_experiment
from arc_refinery.domains.arc.config import ArcExperiment
from arc_refinery.errors import InputError
from arc_refinery.evaluation.sides import arms_to_pair, match_runs, read_sides, side
from arc_refinery.reporting.compare import SideResults, comparison, differences, pair, shared_tasks
from arc_refinery.reporting.kind import reported
from arc_refinery.reporting.tables import comparisons

ARMS = {
    "independent": [{"n_predictions": 4}],
    "refine": [{"n_predictions": 2}, {"n_predictions": 2}],
}
# independent solves a and c; refine solves c (turn 1) and b (turn 2), but not e, with an attempt for train and one for
# test
ANSWERS = {
    "turn1": {"a": "wwSw", "b": "wwww", "c": "Swww", "d": "nnee", "e": "wwww"},
    "refine-turn2": {"a": "ww", "b": "wS", "c": "ww", "e": "Tt"},
}


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    _, folder = finished(tmp_path, settings(ARMS, "demo"), ANSWERS, "abcde")
    return folder


def compared(*sides: object, wanted: tuple[str, ...] = ()) -> str:
    return comparison(read_sides(list(map(str, sides))), wanted)


def another(results: Path, tasks: str = "dcxa", **changes: Any) -> Path:
    """Another experiment on some of the tasks, in shards; it solves c and x at once."""
    answers = {"turn1": {task: "wS" if task in "cx" else "ww" for task in tasks}}
    content = settings({"independent": [{"n_predictions": 2}]}, "other", **changes)
    _, folder = finished(results, content, answers, tasks, n_shards=2)
    return folder


def test_two_domains_are_refused(demo: Path, tmp_path: Path, wording: Wording):
    code = tmp_path / "code"
    code.mkdir()
    (code / "settings.json").write_text(load_experiment(ROOT / "config/code-demo.yaml").model_dump_json())
    with pytest.raises(InputError, match=f"{demo} is of the domain arc, {code} of the domain code") as refusal:
        read_sides([str(demo), str(code)])
    wording(refusal.value)


def test_arms_of_one_experiment_are_paired_by_task(demo: Path):
    first, second = side(f"{demo}:refine"), side(f"{demo}:independent")
    one, other = SideResults.read(first, "small", ["refine"]), SideResults.read(second, "small", ["independent"])
    pairing = pair(one, other, ("refine", "independent"), shared_tasks(one, other))
    assert (pairing.only_first, pairing.only_second) == (("b",), ("a",))
    c = pairing.comparison
    assert (c.n_first, c.n_second, c.only_first, c.only_second, c.difference.n_tasks) == (2, 2, 1, 1, 5)
    assert (c.difference.mean, c.p_value) == (0, 1)


def test_the_terminal_gets_a_table_a_sentence_and_the_tasks(demo: Path, wording: Wording):
    text = compared(f"{demo}:refine", f"{demo}:independent")
    assert f"`{demo}:refine` − `{demo}:independent` | 2 − 2 of 5 | +0.0 |" in text
    sentence = line_with(text, "p = 1.000")
    assert "1 solved" in sentence and " 1 by " in sentence
    assert "`" not in sentence.partition("**")[2]  # which names the better arm, if there is one
    assert line_with(text, "by the first:").endswith(": `b`.")
    assert line_with(text, "by the second:").endswith(": `a`.")
    assert not re.search(r" turn \d: ", text)  # both read the same first turn, and only one has a second
    wording(text)


def test_turns_are_compared_where_the_arms_read_different_attempts(demo: Path, tmp_path: Path, wording: Wording):
    other = another(tmp_path / "elsewhere")
    text = compared(f"{demo}:refine", f"{other}:independent")
    # turn 1 of a, c and d: 0 - 0, 1/2 - 1/2, 0 - 0 with the two attempts that refine has
    sentence = line_with(text, " turn 1: ")
    assert " | 3 | 16.7 % | 16.7 % | +0.0 | [" in sentence


def test_a_run_and_its_repetition_are_compared_attempt_by_attempt(demo: Path, tmp_path: Path, wording: Wording):
    """One attempt of 13 at turn 1, which both arms have, is another one."""
    answers = {**ANSWERS, "turn1": {**ANSWERS["turn1"], "a": "wwww"}}
    _, again = finished(tmp_path / "elsewhere", settings(ARMS, "again"), answers, "abcde")
    text = compared(demo, again)
    (row,) = (line for line in text.partition("## Repetition")[2].splitlines() if line.startswith("| `small`"))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    n = 4 * 5 + 2 * 5 + 2 * 4  # independent; refine's first and second turn
    assert cells[:3] == ["`small`", str(n), str(n)]
    assert cells[4].startswith(f"{n - 1} (")  # independent reads the third attempt at a, refine does not
    wording(text.partition("## Repetition")[2].splitlines()[2])
    assert "## Repetition" not in compared(demo, another(tmp_path / "third"))
    assert f"| `small` | {2 * 5 + 2 * 4} |" in compared(f"{demo}:refine", f"{again}:refine")
    assert "## Repetition" not in compared(f"{demo}:refine", f"{again}:independent")


def test_two_experiments_share_their_common_tasks_whatever_their_order_and_shards(
    demo: Path, tmp_path: Path, wording: Wording
):
    text = compared(demo, another(tmp_path / "elsewhere"))
    assert " on 3 tasks, paired:" in text  # a, c and d
    first, second = line_with(text, "`b`, `e`"), line_with(text, "`x`")
    assert f"`{demo}`" in first and "other`" in second
    assert "| 2 − 1 of 3 | +33.3 |" in text  # a and c against c; refine is in one of them only
    assert line_with(text, "by the first:").endswith(": `a`.")
    budgets = line_with(text, "budgets")
    assert " 4 and 2 " in budgets
    assert "refine` −" not in text
    for line in (first, second, budgets):
        wording(line)


def test_one_arm_is_paired_with_that_of_the_same_name(demo: Path, tmp_path: Path, wording: Wording):
    other = another(tmp_path / "elsewhere")
    assert arms_to_pair(side(f"{demo}:independent"), side(str(other))) == [("independent", "independent")]
    with pytest.raises(InputError) as caught:
        arms_to_pair(side(f"{demo}:refine"), side(str(other)))
    assert f"{demo}:refine {other}:independent" in str(caught.value)
    wording(caught.value)


def test_repetitions_of_an_arm_are_compared_by_their_mean(tmp_path: Path, wording: Wording):
    content = settings({"independent": [{"n_predictions": 2}]}, "seeds")
    content["evaluation"]["seeds"] = [1, 2]
    answers = {
        "turn1-sampling-1": {"a": "wS", "b": "ww", "c": "ww", "d": "ww"},
        "turn1-sampling-2": {"a": "wS", "b": "ww", "c": "Sw", "d": "ww"},
    }
    _, seeds = finished(tmp_path, content, answers, "abcd")
    first, second = side(str(seeds)), side(str(another(tmp_path / "elsewhere")))
    one, other = (SideResults.read(each, "small", ["independent"]) for each in (first, second))
    pairing = pair(one, other, ("independent", "independent"), shared_tasks(one, other))
    c = pairing.comparison  # on a, c, d: seeds solve 1 and 2 of them, the other solves c
    assert (c.n_first, c.n_second, c.n_runs, c.is_exact) == (1.5, 1.0, 1, False)
    assert (pairing.only_first, pairing.only_second) == (("a",), ("c",))
    sentence = line_with(compared(seeds, tmp_path / "elsewhere/other"), "by the first:")
    assert sentence.endswith(": `a`.")
    wording(sentence)


def test_runs_that_both_sides_have_are_paired_and_named(wording: Wording):
    x, y, z = (np.array([value, 0.0]) for value in (1.0, 2.0, 3.0))
    equal = match_runs({0: x, 1: y, 2: z}, {0: z, 1: x, 2: y})
    assert (equal.first.tolist(), equal.is_paired, equal.note) == ([[1, 0], [2, 0], [3, 0]], True, "")
    part = match_runs({0: x, 1: y}, {2: z, 1: x, 0: z})
    assert (part.first.tolist(), part.second.tolist()) == ([[1, 0], [2, 0]], [[3, 0], [1, 0]])
    one = match_runs({0: x, 1: y}, {1: z, 2: x})
    assert (one.first.tolist(), one.second.tolist(), one.is_paired) == ([[2, 0]], [[3, 0]], True)
    others = match_runs({0: x, 1: y, 2: z}, {3: x, 4: y, 5: x, 6: z})
    assert (len(others.first), len(others.second), others.is_paired) == (3, 4, False)
    single = match_runs({0: x}, {1: x, 2: y, 3: z})
    assert (single.first.tolist(), single.is_paired) == ([[1, 0]] * 3, True)
    assert match_runs({None: x}, {1: x, 2: y, 3: z}).note == ""  # the untrained model has no other trainings
    for runs in (part, one, others, single):
        wording(runs.note)


@pytest.mark.parametrize("points", [0, 2])
def test_equal_recipes_of_other_seeds_are_rarely_told_apart(points: int):
    """Pass rates on 100 tasks; without the variance of trainings, 65 % of these would be false alarms at 2 points."""
    rng, false_alarms = np.random.default_rng(0), 0
    for _ in range(600):
        tasks = rng.beta(0.5, 0.5, 100)
        rates = np.clip(tasks + rng.normal(0, points / 100, (6, 1)), 0, 1)
        runs = dict(enumerate(rng.binomial(64, rates) / 64))
        sides = {seed: runs[seed] for seed in range(3)}, {seed: runs[seed] for seed in range(3, 6)}
        false_alarms += match_runs(*sides).difference.supports_difference
    assert false_alarms / 600 < 0.065


def test_the_interval_is_that_of_the_experiments_own_report(demo: Path):
    experiment = side(str(demo)).experiment
    one = SideResults.read(side(str(demo)), "small", ["independent", "refine"])
    result = pair(one, one, ("refine", "independent"), one.results.task_ids).comparison
    metrics = {name: runs[0] for name, runs in one.metrics.items()}
    (own,) = comparisons(experiment, "small", metrics)
    assert (result.difference.low, result.difference.high) == (own.difference.low, own.difference.high)


@pytest.mark.parametrize(
    ("first", "second", "facts"),
    [
        ("nowhere", "demo", r"nowhere/settings\.json: "),
        ("demo:best", "demo", r"demo/settings\.json: .* best.* independent, refine"),
        ("demo", "demo", r" \S*demo:independent \S*demo:refine"),
        ("demo:refine", "demo:refine", "demo:refine"),
    ],
)
def test_what_cannot_be_compared_is_refused_with_what_to_do(
    demo: Path, first: str, second: str, facts: str, wording: Wording
):
    with pytest.raises(InputError) as caught:
        compared(demo.parent / first, demo.parent / second)
    assert re.search(facts, str(caught.value))
    wording(caught.value)


def test_what_has_nothing_in_common_is_named(demo: Path, tmp_path: Path, wording: Wording):
    text = compared(demo, another(tmp_path / "elsewhere", tasks="xyz"))
    assert "the settings of the sets" in line_with(text, "no task in common")
    wording(line_with(text, "no task in common").replace(str(tmp_path), ""))
    with pytest.raises(InputError) as no_set:
        compared(f"{demo}:refine", f"{demo}:independent", wanted=("large",))
    assert "large" in str(no_set.value) and "small" in str(no_set.value)
    wording(no_set.value)
    for sides in ((demo,), ()):
        with pytest.raises(InputError) as alone:
            compared(*sides)
        wording(alone.value)


def test_another_task_of_the_same_id_is_an_error(demo: Path, tmp_path: Path, wording: Wording):
    other = another(tmp_path / "elsewhere")
    task = make_task("c")
    changed = dataclasses.replace(task, test=(Pair(task.test[0].input, np.rot90(WRONG)),))
    tasks = [changed if name == "c" else make_task(name) for name in "dcxa"]
    records.write(other / "tasks/small.parquet", Task, tasks, 0, {})
    reported(load_experiment(other / "settings.json"), other).write_attempts()
    with pytest.raises(InputError) as caught:
        compared(demo, other)
    assert " task c " in str(caught.value)
    assert "are equal" in str(caught.value)  # the settings of the sets
    wording(caught.value)
    content = json.loads((other / "settings.json").read_text())
    content["evaluation"]["sets"][0] |= {"n_hidden": 10, "shards": 2}
    (other / "settings.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"other settings than those of settings\.json"):
        SideResults.read(side(str(other)), "small", [])
    reported(load_experiment(other / "settings.json"), other).write_attempts()
    experiment = SideResults.read(side(str(other)), "small", []).side.experiment
    assert isinstance(experiment, ArcExperiment)
    assert experiment.evaluation.sets[0].n_hidden == 10
    with pytest.raises(InputError) as caught:
        shared_tasks(SideResults.read(side(str(demo)), "small", []), SideResults.read(side(str(other)), "small", []))
    assert "`n_hidden` is 0 and 10" in str(caught.value)
    assert "shards" not in str(caught.value)  # they change no task


def test_settings_differ_by_their_paths_and_by_the_names_of_list_items():
    one = {"seed": 0, "model": {"path": "m", "window": 9}, "arms": [{"name": "x", "n": 1}, {"name": "y", "n": 1}]}
    two = {"seed": 0, "model": {"path": "m", "window": 8}, "arms": [{"name": "x", "n": 2}], "training": {"beta": 0.1}}
    assert list(differences([one, two])) == [
        ["`model.window`", "9", "8"],
        ["`arms.x.n`", "1", "2"],
        ["`arms.y`", "given", "–"],
        ["`training`", "–", "given"],
    ]
    assert list(differences([one, one])) == []


def test_experiments_are_set_side_by_side(demo: Path, tmp_path: Path):
    other = another(tmp_path / "elsewhere", seed=3)
    lines = compared(demo, other).splitlines()
    refine = next(line for line in lines if line.startswith(f"| `{demo}` | `refine` |")).split(" | ")
    assert refine[2] == "5"
    assert refine[3].startswith("2/5 = 40.0 % [")
    assert refine[4].startswith("10.0 % [")  # c solves with one of two, four tasks with none
    assert refine[5].startswith("12.5 % [")  # b solves with one of two, three tasks with none; d has no second turn
    # per task: turn 1 two of 10 and 11 tokens and a prompt of 20; turn 2 the same with a prompt of 40, for 4 of 5 tasks
    assert refine[6:] == ["3.6", f"{41 + 61 * 4 / 5:.0f} |"]
    assert next(line for line in lines if "demo:independent` − " in line).split(" | ")[1] == "2 − 1 of 3"
    assert "| `seed` | 0 | 3 |" in lines
    assert "| `evaluation.arms.refine` | given | – |" in lines
    assert lines[-1] == "None."  # neither trains


def test_the_settings_of_one_experiment_do_not_differ(demo: Path):
    text = compared(f"{demo}:refine", f"{demo}:independent")
    assert "## Settings" not in text and "## Columns" in text


def test_every_two_of_three_experiments_are_compared(demo: Path, tmp_path: Path, wording: Wording):
    content = settings({"another": [{"n_predictions": 1}]}, "third")
    _, third = finished(tmp_path, content, {"turn1": {"a": "w"}}, "a")
    text = compared(demo, another(tmp_path / "elsewhere"), third)
    assert len(re.findall("^`.*` − `.*`(?:,|:)", text, re.MULTILINE)) == 3
    assert text.count(": no arm of the same name.") == 2


def test_sets_of_one_experiment_alone_are_named(demo: Path, tmp_path: Path, wording: Wording):
    content = settings({"independent": [{"n_predictions": 1}]}, "third")
    content["evaluation"]["sets"] = [{"name": "large", "source": "generator", "n_tasks": 9}]
    _, third = finished(tmp_path, content, {"turn1": {"a": "w"}}, "a")
    with pytest.raises(InputError) as nothing:
        compared(demo, third)
    wording(nothing.value)
    text = compared(demo, third, another(tmp_path / "elsewhere"))
    sentence = line_with(text, "Not compared")
    assert f"only `{third}`" in sentence and "`large`" in sentence
    wording(sentence)


@pytest.mark.parametrize(("names", "experiment"), [(["a"], "tiny"), (["a", "b", "a"], "tiny"), ([], "compare")])
def test_a_config_names_two_experiments_or_more_once(names: list[str], experiment: str, wording: Wording):
    with pytest.raises(ConfigError) as caught:
        validate_experiment(settings(ARMS, experiment, compare=names), "test", ArcExperiment)
    assert "compare" in str(caught.value)
    wording(caught.value)
    assert validate_experiment(settings(ARMS, compare=["a", "b"]), "test", ArcExperiment).compare == ("a", "b")
