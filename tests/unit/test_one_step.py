"""docs/one_step.py, as its first line says to run it."""

import re
import subprocess
import sys

import pytest
from checkout import ROOT

from arc_refinery.sampling import backends

ROW = re.compile(r"^(\w+) +(\d+)% +([\d.]+) +([+-][\d.]+) +(-[\d.]+) +(-[\d.]+)  (.+)$", re.MULTILINE)


@pytest.mark.model
@pytest.mark.training
def test_an_update_makes_the_better_samples_more_likely():
    command = [sys.executable, "docs/one_step.py"]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    samples = [[float(number) for number in row[1:6]] for row in ROW.findall(printed)]
    assert len(samples) == 16
    assert len({reward for _, reward, *_ in samples}) > 2
    assert sum(advantage for _, _, advantage, *_ in samples) == pytest.approx(0.0, abs=0.1)
    assert all(after > before for _, _, advantage, before, after in samples if advantage > 0)
    assert sum((after - before) * advantage for _, _, advantage, before, after in samples) > 0
    assert "Write a corrected program." in printed
    example = str(backends.__doc__)  # shows the same prompt and one of the samples
    assert re.findall(r"The prompt, (\d+) tokens", printed) == re.findall(r"(\d+) ids, n 16", example)
    assert float(re.findall(r"logprob (-[\d.]+)", example)[0]) in {before for *_, before, _ in samples}
    assert len((ROOT / "docs/one_step.py").read_text().splitlines()) <= 150
