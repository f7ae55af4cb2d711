"""What a run of Snakemake shows, from the records that Snakemake logs."""

import io
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from arc_refinery.runs import ending
from arc_refinery.runs.screen import Screen, stage


class Run:
    """A run whose records are made by hand; the clock is the time of these records."""

    def __init__(self, report: Path | None = None, stream: io.StringIO | None = None, **settings: Any) -> None:
        self.stream = stream or io.StringIO()
        usual = {"quiet": None, "dryrun": False, "printshellcmds": False, "nocolor": False}
        self.screen = Screen(self.stream, SimpleNamespace(**usual | settings), report)

    def log(self, event: str | None, message: str = "", level: int = logging.INFO, at: float = 0, **more: Any) -> None:
        record = logging.LogRecord("snakemake", level, "", 0, message, None, None)
        vars(record).update(more, created=1_000_000 + at)
        if event:
            record.event = event
        self.screen.handle(record)

    def begin(self, n_jobs: int = 2) -> None:
        self.log("workflow_started")
        self.log("run_info", "job count\nsample 2", stats={"sample": n_jobs, "all": 1, "total": n_jobs + 1})

    def start(self, number: int, words: str, at: float = 0, **more: Any) -> None:
        job: dict[str, Any] = {
            "log": [f"logs/x/{number}.log"],
            "output": [],
            "benchmark": f"logs/x/benchmarks/a/sample-{number}.tsv",
        }
        job |= {"rule_name": "sample", "wildcards": {"tasks": "own"}, "reason": "Missing output files: a"}
        self.log("job_info", at=at, jobid=number, rule_msg=words, **job | more)

    def fail(self, number: int, log: Path, reason: str | None = None) -> None:
        self.log("error", "CalledProcessError\nCommand 'x' returned non-zero exit status 1.", logging.ERROR)
        self.log("job_error", "Error in rule", logging.ERROR, jobid=number, log=[str(log)], rule_msg=reason)

    @property
    def lines(self) -> list[str]:
        return self.stream.getvalue().splitlines()


@pytest.fixture(autouse=True)
def not_stopped() -> None:
    ending._stopped.clear()  # other tests stop runs


def test_one_line_per_finished_job():
    run = Run()
    run.begin()
    run.log(None, "Select jobs to execute...")
    run.start(1, "sample: own, turn1, shard 000")
    run.log("shellcmd", shellcmd="arc-refinery sample")
    run.log("job_finished", job_id=1, at=31)
    (line,) = run.lines
    assert line.endswith("1 of 2  sample: own, turn1, shard 000: 31 s")


def test_a_target_without_a_log_is_not_a_job():
    run = Run()
    run.log("run_info", stats={"pretrain_part": 1, "pretrain": 1, "total": 2})
    run.start(1, "pretrain tasks")
    run.log("job_finished", job_id=1)
    run.start(2, "", log=[], rule_name="pretrain")
    run.log("job_finished", job_id=2)
    assert run.screen.end(has_succeeded=True).startswith("1 job in ")


def test_a_job_of_a_rule_without_a_message_is_named_by_its_rule_and_wildcards():
    run = Run()
    run.begin()
    run.start(1, "")
    run.log("job_finished", job_id=1)
    assert "sample own" in run.lines[0]


def test_commands_are_shown_if_asked_for_and_a_long_one_is_cut():
    run = Run(printshellcmds=True)
    run.log("shellcmd", shellcmd="arc-refinery sample")
    run.log("shellcmd", shellcmd="printf '{\n1\n}'")
    run.log("shellcmd", shellcmd=None)  # of `all`
    assert [line.strip() for line in run.lines] == ["arc-refinery sample", "printf '{ ... (2 more lines)"]


def test_a_failed_run_ends_with_the_sentence_of_the_log(tmp_path: Path):
    log = tmp_path / "1.log"
    log.write_text("0 of 2 prompts\rdone\narc-refinery: x.json: task t: train pair 0: cells 11..11\nexpected 0..9\n")
    run = Run()
    run.begin()
    run.start(1, "make the tasks of own")
    run.fail(1, log)
    reason = ["    arc-refinery: x.json: task t: train pair 0: cells 11..11", "    expected 0..9", f"    log: {log}"]
    assert "FAILED" in run.lines[0] and run.lines[1:] == reason  # a second try would write over the log
    end = run.screen.end().splitlines()
    assert end[0] == "Failed: make the tasks of own"
    assert end[1:4] == reason
    assert end[4].startswith("0 of 2 jobs")


LAUNCHER = """\
E1128 08:00:00.000000 11 torch/distributed/elastic/multiprocessing/api.py:1003] failed (exitcode: 1) local_rank: 0
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
"""


