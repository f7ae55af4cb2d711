"""A job ends with the Snakemake that started it, although a shell is between them."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from arc_refinery.runs.ending import SNAKEMAKE

JOB = """
import subprocess, time
from arc_refinery.runs.ending import end_with_snakemake
end_with_snakemake()
child = subprocess.Popen(["sleep", "600"])
print(child.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture
def job(tmp_path: Path) -> list[str]:
    path = tmp_path / "job.py"
    path.write_text(JOB)
    return [sys.executable, str(path)]


@pytest.mark.slow
def test_a_job_and_what_it_started_end_when_snakemake_is_killed(job):
    words = ["bash", "-c", f'export {SNAKEMAKE}={{pid}}; "$@"; true', "bash", *job]
    snakemake = (
        "import os, subprocess, sys; subprocess.run([word.replace('{pid}', str(os.getpid())) for word in sys.argv[1:]])"
    )
    with subprocess.Popen([sys.executable, "-c", snakemake, *words], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        process.stdout.readline()
        started = psutil.Process(process.pid).children(recursive=True)
        assert len(started) == 3  # the shell, the job, its child
        process.send_signal(signal.SIGKILL)
        process.wait()
        _, alive = psutil.wait_procs(started, timeout=10)
        assert not alive


def test_a_job_whose_snakemake_was_killed_before_it_looked_ends_at_once(job):
    with subprocess.Popen(["true"]) as ended:
        pass
    done = subprocess.run(job, env={**os.environ, SNAKEMAKE: str(ended.pid)}, timeout=60, capture_output=True)
    assert done.returncode == -signal.SIGKILL
    assert done.stdout == b""


@pytest.mark.slow
def test_a_command_typed_by_hand_outlives_its_shell(job):
    environment = {name: value for name, value in os.environ.items() if name != SNAKEMAKE}
    with subprocess.Popen(
        ["bash", "-c", '"$@" & wait', "bash", *job], env=environment, stdout=subprocess.PIPE, text=True
    ) as shell:
        assert shell.stdout
        child = int(shell.stdout.readline())
        parent = psutil.Process(child).parent()
        assert parent is not None
        shell.kill()
        shell.wait()
        try:
            with pytest.raises(psutil.TimeoutExpired):
                parent.wait(1)
        finally:
            psutil.Process(child).kill()
            parent.kill()
