"""What Snakemake's HTCondor executor leaves unsaid about the jobs of a run: held, lost, or never to start.

The executor learns of its jobs from one event log. It says nothing of a job that no machine of the pool can run, waits
for ever for one whose end that log does not tell, and leaves in the queue what it has given up. `Watch` looks at the
queue beside it.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import htcondor2
from classad2 import ClassAd, quote
from htcondor2 import AdType, HTCondorException, JobAction, JobEventLog, JobEventType

from arc_refinery.errors import InputError

_IDLE, _RUNNING, _HELD = 1, 2, 5  # JobStatus, https://htcondor.readthedocs.io/en/latest/classad-attributes
_REMINDER_SECONDS = 3600.0
_REMOVAL_SECONDS = 60.0
_KILLING_SECONDS = 30.0  # after which a held job counts as ended where no event says so
_JOB = ["ClusterId", "JobBatchName", "JobStatus", "HoldReason", "EnteredCurrentStatus", "AutoClusterId"]
_REQUEST = ["RequestCpus", "RequestMemory", "RequestDisk", "RequestGPUs", "GPUsMinMemory"]


class Watch(threading.Thread):
    """Follows the jobs of one event log and says what their user should do; one look every `every` seconds.

    `say` gets each message, one paragraph. `give_up` is called once, after a message, when a job's end can no longer be
    learned: the run would never finish.
    """

    def __init__(self, event_log: Path, every: float, say: Callable[[str], None], give_up: Callable[[], None]) -> None:
        super().__init__(name="htcondor-watch", daemon=True)
        self.event_log = event_log.absolute()
        self._every, self._say, self._give_up = every, say, give_up
        self._ended = threading.Event()
        self._events: JobEventLog | None = None
        self._unfinished: set[int] = set()
        self._missing: set[int] = set()
        self._stopped: set[int] = set()
        self._held: set[int] = set()
        self._examined: set[int] = set()
        self._reachable = True
        self._last_reminder = time.monotonic()

    def run(self) -> None:
        while not self._ended.wait(self._every):
            try:
                jobs = self.jobs()
                self._read_events()  # after the queue, so that no job ends between the two unseen
                if not self._reachable:
                    self._reachable = True
                    self._say("The queue can be reached again.")
                self._report_held(jobs)
                self._report_unmatched(jobs)
                self._remind(jobs)
            except HTCondorException as error:
                if self._reachable:
                    self._reachable = False
                    self._say(f"The queue cannot be reached: {error} Jobs that run go on. Does condor_q work here?")
                continue
            if lost := self._lost(jobs):
                self._say(
                    f"Job {_numbers(lost)} has left the queue and {self.event_log} does not say how it ended; was the "
                    "file deleted, or the queue? Snakemake would wait for ever, so this run ends here. Start the same "
                    "command again: what is finished is kept."
                )
                self._give_up()
                return

    def stop(self) -> None:
        """Look no more, and remove what the run leaves in the queue: held jobs that someone might release later."""
        self._ended.set()
        self.join()
        try:
            if removed := remove(self._own(), "left behind by the run of Snakemake that had submitted it"):
                self._say(f"Removed from the queue, as this run ends: job {_numbers(removed)}.")
        except HTCondorException as error:
            self._say(
                f"The queue cannot be reached ({error}). Jobs that are still in it go on without this run; the next "
                "one from this folder will remove them."
            )

    def jobs(self) -> list[ClassAd]:
        """Ads of the run's jobs that are in the queue."""
        ads: list[ClassAd] = htcondor2.Schedd().query(self._own(), projection=_JOB)
        return ads

    def _own(self) -> str:
        return f"UserLog == {quote(str(self.event_log))}"

    def _report_held(self, jobs: list[ClassAd]) -> None:
        """Say it as soon as the job's processes have ended: one that is released before may stay idle for ever."""
        held = {job["ClusterId"]: job for job in jobs if job["JobStatus"] == _HELD}
        now = time.time()
        for number, job in list(held.items()):
            if number not in self._stopped and now < job["EnteredCurrentStatus"] + _KILLING_SECONDS:
                del held[number]
        for number in held.keys() - self._held:
            job = held[number]
            self._say(
                f"Job {number} ({job['JobBatchName']}) is held: {job.get('HoldReason', 'no reason given')} "
                f"When the cause is mended: condor_release {number}. To give the job up: condor_rm {number}."
            )
        self._held = set(held)

    def _report_unmatched(self, jobs: list[ClassAd]) -> None:
        """Say once of each kind of request that no machine of the pool can meet it, even with nothing else to do."""
        idle = [job for job in jobs if job["JobStatus"] == _IDLE and "AutoClusterId" in job]
        new = {job["AutoClusterId"]: job["ClusterId"] for job in idle if job["AutoClusterId"] not in self._examined}
        if not new:
            return
        slots = [emptied(slot) for slot in htcondor2.Collector().query(AdType.Startd, 'SlotType != "Dynamic"')]
        for kind, number in new.items():
            self._examined.add(kind)
            for job in htcondor2.Schedd().query(f"ClusterId == {number}"):
                if not any(matches(job, slot) for slot in slots):
                    request = ", ".join(f"{name} {job.eval(name)}" for name in _REQUEST if name in job)
                    self._say(
                        f"No machine of the pool can run job {number} ({job['JobBatchName']}), not even an empty one: "
                        f"{request}; slots looked at: {len(slots)}. condor_q -better-analyze {number} tells which "
                        "condition none meets. The job waits until such a machine joins; or end this run (Ctrl-C), "
                        "ask for less under `resources` in the configuration, and start again."
                    )

    def _remind(self, jobs: list[ClassAd]) -> None:
        if time.monotonic() < self._last_reminder + _REMINDER_SECONDS:
            return
        self._last_reminder = time.monotonic()
        self._examined.clear()  # machines come and go
        states = {_IDLE: "idle", _RUNNING: "running", _HELD: "held"}
        counts = Counter(states.get(job["JobStatus"], "in transit") for job in jobs)
        self._say("In the queue: " + ", ".join(f"{count} {state}" for state, count in sorted(counts.items())))

    def _read_events(self) -> None:
        if self._events is None and self.event_log.exists():
            self._events = JobEventLog(str(self.event_log))
        for event in self._events.events(stop_after=0) if self._events else ():
            match event.type:
                case JobEventType.SUBMIT:
                    self._unfinished.add(event.cluster)
                case JobEventType.JOB_TERMINATED | JobEventType.JOB_ABORTED:
                    self._unfinished.discard(event.cluster)
                case JobEventType.JOB_HELD:
                    self._stopped.add(event.cluster)
                case JobEventType.JOB_RELEASED:
                    self._stopped.discard(event.cluster)
                case JobEventType.JOB_DISCONNECTED:
                    self._say(
                        f"The machine of job {event.cluster} is out of reach. HTCondor looks for it as long as "
                        "htcondor_submit_job_lease_duration in profiles/condor/config.yaml says, and then starts the "
                        "job elsewhere, where it goes on from its last progress. Nothing needs to be done."
                    )

    def _lost(self, jobs: list[ClassAd]) -> set[int]:
        """Jobs that were gone at two looks and whose end no event tells."""
        missing = self._unfinished - {job["ClusterId"] for job in jobs}
        lost = missing & self._missing
        self._missing = missing
        return lost


