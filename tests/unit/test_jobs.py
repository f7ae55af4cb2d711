"""Jobs and stages: every job is what its stage takes, and a wrong one is refused by name before anything is written."""

import inspect
import json
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from checkout import ROOT, SMALL, TOOLS
from experiments import REFINING, TOOL_USE, arguments_of, contents, refining_jobs, settings_of, tool_use_jobs
from factories import make_task
from messages import Wording

from arc_refinery import cli, jobs, records, stages
from arc_refinery.arc.tasks import Task
from arc_refinery.cli.command import completion
from arc_refinery.config import KINDS, Experiment, load_experiment, marked, validate_experiment
from arc_refinery.config.base import PROMPTS
from arc_refinery.errors import InputError
from arc_refinery.jobs import Job
from arc_refinery.outputs import flag_of
from arc_refinery.refining import jobs as refining
from arc_refinery.refining.config import Refining
from arc_refinery.tool_use.config import ToolUse

CONFIGS = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "config").glob("*.yaml"))]
STAGES = [(kind, name) for kind in KINDS for name in stages.stages_of(kind)]


def experiments(base: str) -> Iterator[Experiment]:
    """A config, and what is derived from the small ones."""
    variants = {SMALL: REFINING, TOOLS: TOOL_USE}.get(base)
    if variants is None:
        yield load_experiment(ROOT / base)
        return
    for content in contents(base, variants):
        yield validate_experiment(content, base)


def planned(experiment: Experiment) -> Iterator[tuple[str, Job]]:
    """All jobs, each with its stage."""
    if isinstance(experiment, Refining):
        for name, job in refining_jobs(experiment).items():
            yield stage_of(name, experiment), job
        if experiment.sets_to_keep_apart:
            yield "overlap", refining.overlap(experiment)
    else:
        assert isinstance(experiment, ToolUse)
        for name, job in tool_use_jobs(experiment).items():
            yield name.split()[0], job
    for adapter in experiment.kept_adapters:
        yield "train", jobs.train(experiment, adapter)
    for download in experiment.downloads:
        yield "fetch", jobs.fetch(experiment, download.path)


def stage_of(name: str, experiment: Refining) -> str:
    stage, *rest = name.split()
    if stage == "training_prompts":
        assert experiment.training
        return "first_prompts" if experiment.training.prompts == "first-turn" else "refining_prompts"
    if stage == "prompts":
        return "first_prompts" if rest[-1].startswith("turn1") else "refining_prompts"
    return stage


