"""What several suites share: an executor, the embedded model's prompts, and checkouts of the repository."""

import os

# Before torch is imported, here and in what tests start: several workers share the cores, and torch's threads spin.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

from collections.abc import Iterator

import pytest
from checkout import SMALL, TINY, TOOLS, Checkout, copy

from arc_refinery.refine.rendering import Renderer
from arc_refinery.sandbox import Executor, Limits


@pytest.fixture(scope="session")
def executor() -> Iterator[Executor]:
    """One server, a child for each program."""
    with Executor(1, Limits(cpu_seconds=1.0, wall_seconds=20.0, memory_mb=256)) as executor:
        yield executor


@pytest.fixture(scope="session")
def renderer() -> Renderer:
    """Renders prompts as the embedded model reads them."""
    return Renderer(TINY)


@pytest.fixture(scope="session")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A checkout where nothing has run."""
    return copy(tmp_path_factory.mktemp("fresh"))


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A checkout where the cut-down experiment has run from nothing to its report."""
    return _run(copy(tmp_path_factory.mktemp("finished")), SMALL)


@pytest.fixture(scope="session")
def finished_tools(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A checkout where the cut-down experiment in tool use has run from nothing to its report."""
    return _run(copy(tmp_path_factory.mktemp("tools")), TOOLS)


def _run(checkout: Checkout, config: str) -> Checkout:
    done = checkout.snakemake("--cores", "2", "--configfile", config, "--quiet", "rules")
    logs = "\n".join(f"{path}:\n{path.read_text()[-2000:]}" for path in (checkout.folder / "logs").rglob("*.log"))
    assert done.returncode == 0, done.stdout + done.stderr + logs
    return checkout


@pytest.fixture(scope="module")
def on_a_cpu() -> Iterator[None]:
    """Also where there is a GPU: its sums differ from those that are compared."""
    import torch

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "is_available", lambda: False)
        yield
