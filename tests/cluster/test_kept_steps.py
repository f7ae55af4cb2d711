"""The adapter of a kept step is evaluated while the training continues, on another machine of the pool."""

from collections.abc import Callable
from typing import Any

import pytest
from checkout import Checkout

from cluster.pool import Pool
from cluster.runs import Run

pytestmark = pytest.mark.pool


def test_a_kept_step_is_evaluated_beside_the_next_part_of_the_training(
    finished: Checkout, tmp_path: Any, condor: Callable[..., Run], pool: Pool
):
    checkout = finished.clone(tmp_path / "kept")

    def change(config: dict[str, Any]) -> None:
        config["training"]["keep_steps"] = [4]
        config["training"]["grpo"].update(max_steps=44, epochs=33, save_steps=4)
        config["evaluation"]["sets"] = config["evaluation"]["sets"][1:]
        config["evaluation"]["arms"][-1]["turns"][1]["adapter"] = "trained@*"

    run = condor(checkout, "results/small.md", config=checkout.change(change))
    assert run.end() == 0, run.explain()
    jobs = pool.jobs(f"QDate >= {run.started}", history=True)

    def named(name: str) -> list[dict[str, Any]]:
        matching = [job for job in jobs if job["JobBatchName"].startswith(name)]
        assert matching, f"no job {name} among {[job['JobBatchName'] for job in jobs]}"
        return sorted(matching, key=lambda job: int(job["JobStartDate"]))

    first, rest = named("train-")
    evaluation = named("sample-")
    times = [(job["JobBatchName"], job["JobStartDate"], job["CompletionDate"]) for job in (first, rest, *evaluation)]
    print(times)
    assert first["CompletionDate"] <= evaluation[0]["JobStartDate"] < rest["CompletionDate"], times
    assert any(job["CompletionDate"] < rest["CompletionDate"] for job in evaluation), times
