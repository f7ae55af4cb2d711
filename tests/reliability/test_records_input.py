"""Every stage that reads our Parquet files, and each of these files corrupted: refused by name, or no harm done."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from checkout import TINY, TINY_TOOLS
from experiments import words_of
from factories import make_task
from handmade import finished, settings
from handmade_episodes import QUESTIONS
from reliability.sweep import Stage, copied_from, record_faults, sweep

from arc_refinery import records
from arc_refinery.arc.tasks import Task
from arc_refinery.domains.arc.records import Attempt, Prompt, Verdict
from arc_refinery.evaluation.attempts import NAMES, NULLABLE
from arc_refinery.records import Overlap, Question

ARMS = {"independent": [{"n_predictions": 4}], "refine": [{"n_predictions": 2}, {"n_predictions": 2}]}
ANSWERS = {"turn1": {"a": "wwSw", "b": "wTet", "c": "nwww"}, "refine-turn2": {"a": "ww", "b": "wS"}}
TURN1, TURN2 = "results/tiny/small/turn1", "results/tiny/small/refine-turn2"
TASKS, OTHER_TASKS = "results/tiny/tasks/small.parquet", "results/tiny/tasks/other.parquet"
OVERLAP, ASKED = "overlap.parquet", "questions.parquet"

MODEL = {"path": TINY, "template": "compact", "window": 1024}
OF_TURN = {
    "model": MODEL,
    "refinement": {},
    "n_considered": 4,
    "n_shards": 2,
    "shards_per_grading_job": 1,
    "tasks_per_batch": 1,
}
ATTEMPTS = [f"{{}}/{TURN1}/attempts/000.parquet", f"{{}}/{TURN1}/attempts/001.parquet"]
REPORT = ["--configfile", "{}/results/tiny/settings.json", "--results", "{}/results/tiny", "--output", "{}/out/tiny.md"]
REFINE = {"branch": "refine-turn2", "refinement": {"n_parents": 2}, "feedback": "real", "select": {}}
VOTING = ["--verdicts", f"{{}}/{TURN1}/verdicts/000.parquet", f"{{}}/{TURN1}/verdicts/001.parquet"]
SFT = {"demonstrations": {"targets": "attempts"}, "max_completion_length": 48, "sandbox": {}}


def columns(kind: type) -> list[str]:
    return [field.name for field in fields(kind)]


# What could be taken for the right file: the other shard, the same shard twice, another turn's, another set's
SWAPPED = {"the other shard": copied_from("001.parquet")}
TURNS = {"of turn 2": copied_from("../../refine-turn2/attempts/000.parquet")}
OF_TURN_2 = {"of turn 2": copied_from("../refine-turn2/prompts.parquet")}
PROMPTS = record_faults(columns(Prompt), others=OF_TURN_2)
SHARD = record_faults(columns(Attempt), others=SWAPPED | TURNS)
VERDICTS = record_faults(
    columns(Verdict), others=SWAPPED | {"of turn 2": copied_from("../../refine-turn2/verdicts/000.parquet")}
)
TABLE = record_faults([name for name in NAMES if name not in NULLABLE], joined=False)
TASK_FILE = record_faults(columns(Task), others={"tasks of another set": copied_from("other.parquet")})
TURN1_FILES = {
    f"{TURN1}/prompts.parquet": PROMPTS,
    f"{TURN1}/attempts/000.parquet": SHARD,
    f"{TURN1}/verdicts/000.parquet": VERDICTS,
}
# without columns: these stages share the readers of the others
AS_TURN_1 = {
    "of turn 1": copied_from("../../turn1/attempts/000.parquet"),
    "other shard": copied_from("001.parquet"),
}
COMPARED = {
    TASKS: record_faults(["task_id"], joined=False, others={"tasks of another set": copied_from("other.parquet")}),
    f"{TURN1}/prompts.parquet": record_faults(["prompt_id", "n_predictions"], others=OF_TURN_2),
    f"{TURN1}/attempts/001.parquet": record_faults(["attempt_id", "parent_id", "n_tokens"]),
    f"{TURN1}/verdicts/001.parquet": record_faults(["attempt_id", "status", "detail"]),
    f"{TURN2}/prompts.parquet": record_faults(
        ["prompt_id"], others={"prompts of turn 1": copied_from("../turn1/prompts.parquet")}
    ),
    f"{TURN2}/attempts/000.parquet": record_faults([], others=AS_TURN_1),
    f"{TURN2}/verdicts/000.parquet": record_faults(
        [], others={"of turn 1": copied_from("../../turn1/verdicts/000.parquet")}
    ),
}

NO_SHARD = {"n_shards": 9, "shard": 8}  # nothing is in it: no model is loaded
TOOLS: dict[str, Any] = {
    "kind": "tool-use",
    "model": {"path": TINY_TOOLS, "window": 512},
    "generation": {"max_turn_tokens": 8, "max_episode_tokens": 9},
    "tools": [],
    "modules_of_python": False,
    "sandbox": {},
}
GENERATED = {"name": "sums", "domain": "gsm8k", "source": "generator", "n_tasks": 9}
QUESTIONS_FILE = record_faults(columns(Question), joined=False)
ANSWERED = {"max_output_tokens": 48, "n_predictions": 2, "batch_size": 1}
OUT, PROMPTS_FILE = "{}/out/rows.parquet", f"{{}}/{TURN1}/prompts.parquet"


def job(name: str, settings: dict[str, Any], **flags: Any) -> list[str]:
    return words_of(name, settings, **{"output": OUT} | flags)


STAGES = {
    "first_prompts": Stage(
        job(
            "first_prompts",
            {"model": MODEL, "sampling": ANSWERED, "branch": "turn1"},
            tasks=f"{{}}/{TASKS}",
            overlap=f"{{}}/{OVERLAP}",
        ),
        {TASKS: record_faults(columns(Task), joined=False), OVERLAP: record_faults(columns(Overlap), joined=False)},
    ),
    "overlap": Stage(
        job("overlap", {}, trained=f"{{}}/{OTHER_TASKS}", evaluated=f"{{}}/{TASKS}"),
        {OTHER_TASKS: record_faults(columns(Task), joined=False), TASKS: record_faults(columns(Task), joined=False)},
    ),
    "sample": Stage(
        job(
            "sample",
            {"model": {"path": TINY, "window": 1024}, "sampling": {"max_output_tokens": 48}},
            prompts=PROMPTS_FILE,
            **NO_SHARD,
        ),
        {f"{TURN1}/prompts.parquet": record_faults(columns(Prompt), joined=False)},
    ),
    "grade": Stage(
        job("grade", {"sandbox": {}}, attempts=ATTEMPTS, tasks=f"{{}}/{TASKS}"),
        {f"{TURN1}/attempts/000.parquet": record_faults(columns(Attempt), False, SWAPPED), TASKS: TASK_FILE},
    ),
    "refining_prompts": Stage(
        job("refining_prompts", OF_TURN | REFINE | {"sampling": ANSWERED}, prompts=PROMPTS_FILE), TURN1_FILES
    ),
    "demonstrations": Stage(
        job("demonstrations", OF_TURN | SFT, prompts=PROMPTS_FILE, tasks=f"{{}}/{TASKS}"),
        {**TURN1_FILES, TASKS: record_faults(columns(Task), joined=False)},
    ),
    "report": Stage(["report", *REPORT], COMPARED),
    "compare": Stage(
        ["compare", "{}/results/tiny:independent", "{}/results/tiny:refine"],
        {"results/tiny/attempts.parquet": TABLE},
    ),
    "report lengths": Stage(
        [
            "report",
            "lengths",
            "--prompts",
            f"{{}}/{TURN1}/prompts.parquet",
            "--max-model-len",
            "9",
            "--output",
            "{}/out",
        ],
        {f"{TURN1}/prompts.parquet": record_faults(["prompt_id", "turn", "n_tokens"], joined=False)},
    ),
    "questions": Stage(
        job(
            "questions",
            {"kind": "tool-use", "questions": GENERATED, "sandbox": {}},
            split="train",
            heldout=f"{{}}/{ASKED}",
        ),
        {ASKED: QUESTIONS_FILE},
    ),
    "conversations": Stage(
        job(
            "conversations",
            TOOLS | {"tools_of_sets": {}, "without_tools": 0.5, "n_questions": None},
            questions=f"{{}}/{ASKED}",
        ),
        {ASKED: QUESTIONS_FILE},
    ),
    "episodes": Stage(
        job(
            "episodes",
            TOOLS | {"files": None, "given": "own", "n_predictions": 1, "questions_per_batch": 1},
            questions=f"{{}}/{ASKED}",
            **NO_SHARD,
        ),
        {ASKED: QUESTIONS_FILE},
    ),
    "predictions submit": Stage(
        ["predictions", "submit", *VOTING, "--challenges", "{}/challenges.json", "--output", "{}/out/s.json"],
        {f"{TURN1}/verdicts/000.parquet": record_faults(columns(Verdict), False, SWAPPED)},
    ),
}
# How many cases are refused, and which do no harm
ENDS: dict[str, tuple[int, list[str]]] = {
    "first_prompts": (73, [f"{OVERLAP}, reordered"]),
    "overlap": (74, []),
    "sample": (46, []),
    "grade": (110, [f"{TASKS}, reordered, with their hash"]),
    "refining_prompts": (191, []),
    "demonstrations": (228, []),
    "report": (199, []),
    "compare": (97, []),
    "report lengths": (27, [f"{TURN1}/prompts.parquet, flipped byte"]),  # in a column that is not read
    "questions": (31, []),
    "conversations": (31, []),
    "episodes": (31, []),
    "predictions submit": (59, []),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    finished(folder / "results", settings(ARMS), ANSWERS, "abc", n_shards=2)
    records.write(folder / OTHER_TASKS, Task, [make_task(name) for name in "ab"], 0, {})
    overlap = Overlap("a", "small", "a", "other", "a", "id")
    records.write(folder / OVERLAP, Overlap, [overlap], 0, {})
    records.write(folder / ASKED, Question, QUESTIONS, 0, {})
    pairs = [{"input": [[1, 2], [3, 4]], "output": [[1, 2], [3, 4]]}]
    challenges = {name: {"train": pairs, "test": [{"input": [[1, 2], [3, 4]]}]} for name in "abc"}
    (folder / "challenges.json").write_text(json.dumps(challenges))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", STAGES)
def test_corrupted_records_are_refused_by_name_or_do_no_harm(name: str, whole: Path, tmp_path: Path) -> None:
    assert sweep(STAGES[name], whole, tmp_path) == ENDS[name]
