"""Fixtures that several suites share: an executor, the embedded model's prompts, and checkouts of the repository."""

import os

# Before torch is imported, here and in what tests start: several workers share the cores, and torch's threads spin.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import messages
import pytest
from checkout import ROOT, SMALL, TINY, TOOLS, Checkout, MadeOnce, copy
from filelock import FileLock
from hub import Hub
from messages import pytest_addoption, wording  # noqa: F401 (for pytest)
from xdist.scheduler import LoadScopeScheduling

from arc_refinery.domains.prompts import Renderer
from arc_refinery.sandbox import Executor, Limits

IS_WORKER = "PYTEST_XDIST_WORKER" in os.environ
CACHES = re.compile(r"(^|/)(__pycache__|\.(pytest|mypy|ruff)_cache|\.venv[^/]*)/$")
_untracked_before = pytest.StashKey[set[str]]()


# Modules whose tests share something that takes long to make: they run in one worker.
POOL = "tests/cluster/"  # all share one pool of HTCondor, but for Slurm's; a second worker would wait for it
TOGETHER = {
    "tests/cluster/test_slurm.py": "slurm",
    "tests/workflow/test_vllm.py": "vllm",
    "tests/workflow/test_colocated.py": "vllm",
    "tests/workflow/test_turns.py": "turns",
    "tests/workflow/test_templates.py": "templates",
    "tests/workflow/test_programs.py": "programs",
    "tests/unit/test_report.py": "report",
    "tests/unit/test_tool_use_report.py": "tool report",
    "tests/unit/test_tool_use_rollout.py": "episodes",
    "tests/unit/test_transformers_sampler.py": "sampler",
}


class ByGroup(LoadScopeScheduling):
    """`--dist loadgroup` by `TOGETHER`: xdist 3.8 writes its marks where pytest 9.2 no longer reads them."""

    def _split_scope(self, nodeid: str) -> str:
        module = nodeid.partition("::")[0]
        return TOGETHER.get(module, POOL if module.startswith(POOL) else nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling | None:
    return ByGroup(config, log) if config.getoption("dist") == "loadgroup" else None


def pytest_sessionstart(session: pytest.Session) -> None:
    if not IS_WORKER:
        session.config.stash[_untracked_before] = _untracked()


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """No test writes into the checkout that it runs from: the whole run fails where one has."""
    messages.write(session, exitstatus)
    if IS_WORKER:
        return
    before = session.config.stash[_untracked_before]
    if left := _untracked() - before:
        print(f"\nnew files in the checkout, which tests may not write to: {', '.join(sorted(left))}")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long tests first: with the short ones at the end, no worker waits long for another."""
    messages.collect(config, items)
    items.sort(
        key=lambda item: not any(map(item.get_closest_marker, ("pool", "snakemake", "training", "model", "slow")))
    )


def _untracked() -> set[str]:
    """Files and folders that git does not track, without caches; nothing where this is not a git checkout."""
    if shutil.which("git") is None:
        return set()
    command = ["git", "status", "--porcelain", "--ignored", "--untracked-files=normal"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.splitlines()
    paths = {line[3:] for line in listed if line[:2] in ("??", "!!")}
    return {path for path in paths if not CACHES.search(path)}


@pytest.fixture(autouse=True)
def environment_of_its_own() -> Iterator[None]:
    """A training in this process names its run in variables, which those of later tests would take as given."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="session")
def executor() -> Iterator[Executor]:
    """One server, a child for each program."""
    with Executor(1, Limits(cpu_seconds=1.0, wall_seconds=20.0, memory_mb=256)) as executor:
        yield executor


@pytest.fixture(scope="module")
def executors(executor: Executor) -> Iterator[tuple[Executor, Executor]]:
    """For programs, and for the grader of their answers."""
    with Executor(1, Limits(cpu_seconds=1.0, wall_seconds=10.0, memory_mb=256)) as graders:
        yield executor, graders


@pytest.fixture(scope="module")
def code_executors(executors: tuple[Executor, Executor]) -> Iterator[tuple[Executor, Executor, Executor]]:
    """For programs on shown tests and on hidden ones, and for the grader of their answers."""
    with Executor(1, Limits(cpu_seconds=1.0, wall_seconds=20.0, memory_mb=256)) as for_hidden:
        yield executors[0], for_hidden, executors[1]


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub() as hub:
        yield hub


@pytest.fixture(scope="session")
def renderer() -> Renderer:
    """Renders prompts as the embedded model reads them."""
    return Renderer(TINY)


@pytest.fixture(scope="session")
def tiny_network() -> Any:
    """The embedded model's network, which no test changes."""
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(TINY, dtype=torch.float32).eval()


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all workers of this run see."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if IS_WORKER else base


@pytest.fixture(scope="session")
def made_once(shared: Path) -> MadeOnce:
    """Fills a folder in the first worker that asks for it; the others wait, and get the same folder."""

    def folder(name: str, fill: Callable[[Path], object]) -> Path:
        result, complete = shared / name, shared / f"{name}.complete"
        with FileLock(shared / f"{name}.lock"):
            if not complete.exists():
                shutil.rmtree(result, ignore_errors=True)
                result.mkdir()
                fill(result)
                complete.touch()
        return result

    return folder


@pytest.fixture(scope="session")
def pristine(made_once: MadeOnce) -> Checkout:
    """A checkout where nothing has run, and nothing may."""
    return Checkout(made_once("pristine", copy))


@pytest.fixture(scope="session")
def finished_once(made_once: MadeOnce) -> Checkout:
    """A checkout where the cut-down experiment has run from nothing to its report, and nothing else may."""
    return Checkout(made_once("finished", lambda folder: _run(copy(folder), SMALL)))


@pytest.fixture(scope="session")
def finished_tools_once(made_once: MadeOnce) -> Checkout:
    """A checkout where the cut-down experiment in tool use has run to its report, and nothing else may."""
    return Checkout(made_once("tools", lambda folder: _run(copy(folder), TOOLS)))


@pytest.fixture
def fresh(pristine: Checkout, tmp_path: Path) -> Checkout:
    """A checkout of the test's own where nothing has run."""
    return pristine.clone(tmp_path / "fresh")


@pytest.fixture
def finished(finished_once: Checkout, tmp_path: Path) -> Checkout:
    """A checkout of the test's own where the cut-down experiment has run."""
    return finished_once.clone(tmp_path / "finished")


@pytest.fixture
def finished_tools(finished_tools_once: Checkout, tmp_path: Path) -> Checkout:
    """A checkout of the test's own where the cut-down experiment in tool use has run."""
    return finished_tools_once.clone(tmp_path / "tools")


def _run(checkout: Checkout, config: str) -> None:
    done = checkout.snakemake("--cores", "2", "--configfile", config, "--quiet", "rules")
    logs = "\n".join(f"{path}:\n{path.read_text()[-2000:]}" for path in (checkout.folder / "logs").rglob("*.log"))
    assert done.returncode == 0, done.stdout + done.stderr + logs


@pytest.fixture(scope="module")
def on_a_cpu() -> Iterator[None]:
    """Also where there is a GPU: its sums differ from those that are compared."""
    import torch

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "is_available", lambda: False)
        yield