@pytest.mark.parametrize("base", [SMALL, TOOLS, *CONFIGS])
def test_every_job_is_what_its_stage_takes(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    for experiment in experiments(base):
        for stage, job in planned(experiment):
            arguments = arguments_of(stage, settings_of(job))
            for name, value in arguments.items():
                if own := experiment.section_types().get(name):
                    assert type(value) is own, f"{stage}: {name}"
            check_tuning(job)


def check_tuning(job: Job) -> None:
    """No value of the tuning is among the settings: another one would make the result again."""
    settings, tuning = json.loads(job.settings), json.loads(job.tuning)
    for name, value in tuning.items():
        assert name not in settings or isinstance(value, dict)
        assert not (isinstance(value, dict) and settings.get(name, {}).keys() & value.keys()), name


def test_the_values_of_a_job_are_those_of_the_experiment() -> None:
    experiment = load_experiment(ROOT / SMALL, Refining)
    training = experiment.training
    assert training and training.sft
    grpo = arguments_of("train", settings_of(jobs.train(experiment, "trained")))["grpo"]
    assert grpo == experiment.runs["trained"].grpo
    assert arguments_of("grade", settings_of(refining.grade(experiment)))["sandbox"] == experiment.sandbox
    made = arguments_of("demonstrations", settings_of(refining.demonstrations(experiment, "part1")))
    assert made["demonstrations"] == training.sft.demonstrations
    sampled = arguments_of("sample", settings_of(refining.sample(experiment, "heldout", "turn1")))["model"]
    of_model = experiment.model.model_dump(exclude=marked(type(experiment.model), PROMPTS))
    assert sampled.model_dump(include=set(of_model)) == of_model


def test_settings_and_tuning_are_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[Any] = []
    monkeypatch.setattr(stages, "call", lambda *arguments: called.append(arguments))
    words = ["sample", '{"model": {"path": "m"}, "seed": 0}', "--tuning", '{"model": {"kv_cache_gb": null}, "n": 1}']
    stages.run([*words, "--n-jobs", "2", "--output=a", "b"])
    settings = {"model": {"path": "m", "kv_cache_gb": None}, "seed": 0, "n": 1}
    assert called == [("sample", settings, {"n_jobs": ["2"], "output": ["a", "b"]})]


def test_the_first_line_of_a_log_repeats_the_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records.write(tmp_path / "it's.parquet", Task, [make_task()], 0, {})
    paths = ["--trained", str(tmp_path / "it's.parquet"), "--evaluated", str(tmp_path / "it's.parquet")]
    stages.run(["overlap", '{"domain": "arc"}', *paths, "--output", str(tmp_path / "found.parquet")])
    first = capsys.readouterr().err.splitlines()[0]
    (tmp_path / "found.parquet").unlink()
    stages.run(shlex.split(first.removeprefix("$ arc-refinery stage ")))
    assert records.count(tmp_path / "found.parquet") == 1


# Wrong jobs

GRADE = {"domain": "arc", "sandbox": {}, "seed": 0}
FILES = "--attempts a --tasks b --output out"
WRONG: list[tuple[Any, str, list[str]]] = [
    (GRADE | {"sead": 1, "output": "o"}, FILES, ["sead is not known", "output is not known"]),
    (GRADE, f"{FILES} --n-job 2", ["--n-job is not known"]),
    (GRADE, f"{FILES} --seed 3 --kind refining", ["--seed is not known", "--kind is not known"]),
    ({"domain": "arc"}, "--attempts --output", ["sandbox is", "seed is", "--attempts is", "--tasks is", "--output is"]),
    (GRADE | {"seed": "x", "sandbox": {"memory_mb": -1, "cpus": 2}}, FILES,
     ["sandbox.memory_mb is -1", "sandbox.cpus is not", "seed is 'x'"]),
    (GRADE | {"sandbox": 3}, FILES, ["sandbox is 3"]),
    (GRADE, f"{FILES} --n-jobs two", ["--n-jobs is 'two'"]),
    (GRADE, f"{FILES} --n-jobs", ["--n-jobs is None"]),
    (GRADE, f"{FILES} --tasks c", ["--tasks has 2 values; expected one"]),
    (GRADE, "--attempts a ./a b --tasks b --output out", ["--attempts names a twice"]),
    ("{", FILES, ["its first argument is not valid JSON"]),
    ("[]", FILES, ["its first argument: is a list"]),
    ('{"seed": 1, "seed": 2}', FILES, ["its first argument is not valid JSON (the key 'seed' appears twice)"]),
    (GRADE, f"{FILES} --tuning [", ["--tuning is not valid JSON"]),
    (GRADE, f"{FILES} --tuning", ["--tuning is missing"]),
    (GRADE, f"seed {FILES}", ["'seed' is behind no flag"]),
    (GRADE | {"domain": "chess"}, FILES, ["domain is 'chess'"]),
    (GRADE | {"kind": "chess"}, FILES, ["kind is 'chess'"]),
    (GRADE | {"kind": "tool-use"}, FILES, ["grade is not a stage of the kind tool-use"]),
]  # fmt: skip


@pytest.mark.parametrize(("settings", "flags", "expected"), WRONG)
def test_a_wrong_job_is_refused_with_a_line_for_each_fault(
    settings: Any, flags: str, expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = main(monkeypatch, "grade", settings if isinstance(settings, str) else json.dumps(settings), *flags.split())
    lines = str(ended).removeprefix("arc-refinery: ").splitlines()
    assert len(lines) == len(expected)
    assert [fault for fault in expected if not any(fault in line for line in lines)] == []
    assert not list(tmp_path.iterdir())
    wording(ended)


def main(monkeypatch: pytest.MonkeyPatch, *words: str) -> object:
    """The exit code of the command line, or its message where the code is 1."""
    monkeypatch.setattr(sys, "argv", ["arc-refinery", "stage", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code


def test_a_process_ends_with_code_1_and_one_line_for_each_fault(tmp_path: Path) -> None:
    words = ["stage", "grade", json.dumps(GRADE | {"seed": -1}), "--attempts", "a", "--output", "out"]
    done = subprocess.run(
        [sys.executable, "-c", "from arc_refinery.cli import main; main()", *words],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    command, *faults = done.stderr.splitlines()
    assert shlex.split(command)[2:] == words
    assert [fault.partition(";")[0] for fault in faults] == [
        "arc-refinery: stage grade: seed is -1",
        "stage grade: --tasks is missing",
    ]
    assert not list(tmp_path.iterdir())


def test_words_that_are_no_text_are_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    assert main(monkeypatch, "grade", "{}", "--output", "\udcff") == 2
    assert "'\\udcff' is not valid UTF-8" in capsys.readouterr().err


# Help


def test_help_lists_all_stages_with_what_they_do(capsys: pytest.CaptureFixture[str]) -> None:
    stages.run(["--help"])
    printed = capsys.readouterr().out
    assert [name for _, name in STAGES if f"\n  {name} " not in printed] == []


@pytest.mark.parametrize(("kind", "name"), STAGES)
def test_help_of_a_stage_names_its_settings_and_flags(kind: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    stages.run([name, "--help"])
    printed = capsys.readouterr().out
    (shown,) = (part for part in printed.split("\nkind: ") if part.startswith(kind))
    for parameter in inspect.signature(stages.load(name, kind)).parameters.values():
        label = flag_of(parameter.name) if parameter.kind is parameter.KEYWORD_ONLY else parameter.name
        assert f" {label}" in shown


@pytest.mark.parametrize("words", [["jugde", "{}"], ["jugde", "--help"]])
def test_a_stage_that_does_not_exist_is_named(words: Sequence[str]) -> None:
    with pytest.raises(InputError, match="jugde is not a stage"):
        stages.run(words)


@pytest.mark.parametrize(("typed", "expected"), [("stage refi", "refining_prompts"), ("sta", "stage")])
def test_bash_completes_stages(typed: str, expected: str) -> None:
    words = ["arc-refinery", *typed.split()]
    typing = f"COMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}; _arc_refinery"
    shell = f'{completion()}\n{typing}; echo "${{COMPREPLY[*]}}"'
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=True)
    assert done.stdout == f"{expected}\n"


def test_every_flag_of_a_stage_is_given_by_a_rule() -> None:
    rules = "".join(path.read_text() for path in (ROOT / "rules").glob("*.smk"))
    commands = rules.split("arc-refinery stage ")[1:]
    for kind, name in STAGES:
        text = " ".join(command.partition("\n\n")[0] for command in commands if command.startswith(f"{name} "))
        parameters = inspect.signature(stages.load(name, kind)).parameters.values()
        flags = [flag_of(parameter.name) for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
        assert [flag for flag in flags if f"{flag} " not in text] == [], name
