"""Report jobs that Snakemake's HTCondor executor does not: held, lost, or unable to start.

The executor learns about its jobs from one event log. It reports nothing about a job that no machine of the pool can
run, waits forever for a job whose end is missing from that log, and leaves jobs in the queue that it has given up.
`Watch` polls the queue alongside it.
"""

import atexit
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import htcondor2
from classad2 import ClassAd, ClassAdException, quote
from htcondor2 import AdType, HTCondorException, JobAction, JobEventLog, JobEventType

from arc_refinery.errors import InputError
from arc_refinery.runs.lock import hold, is_held
from arc_refinery.runs.screen import last_message

_IDLE, _RUNNING, _HELD = 1, 2, 5  # JobStatus, https://htcondor.readthedocs.io/en/latest/classad-attributes
_REMINDER_SECONDS = 3600.0
_REMOVAL_SECONDS = 60.0
_KILLING_SECONDS = 30.0  # after which a held job counts as ended without an event
_POLLS_UNTIL_LOST = 18  # a file system may show the end of a job late
_JOB = [
    *("ClusterId", "JobBatchName", "JobStatus", "HoldReason", "EnteredCurrentStatus", "AutoClusterId"),
    *("NumJobCompletions", "LastRemoteHost", "ExitCode", "ExitBySignal", "JobMaxRetries", "Err"),
]
_REQUEST = [
    *("RequestCpus", "RequestMemory", "RequestDisk", "RequestGPUs"),
    *("GPUsMinMemory", "GPUsMinCapability", "GPUsMinRuntime"),
]
_EVENT_LOG = "snakemake-rules.log"  # the executor's name
_LOCK = "run.lock"
_RETRY_HERE = "RetryHere"  # of a job; rules/common.smk


Logs: TypeAlias = Mapping[str, Sequence[str]]


