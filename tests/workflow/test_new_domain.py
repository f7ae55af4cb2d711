"""`arc-refinery dev new-domain` writes a package that works as it is: its test, its config, and stages by hand."""

import subprocess
import sys
from pathlib import Path

import pandas as pd
import processes
import pytest
from checkout import ROOT, copy

from arc_refinery import cli, records
from arc_refinery.config.layers import read_config
from arc_refinery.errors import InputError
from arc_refinery.records import Attempt, Prompt, Verdict

CONFIG = "mine/print_sums/print_sums.yaml"
WITH_TOOLS = "mine/print_sums/with_tools.yaml"


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


@pytest.mark.slow
def test_no_file_has_the_name_of_the_template(folder: Path):
    files = {path.name: path.read_text() for path in folder.glob("mine/print_sums/*") if path.is_file()}
    names = [
        "__init__.py",
        "answers.jsonl",
        "config.py",
        "domain.py",
        "print_sums.yaml",
        "tasks.json",
        "test_print_sums.py",
        "with_tools.yaml",
    ]
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


def solved(results: Path) -> dict[str, int]:
    table = pd.read_csv(results / "report/examples-tasks.csv")
    return {str(arm): int(rows["solved"].sum()) for arm, rows in table.groupby("arm")}


@pytest.mark.snakemake
def test_its_config_runs_with_decided_answers(tmp_path: Path):
    checkout = copy(tmp_path)
    run(checkout.folder, "arc-refinery", "dev", "new-domain", "print_sums", "--output", "mine")
    run(checkout.folder, "snakemake", "--cores", "2", "--configfile", CONFIG, "--quiet", "rules")
    results = checkout.folder / "results/print-sums"
    first = {
        attempt.attempt_id: verdict.solved
        for path in sorted(results.glob("examples/turn1/attempts/*.parquet"))
        for attempt, verdict in zip(
            records.read(path, Attempt),
            records.read(path.parents[1] / "verdicts" / path.name, Verdict),
            strict=True,
        )
    }
    assert sum(first.values()) == 4  # every second answer to one task is right, of 8 each
    assert len(first) == 4 * 8
    prompts = list(records.read(results / "examples/refine-turn2/prompts.parquet", Prompt))
    feedback = {prompt.task_id: prompt.messages[-1]["content"] for prompt in prompts}
    assert feedback["twice"] == (
        "For n = 3 your program printed '5', expected '6'. For n = -1 your program printed '1', expected '-2'. "
        "Write a corrected program."
    )
    assert feedback["square"] == "For n = 3 your program printed '5', expected '9'. Write a corrected program."
    report = results.with_suffix(".md").read_text()
    assert "No model answered: the file `mine/print_sums/answers.jsonl` (hash `" in report
    assert solved(results) == {"independent": 1, "refine": 2, "twin": 2}

    run(checkout.folder, "snakemake", "--cores", "2", "--configfile", WITH_TOOLS, "--quiet", "rules")
    with_tools = results.with_name("print-sums-with-tools")
    assert solved(with_tools) == {"plain": 1, "with-python": 1}
    for name in (results, with_tools):
        assert "Domain `print_sums`: modules with the hash `" in name.with_suffix(".md").read_text()

    answers = checkout.folder / "mine/print_sums/answers.jsonl"
    answers.write_text(answers.read_text().replace("print(n * n)", "print(n)"))  # what was sampled is sampled again
    run(checkout.folder, "snakemake", "--cores", "2", "--configfile", CONFIG, "--quiet", "rules")
    assert solved(results) == {"independent": 1, "refine": 1, "twin": 1}


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
