"""`snakemake --profile condor doctor`: each kind of job checks the machine that it gets."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checkout import copy

from cluster.pool import Pool
from cluster.runs import Run

pytestmark = pytest.mark.pool


def train_nothing(config: dict[str, Any]) -> None:
    """Training in miniature takes longest, and is tried in tests/unit/test_doctor.py."""
    del config["training"]
    config["evaluation"]["arms"] = [{"name": "independent", "turns": [{"n_predictions": 8}]}]


def test_every_kind_of_job_is_checked_on_the_pool(tmp_path: Path, condor: Callable[..., Run], pool: Pool):
    checkout = copy(tmp_path / "checkout")
    run = condor(checkout, "doctor", config=checkout.change(train_nothing))
    assert run.end() == 0, run.explain()
    page = (checkout.folder / "results/doctor.md").read_text()
    assert "None of " in page
    for row in (
        "| sample | files of other jobs can be read | passed | those of `cpu` on ",
        "| sample | an adapter changes answers | passed |",
    ):
        assert row in page
    assert page.splitlines()[0] in run.text  # it is printed, too
    batches = {job["JobBatchName"].partition("-")[0] for job in pool.jobs(f"QDate >= {run.started}", history=True)}
    assert batches == {"doctor_cpu", "doctor_sample"}
