"""A run of Snakemake on the screen: one line per finished job, and how the run ended.

    12:03:10  34 of 60  sample heldout, turn1, shard 001: 31 s, about 6 min left
    12:03:14  FAILED    grade heldout, turn1, shard 001

All of Snakemake's messages, with the commands of the jobs, are in `.snakemake/log`; `--verbose` shows them instead.
"""

import logging
import os
import re
import shutil
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from statistics import mean
from typing import Any, TextIO

from arc_refinery.runs.ending import is_stopped

# Beginnings of messages of Snakemake that are left out. A message of another version is shown.
_NOISE = (
    *("Assuming unrestricted shared filesystem", "Building DAG of jobs", "Using shell:", "Select jobs to execute"),
    *("Shutting down, this might", "Removing output files of failed job", "Exiting because a job execution failed"),
    *("Complete log(s):", "Elapsed time:", "Reasons:\n", "This was a dry-run"),
)
_EXPECTED_REASONS = ("Missing output files", "Input files updated by another job", "Updated input files")
_LAUNCHER = "torch/distributed/elastic/multiprocessing/api.py:"  # torchrun says here that one of its processes failed
_KNOWN_SHARE = 0.1  # share of the work that is done before a time is shown


@dataclass(frozen=True)
class Job:
    words: str
    logs: list[str]
    pages: list[str]
    stage: str
    started: float


