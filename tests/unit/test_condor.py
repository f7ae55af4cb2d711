import subprocess
import sys
from pathlib import Path
from typing import Any

import htcondor2
import pytest
from classad2 import ClassAd

from arc_refinery.runs.condor import Watch, as_idle, matches

JOB = """[
    RequestCpus = 4; RequestMemory = 8000; RequestDisk = 2000000; RequestGPUs = 1; GPUsMinMemory = 20000;
    RequireGPUs = GlobalMemoryMb >= GPUsMinMemory;
    Requirements = TARGET.Cpus >= RequestCpus && TARGET.Memory >= RequestMemory && TARGET.Disk >= RequestDisk
        && countMatches(MY.RequireGPUs, TARGET.AvailableGPUs) >= RequestGPUs;
]"""

# All of it is taken: what is left, and what there is in all.
BUSY = """[
    Cpus = 0; Memory = 100; Disk = 5000; GPUs = 0; AvailableGPUs = {};
    TotalSlotCpus = 8; TotalSlotMemory = 16000; TotalSlotDisk = 4000000; TotalSlotGPUs = 1;
    GPUs_GPU_1 = [Id = "GPU-1"; GlobalMemoryMb = 24220];
]"""


def test_a_busy_machine_matches_once_it_is_empty():
    assert not matches(ClassAd(JOB), ClassAd(BUSY))
    assert matches(ClassAd(JOB), as_idle(ClassAd(BUSY)))


def test_an_empty_machine_that_is_too_small_does_not_match():
    for least in ("RequestCpus = 9", "RequestMemory = 16001", "RequestDisk = 4000001", "RequestGPUs = 2"):
        job = ClassAd(JOB)
        name, _, value = least.partition(" = ")
        job[name] = int(value)
        assert not matches(job, as_idle(ClassAd(BUSY))), least
    job = ClassAd(JOB)
    job["GPUsMinMemory"] = 24221
    assert not matches(job, as_idle(ClassAd(BUSY)))


def test_a_condition_that_cannot_be_evaluated_is_no_match():
    job = ClassAd("[Requirements = TARGET.NoSuchAttribute >= 1]")
    assert not matches(job, as_idle(ClassAd(BUSY)))


class Pool:
    """Answers like HTCondor's two daemons, from a list of slots and one of jobs."""

    def __init__(self, slots: list[str]) -> None:
        self.slots = slots
        self.jobs: list[ClassAd] = []
        self.edited: list[tuple[str, ...]] = []

    def query(self, about: object, *_: object, **__: object) -> list[Any]:
        return self.jobs if isinstance(about, str) else [ClassAd(slot) for slot in self.slots]

    def edit(self, *words: str) -> None:
        self.edited.append(words)


def reports(
    pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *ads: dict[str, object], logs: tuple[str, ...] = ()
) -> list[str]:
    """Messages of a watch that sees one job in these states."""
    said: list[str] = []
    watch = Watch(tmp_path, 1.0, said.append, lambda: None, {"17": logs})
    for name in ("Schedd", "Collector"):
        monkeypatch.setattr(htcondor2, name, lambda: pool)
    for ad in ads:
        pool.jobs = [ClassAd({"ClusterId": 5, "JobBatchName": "sample-17", "JobMaxRetries": 2, **ad})]
        pool.jobs[0]["Requirements"] = ClassAd('[R = TARGET.Machine =!= "a"]').lookup("R")
        watch._report_retries(pool.jobs)
    return said


IDLE, RUNNING, TRANSFERRING = 1, 2, 6
TWO_MACHINES = ['[Machine = "a"]', '[Machine = "b"]']


@pytest.mark.parametrize(
    ("ads", "n_messages"),
    [
        ([{"JobStatus": RUNNING, "NumJobCompletions": 1, "ExitCode": 0}], 0),  # success, not yet out of the queue
        ([{"JobStatus": RUNNING, "NumJobCompletions": 1}], 0),
        ([{"JobStatus": TRANSFERRING, "NumJobCompletions": 2, "ExitCode": 0}], 0),
        ([{"JobStatus": IDLE, "NumJobCompletions": 0}], 0),
        ([{"JobStatus": IDLE, "NumJobCompletions": 1, "ExitCode": 1}] * 2, 1),
        ([{"JobStatus": RUNNING, "NumJobCompletions": 1, "ExitCode": 1}], 1),  # it runs again
        ([{"JobStatus": RUNNING, "NumJobCompletions": 1, "ExitBySignal": True}], 1),
        ([{"JobStatus": RUNNING, "NumJobCompletions": 3, "ExitCode": 1}], 0),  # no retry is left
        ([{"JobStatus": IDLE, "NumJobCompletions": n, "ExitCode": 1} for n in (1, 2)], 2),
    ],
)
def test_only_a_failure_that_is_tried_again_is_reported(
    ads: list[dict[str, object]], n_messages: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    assert len(reports(Pool(TWO_MACHINES), tmp_path, monkeypatch, *ads)) == n_messages


@pytest.mark.parametrize("slots", [TWO_MACHINES, TWO_MACHINES[:1]])
def test_a_failure_shows_log_and_reason_and_is_tried_here_if_nowhere_else(
    slots: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    log, pool = tmp_path / "sample.log", Pool(slots)
    log.write_text("loading\narc-refinery: tasks.parquet: is damaged\n")
    ad = {"JobStatus": IDLE, "NumJobCompletions": 1, "ExitCode": 1, "LastRemoteHost": "slot1@a"}
    (said,) = reports(pool, tmp_path, monkeypatch, ad, logs=(str(log),))
    assert "(sample-17) has failed on slot1@a" in said
    assert "arc-refinery: tasks.parquet: is damaged" in said and f"log: {log}" in said
    is_alone = len(slots) == 1
    assert pool.edited == [("ClusterId == 5", "RetryHere", "true")] * is_alone
    assert ("ten minutes" in said) != is_alone


CANCELLED = """
import sys, threading, time
from pathlib import Path
from types import SimpleNamespace
import htcondor2
from arc_refinery.runs.condor import watch

folder = Path("runs/mine")
folder.mkdir(parents=True)
submitted = "000 ({}.000.000) 2026-11-29 00:00:00 Job submitted from host: <127.0.0.1:9618>\\n...\\n"
log = folder / "snakemake-rules.log"
log.write_text("".join(map(submitted.format, range(1, 1000))))
htcondor2.Schedd = lambda: SimpleNamespace(query=lambda *_, **__: [])
watch(folder, 3600, print, {})
sys.setswitchinterval(1e-5)
for turn in range(100):
    events = htcondor2.JobEventLog(str(log)).events(stop_after=0)
    reader = threading.Thread(target=lambda: all(events))
    reader.start()
    time.sleep(turn / 50000)
    events.close()
    reader.join()
"""


def test_a_run_may_be_cancelled_while_its_events_are_read(tmp_path: Path):
    """As the executor does, in two threads; it then ended now and then by SIGSEGV."""
    done = subprocess.run([sys.executable, "-c", CANCELLED], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
