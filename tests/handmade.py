"""Experiments whose every attempt is a letter: what it gave can be counted by eye.

S solves all pairs, T the train pairs only, t the test pairs only, w is wrong in one of four cells, e fails with a
TypeError, n has no program.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
from experiments import settings_of
from factories import make_attempt, make_grid, make_prompt, make_task, make_verdict

from arc_refinery import config, records
from arc_refinery.arc.grids import Grid
from arc_refinery.arc.tasks import Task
from arc_refinery.domains.arc.config import ArcExperiment
from arc_refinery.domains.arc.records import Attempt, Prompt, Verdict
from arc_refinery.evaluation.attempts import Results
from arc_refinery.evaluation.metrics import Metric
from arc_refinery.refining import inputs, jobs
from arc_refinery.refining.config import Arm
from arc_refinery.reporting.kind import reported

Answers = Mapping[str, Mapping[str, str]]  # per branch and task, one letter per attempt

TRUTH = make_task().test[0].output
WRONG = make_grid("02", "34")
OUTPUTS: dict[str, tuple[Grid, ...]] = {
    "S": (TRUTH, TRUTH),
    "T": (TRUTH, WRONG),
    "t": (WRONG, TRUTH),
    "w": (WRONG, WRONG),
    "e": (),
    "n": (),
}


def settings(arms: Mapping[str, Sequence[Mapping[str, Any]]], name: str = "tiny", **changes: Any) -> dict[str, Any]:
    """A config of one set, `small`, that trains nothing; `arms` are lists of turns by name."""
    return {
        "experiment": name,
        "model": {"path": "./models/m", "template": "compact", "window": 100},
        "sampling": {"max_output_tokens": 16},
        "evaluation": {
            "sets": [{"name": "small", "source": "generator", "n_tasks": 4}],
            "arms": [{"name": arm, "turns": list(turns)} for arm, turns in arms.items()],
        },
        **changes,
    }


def finished(
    results: Path, content: Mapping[str, Any], answers: Answers, tasks: Sequence[str], n_shards: int = 1
) -> tuple[ArcExperiment, Path]:
    """Write the files of a finished experiment with one set, in shards; returns it with its folder."""
    experiment = config.validate_experiment(dict(content), "test", ArcExperiment)
    (task_set,) = experiment.evaluation.sets
    sharded = task_set.model_copy(update={"shards": n_shards})
    evaluation = experiment.evaluation.model_copy(update={"sets": (sharded,)})
    experiment = experiment.model_copy(update={"evaluation": evaluation})
    folder = results / experiment.experiment
    records.write(folder / f"tasks/{task_set.name}.parquet", Task, [make_task(task) for task in tasks], 0, {})
    for branch, letters in answers.items():
        prompts = [
            prompt(task, branch, number, len(letters[task][2 * number :][:2]))
            for task in tasks
            for number in range(-(-len(letters.get(task, "")) // 2))
        ]
        records.write(folder / task_set.name / branch / "prompts.parquet", Prompt, prompts, 0, {})
        sampled = sampled_with(experiment, task_set.name, branch)
        for shard in range(n_shards):
            ours = [task for task in tasks if task in letters][shard::n_shards]
            rows = [graded(task, branch, index, letter) for task in ours for index, letter in enumerate(letters[task])]
            index = folder / task_set.name / branch
            records.write(
                index / f"attempts/{shard:03d}.parquet", Attempt, [replace(row[0], **sampled) for row in rows], 0, {}
            )
            records.write(index / f"verdicts/{shard:03d}.parquet", Verdict, [row[1] for row in rows], 0, {})
    (folder / "settings.json").write_text(json.dumps(experiment.model_dump(mode="json", exclude={"resources"})))
    if answers.keys() >= {*experiment.branches}:
        reported(experiment, folder).write_attempts()
    return experiment, folder


def results_of(
    arms: Iterable[Arm], branches: Mapping[str, pd.DataFrame], task_ids: Iterable[str], metrics: Sequence[Metric] = ()
) -> Results:
    """Results of a set from tables of attempts, one per branch; `sample` numbers those of a task."""
    rows = []
    for arm in arms:
        for turn, branch in enumerate(arm.branches, 1):
            start = sum(earlier.n_predictions for earlier in arm.turns[: turn - 1])
            own = branches.get(branch, next(iter(branches.values())).iloc[:0])
            own = own[own["sample"] < arm.turns[turn - 1].n_predictions]
            rows.append(own.assign(repetition=arm.name, turn=turn, branch=branch, slot=own["sample"] + start))
    return Results("small", dict.fromkeys(task_ids, ""), pd.concat(rows, ignore_index=True), metrics)


def sampled_with(experiment: ArcExperiment, tasks: str, branch: str) -> dict[str, Any]:
    """Metadata of a branch's attempts: the settings that they were sampled with."""
    job = settings_of(jobs.sample(experiment, tasks, branch))
    adapters = inputs.adapter(experiment, tasks, branch)
    return {
        "model": job["model"]["path"],
        "adapter": adapters[0] if adapters else "",
        "seed": job["seed"],
        **{name: job["sampling"][name] for name in ("temperature", "top_p")},
    }


def prompt(task_id: str, branch: str, number: int, n_predictions: int, **changes: Any) -> Prompt:
    """A prompt of a branch. Turn 2 refines the second attempt of turn 1, turn 3 the first attempt of turn 2."""
    name, _, turn = ("turn1", "", 1) if branch.startswith("turn1") else branch.rpartition("-turn")
    parents = {1: "", 2: f"{task_id}/turn1-000/001"}
    fields = {
        "prompt_id": f"{task_id}/{branch}-{number:03d}",
        "turn": int(turn),
        "parent_id": parents.get(int(turn), f"{task_id}/{name}-turn2-000/000"),
        "n_tokens": 20 * int(turn),
        "n_predictions": n_predictions,
    }
    return make_prompt(make_task(task_id), **fields | changes)


def graded(task_id: str, branch: str, index: int, letter: str) -> tuple[Attempt, Verdict]:
    """An attempt and its verdict; two attempts share a prompt."""
    source = prompt(task_id, branch, index // 2, 2)
    attempt = make_attempt(
        source,
        attempt_id=records.attempt_id(source.prompt_id, index % 2),
        n_tokens=10 + index,
        finish_reason="length" if letter == "n" else "stop",
        logprob=-1.0 - index,
    )
    outputs = OUTPUTS[letter]
    train, test = _pixels(outputs[:1]), _pixels(outputs[1:])
    verdict = make_verdict(
        attempt,
        status={"e": "error", "n": "no_code"}.get(letter, "ok"),
        error="TypeError: bad operand (line 2)" if letter == "e" else "",
        train_outputs=outputs[:1],
        test_outputs=outputs[1:],
        train_pixel_score=train,
        train_correct_grids=float(train == 1.0),
        test_pixel_score=test,
        test_correct_grids=float(test == 1.0),
    )
    return attempt, verdict


def _pixels(outputs: tuple[Grid, ...]) -> float:
    return 0.0 if not outputs else 1.0 if outputs[0] is TRUTH else 0.75
