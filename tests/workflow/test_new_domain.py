"""`arc-refinery dev new-domain` writes a package that works as it is: its test, its config, and stages by hand."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import processes
import pytest
from checkout import ROOT, TINY

from arc_refinery import cli, records
from arc_refinery.config.layers import read_config
from arc_refinery.errors import InputError
from arc_refinery.records import Attempt, Prompt, Verdict

MODEL = {"path": TINY, "window": 512}


def run(folder: Path, *command: str) -> str:
    done = processes.run(command, folder, {"PYTHONPATH": "mine"})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package `print_sums`, beside the embedded model."""
    folder = tmp_path_factory.mktemp("new")
    (folder / "workflow").symlink_to(ROOT / "workflow")
    said = run(folder, "arc-refinery", "dev", "new-domain", "print_sums", "--output", "mine")
    assert f"export PYTHONPATH={folder}/mine" in said
    return folder


def by_hand(folder: Path, stage: str, settings: dict[str, Any], **files: str) -> None:
    job = {"kind": "refining", "domain": "print_sums", **settings}
    flags = [word for name, path in files.items() for word in (f"--{name}", path)]
    run(folder, "arc-refinery", "stage", stage, json.dumps(job), *flags)


@pytest.mark.slow
def test_no_file_has_the_name_of_the_template(folder: Path):
    files = {path.name: path.read_text() for path in folder.glob("mine/print_sums/*") if path.is_file()}
    names = ["__init__.py", "config.py", "domain.py", "print_sums.yaml", "tasks.json", "test_print_sums.py"]
    assert sorted(files) == names
    assert not [name for name, text in files.items() if "my_domain" in text or "my-domain" in text]
    assert "experiment: print-sums\n" in files["print_sums.yaml"]
    assert len(files["print_sums.yaml"].splitlines()) <= 12


@pytest.mark.slow
def test_its_tests_pass(folder: Path):
    words = [
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "--rootdir",
        str(folder),
        str(folder / "mine/print_sums"),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=folder,
        env=processes.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "7 passed" in done.stdout, done.stdout


@pytest.mark.model
def test_its_stages_run_by_hand(folder: Path):
    task_set = {"name": "examples", "path": "mine/print_sums/tasks.json", "n_tasks": 3}
    by_hand(folder, "evaluation_tasks", {"task_set": task_set, "sandbox": {}}, output="tasks.parquet")
    asked = {"model": MODEL, "sampling": {"max_output_tokens": 8, "n_predictions": 2, "batch_size": 2}, "seed": 0}
    files = {"tasks": "tasks.parquet", "output": "turn1/prompts.parquet"}
    by_hand(folder, "first_prompts", asked | {"branch": "turn1"}, **files)
    prompts = list(records.read(folder / "turn1/prompts.parquet", Prompt))
    assert [prompt.task_id for prompt in prompts] == ["twice", "square", "parity"]
    assert "For n = 3 it prints '6'." in prompts[0].text
    attempts = [
        Attempt(
            attempt_id=records.attempt_id(prompt.prompt_id, number),
            prompt_id=prompt.prompt_id,
            task_id=prompt.task_id,
            turn=1,
            parent_id="",
            model="by hand",
            adapter="",
            seed=0,
            temperature=1.0,
            top_p=1.0,
            completion=f"```python\n{program}\n```",
            n_prompt_tokens=prompt.n_tokens,
            n_tokens=8,
            finish_reason="stop",
            logprob=-1.0,
        )
        for prompt in prompts
        for number, program in enumerate(["print(n + n)", "print(n + 2)"])
    ]
    records.write(
        folder / "turn1/attempts/000.parquet", Attempt, attempts, 0, {}, made_from=[folder / "turn1/prompts.parquet"]
    )
    files = {"attempts": "turn1/attempts/000.parquet", "tasks": "tasks.parquet", "output": "turn1/verdicts/000.parquet"}
    by_hand(folder, "grade", {"sandbox": {}, "seed": 0}, **files)
    verdicts = list(records.read(folder / "turn1/verdicts/000.parquet", Verdict))
    assert [(verdict.score, verdict.solved) for verdict in verdicts] == [(1, True), *[(0, False)] * 5]
    refining = {
        "refinement": {"n_parents": 1},
        "feedback": "real",
        "select": {},
        "n_considered": 2,
        "branch": "turn2",
        "n_shards": 1,
        "shards_per_grading_job": 1,
        "tasks_per_batch": 1,
    }
    files = {"prompts": "turn1/prompts.parquet", "output": "turn2/prompts.parquet"}
    by_hand(folder, "refining_prompts", asked | refining, **files)
    feedback = {p.task_id: p.messages[-1]["content"] for p in records.read(folder / "turn2/prompts.parquet", Prompt)}
    assert feedback["twice"] == (
        "For n = 3 your program printed '5', expected '6'. For n = -1 your program printed '1', expected '-2'. "
        "Write a corrected program."
    )
    assert feedback["square"] == "For n = 3 your program printed '6', expected '9'. Write a corrected program."


def test_its_folder_may_have_any_name(tmp_path: Path):
    output = tmp_path / "my_domain, #1: {work}"
    cli.parse(["dev", "new-domain", "sums", "--output", str(output)]).run()
    assert read_config(output / "sums/sums.yaml")["evaluation"]["sets"][0]["path"] == str(output / "sums/tasks.json")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Print-Sums", "lower-case letters, digits and _"),
        ("class", "lower-case letters, digits and _"),
        ("arc", "a domain or a module of this name"),
        ("json", "a domain or a module of this name"),
    ],
)
def test_other_names_are_refused(name: str, expected: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        cli.parse(["dev", "new-domain", name])
    assert f"is {name!r}" in (said := capsys.readouterr().err)
    assert expected in said


def test_no_file_is_replaced(folder: Path):
    config = folder / "mine/print_sums/print_sums.yaml"
    before = config.read_bytes()
    command = cli.parse(["dev", "new-domain", "print_sums", "--output", str(folder / "mine")])
    with pytest.raises(InputError, match=f"--output: {config.parent} exists and is not a new package"):
        command.check_outputs()
    assert config.read_bytes() == before
