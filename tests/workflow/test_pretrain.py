"""The embedded model's own rule, on a corpus of a few problems."""

from pathlib import Path

import pytest
from checkout import Checkout

pytestmark = pytest.mark.training

SETTINGS = ["--n-chunks", "4", "--chunk-size", "12", "--batch-tokens", "2048", "--no-compile"]
SETTINGS += ["--chunks-per-checkpoint", "2", "--n-threads", "1"]


def test_a_killed_pretraining_goes_on_and_ends_with_the_same_weights(fresh: Checkout, tmp_path: Path):
    weights = {}
    for name in ("undisturbed", "killed"):
        checkpoint = tmp_path / f"{name}.checkpoint"
        command = [
            "arc-refinery",
            "dev",
            "pretrain",
            "--output-folder",
            str(tmp_path / name),
            "--checkpoint",
            str(checkpoint),
        ]
        if name == "killed":
            fresh.kill_when(checkpoint.exists, *command, *SETTINGS)
        done = fresh.run(*command, *SETTINGS)
        assert done.returncode == 0, done.stderr
        assert (name == "killed") == ("chunks were trained before" in done.stderr)
        weights[name] = (tmp_path / name / "model.safetensors").read_bytes()
    assert weights["killed"] == weights["undisturbed"]
