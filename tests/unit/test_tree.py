"""Tracked files belong to the project: leftovers of a run or of a probe have names that nothing here has."""

import re
import subprocess
import tomllib
from pathlib import PurePath

import pytest
import yaml
from checkout import ROOT

SUFFIXES = {".css", ".csv", ".jinja", ".json", ".md", ".png", ".py", ".rst", ".safetensors", ".sh", ".smk", ".toml"}
SUFFIXES |= {".jsonl", ".svg", ".txt", ".yaml", ".yml"}
NAMES = {".gitignore", ".ci/run", "LICENSE", "Makefile", "Snakefile", "condor", "condor-transfer"}
NAMES |= {"tests/cluster/install-htcondor", "CITATION.cff", "envs/condor-warning.pth", "workflow/Snakefile"}
NAMES |= {".dockerignore", "containers/Dockerfile", "containers/arc-refinery.def"}


def test_tracked_files_have_known_suffixes():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout, so there are no tracked files")
    tracked = listed.stdout.rstrip("\0").split("\0")
    assert len(tracked) > 400
    assert [path for path in tracked if path not in NAMES and PurePath(path).suffix not in SUFFIXES] == []


def test_the_version_to_cite_is_that_of_the_package():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"]
    assert cited == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def test_continuous_integration_runs_targets_of_the_makefile():
    steps = [
        step
        for path in (ROOT / ".github/workflows").glob("*.yml")
        for job in yaml.safe_load(path.read_text())["jobs"].values()
        for step in job["steps"]
    ]
    commands = [step["run"].split() for step in steps if "run" in step]
    targets = re.search(r"^\.PHONY: (.*)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert targets and commands
    assert {(make, target) for make, target in commands} <= {("make", target) for target in targets[1].split()}
