"""The configs in examples/: each is valid, and together they run, cut down, with the embedded model."""

import json
import re
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
import yaml
from checkout import ROOT, Checkout

from arc_refinery import records
from arc_refinery.config import check_files, load_experiment
from arc_refinery.config.layers import merged
from arc_refinery.domains.arc.prompts import COMPACT, save_template
from arc_refinery.domains.arc.records import Prompt

pytestmark = [pytest.mark.snakemake, pytest.mark.model]

ON_ARC = ["own-model", "own-tasks", "own-wording", "own-reward", "more-turns"]
EXAMPLES = [ON_ARC[0], "endpoint", ON_ARC[1], "own-code", *ON_ARC[2:], "own-tool"]
CUT_DOWN: dict[str, Any] = {
    "experiment": "own",
    "model": {"path": "workflow/models/tiny", "window": 1024, "n_threads": 1},
    "sampling": {"max_output_tokens": 24},
    "parts": {"tasks_per_part": 4},
    "training": {
        "max_completion_length": 24,
        "max_seq_length": 1024,
        "grpo": {"num_generations": 4, "prompts_per_step": 1, "max_steps": 2, "n_jobs": 1},
    },
}


def test_each_example_is_a_file_of_examples_and_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert sorted(path.stem for path in ROOT.glob("examples/*.yaml")) == sorted(EXAMPLES)
    for name in ("examples", "config", "workflow"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    save_template(COMPACT, Path("templates/mine"))
    for name in EXAMPLES:
        path = Path(f"examples/{name}.yaml")
        experiment = load_experiment(path)
        assert experiment.experiment == name
        check_files(experiment, str(path), contents=True)


def test_the_page_shows_the_examples_as_they_are():
    page = (ROOT / "docs/your-own.md").read_text()
    shown = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)]
    assert shown == [yaml.safe_load((ROOT / f"examples/{name}.yaml").read_text()) for name in EXAMPLES]
    (function,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert function == (ROOT / "examples/rewards.py").read_text()


@pytest.fixture(scope="module")
def run(pristine: Checkout, tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """All examples on ARC as one experiment, but for the arm of two turns."""
    checkout = pristine.clone(tmp_path_factory.mktemp("own") / "checkout")
    exported = checkout.run("arc-refinery", "prompts", "export", "--template", "compact", "--output", "templates/mine")
    assert exported.returncode == 0, exported.stderr
    texts = checkout.folder / "templates/mine/feedback.json"
    texts.write_text(texts.read_text().replace("Write a corrected program.", "Correct it."))
    examples = [yaml.safe_load((checkout.folder / f"examples/{name}.yaml").read_text()) for name in ON_ARC]
    content = reduce(merged, [*examples, CUT_DOWN])
    del content["base"], content["compare"]
    arms = {arm["name"]: arm for example in examples for arm in example.get("evaluation", {}).get("arms", ())}
    content["evaluation"]["arms"] = [arms[name] for name in ("independent", "four-turns", "refine-trained")]
    for turn in (turn for arm in content["evaluation"]["arms"] for turn in arm["turns"]):
        turn["n_predictions"] *= 4  # so that each turn has a wrong attempt to refine
    config = checkout.folder / "results/own.yaml"
    config.parent.mkdir()
    config.write_text(yaml.safe_dump(content))
    done = checkout.snakemake("--cores", "2", "--configfile", "results/own.yaml", "--quiet", "rules")
    assert done.returncode == 0, done.stdout + done.stderr
    return checkout


def test_the_own_tasks_are_attempted_in_as_many_turns_as_the_arm_has(run: Checkout):
    folder = run.folder / "results/own/mine"
    assert sorted({prompt.task_id for prompt in records.read(folder / "turn1/prompts.parquet", Prompt)}) == [
        "mirror", "recolor", "turn",
    ]  # fmt: skip
    assert {path.parent.name for path in folder.glob("*/prompts.parquet")} == {
        "turn1", "four-turns-turn2", "four-turns-turn3", "four-turns-turn4", "refine-trained-turn2",
    }  # fmt: skip


def test_the_own_wording_is_what_the_model_reads(run: Checkout):
    prompts = list(records.read(run.folder / "results/own/mine/refine-trained-turn2/prompts.parquet", Prompt))
    assert prompts
    assert all(prompt.messages[-1]["content"].endswith("Correct it.") for prompt in prompts)


def test_the_own_reward_is_a_term_of_the_training(run: Checkout):
    lines = (run.folder / "results/own/adapters/trained/training.jsonl").read_text().splitlines()
    steps = [step for step in map(json.loads, lines) if "reward" in step]
    assert len(steps) == 2
    for step in steps:
        assert step["reward"] == pytest.approx(
            step["reward_term/arc-v1"] + 0.5 * step["reward_term/is_brief"], abs=1e-5
        )


def test_an_attempt_of_many_turns_is_shown_without_saying_anything_twice(run: Checkout):
    last = run.folder / "results/own/mine/four-turns-turn4/prompts.parquet"
    task = next(records.read(last, Prompt)).task_id
    done = run.run("arc-refinery", "show", "results/own:four-turns", "--task", task[:4], "--attempt", "0")
    assert done.returncode == 0, done.stderr
    for part in ("[user]", ": answer,", "verdict ---"):
        assert done.stdout.count(part) == 4
    assert done.stdout.count("Correct it.") == 3
