"""The stage that only ARC has: learn the wording of prompts from the model's own training rows."""

from pathlib import Path

from arc_refinery.config.inputs import rows_files
from arc_refinery.refining.domains.arc.commands import Learn
from arc_refinery.refining.domains.arc.config import ArcExperiment


def wording(experiment: ArcExperiment) -> Learn:
    rows = experiment.template_rows
    assert rows
    (messages,) = rows_files(experiment, rows)
    return Learn(messages=Path(messages), n_rows=rows.n_rows, min_share=rows.min_share, colors=experiment.model.colors)