@pytest.mark.parametrize(
    "content, shown",
    [
        ("Traceback\n  File\nValueError: no\n\n", ["ValueError: no"]),
        (f"Traceback\n  File\nValueError: no\n{LAUNCHER}", ["ValueError: no"]),
        (f"starting\narc-refinery: x.json: no\n{LAUNCHER}", ["arc-refinery: x.json: no"]),
        ("starting\n  0%|          | 0/200 [00:00<?, ?prompt/s]\r 50%|#####     | 100/200", ["starting"]),
        ("", []),
    ],
)
def test_without_such_a_sentence_it_ends_with_the_last_line(tmp_path: Path, content: str, shown: list[str]):
    log = tmp_path / "1.log"
    log.write_text(content)
    run = Run()
    run.begin()
    run.start(1, "sample")
    run.fail(1, log)
    assert [line.strip() for line in run.screen.end().splitlines()[1:-1]] == [*shown, f"log: {log}"]


def test_outputs_that_were_touched_may_lack_the_report(tmp_path: Path):
    run = Run()
    run.begin()
    page = tmp_path / "demo.html"
    run.start(1, "write the report", output=[str(page)])
    run.log("job_finished", job_id=1)
    assert run.screen.end(has_succeeded=True).splitlines()[-1] == f"Report: {page}"


def test_a_job_that_a_cluster_did_not_start_fails_for_its_reason(tmp_path: Path):
    run = Run()
    run.begin()
    run.start(1, "sample")
    run.fail(1, tmp_path / "none.log", "Job 1 with HTCondor Cluster ID 7 is held: memory usage exceeded")
    assert run.lines[0].endswith("is held: memory usage exceeded")


@pytest.mark.parametrize("quiet", [{"rules"}, {"progress", "rules"}, {"all"}])
def test_quiet_runs_show_errors_only(quiet: set[str], tmp_path: Path):
    run = Run(quiet=quiet)
    run.begin()
    run.start(1, "sample")
    run.start(2, "grade")
    run.log("job_finished", job_id=2)
    run.fail(1, tmp_path / "1.log")
    assert len(run.lines) == 2 and "FAILED" in run.lines[0]


def test_an_error_of_snakemake_is_shown_and_the_one_after_a_failed_job_is_not():
    run = Run()
    run.log("error", "MissingOutputException in rule sample", logging.ERROR)
    run.log("error", "WorkflowError:\nAt least one job did not complete successfully.", logging.ERROR)
    assert run.lines == ["MissingOutputException in rule sample"]
    assert not run.screen.end().startswith("Stopped")


def test_a_message_of_ours_from_planning_is_shown_without_a_traceback():
    run = Run()
    message = (
        'InputFunctionException in rule compare in file "/x/rules/compare.smk", line 4:\nError:\n  WorkflowError:\n'
        "    x.yaml: compare: results/a.md does not exist.\nWildcards:\n\nTraceback:\n  File y, line 25, in answer"
    )
    run.log("error", message, logging.ERROR)
    assert run.lines == ["arc-refinery: x.yaml: compare: results/a.md does not exist."]


def test_a_job_that_is_started_again_and_finishes_has_not_failed(tmp_path: Path):
    run = Run()
    run.begin(1)
    run.start(1, "sample")
    run.fail(1, tmp_path / "1.log")
    run.start(1, "sample")
    assert "Failed" not in run.screen.end()


@pytest.mark.parametrize("first, shown", [("**Yes**: `a` is better.", ["Yes: a is better."]), ("| a |", [])])
@pytest.mark.parametrize("quiet", [None, {"rules", "progress"}])
def test_success_ends_with_the_first_sentence_of_the_report(
    tmp_path: Path, first: str, shown: list[str], quiet: set[str] | None
):
    (tmp_path / "x.md").write_text(f"# Experiment x\n\n{first}\n\nMore.\n")
    run = Run(quiet=quiet)
    run.begin(1)
    run.start(1, "write the report", output=[str(tmp_path / "x.md"), str(tmp_path / "x.html")])
    if not quiet:  # Snakemake does not log it
        run.log("job_finished", job_id=1)
    assert run.screen.end(has_succeeded=True).splitlines()[1:] == [*shown, f"Report: {tmp_path / 'x.html'}"]


def test_a_run_of_the_last_rule_alone_ends_with_the_report_that_is_there(tmp_path: Path):
    for name in ("x.md", "x.html"):
        (tmp_path / name).write_text("# Experiment x\n\n**Yes**.\n\nMore.\n")
    run = Run(tmp_path / "x.html")
    run.begin(1)
    run.log("job_info", jobid=1, rule_name="all", log=[])
    assert run.screen.end(has_succeeded=True).splitlines()[1:] == ["Yes.", f"Report: {tmp_path / 'x.html'}"]


