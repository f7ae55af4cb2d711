"""envs/check-machine.sh refuses a machine before anything is downloaded; each command that it asks is replaced."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from checkout import ROOT
from packaging.specifiers import SpecifierSet

OLD = 'case "$2" in *version_info*) echo 3.9;; esac'
PYTHON = "python{}.{}".format(*sys.version_info)
REAL = f'exec "{sys.executable}" "$@"'


def check(tmp_path: Path, *words: str, folder: str = ".", **commands: str) -> subprocess.CompletedProcess[str]:
    """Run it with these shell scripts as commands; `python3_12` is python3.12."""
    for name, script in (
        {"python3": REAL, "uname": "echo Linux x86_64 | cut -d' ' -f$([ $1 = -s ] && echo 1 || echo 2)"} | commands
    ).items():
        path = tmp_path / name.replace("_", ".")
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
    for name in ("sh", "awk", "cut", "df", "env"):
        if not (tmp_path / name).exists():
            (tmp_path / name).symlink_to(f"/usr/bin/{name}")
    variables = {"PATH": str(tmp_path)}
    command = [str(ROOT / "envs/check-machine.sh"), *words]
    return subprocess.run(command, capture_output=True, text=True, env=variables, cwd=tmp_path / folder, check=False)


def test_a_fitting_machine_gets_one_line_and_its_python(tmp_path: Path):
    done = check(tmp_path)
    assert (done.returncode, done.stdout.strip()) == (0, str(tmp_path / "python3"))
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("other", ["python3.11", "python3.12", "python3.13"])
def test_another_python_is_found_beside_one_that_is_too_old(tmp_path: Path, other: str):
    done = check(tmp_path, python3=OLD, **{other.replace(".", "_"): REAL})
    assert done.stdout.strip() == str(tmp_path / other)


def test_of_several_pythons_the_one_of_the_pinned_sets_is_taken(tmp_path: Path):
    done = check(tmp_path, python3=OLD, python3_13=REAL, python3_11=REAL)
    assert done.stdout.strip() == str(tmp_path / "python3.11")


def test_a_python_that_is_too_new_is_refused(tmp_path: Path):
    done = check(tmp_path, python3=OLD.replace("3.9", "3.14"))
    assert done.returncode == 1 and "python3 is 3.14" in done.stderr


def test_uv_installs_python_where_there_is_none(tmp_path: Path):
    uv = f'[ "$2" = install ] && touch {tmp_path}/installed; [ -e {tmp_path}/installed ] && echo {sys.executable}'
    done = check(tmp_path, python3=OLD, uv=uv, touch='exec /usr/bin/touch "$@"')
    assert done.stdout.strip().splitlines()[-1] == sys.executable, done.stderr


def test_pip_takes_the_same_pythons():
    listed = re.search(r'^versions="(.*?)"', (ROOT / "envs/check-machine.sh").read_text(), re.MULTILINE)
    bounds = SpecifierSet(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"])
    assert listed and listed[1].split() == [f"3.{minor}" for minor in range(30) if f"3.{minor}.1" in bounds]


@pytest.mark.parametrize(
    "commands, named",
    [
        ({"uname": "echo Darwin"}, "Darwin"),
        ({"python3": OLD}, "python3 is 3.9"),
        ({"df": "printf 'Filesystem\\n/dev/x 9 9 2000000 1%% /\\n'"}, "2 GB"),
        ({"python3": f'case "$2" in *ensurepip*) exit 1;; *) {REAL};; esac'}, f"{PYTHON}-venv"),
        ({"python3": f'case "$2" in *seccomp*|*syscall*) exit 1;; *) {REAL};; esac'}, "seccomp"),
    ],
)
def test_what_is_missing_is_named_in_one_line(tmp_path: Path, commands: dict[str, str], named: str):
    done = check(tmp_path, **commands)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("arc-refinery: ") and named in line


@pytest.mark.parametrize(("made", "status"), [("3.9", 1), (PYTHON.removeprefix("python"), 0)])
def test_an_environment_of_another_python_is_not_written_over(tmp_path: Path, made: str, status: int):
    program = tmp_path / ".venv/bin/python"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho {made}\n")
    program.chmod(0o755)
    done = check(tmp_path)
    assert done.returncode == status
    assert ("Remove .venv" in done.stderr) == bool(status)


@pytest.mark.parametrize("name", [":", "\\", '"', "$HOME", "`id`", "{x}", "a\nb", "bad\udcff"])
def test_a_folder_in_which_scripts_of_environments_would_break_is_refused(tmp_path: Path, name: str):
    (tmp_path / f"a {name}").mkdir()
    done = check(tmp_path, folder=f"a {name}")
    (line,) = done.stderr.splitlines()
    assert done.returncode == 1 and "path" in line


def test_every_other_name_is_fine(tmp_path: Path):
    folder = " it's #1; 100 % é*[&]~(!),=|<>?"
    (tmp_path / folder).mkdir()
    assert check(tmp_path, folder=folder).returncode == 0


def test_an_environment_that_was_moved_or_copied_is_made_again(tmp_path: Path):
    made_in, folder = tmp_path / "x" / str(tmp_path / "a b")[1:], tmp_path / "a b"  # one path ends in the other
    for place, line in ((made_in, f"#!{made_in}"), (folder, f"'''exec' \"{made_in}")):
        scripts = place / ".venv/bin"
        scripts.mkdir(parents=True)
        for name in ("Makefile", "pyproject.toml", "envs"):
            (place / name).symlink_to(ROOT / name)
        (scripts / "arc-refinery").write_text(f"{line}/.venv/bin/python")
        (place / ".venv/installed").touch()
    words = ["make", "--no-print-directory", "-n", "quick"]  # under make, make says where it is
    todo = {place: subprocess.run(words, cwd=place, capture_output=True, text=True, check=True).stdout
            for place in (made_in, folder)}  # fmt: skip
    assert "venv --clear .venv" in todo[folder]
    assert todo[made_in].split() == [".venv/bin/snakemake", "--cores", "2", "--configfile", "config/quick.yaml"]


def test_make_env_stops_before_it_makes_anything(tmp_path: Path):
    old = tmp_path / "python3.9"
    old.write_text(f"#!/bin/sh\n{OLD}\n")
    old.chmod(0o755)
    done = subprocess.run(
        ["make", "env", f"PYTHON={old}", f"VENV={tmp_path / 'venv'}"],
        cwd=ROOT, capture_output=True, text=True, check=False, env={**os.environ, "MAKEFLAGS": ""},
    )  # fmt: skip
    assert done.returncode != 0 and "PYTHON=" in done.stderr
    assert not (tmp_path / "venv").exists()
