"""A sampling job that is killed: what it had done is kept, and it ends in the same bytes."""

from pathlib import Path

import pytest
from checkout import Checkout, n_prompts

pytestmark = [pytest.mark.snakemake, pytest.mark.model]


def test_a_killed_sampling_job_goes_on_and_writes_the_same_bytes(finished: Checkout, tmp_path: Path):
    prompts = "results/small/arc-agi-1-evaluation/turn1/prompts.parquet"
    command = ["arc-refinery", "sample", "--dataset-path", prompts, "--base-model-path", "workflow/models/tiny"]
    command += ["--max-model-len", "1024", "--max-output-tokens", "48", "--output-folder"]
    undisturbed, killed = tmp_path / "undisturbed", tmp_path / "killed"
    assert finished.run(*command, str(undisturbed)).returncode == 0
    progress = killed / ".progress" / "000.jsonl"
    finished.kill_when(lambda: n_prompts(progress) > 0, *command, str(killed))
    assert not (killed / "000.parquet").exists()
    done = finished.run(*command, str(killed))
    assert done.returncode == 0, done.stderr
    assert "prompts were sampled before" in done.stderr
    assert (killed / "000.parquet").read_bytes() == (undisturbed / "000.parquet").read_bytes()
    assert not progress.exists()