class Watch(threading.Thread):
    """Polls the jobs of one run every `every` seconds and tells the user what to do about problems.

    `say` receives each message. `logs` are those of rules, by Snakemake's number of the job. `give_up` is called once,
    after a message, if the end of a job can no longer be learned, because the run would never finish. While the process
    lives it holds a lock in `folder`, where the executor writes its event log.
    """

    def __init__(
        self, folder: Path, every: float, say: Callable[[str], None], give_up: Callable[[], None], logs: Logs
    ) -> None:
        super().__init__(name="htcondor-watch", daemon=True)
        self.event_log = folder.absolute() / _EVENT_LOG
        self._every, self._say, self._give_up, self._logs = every, say, give_up, logs
        self._ended = threading.Event()
        self._lock = hold(folder / _LOCK)
        self._events: JobEventLog | None = None
        self._seen: set[int] = set()
        self._finished: set[int] = set()
        self._missing: dict[int, int] = {}
        self._stopped: set[int] = set()
        self._held: set[int] = set()
        self._failures: Counter[int] = Counter()
        self._examined: set[int] = set()
        self._answered = True
        self._last_reminder = time.monotonic()

    def run(self) -> None:
        while not self._ended.wait(self._every):
            try:
                lost = self._look()
            except (HTCondorException, ClassAdException, OSError) as error:
                if self._answered:
                    self._answered = False
                    self._say(f"HTCondor cannot be queried: {error} Running jobs continue. Does condor_q work here?")
                continue
            if not self._answered:
                self._answered = True
                self._say("HTCondor answers again.")
            if lost:
                self._say(
                    f"Job {_numbers(lost)} has left the queue and {self.event_log} does not say how it ended; was the "
                    "file deleted, or the queue? Snakemake would wait forever, so this run ends here. Start the same "
                    "command again: finished results are kept."
                )
                self._give_up()
                return

    def stop(self) -> None:
        """Stop polling, and remove the run's remaining jobs from the queue: someone might release a held one later."""
        self._ended.set()
        self.join()
        try:
            removed, left = remove([self.event_log])
        except HTCondorException as error:
            self._say(f"HTCondor cannot be queried: {error} Jobs in the queue continue; the next run will remove them.")
            return
        if removed:
            self._say(f"Removed from the queue, because this run ends: job {_numbers(removed)}.")
        if left:
            self._say(f"Still ending: job {_numbers(left)}. The next run waits for it.")
            return
        (self.event_log.parent / _LOCK).unlink(missing_ok=True)

    def _look(self) -> list[int]:
        """Report what is new; return the jobs whose end can no longer be learned."""
        jobs = self.jobs()
        self._read_events()  # after the queue, so that no job ends unseen between the two
        self._report_held(jobs)
        self._report_retries(jobs)
        self._report_unmatched(jobs)
        self._remind(jobs)
        return self._lost({job["ClusterId"] for job in jobs})

    def jobs(self) -> list[ClassAd]:
        """Return the ads of the run's jobs in the queue."""
        ads: list[ClassAd] = htcondor2.Schedd().query(_of([self.event_log]), projection=_JOB)
        return ads

    def _report_held(self, jobs: list[ClassAd]) -> None:
        """Report held jobs once their processes have ended: one released earlier may stay idle forever."""
        held = {job["ClusterId"]: job for job in jobs if job["JobStatus"] == _HELD}
        now = time.time()
        for number, job in list(held.items()):
            if number not in self._stopped and now < job["EnteredCurrentStatus"] + _KILLING_SECONDS:
                del held[number]
        for number in held.keys() - self._held:
            job = held[number]
            self._say(
                f"Job {number} ({job['JobBatchName']}) is held: {job.get('HoldReason', 'no reason given')} "
                f"When the cause is fixed: condor_release {number}. To give up the job: condor_rm {number}."
            )
        self._held = set(held)

    def _report_retries(self, jobs: list[ClassAd]) -> None:
        """Report, once per failure, jobs that HTCondor starts again; on the same machine if no other could run them.

        Success raises `NumJobCompletions`, too, a while before the job leaves the queue.
        """
        for job in jobs:
            number, failures = job["ClusterId"], job.get("NumJobCompletions", 0)
            has_failed = job["JobStatus"] == _IDLE or job.get("ExitCode", 0) or job.get("ExitBySignal", False)
            if not self._failures[number] < failures <= job.get("JobMaxRetries", failures) or not has_failed:
                continue
            self._failures[number] = failures
            where = "on another machine, or here ten minutes after this start if the others stay busy"
            schedd, this = htcondor2.Schedd(), f"ClusterId == {number}"
            if (ads := schedd.query(this)) and not any(matches(ads[0], slot) for slot in _slots()):
                schedd.edit(this, _RETRY_HERE, "true")
                where = "here, because no other machine could run it"
            logs = [*self._logs.get(job["JobBatchName"].rpartition("-")[2], []), *filter(None, [job.get("Err")])]
            self._say(
                f"Job {number} ({job['JobBatchName']}) has failed on {job.get('LastRemoteHost', 'its machine')}:\n"
                + "\n".join(last_message(logs))
                + f"\nHTCondor starts it again, {where}. To give it up: condor_rm {number}."
            )

    def _report_unmatched(self, jobs: list[ClassAd]) -> None:
        """Report, once per kind of request, that no machine of the pool could meet it even if idle."""
        idle = [job for job in jobs if job["JobStatus"] == _IDLE and "AutoClusterId" in job]
        new = {job["AutoClusterId"]: job["ClusterId"] for job in idle if job["AutoClusterId"] not in self._examined}
        if not new:
            return
        slots = _slots()
        for kind, number in new.items():
            self._examined.add(kind)
            for job in htcondor2.Schedd().query(f"ClusterId == {number}"):
                job["NumJobCompletions"] = 0  # a job that has failed avoids its machines only for a while
                if not any(matches(job, slot) for slot in slots):
                    request = ", ".join(f"{name} {job.eval(name)}" for name in _REQUEST if name in job)
                    self._say(
                        f"No machine of the pool can run job {number} ({job['JobBatchName']}), not even an idle one: "
                        f"{request}; slots checked: {len(slots)}. condor_q -better-analyze {number} shows which "
                        "condition no slot meets. The job waits until such a machine joins; or end this run (Ctrl-C), "
                        "ask for less under `resources` in the configuration, and start again."
                    )

    def _remind(self, jobs: list[ClassAd]) -> None:
        if time.monotonic() < self._last_reminder + _REMINDER_SECONDS:
            return
        self._last_reminder = time.monotonic()
        self._examined.clear()  # machines come and go
        if not jobs:
            return
        states = {_IDLE: "idle", _RUNNING: "running", _HELD: "held"}
        counts = Counter(states.get(job["JobStatus"], "in transit") for job in jobs)
        self._say("In the queue: " + ", ".join(f"{count} {state}" for state, count in sorted(counts.items())))

    def _read_events(self) -> None:
        if self._events is None and self.event_log.exists():
            self._events = JobEventLog(str(self.event_log))
        for event in self._events.events(stop_after=0) if self._events else ():
            match event.type:
                case JobEventType.SUBMIT:
                    self._seen.add(event.cluster)
                case JobEventType.JOB_TERMINATED | JobEventType.JOB_ABORTED:
                    self._finished.add(event.cluster)
                case JobEventType.JOB_HELD:
                    self._stopped.add(event.cluster)
                case JobEventType.JOB_RELEASED:
                    self._stopped.discard(event.cluster)
                case JobEventType.JOB_DISCONNECTED:
                    self._say(
                        f"The machine of job {event.cluster} is unreachable. HTCondor waits for it for "
                        "htcondor_submit_job_lease_duration (profiles/condor/config.yaml) and then starts the job "
                        "elsewhere, where it resumes from its last progress. Nothing needs to be done."
                    )
                case _:
                    pass

    def _lost(self, queued: set[int]) -> list[int]:
        """Return jobs that have been missing for long and have no event about their end."""
        self._seen |= queued
        self._missing = {job: self._missing.get(job, 0) + 1 for job in self._seen - self._finished - queued}
        return [job for job, polls in self._missing.items() if polls >= _POLLS_UNTIL_LOST]


