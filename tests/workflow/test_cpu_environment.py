"""Jobs without a GPU can have an environment of their own, for what a domain needs."""

import re
from pathlib import Path
from typing import Any

import pytest
from checkout import SMALL, TOOLS, Checkout

from arc_refinery.config import ConfigError, check_files, load_experiment

pytestmark = pytest.mark.snakemake
VENV = "results/own venv"
OF_OTHERS = {"stage sample", "stage train", "stage sft", "stage episodes"}  # on GPUs

EXPECTED = {
    SMALL: {
        "report",
        *(f"stage {name}" for name in ("tasks", "evaluation_tasks", "overlap")),
        *(f"stage {name}" for name in ("first_prompts", "refining_prompts", "grade")),
    },
    TOOLS: {"report", "stage questions", "stage conversations"},
}


def with_environment(content: dict[str, Any]) -> None:
    content["resources"] = {"cpu": {"venv": VENV}}


@pytest.mark.parametrize("config", EXPECTED)
def test_every_job_without_a_gpu_uses_it(fresh: Checkout, config: str):
    program = fresh.folder / VENV / "bin/arc-refinery"
    program.parent.mkdir(parents=True)
    program.touch()
    changed = fresh.change(with_environment, config)
    done = fresh.snakemake("--dry-run", "--printshellcmds", "--cores", "1", "--configfile", changed)
    assert done.returncode == 0, done.stdout + done.stderr
    printed = re.findall(r"(PATH='results/own venv'/bin:\$PATH )?arc-refinery ((?:[a-z_]+ ?){1,2})", done.stdout)
    commands = {(words.strip(), bool(prefix)) for prefix, words in printed}
    assert {words for words, has_own in commands if not has_own} <= OF_OTHERS
    assert {words for words, has_own in commands if has_own} & OF_OTHERS == set()
    assert EXPECTED[config] <= {words for words, has_own in commands if has_own}


def test_one_without_this_package_is_refused(fresh: Checkout, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(fresh.folder)
    path = Path(fresh.change(with_environment))
    expected = rf"resources\.cpu\.venv: {VENV}/bin/arc-refinery does not exist; expected a virtual environment"
    with pytest.raises(ConfigError, match=expected):
        check_files(load_experiment(path), str(path))
