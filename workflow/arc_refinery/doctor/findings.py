"""Findings of checks: saved by the job that ran them, read by the next one, and shown in one table.

Finding("disk for results", "passed", "results: 411.9 GB free")
| cpu | disk for results | passed | results: 411.9 GB free |  |
"""

import json
import platform
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from arc_refinery.errors import InputError
from arc_refinery.files import atomic_write
from arc_refinery.reporting.markdown import markdown_table

JobKind = Literal["cpu", "sample", "train"]  # as in the section `resources` of a config
JOBS: tuple[JobKind, ...] = ("cpu", "sample", "train")
CheckOutcome = Literal["passed", "failed", "not applicable"]

# Programs may behave differently with other versions of these packages
RUNTIME_PACKAGES = ("numpy", "scipy")


@dataclass(frozen=True, slots=True)
class Finding:
    check: str  # what was checked
    outcome: CheckOutcome
    found: str
    advice: str = ""  # what to do if it failed


@dataclass(frozen=True, slots=True)
class JobReport:
    """The findings of one job."""

    job: JobKind
    host: str
    programs_run_under: dict[str, str]  # versions of Python and packages
    findings: list[Finding]

    @classmethod
    def on_this_machine(cls, job: JobKind, findings: Iterable[Finding]) -> "JobReport":
        versions = {"Python": platform.python_version(), **{name: version(name) for name in RUNTIME_PACKAGES}}
        return cls(job, platform.node(), versions, list(findings))


def write_job_report(path: Path, report: JobReport) -> None:
    with atomic_write(path) as unfinished:
        unfinished.write_text(json.dumps(asdict(report), indent=1) + "\n")


def read_job_report(path: Path) -> JobReport:
    """Read the findings of another job; raise `InputError` if they cannot be read."""
    try:
        content = json.loads(path.read_text())
        findings = [Finding(**finding) for finding in content.pop("findings")]
        return JobReport(**content, findings=findings)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path}: cannot be read as the findings of a job ({error}). It was written by `arc-refinery doctor "
            "--findings`, perhaps on another machine: is the folder on a file system that all machines share?"
        ) from None


def same_programs(reports: Sequence[JobReport]) -> Finding:
    """Check that all jobs have the same versions: grading and rewards must run programs identically."""
    check = "programs run under the same versions everywhere"
    versions = {
        report.job: ", ".join(f"{name} {v}" for name, v in report.programs_run_under.items()) for report in reports
    }
    if len(set(versions.values())) == 1:
        return Finding(check, "passed", next(iter(versions.values())))
    texts = "; ".join(f"{job}: {text}" for job, text in versions.items())
    return Finding(check, "failed", texts, "reinstall the pinned sets of envs/, which agree (docs/run.md)")


def findings_page(reports: Sequence[JobReport]) -> str:
    """Return all findings as a Markdown page."""
    rows = [
        [report.job, finding.check, outcome, finding.found, finding.advice]
        for report in reports
        for finding in report.findings
        for outcome in [f"**{finding.outcome}**" if finding.outcome == "failed" else finding.outcome]
    ]
    last = same_programs(reports)
    rows.append(["all", last.check, last.outcome, last.found, last.advice])
    n_failed = len(failures(reports))
    verdict = f"{n_failed} of {len(rows)} checks failed." if n_failed else f"None of {len(rows)} checks failed."
    machines = ", ".join(f"`{report.job}` on {report.host}" for report in reports)
    cells = [[str(cell).replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    header = ["job", "check", "outcome", "found", "what to do"]
    written = markdown_table(header, cells).replace("---:", "---")  # words, not numbers
    return f"# Doctor\n\n{verdict} Jobs ran on: {machines}.\n\n{written}\n"


def failures(reports: Sequence[JobReport]) -> list[Finding]:
    findings = [finding for report in reports for finding in report.findings] + [same_programs(reports)]
    return [finding for finding in findings if finding.outcome == "failed"]