class Screen(logging.StreamHandler[TextIO]):
    """Takes the place of Snakemake's handler for the terminal, with its settings.

    `report` is the page to name if there is nothing to do.
    """

    def __init__(self, stream: TextIO, settings: Any, report: Path | None = None) -> None:
        super().__init__(stream)
        self._settings, self._report = settings, report
        self._quiet = {str(about).lower().rpartition(".")[2] for about in settings.quiet or ()}
        self._is_terminal = stream.isatty() and os.environ.get("TERM") != "dumb"
        self._running: dict[int, Job] = {}
        self._failed: dict[int, Job] = {}
        self._has_error = False  # whether Snakemake has shown an error of its own
        self._pages: list[str] = []
        self._finished: set[int] = set()
        self._n_jobs = 0
        self._began = time.time()
        self._planned: dict[int, str] = {}
        self._seconds: dict[str, float] = {}
        self._took: defaultdict[str, list[float]] = defaultdict(list)

    @classmethod
    def replace(cls, logger: logging.Logger, settings: Any, report: Path | None) -> "Screen | None":
        """Replace Snakemake's handler; not with --verbose or --debug-dag, nor if a plugin writes to the terminal."""
        if settings.verbose or settings.debug_dag:
            return None
        screen = None
        for handler in list(logger.handlers):
            if handler.name == "DefaultStreamHandler" and isinstance(handler, logging.StreamHandler):
                logger.removeHandler(handler)
                logger.addHandler(screen := cls(handler.stream, settings, report))
            elif handler.name == "DefaultLogFileHandler":  # in .snakemake/log, where commands are looked up
                for choice in handler.filters:
                    vars(choice)["printshellcmds"] = True
        return screen

    def expect(self, jobs: Mapping[int, str | None], benchmarks: Path) -> None:
        """Estimate the time left from the seconds that jobs of an earlier run took (Snakemake's benchmark files).

        `jobs` has the benchmark of each job that is to run, by its number.
        """
        self._planned = {number: stage(Path(path)) if path else "" for number, path in jobs.items()}
        took = defaultdict(list)
        for path in benchmarks.rglob("*.tsv"):
            if row := re.match(r"s\t.*\n([\d.]+)\t", path.read_text(errors="replace")):
                took[stage(path)].append(float(row[1]))
        self._seconds = {name: mean(seconds) for name, seconds in took.items()}

    def end(self, has_succeeded: bool = False) -> str:
        """Return the lines with which the run ends."""
        if has_succeeded:
            jobs = "1 job" if self._n_jobs == 1 else f"{self._n_jobs} jobs"
            end = [f"{jobs} in {duration(time.time() - self._began)}."]
            pages = self._pages + [page for job in self._running.values() for page in job.pages]
            return "\n".join(
                end + [line for page in dict.fromkeys(pages) for line in (*_answer(page), f"Report: {page}")]
            )
        kept = f"{len(self._finished)} of {self._n_jobs} jobs are finished and kept"
        if self._quiet & {"all", "progress"}:  # Snakemake does not say which jobs finish
            kept = "finished jobs are kept"
        self._running.clear()  # Snakemake says nothing of a job whose outputs are missing
        if is_stopped() or not (self._failed or self._has_error):
            return f"Stopped: {kept}; so is what sampling and training have begun. The same command continues."
        lines = [line for job in self._failed.values() for line in (f"Failed: {job.words}", *last_message(job.logs))]
        return "\n".join([*lines, f"{kept.capitalize()}. When the cause is gone, the same command continues."])

    def emit(self, record: logging.LogRecord) -> None:
        text = self._text(record)
        text = f"{text}\n" if text and self._is_shown(record) else ""
        self.stream.write(self._for_terminal(text, record.levelno) if self._is_terminal else text)
        self.flush()

    def _for_terminal(self, text: str, level: int) -> str:
        """In color, and followed by a line of what runs, which the next message replaces."""
        color = 31 if level >= logging.ERROR else 33 if level >= logging.WARNING else 0
        if text and color and not self._settings.nocolor:
            text = f"\033[{color}m{text[:-1]}\033[0m\n"
        running = "; ".join(f"{job.words} ({job.logs[0]})" for job in self._running.values())
        if running and not self._settings.dryrun and not self._quiet:
            text += f"running: {running}"[: shutil.get_terminal_size().columns - 1]
        return f"\r\033[K{text}"

    def _is_shown(self, record: logging.LogRecord) -> bool:
        if record.levelno >= logging.ERROR:
            return True
        if "all" in self._quiet:
            return bool(self._settings.dryrun)
        is_of_job = getattr(record, "event", None) in ("job_info", "shellcmd", "job_finished")
        return not is_of_job or not self._quiet & {"rules", "progress"}

    def _text(self, record: logging.LogRecord) -> str:
        """Return the text to show for a message of Snakemake; empty: none."""
        now, message = record.created, str(record.msg or "")
        match getattr(record, "event", None):
            case "workflow_started":
                self._began = now
                return ""
            case "run_info":
                counts = record.__dict__["stats"]
                is_first, self._n_jobs = not self._n_jobs, counts["total"] - counts.get("all", 0)
                return message if is_first and self._settings.dryrun else ""
            case "job_info":
                return self._start(record)
            case "shellcmd" if self._settings.printshellcmds and record.__dict__["shellcmd"]:  # a target has none
                command, *more = record.__dict__["shellcmd"].splitlines()
                return f"    {command}" + (f" ... ({len(more)} more lines)" if more else "")
            case "job_finished":
                return self._finish(record.__dict__["job_id"], now)
            case "job_error":
                return self._fail(record)
            case "error":
                is_known = "returned non-zero exit status" in message or "At least one job did not complete" in message
                if is_known or is_stopped():
                    return ""
                self._has_error = True
                ours = re.match(r"InputFunctionException.*WorkflowError:\n\s+(.*)\nWildcards:", message, re.DOTALL)
                return f"arc-refinery: {ours[1]}" if ours else message
            case None if message.startswith("Nothing to be done"):
                is_there = self._report and self._report.exists()
                return f"{message} Report: {self._report}" if is_there else message
            case None:
                return "" if message.startswith(_NOISE) else message.strip("\n")
            case _:
                return ""

    def _start(self, record: logging.LogRecord) -> str:
        job = record.__dict__
        if not job["log"]:  # the run's target, such as `pretrain`
            if job["rule_name"] != "all":
                self._n_jobs -= 1
            elif self._report and self._report.exists():  # also if no other job runs
                self._pages.append(str(self._report))
            return ""
        outputs, values = job["output"] or [], ", ".join(job["wildcards"].values())
        words = job["rule_msg"] or f"{job['rule_name']} {values}".strip()
        pages = [path for path in outputs if path.endswith(".html")]
        name = stage(Path(job["benchmark"])) if job["benchmark"] else ""
        self._failed.pop(job["jobid"], None)  # it is started again
        self._running[job["jobid"]] = Job(words, job["log"], pages, name, record.created)
        if not self._settings.dryrun:
            return ""
        reasons = [reason.partition(":")[0].strip() for reason in job["reason"].split(";")]
        unexpected = [reason for reason in reasons if reason and not reason.startswith(_EXPECTED_REASONS)]
        return f"  {words}" + (f"  ({'; '.join(unexpected)})" if unexpected else "")

    def _finish(self, number: int, now: float) -> str:
        job = self._running.pop(number, None)
        if job is None:
            return ""
        self._finished.add(number)
        self._pages += job.pages
        if job.stage:
            self._took[job.stage].append(now - job.started)
        left = self._left(now)
        took = duration(now - job.started) + (f", about {duration(left)} left" if left and left >= 1 else "")
        return f"{_clock(now)}  {len(self._finished)} of {self._n_jobs}  {job.words}: {took}"

    def _fail(self, record: logging.LogRecord) -> str:
        error = record.__dict__
        job = self._running.pop(error["jobid"], None)
        if job is None or is_stopped():
            return ""
        self._failed[error["jobid"]] = replace(job, logs=error["log"])
        reason = f": {error['rule_msg']}" if error["rule_msg"] else ""  # a cluster may not have started it
        # now, too: a job that is tried again (`--retries`) writes over its log
        return "\n".join([f"{_clock(record.created)}  FAILED  {job.words}{reason}", *last_message(error["log"])])

    def _left(self, now: float) -> float | None:
        """Seconds left: for the work at the speed so far, or for the longest job; None if unknown."""
        seconds = {"": 0.0} | {name: mean(took) for name, took in self._took.items()} | self._seconds
        if not self._planned or not all(name in seconds for name in self._planned.values()):
            return None
        work = sum(seconds[name] for name in self._planned.values())
        left = {number: seconds[name] for number, name in self._planned.items() if number not in self._finished}
        left |= {
            number: max(0.0, seconds.get(job.stage, 0.0) - now + job.started) for number, job in self._running.items()
        }
        done = work - sum(left.values())
        expected = sum(len(took) * seconds[name] for name, took in self._took.items())
        if not expected or done <= _KNOWN_SHARE * work:
            return None
        slowness = sum(map(sum, self._took.values())) / expected
        return max((work - done) * (now - self._began) / done, slowness * max(left.values(), default=0.0))