def test_ctrl_c_is_not_a_failure(tmp_path: Path):
    run = Run()
    run.begin()
    run.start(1, "sample")
    ending._stopped.set()
    run.fail(1, tmp_path / "1.log")
    assert run.lines == []
    assert run.screen.end().startswith("Stopped: 0 of 2 jobs")


def test_a_dry_run_shows_the_table_once_and_why_finished_jobs_run_again():
    run = Run(dryrun=True)
    run.begin()
    run.start(1, "train trained", reason="Missing output files: a; Params have changed since last execution: b")
    run.log("run_info", "job count\nsample 2", stats={"total": 3})
    assert run.lines == ["job count", "sample 2", "  train trained  (Params have changed since last execution)"]


def test_nothing_to_be_done_names_the_report_that_is_there(tmp_path: Path):
    for report, named in ((tmp_path, True), (tmp_path / "x.html", False)):
        run = Run(report)
        run.log(None, "Nothing to be done (all requested files are present and up to date).")
        assert (str(report) in run.lines[0]) == named


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("tasks.tsv", "tasks"),
        ("heldout/tasks.tsv", "tasks"),
        ("part1/turn1/prompts.tsv", "prompts"),
        ("part1/training/prompts.tsv", "prompts"),
        ("part1/training/demonstrations.tsv", "demonstrations"),
        ("heldout/turn1-learning-rate-1e-9/sample-012.tsv", "sample"),
        ("part10/turn1/grade-1234.tsv", "grade"),
        ("adapters/sft.tsv", "sft"),
        ("adapters/sft-seed-0.tsv", "sft"),
        ("adapters/trained.tsv", "train"),
        ("adapters/learning-rate-0.001.tsv", "train"),
        ("adapters/learning-rate-0.001.curves.tsv", "curves"),
        ("report.tsv", "report"),
    ],
)
def test_a_file_name_says_the_stage(path: str, expected: str):
    assert stage(Path(path)) == expected


@pytest.mark.parametrize(
    "jobs, left",
    [
        # two jobs of 10 s took 30, beside each other; so do the other four, two by two
        ({number: f"b/a/sample-{number}.tsv" for number in range(1, 7)}, "60 s"),
        # training cannot be divided
        ({1: "b/a/sample-1.tsv", 2: "b/a/sample-2.tsv", 3: "b/adapters/x.tsv"}, "5 min"),
        ({1: "b/a/sample-1.tsv", 2: "b/a/sample-2.tsv", 3: "b/unknown.tsv"}, None),
    ],
)
def test_the_time_left_follows_from_the_seconds_of_an_earlier_run(tmp_path: Path, jobs: Any, left: str | None):
    seconds = {"a/sample-1": 8, "a/sample-2": 12, "adapters/trained": 100, "report": 20}
    for name, took in seconds.items():
        path = tmp_path / f"{name}.tsv"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"s\th:m:s\tmax_rss\n{took}.0\t0:00:10\t-\n")
    (tmp_path / "report.tsv").write_text("s\n")  # cut short
    run = Run()
    run.begin(3)
    run.screen.expect(jobs, tmp_path)
    for number in (1, 2):
        run.start(number, "sample")
    for number in (1, 2):
        run.log("job_finished", job_id=number, at=30)
    assert run.lines[-1].endswith(f": 30 s, about {left} left" if left else ": 30 s")


def test_snakemakes_own_output_stays_where_it_is_wanted():
    logger = logging.Logger("snakemake")
    handler = logging.StreamHandler()
    handler.name = "DefaultStreamHandler"
    logger.addHandler(handler)
    verbose = SimpleNamespace(verbose=True, debug_dag=False, quiet=None)
    assert Screen.replace(logger, verbose, None) is None and logger.handlers == [handler]
    usual = SimpleNamespace(verbose=False, debug_dag=False, quiet=None)
    file = logging.NullHandler()
    file.name = "DefaultLogFileHandler"
    choice = SimpleNamespace(printshellcmds=False)
    file.filters.append(choice)
    logger.addHandler(file)
    screen = Screen.replace(logger, usual, None)
    assert logger.handlers == [file, screen] and choice.printshellcmds


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_what_runs_in_its_last_line(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm")
    run = Run(stream=Terminal())
    run.begin()
    run.start(1, "train trained")
    assert run.stream.getvalue().endswith("\r\033[Krunning: train trained (logs/x/1.log)")
    run.start(2, "sample: " + "x" * 60)
    assert len(run.stream.getvalue().rpartition("\033[K")[2]) == 59
    run.log("job_finished", job_id=2)
    run.log("job_finished", job_id=1)
    assert run.stream.getvalue().endswith(": 0 s\n")
