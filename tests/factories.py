"""Records with every field filled in: a test names only the fields that it is about.

    make_attempt(make_prompt(turn=2, parent_id="t/turn1-000/3"), completion="no idea", finish_reason="length")

gives a second-turn attempt whose ids, turn, parent, augmentation and order are those of its prompt. Prompts, attempts
and verdicts are ARC's; fields of their `detail` are given like their own: `make_verdict(train_outputs=(grid,))`.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar, cast

import numpy as np

from arc_refinery.arc.augment import IDENTITY
from arc_refinery.arc.grids import Grid, fingerprint
from arc_refinery.arc.tasks import Pair, Task
from arc_refinery.domains.arc.config import Showing
from arc_refinery.domains.arc.domain import Domain
from arc_refinery.domains.arc.prompts import Template
from arc_refinery.domains.arc.records import Attempt, Outputs, Prompt, ShownTask, Verdict, View
from arc_refinery.domains.code.tasks import CodeTask
from arc_refinery.domains.first_turn import first_turn_prompts
from arc_refinery.domains.gsm8k.domain import Problem
from arc_refinery.domains.prompts import Renderer
from arc_refinery.domains.text.domain import Asked
from arc_refinery.records import Demonstration, attempt_id
from arc_refinery.records.tool_use import Episode, Question
from arc_refinery.refining.config import Sampling
from arc_refinery.tool_use.grading.domains import domain_of, question_of, subject_of

MODEL = "models/m"
ARC = Domain()

AnyRecord = TypeVar("AnyRecord", Prompt, Attempt, Verdict)


def make_grid(*rows: str) -> Grid:
    """A grid from one digit per cell: `make_grid("12", "34")`."""
    return np.array([list(map(int, row)) for row in rows], np.uint8)


def make_task(task_id: str = "t", **changes: Any) -> Task:
    """One train pair and one test pair of equal 2 x 2 grids."""
    grid = make_grid("12", "34")
    fields: dict[str, Any] = {"train": (Pair(grid, grid),), "test": (Pair(grid, grid),), "origin": "by hand"}
    return Task(**{"task_id": task_id} | fields | changes)


def make_prompt(task: Task | None = None, **changes: Any) -> Prompt:
    """The first-turn prompt of a task, for one completion."""
    task = make_task() if task is None else task
    fields: dict[str, Any] = {
        "prompt_id": f"{task.task_id}/turn1-000",
        "task_id": task.task_id,
        "turn": 1,
        "parent_id": "",
        "messages": ({"role": "user", "content": f"task {task.task_id}"},),
        "text": f"<|user|>task {task.task_id}<|assistant|>",
        "n_tokens": 20,
        "n_predictions": 1,
    }
    order = tuple(range(len(task.train)))
    shown = {"augmentation": IDENTITY, "train_order": order, "train": task.train, "test": task.test}
    return Prompt(**_fields(ShownTask, shown, fields | changes))


def first_turns(
    tasks: Iterable[Task],
    n_predictions: int,
    sampling: Sampling,
    template: Template,
    renderer: Renderer,
    seed: int = 0,
    shown: Showing | None = None,
) -> Iterator[Prompt]:
    """ARC's first-turn prompts."""
    prompts = first_turn_prompts(ARC, tasks, n_predictions, sampling, template, renderer, seed, own=shown)
    return cast(Iterator[Prompt], prompts)


def make_attempt(prompt: Prompt | None = None, **changes: Any) -> Attempt:
    """The first completion of a prompt."""
    prompt = make_prompt() if prompt is None else prompt
    fields: dict[str, Any] = {
        "attempt_id": attempt_id(prompt.prompt_id, 0),
        "prompt_id": prompt.prompt_id,
        "task_id": prompt.task_id,
        "turn": prompt.turn,
        "parent_id": prompt.parent_id,
        "model": MODEL,
        "adapter": "",
        "seed": 0,
        "temperature": 1.0,
        "top_p": 1.0,
        "completion": "a program",
        "n_prompt_tokens": prompt.n_tokens,
        "n_tokens": 10,
        "finish_reason": "stop",
        "logprob": -1.0,
    }
    view = {"augmentation": prompt.detail.augmentation, "train_order": prompt.detail.train_order}
    return Attempt(**_fields(View, view, fields | changes))


