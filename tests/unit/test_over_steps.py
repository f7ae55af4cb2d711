"""The report's section on the kept steps of a training, from results made by hand."""

import csv
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from checkout import ROOT
from messages import Wording

from arc_refinery.config import validate_experiment
from arc_refinery.domains.arc.config import ArcExperiment, TaskSet
from arc_refinery.domains.arc.domain import Domain
from arc_refinery.evaluation.metrics import PROGRAMS, names
from arc_refinery.reporting import over_steps
from arc_refinery.reporting.publish import Attachments

PANELS = (*names((*PROGRAMS, *Domain.metrics)), "pass_rate")

# Tasks solved and pass rate of each arm; step 20 solves as many as step 10, at a higher rate
VALIDATION = {"base": (1, 0.1), "steps@10": (3, 0.2), "steps@20": (3, 0.3)}
HELDOUT = {"base": (2, 0.1), "steps@10": (4, 0.4), "steps@20": (1, 0.2)}
N_TASKS = 4


def experiment(training: dict[str, Any] | None = None, arms: int = 2) -> ArcExperiment:
    content = yaml.safe_load((ROOT / "tests/refining.yaml").read_text())
    content["training"] |= {"keep_steps": [10, 20], **(training or {})}
    content["training"]["grpo"] |= {"max_steps": 30, "save_steps": 10}
    content["evaluation"]["arms"] = [
        {"name": "base", "turns": [{"n_predictions": 8}]},
        {"name": "steps", "turns": [{"n_predictions": 8, "adapter": "trained@*"}]},
    ][-arms:]
    content["evaluation"]["primary"] = None
    return validate_experiment(content, "test", ArcExperiment)


def sets(experiment: ArcExperiment, **validation: bool) -> dict[str, TaskSet]:
    first = experiment.evaluation.sets[0]
    return {name: first.model_copy(update={"name": name, "validation": is_one}) for name, is_one in validation.items()}


def results(figures: dict[str, tuple[int, float]]) -> dict[str, pd.DataFrame]:
    """Per task, of each arm: the first tasks are solved."""
    tables = {}
    for arm, (n_solved, pass_rate) in figures.items():
        columns = dict.fromkeys(PANELS, [0.5] * N_TASKS)
        solved = [1.0] * n_solved + [0.0] * (N_TASKS - n_solved)
        tables[arm] = pd.DataFrame(columns | {"solved": solved, "pass_rate": [pass_rate] * N_TASKS})
    return tables


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("report")


@pytest.fixture(scope="module")
def blocks(folder: Path) -> list[str]:
    settings = experiment()
    files = Attachments(str(folder))
    both = sets(settings, validation=True, heldout=False)
    section = over_steps.section(
        settings, [(both["validation"], results(VALIDATION)), (both["heldout"], results(HELDOUT))], files
    )
    files.write(folder)
    return section


@pytest.mark.slow
def test_the_validation_set_chooses_and_the_other_set_says_what_the_choice_is_worth(
    blocks: list[str], wording: Wording
):
    (sentence,) = (block for block in blocks if "Chosen" in block)
    assert re.search(r"`validation`: step 20\*\*.* 75\.0 %.* 25\.0 % ", sentence)
    # one task of 4 after step 20, two before training; step 20 is also the last one
    assert re.search(r"`heldout` \(−25\.0 points \[\S+, \S+\] against step 0\)\.$", sentence)
    wording(sentence)


def test_an_earlier_step_is_set_against_the_first_and_the_last_one(tmp_path: Path, wording: Wording):
    settings = experiment()
    both = sets(settings, validation=True, heldout=False)
    best_at_10 = {"base": (1, 0.1), "steps@10": (4, 0.5), "steps@20": (2, 0.3)}
    section = over_steps.section(
        settings,
        [(both["validation"], results(best_at_10)), (both["heldout"], results(HELDOUT))],
        Attachments(str(tmp_path)),
    )
    (sentence,) = (block for block in section if "Chosen" in block)
    # 4 tasks, 2 before training, 1 after step 20
    assert re.search(
        r"\(\+50\.0 points \[\S+, \S+\] against step 0, \+75\.0 points \[\S+, \S+\] against step 20\)", sentence
    )
    wording(sentence)


def test_the_tables_have_a_row_for_each_step_from_before_the_training_on(blocks: list[str]):
    first, second = (block for block in blocks if block.startswith("| step |") and "valid code" not in block)
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in first.splitlines()]
    assert cells[0] == ["step", "n tasks", "solved", "pass rate", "unique outputs"]
    assert [(row[0], row[1], row[2].split(" %")[0], row[3].split(" %")[0]) for row in cells[2:]] == [
        ("0", "4", "25.0", "10.0"),
        ("10", "4", "75.0", "20.0"),
        ("20", "4", "75.0", "30.0"),
    ]
    assert [line.split("|")[3].split(" %")[0].strip() for line in second.splitlines()[2:]] == ["50.0", "100.0", "25.0"]


def test_the_plot_and_the_table_as_csv_are_written(blocks: list[str], folder: Path):
    assert blocks[-1] == f"[As CSV]({folder}/steps-steps.csv)."
    assert (folder / "steps-steps.png").stat().st_size > 0
    lines = list(csv.DictReader((folder / "steps-steps.csv").open()))
    assert len(lines) == 2 * 3 * len(PANELS)
    (one,) = (line for line in lines if (line["set"], line["step"], line["metric"]) == ("heldout", "10", "pass_rate"))
    assert float(one["mean"]) == 0.4


def test_without_a_validation_set_no_step_is_chosen(tmp_path: Path, wording: Wording):
    settings = experiment()
    only = sets(settings, heldout=False)["heldout"]
    blocks = over_steps.section(settings, [(only, results(HELDOUT))], Attachments(str(tmp_path)))
    (sentence,) = (block for block in blocks if "`validation: true`" in block)
    wording(sentence)
    assert "Chosen on" not in "\n".join(blocks)


def test_without_an_untrained_arm_the_first_kept_step_is_the_first(tmp_path: Path):
    settings = experiment(arms=1)
    both = sets(settings, validation=True, heldout=False)
    kept = {"steps@10": (3, 0.2), "steps@20": (1, 0.1)}
    tables = [(both[name], results(kept)) for name in ("validation", "heldout")]
    section = "\n".join(over_steps.section(settings, tables, Attachments(str(tmp_path))))
    assert "against step 20" in section and "against step 0" not in section
    assert "75.0 % solved at the first step, 25.0 % at the last step" in section


def test_trainings_that_keep_no_step_have_no_section(tmp_path: Path):
    content = yaml.safe_load((ROOT / "tests/refining.yaml").read_text())
    settings = validate_experiment(content, "test", ArcExperiment)
    assert over_steps.section(settings, [], Attachments(str(tmp_path))) == []
