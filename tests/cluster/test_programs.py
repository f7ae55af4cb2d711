"""Domain `code` on a pool, with answers written by hand: the same verdicts as on one machine."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import handmade_programs as handmade
import pytest
import yaml
from checkout import Checkout

from arc_refinery import records
from arc_refinery.domains.code.grading import Verdict
from cluster.runs import Run

pytestmark = pytest.mark.pool

CONFIG, ROWS = "results/programs.yaml", "results/rows.jsonl"
VERDICTS = "results/programs/test/refine-turn2/verdicts/000.parquet"


def write_config(checkout: Checkout, venv: str) -> None:
    handmade.write_rows(checkout.folder / ROWS, ["double", "largest", "wrong"])
    content: dict[str, Any] = handmade.settings("", ROWS, venv)
    del content["problems"], content["parts"], content["training"]
    content["evaluation"]["arms"] = content["evaluation"]["arms"][:2]
    del content["evaluation"]["primary"], content["evaluation"]["comparisons"]
    (checkout.folder / CONFIG).write_text(yaml.safe_dump(content))


def test_a_pool_grades_second_turns_as_one_machine_does(pristine: Checkout, tmp_path: Path, condor: Callable[..., Run]):
    venv = handmade.stand_in(tmp_path / "environment")
    local, remote = (pristine.clone(tmp_path / name) for name in ("local", "remote"))
    for checkout in (local, remote):
        write_config(checkout, venv)
    done = local.snakemake("--cores", "2", "--configfile", CONFIG, "--quiet", "rules", "--", VERDICTS)
    assert done.returncode == 0, done.stdout + done.stderr
    run = condor(remote, VERDICTS, config=CONFIG)
    assert run.end() == 0, run.explain()
    solved = [verdict.attempt_id for verdict in records.read(remote.folder / VERDICTS, Verdict) if verdict.solved]
    assert solved == ["double/refine-turn2-000/001", "largest/refine-turn2-000/000", "largest/refine-turn2-000/001"]
    for name in (VERDICTS, VERDICTS.replace("verdicts", "attempts")):
        assert (remote.folder / name).read_bytes() == (local.folder / name).read_bytes()