def make_verdict(attempt: Attempt | None = None, **changes: Any) -> Verdict:
    """An attempt's program ran and solved nothing; fingerprint, score and solved follow from outputs and scores."""
    attempt = make_attempt() if attempt is None else attempt
    outputs = (*changes.get("train_outputs", ()), *changes.get("test_outputs", ()))
    train, test = (changes.get(f"{pairs}_correct_grids", 0.0) for pairs in ("train", "test"))
    fields: dict[str, Any] = {
        "attempt_id": attempt.attempt_id,
        "prompt_id": attempt.prompt_id,
        "task_id": attempt.task_id,
        "turn": attempt.turn,
        "program_hash": "hash",
        "program_length": 40,
        "has_closed_code": changes.get("status") != "no_code",
        "status": "ok",
        "error": "",
        "fingerprint": fingerprint(outputs) if outputs else "",
        "score": train,
        "solved": train == 1.0 == test,
    }
    return Verdict(**_fields(Outputs, {}, fields | changes))


def with_detail(record: AnyRecord, **changes: Any) -> AnyRecord:
    """A record with changes of its detail: `with_detail(prompt, augmentation=IDENTITY)`."""
    return dataclasses.replace(record, detail=dataclasses.replace(record.detail, **changes))


def _fields(cls: type[Any], defaults: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a record, those of its detail gathered in it."""
    names = {field.name for field in dataclasses.fields(cls)}
    inside = {name: value for name, value in fields.items() if name in names}
    outside = {name: value for name, value in fields.items() if name not in names}
    return {"detail": cls(**{**defaults, **inside})} | outside


def make_demonstration(**changes: Any) -> Demonstration:
    """A correct second-turn answer that is the task's own program."""
    fields: dict[str, Any] = {
        "demonstration_id": "t/sft-000",
        "task_id": "t",
        "turn": 2,
        "parent_id": "t/turn1-000/0",
        "text": "<|user|>task t<|assistant|>",
        "completion": "a program",
        "target": "source",
        "n_tokens": 23,
    }
    return Demonstration(**fields | changes)


def make_question(
    question_id: str = "q",
    text: str = "What is 3 + 4?",
    reference: str = "7",
    domain: str = "gsm8k",
    solution: str = "",
) -> Question:
    """A question whose answer is a number, or a text."""
    task = Problem(question_id, text, reference, solution) if domain == "gsm8k" else Asked(question_id, text, reference)
    return question_of(domain_of(domain), task)


def correct_answer(question: Question) -> str:
    domain, task = subject_of(question)
    return domain.correct(task)


def gsm8k_question(row: dict[str, str], name: str = "q") -> Question:
    """The question of a row of GSM8K."""
    domain = domain_of("gsm8k")
    return question_of(domain, domain.task(row, name, name))


def code_question(*tests: str, n_shown: int = 0, **changes: Any) -> Question:
    """A question of the domain `code`, whose first tests are shown."""
    fields = {"task_id": "q", "text": "Do.", "names": (), "shown": tests[:n_shown], "hidden": tests[n_shown:]} | changes
    return question_of(domain_of("code"), CodeTask(**fields))


def make_episode(question: Question | None = None, **changes: Any) -> Episode:
    """An episode on a question that called nothing and ended with a wrong answer."""
    question = make_question() if question is None else question
    fields: dict[str, Any] = {
        "episode_id": f"{question.question_id}/000",
        "question_id": question.question_id,
        "model": MODEL,
        "adapter": "",
        "seed": 0,
        "temperature": 1.0,
        "top_p": 1.0,
        "messages": (),
        "calls": (),
        "completion_ids": (5,),
        "mask": (1,),
        "ending": "answer",
        "n_prompt_tokens": 20,
        "n_tokens": 1,
        "answer": "",
        "reward": 0.0,
    }
    return Episode(**fields | changes)
