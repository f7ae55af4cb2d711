"""A private HTCondor pool, and runs of Snakemake whose jobs go to it."""

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import time
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import processes
import pytest
from checkout import SMALL, Checkout, copy
from filelock import FileLock

from cluster.pool import SOFTWARE, Pool, is_unpacked
from cluster.runs import LONG, Run


@pytest.fixture(scope="package")
def pool(tmp_path_factory: pytest.TempPathFactory, shared: Path) -> Iterator[Pool]:
    """Four CPUs and two GPUs that exist on paper. It ends with its tests: others count the processes of this one.

    Two pools at once would be too much for the machine: other workers wait.
    """
    if not is_unpacked():
        pytest.skip("HTCondor is not there; `make condor` says why it could not be unpacked")
    if os.geteuid() == 0 and subprocess.run(["unshare", "--user", "true"], check=False).returncode:
        pytest.skip("root needs user namespaces for a private HTCondor pool, and this machine forbids them")
    started = Pool(SOFTWARE, tmp_path_factory.mktemp("pool"))
    started.configure()
    with FileLock(shared / "pool.lock"):
        try:
            started.start()
            yield started
        finally:
            started.stop()


@pytest.fixture
def condor(pool: Pool, tmp_path: Path) -> Iterator[Callable[..., Run]]:
    """Starts runs; those that continue after the test are interrupted, which removes their jobs."""
    runs: list[Run] = []

    def start(
        checkout: Checkout, *arguments: str, config: str = SMALL, profile: str = "condor", **environment: str
    ) -> Run:
        output = tmp_path / f"snakemake-{len(runs)}.log"
        command = ["snakemake", "--profile", profile, "--configfile", config]
        command += ["--seconds-between-status-checks", "1", *arguments]
        started = int(time.time())
        process = processes.start(command, checkout.folder, output, output, {**pool.environment, **environment})
        runs.append(Run(process, checkout, output, pool, started))
        return runs[-1]

    yield start
    for run in runs:
        if run.process.poll() is None:
            run.kill(signal.SIGINT)
            run.end(60)
    assert not pool.jobs(), "a run has left jobs in the queue"


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A virtual environment with this package, that can be moved; its `arc-refinery` leaves a trace."""
    folder = tmp_path / "environment"
    venv.create(folder, symlinks=True)
    packages = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    (packages / "those-of-the-tests.pth").write_text(
        f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
    )
    program = folder / "bin" / "arc-refinery"
    program.write_text(
        '#!/bin/sh\nhere=$(dirname "$0")\necho "$@" >> "$here/../used"\n'
        'exec "$here/python" -c "from arc_refinery.cli import main; main()" "$@"\n'
    )
    program.chmod(0o755)
    return folder


@pytest.fixture
def archive(environment: Path, tmp_path: Path) -> Path:
    """That environment packed, with the program that pip writes, which names the folder of before."""
    program = environment / "bin/arc-refinery"
    program.write_text(f"#!{environment}/bin/python\nfrom arc_refinery.cli import main\n\nmain()\n")
    (trace,) = environment.glob("lib/python3*/site-packages/those-of-the-tests.pth")
    with trace.open("a") as file:  # each start of its Python leaves a line
        file.write(f"import sys; open({str(tmp_path / 'used')!r}, 'a').write(sys.prefix + '\\n')\n")
    packed = tmp_path / "environment.tar.gz"
    with tarfile.open(packed, "w:gz") as tar:
        tar.add(environment, ".")
    shutil.rmtree(environment)
    return packed


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A checkout with the first prompts of a part, under the config `LONG`; a shard takes some seconds."""
    return prepare(tmp_path_factory.mktemp("prepared"), 20)


@pytest.fixture(scope="session")
def prepared_for_long(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """The same with shards that take six times as long."""
    return prepare(tmp_path_factory.mktemp("prepared"), 120)


def prepare(folder: Path, tasks_per_part: int) -> Checkout:
    checkout = copy(folder)

    def change(config: dict[str, Any]) -> None:
        config["sampling"]["n_predictions"] = 80  # 20 prompts of a task, which are sampled together
        config["parts"] |= {"tasks_per_part": tasks_per_part, "shards_per_part": 2}

    checkout.change(change, name="long")
    prompts = "results/small/part1/turn1/prompts.parquet"
    done = checkout.snakemake("--cores", "2", "--configfile", LONG, "--quiet", "all", "--", prompts)
    assert done.returncode == 0, done.stdout + done.stderr
    return checkout
