"""The report of refining."""

from pathlib import Path

from arc_refinery.config import Refining
from arc_refinery.reporting.refining import report, tidy
from arc_refinery.reporting.refining.compare import EXPLAINED as EXPLAINED
from arc_refinery.reporting.refining.compare import set_section as set_section


def write_report(experiment: Refining, folder: Path, output: Path) -> None:
    """Write the Markdown report, and the table of attempts next to it."""
    report.write_report(experiment, folder, output)
    tidy.write_attempts_table(experiment, folder, folder / "attempts.parquet")
