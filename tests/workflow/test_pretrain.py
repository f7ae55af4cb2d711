"""The embedded model's own rule, on a corpus of a few problems."""

import sys
from pathlib import Path

import pytest
import torch
from checkout import TINY, Checkout
from safetensors.torch import load_file

pytestmark = pytest.mark.training

FORKED = [sys.executable, "-c", "from pretraining.__main__ import main; main()"]
SETTINGS = ["--n-chunks", "4", "--chunk-size", "12", "--batch-tokens", "2048", "--no-compile"]
SETTINGS += ["--chunks-per-checkpoint", "2", "--n-threads", "1"]


def test_a_killed_pretraining_goes_on_and_ends_with_the_same_weights(fresh: Checkout, tmp_path: Path):
    weights = {}
    for name in ("undisturbed", "killed"):
        checkpoint = tmp_path / f"{name}.checkpoint"
        paths = ["--output", str(tmp_path / name), "--checkpoint", str(checkpoint)]
        command = [*FORKED, *paths]
        if name == "killed":
            fresh.kill_when(checkpoint.exists, *command, *SETTINGS)
        done = fresh.run(*command, *SETTINGS)
        assert done.returncode == 0, done.stderr
        assert (name == "killed") == ("chunks were trained before" in done.stderr)
        weights[name] = (tmp_path / name / "model.safetensors").read_bytes()
    assert weights["killed"] == weights["undisturbed"]


def test_the_mean_with_the_weights_before_is_written(fresh: Checkout, tmp_path: Path):
    """Each weight is the mean of that at the start and that of the same training without `--start-share`."""
    weights = {}
    for share in ("0", "0.25"):
        folder = tmp_path / share
        command = [*FORKED, "--model", "reading", "--start", TINY, "--start-share", share]
        paths = ["--output", str(folder), "--checkpoint", str(tmp_path / f"{share}.checkpoint")]
        done = fresh.run(*command, *paths, *SETTINGS)
        assert done.returncode == 0, done.stderr
        weights[share] = load_file(folder / "model.safetensors")
    start = load_file(Path(TINY, "model.safetensors"))
    moved = 0.0
    for name, trained in weights["0"].items():
        expected = 0.25 * start[name].float() + 0.75 * trained.float()
        torch.testing.assert_close(weights["0.25"][name].float(), expected, atol=1e-3, rtol=2e-3)  # float16
        moved = max(moved, float((trained.float() - start[name].float()).abs().max()))
    assert moved > 0.02, "the training changed too little to tell"