def watch(folder: Path, every: float, say: Callable[[str], None], logs: Logs) -> None:
    """Begin a run: remove jobs that killed runs left in the queue, and watch this run's jobs until the process ends.

    `folder` contains the run's event log and is next to the folders of other runs. Raises `InputError` if HTCondor
    cannot be reached or could not run a job.
    """
    if " " in str(folder.absolute()):
        raise InputError(f"{folder.absolute()}: HTCondor's executor cannot handle the space in this path; move it")
    try:
        htcondor2.Schedd().query("false")
    except HTCondorException as error:
        raise InputError(
            f"HTCondor cannot be reached: {error} Can jobs be submitted from this machine? condor_q and "
            "condor_status must work here; the variable CONDOR_CONFIG names the pool's configuration."
        ) from None
    clear(folder.parent, say)
    # The executor (0.3.0) closes its event log when a run is cancelled, while its own thread may read on: a crash. The
    # process ends then, which closes it.
    setattr(JobEventLog, "close", lambda log: None)  # noqa: B010 -- as an assignment, types refuse it
    started = Watch(folder, every, say, give_up=_end_run, logs=logs)
    started.start()
    atexit.register(started.stop)  # also after an exception, where Snakemake calls no `onerror`


def clear(folder: Path, say: Callable[[str], None]) -> None:
    """Remove jobs that killed runs left in the queue; `folder` contains the folders of all runs.

    Raises `InputError` if they cannot be removed: they may write the same files as a run that starts now.
    """
    killed = [lock for lock in folder.absolute().glob(f"*/{_LOCK}") if not _lives(lock)]
    if not killed:
        return
    try:
        removed, left = remove([lock.with_name(_EVENT_LOG) for lock in killed])
    except HTCondorException as error:
        raise InputError(
            f"{folder}: a run has ended whose jobs may continue in HTCondor's queue and would write the same files, "
            f"and HTCondor cannot be reached: {error} Type the same command where condor_q works; or, if none of these "
            f"jobs is left, type `rm {' '.join(map(str, killed))}` and the same command again."
        ) from None
    if removed:
        say(f"Removed from the queue, left there by a run that was killed: job {_numbers(removed)}.")
    if left:
        raise InputError(
            f"Job {_numbers(left)} of a run that was killed is being removed and has not ended yet; it may still write "
            "the same files. Start again when condor_q no longer shows it. If its machine is gone: condor_rm -forcex."
        )
    for lock in killed:
        lock.unlink(missing_ok=True)  # another run that starts now may have removed it


def _lives(lock: Path) -> bool:
    """Whether the run with this lock continues, or has just removed it."""
    try:
        return is_held(lock)
    except FileNotFoundError:
        return True
    except OSError as error:
        raise InputError(
            f"{lock}: whether the run that wrote it has ended cannot be known here ({error.strerror}). If it has, and "
            "condor_q shows none of its jobs, remove this file and type the same command again."
        ) from None


def _end_run() -> None:
    """Send SIGTERM to the main thread, which runs the handlers; one that another thread gets may not wake it."""
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, signal.SIGTERM)


def remove(event_logs: Sequence[Path]) -> tuple[list[int], list[int]]:
    """Remove the jobs of these event logs from the queue; return the numbers of removed and of still ending jobs."""
    schedd, jobs = htcondor2.Schedd(), _of(event_logs)
    queued = {job["ClusterId"] for job in schedd.query(jobs, projection=["ClusterId"])}
    left = queued
    if queued:
        schedd.act(JobAction.Remove, jobs)
        deadline = time.monotonic() + _REMOVAL_SECONDS
        while left and time.monotonic() < deadline:
            time.sleep(0.5)
            left = {job["ClusterId"] for job in schedd.query(jobs, projection=["ClusterId"])}
    return sorted(queued - left), sorted(left)


def _of(event_logs: Sequence[Path]) -> str:
    """Return the constraint for jobs of these event logs; `=?=` is case-sensitive, `==` is not."""
    return " || ".join(f"UserLog =?= {quote(str(path))}" for path in event_logs)


def _slots() -> list[ClassAd]:
    """Return the pool's slots, as if its machines were idle."""
    return [as_idle(slot) for slot in htcondor2.Collector().query(AdType.Startd, 'SlotType =!= "Dynamic"')]


def as_idle(slot: ClassAd) -> ClassAd:
    """Return the slot's ad as if its machine were idle."""
    for name in ("Cpus", "Memory", "Disk", "GPUs"):
        if (total := slot.get(f"TotalSlot{name}")) is not None:
            slot[name] = total
    if gpus := [name for name in slot if name.startswith("GPUs_") and isinstance(slot[name], ClassAd)]:
        slot["AvailableGPUs"] = [slot[name] for name in gpus]
    return slot


def matches(job: ClassAd, slot: ClassAd) -> bool:
    """Whether the job's `Requirements` hold on that slot."""
    return job.lookup("Requirements").eval(job, slot) is True


def _numbers(clusters: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(clusters)))
