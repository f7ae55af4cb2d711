"""What a check found, on its way from the job that made it to the table."""

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

Job = Literal["cpu", "sample", "train"]  # kinds of jobs, as in the section `resources` of a config
JOBS: tuple[Job, ...] = ("cpu", "sample", "train")
Outcome = Literal["passed", "failed", "not applicable"]

# Programs may behave differently under other versions of these
UNDER_PROGRAMS = ("numpy", "scipy")


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    outcome: Outcome
    found: str
    advice: str = ""  # what to do, where it failed


@dataclass(frozen=True, slots=True)
class Visit:
    """The findings of one job."""

    job: Job
    host: str
    programs_run_under: dict[str, str]  # versions
    findings: list[Finding]

    @classmethod
    def of_this_machine(cls, job: Job, findings: Iterable[Finding]) -> "Visit":
        versions = {"Python": platform.python_version(), **{name: version(name) for name in UNDER_PROGRAMS}}
        return cls(job, platform.node(), versions, list(findings))


def write(path: Path, visit: Visit) -> None:
    with atomic_write(path) as unfinished:
        unfinished.write_text(json.dumps(asdict(visit), indent=1) + "\n")


def read(path: Path) -> Visit:
    """What another job wrote; raises `InputError` where it cannot be read."""
    try:
        content = json.loads(path.read_text())
        findings = [Finding(**one) for one in content.pop("findings")]
        return Visit(**content, findings=findings)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path}: cannot be read as the findings of a job ({error}). It was written by `arc-refinery doctor "
            "--findings`, maybe on another machine: is the folder on a file system that all machines share?"
        ) from None


def same_programs(visits: Sequence[Visit]) -> Finding:
    """Programs are graded in one job and rewarded in another: both must run them alike."""
    check = "programs run under the same versions everywhere"
    versions = {visit.job: ", ".join(f"{name} {v}" for name, v in visit.programs_run_under.items()) for visit in visits}
    if len(set(versions.values())) == 1:
        return Finding(check, "passed", next(iter(versions.values())))
    found = "; ".join(f"{job}: {text}" for job, text in versions.items())
    return Finding(check, "failed", found, "install the pinned sets of envs/ anew: they agree (docs/environments.md)")


def table(visits: Sequence[Visit]) -> str:
    """All findings as a Markdown page."""
    rows = [
        [visit.job, one.check, f"**{one.outcome}**" if one.outcome == "failed" else one.outcome, one.found, one.advice]
        for visit in visits
        for one in visit.findings
    ]
    last = same_programs(visits)
    rows.append(["all", last.check, last.outcome, last.found, last.advice])
    n_failed = len(failures(visits))
    verdict = f"{n_failed} of {len(rows)} checks failed." if n_failed else f"None of {len(rows)} checks failed."
    machines = ", ".join(f"`{visit.job}` on {visit.host}" for visit in visits)
    cells = [[str(cell).replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    header = ["job", "check", "outcome", "found", "what to do"]
    written = markdown_table(header, cells).replace("---:", "---")  # words, not numbers
    return f"# Doctor\n\n{verdict} Jobs ran on: {machines}.\n\n{written}\n"


def failures(visits: Sequence[Visit]) -> list[Finding]:
    found = [one for visit in visits for one in visit.findings] + [same_programs(visits)]
    return [one for one in found if one.outcome == "failed"]