def duration(seconds: float) -> str:
    """Return a duration as a person says it.

    >>> duration(31.4), duration(360), duration(7500)
    ('31 s', '6 min', '2 h 5 min')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def stage(benchmark: Path) -> str:
    """Return the stage of a job's file: `sample` for `heldout/turn1/sample-003.tsv`, `train` for `adapters/x.tsv`."""
    name = benchmark.name.removesuffix(".tsv")
    if benchmark.parent.name != "adapters":
        return re.sub(r"-\d+$", "", name)
    if name.endswith(".curves"):
        return "curves"
    return "sft" if re.match(r"sft(-|$)", name) else "train"


def _answer(page: str) -> list[str]:
    """The first sentences of a report, which follow its title; none without a report, as after `--touch`."""
    text = Path(page).with_suffix(".md")
    blocks = text.read_text().split("\n\n") if text.exists() else []
    return [re.sub(r"[*`]", "", block) for block in blocks[1:2] if not block.startswith(("#", "|", "!", "<"))]


def last_message(logs: Sequence[str]) -> list[str]:
    """The last sentence of the first of these logs that has one, and its path."""
    for log in filter(Path.is_file, map(Path, logs)):
        lines = own_lines(log.read_text(errors="replace"))
        lines = [line for line in lines if not re.search(r"\d%\|", line)]  # progress bars
        if lines:
            said = [number for number, line in enumerate(lines) if line.startswith("arc-refinery: ")]
            return [*(f"    {line}" for line in lines[said[-1] if said else -1 :]), f"    log: {log}"]
    return [f"    log: {log}" for log in logs[:1]]


def own_lines(output: str) -> list[str]:
    """Return a command's lines that are not blank, without those that `accelerate launch` adds when a process fails."""
    lines = [line for line in re.split(r"[\r\n]", output) if line.strip()]
    return list(takewhile(lambda line: _LAUNCHER not in line, lines))


def _clock(now: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(now))
