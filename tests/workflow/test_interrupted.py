"""Jobs that are killed in the middle: what they had done is kept, and the end result is the same bytes."""

import shutil
from pathlib import Path

import pytest
from checkout import Checkout

pytestmark = [pytest.mark.snakemake, pytest.mark.model]


def test_a_killed_sampling_job_goes_on_and_writes_the_same_bytes(finished: Checkout, tmp_path: Path):
    prompts = "results/small/arc-agi-1-evaluation/turn1/prompts.parquet"
    command = ["arc-refinery", "sample", "--dataset-path", prompts, "--base-model-path", "workflow/models/tiny"]
    command += ["--max-model-len", "1024", "--max-output-tokens", "48", "--output-folder"]
    undisturbed, killed = tmp_path / "undisturbed", tmp_path / "killed"
    assert finished.run(*command, str(undisturbed)).returncode == 0
    progress = killed / ".progress" / "000.jsonl"
    finished.kill_when(lambda: progress.exists() and progress.read_text().count("\n") >= 4, *command, str(killed))
    assert not (killed / "000.parquet").exists()
    done = finished.run(*command, str(killed))
    assert done.returncode == 0, done.stderr
    assert "prompts were sampled before" in done.stderr
    assert (killed / "000.parquet").read_bytes() == (undisturbed / "000.parquet").read_bytes()
    assert not progress.exists()


def test_a_killed_training_goes_on_and_ends_with_the_same_adapter(finished: Checkout, tmp_path: Path):
    command = ["arc-refinery", "train", "--model-path", "workflow/models/tiny", "--dataset-path"]
    command += [f"results/small/part{part}/training/prompts.parquet" for part in (1, 2)]
    command += ["--learning-rate", "1e-3", "--max-steps", "6", "--save-steps", "2", "--num-generations", "4"]
    command += ["--gradient-accumulation-steps", "1", "--max-completion-length", "48", "--max-seq-length", "1024"]
    folders = {}
    for name in ("undisturbed", "killed"):
        folder = tmp_path / name
        full = [*command, "--output-dir", str(folder), "--checkpoints", f"{folder}.checkpoints"]
        if name == "killed":
            checkpoint = Path(f"{folder}.checkpoints/checkpoint-2/trainer_state.json")
            finished.kill_when(checkpoint.exists, *full)
            assert not folder.exists()
            shutil.rmtree(f"{folder}.checkpoints/checkpoint-4", ignore_errors=True)
        done = finished.run(*full)
        assert done.returncode == 0, done.stderr
        assert (name == "killed") == ("training goes on from this checkpoint" in done.stderr)
        folders[name] = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert folders["killed"] == folders["undisturbed"]
