"""wandb and trackio, in a folder that other tests do not see: TRL uses them wherever it finds them."""

import sys
from pathlib import Path

import pytest

FOLDER = Path(sys.prefix) / "trackers"  # `make trackers`

needs_trackers = pytest.mark.skipif(
    not (FOLDER / "wandb").exists(), reason="wandb and trackio are not installed: `make trackers` says why"
)
