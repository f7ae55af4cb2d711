"""A copy of the repository for real Snakemake runs, and one finished run of the cut-down experiment."""

import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
SMALL = "tests/workflow/small.yaml"


@dataclass(frozen=True)
class Checkout:
    """A copy of the repository under git, where Snakemake can run without touching the real one."""

    folder: Path

    def snakemake(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.run("snakemake", *arguments)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return subprocess.run(
            command, cwd=self.folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
        )

    def planned(self, *arguments: str) -> Counter[str]:
        """How many jobs of each rule a dry run would start."""
        done = self.snakemake("--dry-run", *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        jobs: Counter[str] = Counter()
        in_table = False
        for line in (done.stdout + done.stderr).splitlines():
            words = line.split()
            if words[:2] == ["job", "count"]:
                in_table = True
                jobs.clear()
            elif in_table and words[:1] == ["total"]:
                in_table = False
            elif in_table and len(words) == 2 and words[1].isdigit():
                jobs[words[0]] = int(words[1])
        return jobs

    def change(self, change: Callable[[dict], None]) -> str:
        """Path of the cut-down config with one thing changed."""
        content = yaml.safe_load((self.folder / SMALL).read_text())
        change(content)
        changed = self.folder / "results" / "changed.yaml"
        changed.write_text(yaml.safe_dump(content))
        return str(changed.relative_to(self.folder))


def _copy(folder: Path) -> Checkout:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "copy"]):
        identity = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
        subprocess.run(["git", *identity, *command], cwd=folder, check=True)
    return Checkout(folder)


@pytest.fixture(scope="session")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A checkout where nothing has run."""
    return _copy(tmp_path_factory.mktemp("fresh"))


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A checkout where the cut-down experiment has run from nothing to its report."""
    checkout = _copy(tmp_path_factory.mktemp("finished"))
    done = checkout.snakemake("--cores", "2", "--configfile", SMALL, "--quiet", "rules")
    logs = "\n".join(f"{path}:\n{path.read_text()[-2000:]}" for path in (checkout.folder / "logs").rglob("*.log"))
    assert done.returncode == 0, done.stdout + done.stderr + logs
    return checkout
