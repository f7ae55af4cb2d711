"""The command line as a whole: groups, wrong commands, and a meaning for every flag."""

import inspect
import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from checkout import ROOT
from factories import first_turns, make_task
from messages import run

from arc_refinery import cli, records
from arc_refinery.cli.command import completion as completion_script
from arc_refinery.domains.arc.prompts import load_template
from arc_refinery.domains.arc.records import Prompt
from arc_refinery.domains.prompts import Renderer
from arc_refinery.refining.config import Sampling

pytestmark = pytest.mark.usefixtures("on_a_cpu")

NAMES = [*cli.COMMANDS]


@pytest.mark.parametrize("name", NAMES)
def test_every_flag_is_explained(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setenv("COLUMNS", "110")  # one column
    assert run(monkeypatch, f"{name} --help") == 0
    lines = "\n".join(line.strip("│ ") for line in capsys.readouterr().out.splitlines() if line.startswith("│"))
    flags = re.split(r"\n(?=--?[a-z])", lines)[1:]  # flag and kind, meaning, default
    for flag in flags:
        meaning = re.split(r"\s{2,}|\n", flag, maxsplit=1)[1]
        assert re.match(r"[^(\s]", meaning), flag


def examples(name: str) -> list[list[str]]:
    """The commands that the help of one shows, as words."""
    whole = (inspect.getdoc(cli.load(name)) or "").replace("\\\n", "")
    return [shlex.split(line)[1:] for line in whole.splitlines() if line.startswith("    arc-refinery ")]


@pytest.mark.parametrize("name", NAMES)
def test_help_shows_examples_that_can_be_typed(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    assert run(monkeypatch, f"{name} --help") == 0
    assert "    arc-refinery " in capsys.readouterr().out
    for words in examples(name):
        assert " ".join(words).startswith(name)
        assert isinstance(cli.parse(words), cli.load(name))
        for path in words:
            assert not path.startswith(("config/", "workflow/")) or (ROOT / path).exists()


# Examples that need results or files of other programs; that change this repository; that take long
NOT_TRIED = {"report", "prompts learn", "compare", "show", "predictions import"}
NOT_TRIED |= {"report export", "report publish", "predictions submit", "execute", "doctor", "dev config"}


@pytest.mark.training
def test_examples_run_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    for name in ("config", "workflow"):
        Path(name).symlink_to(ROOT / name)
    sampling = Sampling(batch_size=2, max_output_tokens=48)
    tasks, template = [make_task(name) for name in "ab"], load_template("compact")
    prompts = list(first_turns(tasks, 4, sampling, template, Renderer("workflow/models/tiny")))
    for turn in ("mine/turn1", "mine/turn2"):
        records.write(Path(turn, "prompts.parquet"), Prompt, prompts, 0, {})
    names = [name for name in NAMES if name not in NOT_TRIED]
    for name in sorted(names, key=lambda name: name.startswith("report")):  # of what is trained before
        for words in examples(name):
            command = cli.parse(words)
            command.check_outputs()
            command.run()
            assert all(output.path.exists() for output in command.writes().get("output", ())[:1])


@pytest.mark.parametrize("name", NAMES)
def test_required_flags_come_first_in_help(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("COLUMNS", "110")
    assert run(monkeypatch, f"{name} --help") == 0
    flags = re.split(r"\n│ (?=--[a-z])", capsys.readouterr().out)[1:]
    are_required = ["(required)" in flag for flag in flags]
    assert are_required == sorted(are_required, reverse=True)


WRONG_FLAGS = [
    ("report lengths --prompts a --max-model-len -5 --output o", ["--max-model-len is -5; "]),
    ("report lengths --prompts a ./a b --max-model-len 9 --output o", ["--prompts names a twice; "]),
    ("tasks select --model-path m --max-prompt-tokens -1 --split training", ["--max-prompt-tokens is -1; "]),
    ("prompts learn --messages m --output o --n-rows 0 --min-share 2", ["--min-share is 2.0; ", "--n-rows is 0; "]),
    ("execute --cpu-seconds inf --memory-mb 0 --n-jobs 0",
     ["--n-jobs is 0; ", "--cpu-seconds is inf; ", "--memory-mb is 0; "]),
    ("predictions submit --verdicts a b a --challenges c --output o", ["--verdicts names a twice; "]),
    ("train --dataset-path d --output o --reward-name arc-v9", ["--rewards.0: 'arc-v9' is not a reward; "]),
    ("train --dataset-path d --output o --max-seq-length 9", ["max_seq_length = 9 leaves no room "]),
    ("sample --dataset-path d --output o --temperature nan --top-p 0",
     ["--temperature is nan; ", "--top-p is 0.0; "]),
]  # fmt: skip


@pytest.mark.parametrize(("words", "expected"), WRONG_FLAGS)
def test_numbers_outside_their_bounds_and_files_named_twice_are_refused(
    words: str, expected: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], wording: Any
):
    assert run(monkeypatch, words) == 2
    lines = capsys.readouterr().err.splitlines()
    command = " ".join(words.partition(" --")[0].split())
    faults = [line.removeprefix(f"arc-refinery {command}: ") for line in lines]
    assert sorted(begin for begin in expected if any(fault.startswith(begin) for fault in faults)) == sorted(expected)
    assert len(lines) == len(expected)
    wording("\n".join(lines))


def test_there_are_at_most_sixteen_commands_and_groups_at_the_top():
    assert len({name.split()[0] for name in cli.COMMANDS}) <= 16


@pytest.mark.parametrize(("words", "code"), [("", 2), ("--help", 0), ("-h", 0)])
def test_the_overview_lists_every_command(
    words: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    assert run(monkeypatch, words) == code
    listed = capsys.readouterr().out
    assert [name for name in cli.COMMANDS if f"\n  {name} " not in listed] == []


@pytest.mark.parametrize(
    ("words", "same"),
    [("help", "--help"), ("help sample", "sample --help"), ("help prompts", "prompts --help")],
)
def test_help_is_a_command_as_well(
    words: str, same: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    assert run(monkeypatch, words) == run(monkeypatch, same) == 0
    text = capsys.readouterr().out
    assert text[: len(text) // 2] == text[len(text) // 2 :]


def test_the_version_is_that_of_the_package_also_without_its_program():
    command = [sys.executable, "-m", "arc_refinery", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert done.stdout == f"arc-refinery {project['version']}\n"


@pytest.fixture(scope="module")
def completion(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completion") / "arc-refinery.bash"
    path.write_text(completion_script())
    return path


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("sam", "sample"),
        ("prompts le", "learn"),
        ("doctor ", "memory power"),
        ("doctor memory --", "--configfile"),
        ("sample --dataset-path x --max-m", "--max-model-len"),
        ("train --max-s", "--max-steps --max-seq-length"),
        ("execute --cpu", "--cpu-seconds"),
        ("compare --", "--set --task --score --runs --side --where --output"),
        ("execute --programs resul", ""),  # files, by bash itself
    ],
)
def test_bash_completes_commands_and_flags(typed: str, expected: str, completion: Path):
    words = ["arc-refinery", *typed.split(" ")]
    typing = f"COMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}"
    shell = f'source {completion}; {typing}; _arc_refinery; echo "${{COMPREPLY[*]}}"'
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == (f"{expected}\n", "")


@pytest.mark.parametrize(("words", "code"), [("prompts", 2), ("prompts --help", 0), ("prompts teach", 2)])
def test_a_group_lists_its_commands(
    words: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    assert run(monkeypatch, words) == code
    listed = re.findall(r"^  (\S.*?)  ", capsys.readouterr().out, re.MULTILINE)
    assert listed == [f"prompts {name}" for name in ("learn", "export")]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("smaple", "'smaple' is not a command; did you mean 'sample'?"),
        ("judge", "'judge' is not a command; `arc-refinery --help` lists all commands"),
    ],
)
def test_a_wrong_command_is_named(
    words: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    assert run(monkeypatch, words) == 2
    assert said in capsys.readouterr().err


def test_an_argument_without_a_flag_is_not_named_as_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    assert run(monkeypatch, "dev new-domain 1x") == 2
    assert "new-domain: name is '1x'" in capsys.readouterr().err


@pytest.mark.parametrize("words", ["--help", "tasks select --help", "stage --help", "predictions"])
@pytest.mark.parametrize("buffered", ["", "1"])
def test_a_closed_pipe_ends_a_command_quietly(words: str, buffered: str):
    reads, writes = os.pipe()
    os.close(reads)
    done = in_shell(words, buffered, stdout=writes)
    os.close(writes)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


def in_shell(words: str, unbuffered: str = "", **streams: Any) -> subprocess.CompletedProcess[str]:
    program = f'{sys.executable} -c "from arc_refinery.cli import main; main()" {words}'
    return subprocess.run(
        program,
        shell=True,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
        **streams,
    )


def test_threads_that_wait_do_not_spin():
    program = "from arc_refinery.cli import main\ntry:\n    main()\nfinally:\n    import torch"
    environment = {key: value for key, value in os.environ.items() if key != "OMP_WAIT_POLICY"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=False, env=environment | {"OMP_DISPLAY_ENV": "true"}
    )
    assert b"OMP_WAIT_POLICY = 'PASSIVE'" in done.stderr


@pytest.mark.parametrize(
    "words", ["--help", "tasks select --help", "stage --help", "predictions", "execute --self-check"]
)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_cannot_be_written_is_named(words: str, unbuffered: str):
    done = in_shell(f"{words} > /dev/full", unbuffered)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("arc-refinery: standard output cannot be written: ")
    assert "Traceback" not in done.stderr


def test_a_name_of_a_file_that_is_not_utf_8_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    assert run(monkeypatch, "execute --programs programs --output \udcff.jsonl") == 2
    assert "'\\udcff.jsonl' is not valid UTF-8" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["compare", "é.jsonl", "b.jsonl"], ["--help"], ["stage", "é"]])
def test_a_locale_without_utf8_is_named_and_not_the_file(words: list[str]):
    """Where it is plain C, Python uses UTF-8 unless it is forbidden to."""
    variables = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "arc_refinery", *words], env=variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and not done.stdout
    assert "locale" in done.stderr and "LC_ALL=C.UTF-8" in done.stderr and "rename" not in done.stderr


@pytest.mark.parametrize("made_of_it", ["pass", "raise AttributeError('partially initialized module')"])
def test_an_interrupted_command_ends_as_interrupted_with_one_line(made_of_it: str):
    script = f"""
import signal
import arc_refinery.cli as cli

signal.signal(signal.SIGINT, signal.default_int_handler)  # a parent in the background ignores it

def run():
    try:
        signal.raise_signal(signal.SIGINT)
    finally:
        {made_of_it}

cli._run = run
cli.main()"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGINT  # 130 in a shell
    (line,) = done.stderr.splitlines()
    assert line.startswith("arc-refinery: stopped")


@pytest.mark.parametrize("closed", ["2>&-", ">&- 2>&-", "<&- >&- 2>&-", ">&-"])
@pytest.mark.slow
def test_a_command_whose_streams_are_closed_does_its_work(closed: str, tmp_path: Path):
    (tmp_path / "programs").write_text(
        '{"program_id": "a", "source": "def transform(x): return x", "inputs": [[[1]]]}\n'
    )
    done = in_shell(f"execute --programs {tmp_path}/programs --output {tmp_path}/out {closed}")
    assert done.returncode == 0
    assert '"status": "ok"' in (tmp_path / "out").read_text()


def test_flags_of_a_section_are_named_without_it(tmp_path: Path):
    done = in_shell(f"execute --programs x --output {tmp_path}/y --memory-mb 1000000000000")
    assert done.returncode == 2
    assert done.stderr.startswith("arc-refinery execute: --memory-mb is 1000000000000; ")
