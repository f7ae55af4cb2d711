"""Arms of many turns, with other seeds: run for real, without training."""

import csv
from typing import Any

import pytest
from checkout import Checkout, copy

from arc_refinery import records
from arc_refinery.domains.arc.records import Attempt

pytestmark = [pytest.mark.snakemake, pytest.mark.model]

ARMS = [
    {"name": "independent", "turns": [{"n_predictions": 16}]},
    {"name": "four-turns", "turns": [{"n_predictions": 4}] * 4},
    {"name": "two-turns", "turns": [{"n_predictions": 8}] * 2},
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    checkout = copy(tmp_path_factory.mktemp("turns"))

    def change(config: dict[str, Any]) -> None:
        for key in ("training", "parts", "problems"):
            del config[key]
        config["evaluation"] = {
            "sets": [{"name": "heldout", "source": "generator", "n_tasks": 6}],
            "arms": ARMS,
            "seeds": [0, 1],
            "comparisons": [["two-turns", "four-turns"]],
        }

    config = checkout.change(change)
    done = checkout.snakemake("--cores", "2", "--configfile", config, "--quiet", "rules")
    assert done.returncode == 0, done.stdout + done.stderr
    return checkout


def attempts(run: Checkout, branch: str) -> list[Attempt]:
    (shard,) = (run.folder / "results/small/heldout" / branch / "attempts").glob("*.parquet")
    return list(records.read(shard, Attempt))


def test_each_turn_refines_the_one_before(run: Checkout) -> None:
    before = {attempt.attempt_id for attempt in attempts(run, "turn1-sampling-0")}
    for turn in (2, 3, 4):
        turn_attempts = attempts(run, f"four-turns-sampling-0-turn{turn}")
        assert turn_attempts
        assert {attempt.turn for attempt in turn_attempts} == {turn}
        assert {attempt.parent_id for attempt in turn_attempts} <= before
        before = {attempt.attempt_id for attempt in turn_attempts}


def test_seeds_of_sampling_give_other_prompts_and_other_completions(run: Checkout) -> None:
    first, second = (attempts(run, f"turn1-sampling-{seed}") for seed in (0, 1))
    assert ({attempt.seed for attempt in first}, {attempt.seed for attempt in second}) == ({0}, {1})
    assert [attempt.task_id for attempt in first] == [attempt.task_id for attempt in second]
    assert [attempt.detail.augmentation for attempt in first] != [attempt.detail.augmentation for attempt in second]
    assert [attempt.completion for attempt in first] != [attempt.completion for attempt in second]


def test_the_report_compares_means_over_the_seeds(run: Checkout) -> None:
    text = (run.folder / "results/small.md").read_text()
    rows = csv.DictReader((run.folder / "results/small/report/heldout-arms.csv").read_text().splitlines())
    solved = {row["name"]: round(6 * float(row["solved"])) for row in rows}
    means = [
        f"{sum(solved[f'{arm}-sampling-{seed}'] for seed in (0, 1)) / 2:.3g}" for arm in ("two-turns", "four-turns")
    ]
    (row,) = [line for line in text.splitlines() if line.startswith("| `two-turns`: ")]
    assert row.split(" | ")[1].startswith(f"{means[0]} (")
    assert f"| `two-turns` − `four-turns` | {' − '.join(means)} of 6 |" in text


def test_the_settings_that_were_written_down_make_the_same_run(run: Checkout) -> None:
    assert not run.planned("--configfile", "results/small/settings.json")
