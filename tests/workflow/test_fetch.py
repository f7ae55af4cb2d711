"""Experiments whose model, data and wording come from a hub, which is gone when their jobs run."""

import json
import subprocess
from pathlib import Path
from typing import Any

import processes
import pytest
from checkout import TINY, TOOLS, Checkout
from hub import Hub, files_of
from mbpp_rows import mbpp_row
from processes import BIN

from arc_refinery import records
from arc_refinery.arc.grids import Grid
from arc_refinery.arc.tasks import Pair, Task
from arc_refinery.barc.generator import ProblemDifficulty, generate_problem
from arc_refinery.domains.arc.records import Attempt, Prompt
from arc_refinery.domains.gsm8k.generator import gsm8k_row

pytestmark = pytest.mark.snakemake

CODE = "```python\nfrom common import *\n\ndef transform(grid):\n"


def json_lines(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def problems(n: int) -> list[dict[str, Any]]:
    """BARC rows."""
    problems = [
        generate_problem(ProblemDifficulty(max_side=4), 4, "pretraining", 0, "hub", number)[0] for number in range(n)
    ]
    return [
        {
            "source": problem.source,
            "examples": [[pair.input.tolist(), pair.output.tolist()] for pair in problem.examples],
            "seeds": list(problem.seeds),
        }
        for problem in problems
    ]


def training_row(pairs: tuple[Pair, ...]) -> dict[str, Any]:
    """A row that a model was trained with, in a wording that no template of ours has."""

    def digits(grid: Grid) -> str:
        return "\n".join("".join(map(str, row)) for row in grid.tolist())

    text = "\n".join(f"in\n{digits(pair.input)}\nout\n{digits(pair.output)}" for pair in pairs[:-1])
    user = f"{text}\nlast\n{digits(pairs[-1].input)}\n?"
    return {
        "messages": [{"role": "user", "content": user}, {"role": "assistant", "content": f"{CODE}    return {pairs}"}]
    }


def training_rows() -> list[dict[str, Any]]:
    problems = [
        generate_problem(ProblemDifficulty(max_side=4), 4, "pretraining", 0, "rows", number)[0] for number in range(40)
    ]
    return [training_row(problem.examples[: 3 + number % 2]) for number, problem in enumerate(problems)]


def run(checkout: Checkout, hub: Hub, home: str, *arguments: str, **variables: str) -> None:
    done = subprocess.run(
        [str(BIN / "snakemake"), "--cores", "2", *arguments, "--quiet", "rules"],
        cwd=checkout.folder, env=hub.environment(checkout.folder / home, **variables),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    logs = "\n".join(f"{path}:\n{path.read_text()[-2000:]}" for path in (checkout.folder / "logs").rglob("*.log"))
    assert done.returncode == 0, done.stdout + done.stderr + logs


@pytest.mark.training
def test_after_the_rule_fetch_no_job_needs_the_hub(hub: Hub, fresh: Checkout):
    commit = hub.add("model", "someone/tiny", files_of(Path(TINY)))
    hub.add("dataset", "someone/problems", {"data_100k.jsonl": json_lines(problems(6)), "README.md": b"# Problems"})
    rows_commit = hub.add(
        "dataset", "someone/rows", {"data/test_sft-00000-of-00001.jsonl": json_lines(training_rows())}
    )

    # jobs are forked: what they read of their environment at import is what they would read themselves
    home = fresh.folder / "another-home"
    server = processes.Server(processes.MODULES, hub.environment(home, HF_HUB_OFFLINE="1"))
    client = server.path_of_jobs.with_name("arc-refinery")
    program, seen = fresh.folder / "results/venv/bin/arc-refinery", fresh.folder / "results/seen.txt"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\necho "offline $HF_HUB_OFFLINE" >> {seen}\nexec {client} "$@"\n')
    program.chmod(0o755)

    def change(content: dict[str, Any]) -> None:
        content["experiment"] = "hubbed"
        content["resources"] = {"sample": {"venv": str(program.parents[1])}}
        content["model"] |= {"path": "someone/tiny", "revision": commit, "template": "learned"}
        rows = {"source": "hub", "repository": "someone/rows", "files": "*test_sft*"}
        content["arc"] = {"template_rows": rows}
        content["problems"] = {"source": "hub", "repository": "someone/problems", "filename": "data_100k.jsonl"}
        content["parts"] |= {"n_parts": 1, "tasks_per_part": 4}
        content["training"]["prompts"] = "first-turn"
        content["training"]["grpo"] |= {"max_steps": 1, "n_heldout": 0}
        del content["training"]["sft"]
        content["evaluation"] = {
            "sets": [{"name": "heldout", "source": "generator", "n_tasks": 2}],
            "arms": [
                {"name": "base", "turns": [{"n_predictions": 2}]},
                {"name": "trained", "turns": [{"n_predictions": 2, "adapter": "trained"}]},
            ],
        }

    config = ["--configfile", fresh.change(change, name="from-hub")]
    assert fresh.planned(*config)["fetch"] == 3
    run(fresh, hub, "home", "--until", "fetch", *config)
    assert not (fresh.folder / "results/hubbed/tasks").exists()
    hub.stop()
    run(fresh, hub, home.name, *config, BASH_ENV=str(server.path_of_jobs))
    server.end()

    results = fresh.folder / "results/hubbed"
    assert (results / "template/pair.txt").read_text() == "in\n{input}\nout\n{output}\n"
    prompt = next(records.read(results / "heldout/turn1/prompts.parquet", Prompt))
    assert prompt.text.startswith("<|user|>in\n") and "\n?" in prompt.text
    assert {attempt.model for attempt in records.read(results / "heldout/turn1/attempts/000.parquet", Attempt)} == {
        "results/hubbed/fetched/someone/tiny"
    }
    assert next(records.read(results / "tasks/part1.parquet", Task)).task_id.startswith("data_100k-0000")
    report = (fresh.folder / "results/hubbed.md").read_text()
    assert f"| someone/tiny | {commit} | `{commit}` |" in report
    assert f"| datasets/someone/rows | default branch | `{rows_commit}` |" in report
    assert not home.exists()  # no job has had a cache to look into
    assert seen.read_text() == "offline 1\n" * 2  # one job for each arm

    assert not fresh.planned(*config)

    def pin(content: dict[str, Any]) -> None:
        change(content)
        content["problems"]["revision"] = "v2"

    planned = fresh.planned("--configfile", fresh.change(pin, name="pinned"))
    assert planned["fetch"] == planned["tasks"] == planned["train"] == 1
    assert planned["wording"] == planned["evaluation_tasks"] == 0
    assert planned["sample"] == 1  # with the new adapter; the base model's attempts are what they were


def test_questions_come_from_the_hub(hub: Hub, fresh: Checkout):
    rows = {"main/train.jsonl": [gsm8k_row(1, "train", 0, number) for number in range(4)]}
    rows["main/test.jsonl"] = [gsm8k_row(1, "heldout", 0, number) for number in range(3)]
    hub.add("dataset", "someone/sums", {name: json_lines(file_rows) for name, file_rows in rows.items()})
    hub.add("dataset", "someone/code", {"code.jsonl": json_lines([mbpp_row(number) for number in range(2)])})

    def change(content: dict[str, Any]) -> None:
        hub_keys = {"source": "hub", "repository": "someone/sums"}
        content["data"]["train"] = [
            {"name": "sums", "domain": "gsm8k", **hub_keys, "filename": "main/train.jsonl"},
            {"name": "code", "domain": "code", "source": "hub", "repository": "someone/code", "filename": "code.jsonl"},
        ]
        content["data"]["heldout"] = [{"name": "test", "domain": "gsm8k", **hub_keys, "filename": "main/test.jsonl"}]

    config = fresh.change(change, TOOLS, name="from-hub")
    wanted = [f"results/tool-use-small/questions/{name}.parquet" for name in ("test", "sums", "code")]
    run(fresh, hub, "home", *wanted, "--configfile", config)
    counts = [records.count(fresh.folder / path) for path in wanted]
    assert counts == [3, 4, 2]
