"""A domain from outside the package, `letters`, has arms, controls, intervals and trainings without code for them."""

from pathlib import Path
from typing import Any

import pandas as pd
import processes
import pytest
from checkout import Checkout

from arc_refinery import records
from arc_refinery.training.log import read_lines

CONFIG = "tests/environments/letters.yaml"
ON_PATH = {"PYTHONPATH": "tests/environments"}
ARMS = ["independent", "refine-base", "refine-trained", "count", "no-feedback", "twin", "fresh"]

pytestmark = [pytest.mark.snakemake, pytest.mark.training]


def run(checkout: Checkout, *command: str) -> str:
    done = processes.run(command, checkout.folder, ON_PATH)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def finished(pristine: Checkout, tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    checkout = pristine.clone(tmp_path_factory.mktemp("letters") / "checkout")
    run(checkout, "snakemake", "--cores", "1", "--configfile", CONFIG)
    return checkout


def steps(checkout: Checkout, experiment: str) -> list[dict[str, Any]]:
    log = checkout.folder / f"results/{experiment}/adapters/trained/training.jsonl"
    return [line for line in read_lines(log) if isinstance(line, dict) and "reward" in line]


def asked(checkout: Checkout, branch: str) -> dict[str, str]:
    """The last message of each prompt of a branch, by task."""
    path = checkout.folder / f"results/letters/{branch}/prompts.parquet"
    return {prompt.task_id: str(prompt.messages[-1]["content"]) for prompt in records.read(path, records.Prompt)}


def test_its_report_has_arms_controls_and_intervals(finished: Checkout):
    report = (finished.folder / "results/letters.md").read_text()
    for arm in ARMS:
        (row,) = (line for line in report.splitlines() if line.startswith(f"| `{arm}` | 7 |"))
        assert row.count("%") == 4 and row.count("[") == 4  # solved, pass rate, unique and valid outputs
    differences = [line for line in report.splitlines() if " − `independent` | " in line and " / " in line]
    assert len(differences) == 3 * (len(ARMS) - 1)  # in tasks solved, at equal tokens without and with prompts
    assert all(f"with `feedback: {kind}`" in report for kind in ("twin", "none", "fresh"))
    assert "letters there" in report
    assert "right on all its letters" in report
    assert "| tasks of `words` | the row gives no task | 1 |" in report
    assert "`trained`: GRPO, 2 optimizer steps." in report
    assert (finished.folder / "results/letters.html").exists()


def test_each_kind_of_feedback_reaches_the_model(finished: Checkout):
    arms = ("refine-base", "count", "no-feedback", "twin", "fresh")
    named, counted, none, twin, fresh = (asked(finished, f"words/{arm}-turn2") for arm in arms)
    assert all(text.startswith("Your text lacks ") for text in [*named.values(), *counted.values()])
    assert not any("of the letters" in text for text in named.values())
    assert all("of the letters" in text for text in counted.values())
    assert set(none.values()) == {"Write a better text."}
    assert all(twin[task] != text for task, text in named.items() if task in twin)
    assert fresh.keys() == named.keys()
    assert all(text.startswith("Write a text with the letters ") for text in fresh.values())


def test_attempts_have_the_domains_column(finished: Checkout):
    attempts = pd.read_parquet(finished.folder / "results/letters/attempts.parquet")
    assert attempts["share"].between(0, 1).all()
    solved = attempts["share"] == 1.0
    assert 0 < solved.sum() < len(attempts)
    assert (attempts["solved"] == solved).all()


def test_it_trains_on_its_second_turns_and_repeats_nothing(finished: Checkout):
    prompts = asked(finished, "part1/training")
    assert prompts and max(prompts) <= "words-000010"  # later rows are evaluated
    assert all(text.startswith("Your text lacks ") for text in prompts.values())
    assert len(steps(finished, "letters")) == 2
    assert "Nothing to be done" in run(finished, "snakemake", "--cores", "1", "--configfile", CONFIG)


def test_a_changed_module_makes_again_what_it_decides(finished: Checkout, tmp_path: Path):
    changed = finished.clone(tmp_path / "changed")
    package = changed.folder / "tests/environments/letters"
    command = ("snakemake", "--dry-run", "--cores", "1", "--configfile", CONFIG)
    (package / "test_letters.py").write_text("")
    assert "Nothing to be done" in run(changed, *command)
    module = package / "domain.py"
    module.write_text(module.read_text().replace("Your text lacks", "It lacks"))
    planned = run(changed, *command).split()
    decided = {"evaluation_tasks", "tasks", "first_prompts", "grade", "refining_prompts", "training_prompts", "train"}
    assert decided | {"report"} <= set(planned)


def test_it_trains_on_policy_in_three_turns(finished: Checkout):
    def change(content: dict[str, Any]) -> None:
        content["training"]["grpo"] |= {"rollout": "on-policy", "n_turns": 3}
        content["training"]["prompts"] = "first-turn"
        content.update(experiment="on-policy")

    config = finished.change(change, CONFIG)
    run(finished, "snakemake", "--cores", "1", "--configfile", config, "--until", "train")
    shares = [line["share/second_turn"] for line in steps(finished, "on-policy")]
    assert len(shares) == 2 and max(shares) > 0
