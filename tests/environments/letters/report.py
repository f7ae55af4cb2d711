"""The report."""

from collections.abc import Sequence
from pathlib import Path

from arc_refinery.reporting import provenance, training
from arc_refinery.reporting.publish import Attachments, publish

from .config import Experiment


def write_report(experiment: Experiment, folder: Path, output: Path) -> None:
    def compose(files: Attachments) -> Sequence[str]:
        return [
            f"# Experiment {experiment.experiment}",
            *training.section(experiment, folder, files),
            *provenance.section(experiment, folder, {"experiment": [experiment.seed]}),
        ]

    publish(output, folder, compose)