def watch(event_log: Path, every: float, say: Callable[[str], None], give_up: Callable[[], None]) -> Watch:
    """Begin a run: remove what an earlier one from this folder left in the queue, and follow the jobs of this one.

    Raises `InputError` where HTCondor cannot be reached.
    """
    folder = f"{event_log.parent.parent.absolute()}/"
    try:
        removed = remove(
            f"substr(UserLog, 0, {len(folder)}) == {quote(folder)}", "a new run of Snakemake does its work"
        )
    except HTCondorException as error:
        raise InputError(
            f"HTCondor cannot be reached: {error} Is this a machine from which jobs can be submitted? condor_q and "
            "condor_status must work here; the variable CONDOR_CONFIG names the pool's configuration."
        ) from None
    if removed:
        say(f"Removed from the queue, as an earlier run from this folder left it there: job {_numbers(removed)}.")
    started = Watch(event_log, every, say, give_up)
    started.start()
    return started


def remove(constraint: str, reason: str) -> list[int]:
    """Remove jobs from the queue and wait until they are gone; the numbers of those that were there."""
    schedd = htcondor2.Schedd()
    numbers = sorted(job["ClusterId"] for job in schedd.query(constraint, projection=["ClusterId"]))
    if numbers:
        schedd.act(JobAction.Remove, constraint, reason)
        deadline = time.monotonic() + _REMOVAL_SECONDS
        while schedd.query(constraint, projection=["ClusterId"]) and time.monotonic() < deadline:
            time.sleep(0.5)
    return numbers


def emptied(slot: ClassAd) -> ClassAd:
    """The ad of a slot as it were without any job on its machine."""
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
