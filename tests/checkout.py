"""Paths of the repository, and copies of the repository for real runs of Snakemake."""

import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import processes
import yaml

ROOT = Path(__file__).parents[1]
TINY = str(ROOT / "workflow/models/tiny")
TINY_TOOLS = str(ROOT / "workflow/models/tiny-tools")
TRACKERS = Path(sys.prefix) / "trackers"  # wandb and trackio, where TRL does not find them: `make trackers`
SMALL = "tests/workflow/small.yaml"
TOOLS = "tests/workflow/tool-use-small.yaml"
MadeOnce: TypeAlias = Callable[[str, Callable[[Path], object]], Path]  # fixture of conftest.py


@dataclass(frozen=True)
class Checkout:
    """A copy of the repository under git, where Snakemake can run without touching the real one."""

    folder: Path

    def snakemake(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.run("snakemake", *arguments)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return processes.run(command, self.folder)

    def kill_when(self, enough: Callable[[], bool], *command: str) -> None:
        """Start a command and end it with SIGKILL as soon as it has made enough progress."""
        processes.kill_when(command, self.folder, enough)

    def clone(self, folder: Path) -> "Checkout":
        """The same state in another folder, times of files included: Snakemake finds nothing to do that it did not."""
        subprocess.run(["cp", "-a", "--reflink=auto", self.folder, folder], check=True)
        return Checkout(folder)

    def planned(self, *arguments: str) -> Counter[str]:
        """Count the jobs of each rule that a dry run would start."""
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

    def change(self, change: Callable[[dict[str, Any]], None], base: str = SMALL, name: str = "changed") -> str:
        """Path of a config with one thing changed, by default the cut-down one."""
        content = yaml.safe_load((self.folder / base).read_text())
        change(content)
        changed = self.folder / "results" / f"{name}.yaml"
        changed.parent.mkdir(exist_ok=True)
        changed.write_text(yaml.safe_dump(content))
        return str(changed.relative_to(self.folder))


def is_whole(path: Path) -> bool:
    """Return whether a file of JSON exists and is completely written."""
    try:
        json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return False
    return True


def contents(folder: Path) -> dict[str, bytes]:
    """Bytes of the files in a folder, by name."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def n_attempts(progress: Path) -> int:
    """Number of attempts that a job has sampled and written down; the first line is about the job."""
    lines = progress.read_text().split("\n")[1:-1] if progress.exists() else []
    return sum(len(samples) for line in lines for samples in json.loads(line).values())


def copy(folder: Path) -> Checkout:
    """A checkout of the repository as it is now, in an empty folder."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name, follow_symlinks=False)
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "copy"]):
        identity = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
        subprocess.run(["git", *identity, *command], cwd=folder, check=True)
    return Checkout(folder)
