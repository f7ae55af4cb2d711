"""Demonstrations: whose program is right, which attempts are refined, what a row holds, what is left out."""

from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkout import TINY
from experiments import do
from factories import (
    ARC,
    first_turns,
    make_attempt,
    make_demonstration,
    make_grid,
    make_task,
    make_verdict,
    with_detail,
)

from arc_refinery import records
from arc_refinery.arc.augment import Augmentation
from arc_refinery.arc.tasks import Pair, Task
from arc_refinery.branch_files import BranchFiles
from arc_refinery.config import Sandbox
from arc_refinery.domains.arc.config import Showing
from arc_refinery.domains.arc.prompts import COMPACT, Template, compact_answer
from arc_refinery.domains.arc.records import Attempt, Prompt, Verdict
from arc_refinery.domains.domain import GradedAttempt
from arc_refinery.domains.prompts import Renderer
from arc_refinery.models.chat import Chat
from arc_refinery.records import Demonstration
from arc_refinery.refining import demonstrations
from arc_refinery.refining.config import Demonstrations, Sampling
from arc_refinery.refining.demonstrations import DemonstrationPlan

FLIP = (
    "from common import *\n\n\ndef main(grid):\n    return np.fliplr(grid)\n\n\ndef generate_input():\n    return 0\n"
)
FLIPPED = "```python\nfrom common import *\n\n\ndef transform(grid):\n    return np.fliplr(grid)\n```"
PAIR = Pair(make_grid("12"), make_grid("21"))
TURNED = Augmentation(1, False)


def a_task(name: str = "it", source: str = FLIP, origin: str = "barc") -> Task:
    train = (PAIR, Pair(make_grid("30"), make_grid("03")))
    return make_task(name, train=train, test=(PAIR,), origin=origin, source=source)


def asked(renderer: Renderer, name: str = "it", template: Template = COMPACT) -> Prompt:
    sampling = Sampling(batch_size=8, max_output_tokens=48)
    (prompt,) = first_turns([a_task(name)], 8, sampling, template, renderer, shown=Showing(use_data_augmentation=False))
    return prompt


def attempt(prompt: Prompt, name: str, correct: float = 0.0, completion: str = "", **verdict: Any) -> GradedAttempt:
    """An attempt that gave its own kind of wrong grids, with this share of correct train grids."""
    attempt = make_attempt(
        prompt,
        attempt_id=f"{prompt.task_id}/{name}",
        completion=completion or f"my answer {name}",
        n_tokens=len(completion),
        finish_reason=verdict.pop("finish_reason", "stop"),
    )
    wrong = make_grid(f"{len(name) % 10}5")
    fields = {
        "program_hash": name,
        "train_outputs": (wrong, wrong),
        "test_outputs": (wrong,),
        "fingerprint": name,
        "train_pixel_score": correct,
        "train_correct_grids": correct,
    }
    return GradedAttempt(prompt, attempt, make_verdict(attempt, **fields | verdict))


def solved(prompt: Prompt, name: str, completion: str, test: float = 1.0, **verdict: Any) -> GradedAttempt:
    return attempt(prompt, name, 1.0, completion, test_correct_grids=test, **verdict)


def a_plan(**changed: Any) -> DemonstrationPlan:
    settings = {name: changed.pop(name) for name in list(changed) if name in Demonstrations.model_fields}
    plan = DemonstrationPlan(Demonstrations(**settings), 99, False, 1024, 99)
    return replace(plan, **changed)


def make_demonstrations(
    graded: list[GradedAttempt],
    sources: dict[str, str],
    plan: DemonstrationPlan,
    template: Template,
    renderer: Renderer,
    counts: Counter[str],
    generated: Collection[str] = (),
) -> list[Demonstration]:
    is_learnable = ARC.may_be_learned([a_task(name, origin="generated") for name in generated])
    made = demonstrations.make_demonstrations(ARC, graded, sources, plan, template, renderer, counts, is_learnable)
    return list(made)


def rows_of(
    graded: list[GradedAttempt],
    renderer: Renderer,
    counts: Counter[str] | None = None,
    generated: Collection[str] = (),
    **plan: Any,
) -> list[Demonstration]:
    """Rows where every task's own program is right."""
    sources = {item.attempt.task_id: FLIPPED for item in graded}
    counts = Counter() if counts is None else counts
    return make_demonstrations(graded, sources, a_plan(**plan), COMPACT, renderer, counts, generated)


# the tasks' own programs


def test_only_programs_that_give_every_output_are_answers():
    wrong_test = replace(a_task("wrong test"), test=(Pair(PAIR.input, PAIR.input),))
    wrong_train = replace(a_task("wrong train"), train=(PAIR, Pair(PAIR.input, PAIR.input)))
    tasks = [
        wrong_test,
        a_task("right"),
        wrong_train,
        a_task("no source", source=""),
        a_task("fails", source=FLIP.replace("np.fliplr", "np.no_such")),
        a_task("returns a list", source=FLIP.replace("np.fliplr", "str")),
        a_task(
            "generated", source=FLIP.replace("\n\n\ndef main", "\n\n# concepts:\n# x\n\n\ndef main"), origin="generated"
        ),
    ]
    with Sandbox().executor(1) as executor:
        answers = ARC.source_answers(tasks, COMPACT, (executor,))
        begun = ARC.source_answers(tasks[:2], replace(COMPACT, assistant_prefix="So:\n```python\nfrom"), (executor,))
    bare = FLIPPED.replace("\n\n\ndef", "\n\ndef")
    assert answers == {"right": FLIPPED, "generated": bare}
    assert begun == {"right": f"So:\n{FLIPPED}"}


# rows


def test_incorrect_attempts_are_refined_best_first_into_the_source(renderer: Renderer):
    prompt = asked(renderer)
    poor, good, same, right = (
        attempt(prompt, "poor", 0.0),
        attempt(prompt, "good", 0.5),
        attempt(prompt, "same", 0.5, fingerprint="good"),
        solved(prompt, "right", FLIPPED),
    )
    rows = rows_of([poor, right, good, same], renderer)
    assert [row.parent_id for row in rows] == ["it/good", "it/poor"]
    assert [row.demonstration_id for row in rows] == ["it/sft-000", "it/sft-001"]
    text, _ = renderer.render(ARC.next_turn(good, good, "whole", COMPACT).messages)
    n_tokens = renderer.count(text) + renderer.count(FLIPPED) + 1
    assert rows[0] == make_demonstration(
        demonstration_id="it/sft-000",
        task_id="it",
        turn=2,
        parent_id="it/good",
        text=text,
        completion=FLIPPED,
        target="source",
        n_tokens=n_tokens,
    )
    assert "my answer good<|end|><|user|>Executing your program gave:" in text
    assert [row.parent_id for row in rows_of([poor, good], renderer)] == ["it/good", "it/poor"]
    assert [row.parent_id for row in rows_of([poor, good], renderer, n_considered=1)] == ["it/poor"]


def test_errors_are_refined_where_that_is_asked_for(renderer: Renderer):
    raised = attempt(asked(renderer), "raised", status="error", error="IndexError: x (line 3)", fingerprint="")
    assert rows_of([raised], renderer) == []
    (row,) = rows_of([raised], renderer, include_errors=True)
    assert "failed with IndexError: x (line 3)" in row.text


def test_the_source_does_not_answer_an_augmented_task(renderer: Renderer):
    plain = asked(renderer)
    turned = with_detail(replace(plain, prompt_id="it/turn1-001"), augmentation=TURNED)
    counts: Counter[str] = Counter()
    rows = rows_of([attempt(turned, "turned", 0.5), attempt(plain, "plain", 0.0)], renderer, counts)
    assert [row.parent_id for row in rows] == ["it/plain"]
    assert counts["n_tasks_without_target"] == 0
    assert rows_of([attempt(turned, "turned")], renderer, counts) == []
    assert (counts["n_tasks"], counts["n_tasks_without_target"]) == (2, 1)


def test_the_shortest_correct_attempt_on_the_same_prompt_is_the_target(renderer: Renderer):
    first = asked(renderer)
    turned = (replace(first, prompt_id=f"it/turn1-00{n}", text=f"turned {n} times") for n in (1, 2))
    second, third = (with_detail(prompt, augmentation=TURNED) for prompt in turned)
    graded = [
        attempt(first, "wrong"),
        solved(first, "long", "```python\nx = 100\n```"),
        solved(first, "short", "```python\nx = 1\n```"),
        solved(first, "also short", "```python\nx = 2\n```"),
        solved(first, "cut", "```python\n", finish_reason="length"),
        solved(first, "wrong in the test", "```", test=0.5),
        attempt(second, "other prompt"),
        solved(second, "its own", "```python\nx = 3000\n```"),
        attempt(third, "nothing correct"),
    ]
    rows = rows_of(graded, renderer, targets="attempts")
    assert [(row.parent_id, row.target, row.completion) for row in rows] == [
        ("it/wrong", "it/short", "```python\nx = 1\n```"),
        ("it/other prompt", "it/its own", "```python\nx = 3000\n```"),
    ]


def test_the_most_frequent_correct_attempt_is_the_target(renderer: Renderer):
    prompt = asked(renderer)
    often, seldom = "```python\nx = 1000\n```", "```python\nx = 1\n```"
    graded = [
        attempt(prompt, "wrong"),
        solved(prompt, "a", seldom),
        solved(prompt, "b", often),
        solved(prompt, "c", often),
    ]
    (row,) = rows_of(graded, renderer, targets="attempts")
    assert (row.target, row.completion) == ("it/b", often)


def test_the_correct_attempt_most_like_the_refined_one_is_the_target(renderer: Renderer):
    prompt = asked(renderer)
    other = replace(prompt, prompt_id="it/turn1-001")  # a second batch of answers to the same text

    def body(*lines: str) -> str:
        return "```python\n" + "\n".join(["def transform(grid):", *lines, "    return grid"]) + "\n```"

    graded = [
        attempt(prompt, "wrong", 0.5, body("    grid = grid[::-1]", "    grid = grid.T")),
        attempt(prompt, "another", 0.0, body("    grid = np.rot90(grid, 2)")),
        solved(prompt, "a", body("    grid = np.fliplr(grid)")),
        solved(prompt, "b", body("    grid = np.fliplr(grid)")),
        solved(other, "c", body("    grid = grid[:, ::-1]", "    grid = grid.T")),
        solved(other, "d", body("    grid = np.rot90(grid, 3)")),
    ]
    targets = [(row.parent_id, row.target) for row in rows_of(graded, renderer, targets="nearest")]
    assert targets == [("it/wrong", "it/c"), ("it/another", "it/d")]
    targets = [(row.parent_id, row.target) for row in rows_of(graded, renderer, targets="attempts")]
    assert targets == [("it/wrong", "it/a"), ("it/another", "it/a")]


def test_programs_that_evaluation_tasks_are_made_of_are_not_learned(renderer: Renderer):
    prompt = asked(renderer)
    bodies = [f"    grid = np.rot90(grid, {n})" for n in range(10, 50)]
    held_out = next(body for body in bodies if int(sha256(body.encode()).hexdigest(), 16) % 8 == 0)
    learned = next(body for body in bodies if int(sha256(body.encode()).hexdigest(), 16) % 8)
    graded = [
        attempt(prompt, "wrong"),
        solved(prompt, "a", compact_answer(held_out)),
        solved(prompt, "b", compact_answer(learned)),
    ]
    assert [row.target for row in rows_of(graded, renderer, targets="attempts")] == ["it/a"]
    assert [row.target for row in rows_of(graded, renderer, targets="attempts", generated={"it"})] == ["it/b"]


def test_rows_that_are_too_long_are_left_out_and_counted(renderer: Renderer):
    graded = [attempt(asked(renderer), "wrong")]
    (row,) = rows_of(graded, renderer)
    n_completion = renderer.count(FLIPPED) + 1
    fitting: dict[str, Any] = {"max_seq_length": row.n_tokens, "max_completion_length": n_completion}
    assert rows_of(graded, renderer, **fitting) == [row]
    for name in fitting:
        counts: Counter[str] = Counter()
        assert rows_of(graded, renderer, counts, **fitting | {name: fitting[name] - 1}) == []
        assert counts["n_too_long"] == 1


def test_an_assistant_prefix_belongs_to_the_prompt(renderer: Renderer):
    template = replace(COMPACT, assistant_prefix="```python\nfrom common import *")
    prompt = asked(renderer, template=template)
    graded = [attempt(prompt, "wrong", completion="```python\nfrom common import *\nx = 1\n```")]
    plan, sources = a_plan(), {"it": FLIPPED}
    (row,) = make_demonstrations(graded, sources, plan, template, renderer, Counter())
    assert row.text.endswith("<|assistant|>```python\nfrom common import *")
    assert row.completion == FLIPPED.removeprefix("```python\nfrom common import *")
    assert row.n_tokens == renderer.count(row.text) + renderer.count(row.completion) + 1


def test_a_program_follows_an_empty_thought_where_the_chat_template_opens_one(monkeypatch: pytest.MonkeyPatch):
    renderer = Renderer(TINY)
    render = Chat.render
    monkeypatch.setattr(Chat, "render", lambda chat, messages: render(chat, messages) + "<think>\n")
    prompt = asked(renderer)
    wrong, right = (
        attempt(prompt, "wrong"),
        attempt(prompt, "right", 1.0, f"<think>\nSo.</think>{FLIPPED}", solved=True),
    )
    (source,) = make_demonstrations([wrong], {"it": FLIPPED}, a_plan(), COMPACT, renderer, Counter())
    assert source.text.endswith("<|assistant|><think>\n") and source.completion == f"\n</think>\n\n{FLIPPED}"
    plan = a_plan(targets="attempts")
    (sampled,) = make_demonstrations([wrong, right], {}, plan, COMPACT, renderer, Counter())
    assert sampled.completion == f"So.</think>{FLIPPED}"


# the stage


def write_turn(files: BranchFiles, graded: list[GradedAttempt], prompts: list[Prompt]) -> Path:
    """A turn's files, with tasks dealt over shards as sampling deals them."""
    records.write(files.prompts, Prompt, prompts, 0, {})
    verdicts: dict[int, list[Verdict]] = {}
    for shard, path in enumerate(files.attempts):
        mine = {prompt.task_id for prompt in prompts[shard :: files.n_shards]}
        some = [item for item in graded if item.attempt.task_id in mine]
        records.write(path, Attempt, [item.attempt for item in some], 0, {})
        verdicts.setdefault(shard // files.shards_per_grading_job, []).extend(item.verdict for item in some)
    for job, path in enumerate(files.verdicts):
        records.write(path, Verdict, verdicts.pop(job), 0, {})
    assert not verdicts
    return files.folder


def named(attempt: GradedAttempt, number: int) -> GradedAttempt:
    """The attempt with the id that sampling gives it."""
    name = records.attempt_id(attempt.prompt.prompt_id, number)
    own, verdict = replace(attempt.attempt, attempt_id=name), replace(attempt.verdict, attempt_id=name)
    return attempt._replace(attempt=own, verdict=verdict)


@pytest.mark.slow
def test_the_stage_writes_the_same_bytes_whatever_the_number_of_shards_and_grading_jobs(
    renderer: Renderer, tmp_path: Path
):
    names = ["c", "a", "e", "b", "d"]
    prompts = [replace(asked(renderer, name), n_predictions=2) for name in names]
    graded = [named(attempt(prompt, name), number) for prompt in prompts for number, name in enumerate(("x", "yy"))]
    tasks = tmp_path / "tasks.parquet"
    records.write(tasks, Task, [a_task(name) for name in names], 0, {})
    contents = set()
    for n_shards, together in ((1, 1), (3, 1), (3, 2)):
        output = tmp_path / f"{n_shards}-{together}.parquet"
        folder = write_turn(BranchFiles(output.with_suffix(""), n_shards, together), graded, prompts)
        settings: dict[str, Any] = {
            "model": {"path": TINY, "template": "compact", "window": 1024},
            "refinement": {},
            "demonstrations": {},
            "sandbox": {},
            "n_considered": 8,
            "max_completion_length": 99,
            "n_shards": n_shards,
            "shards_per_grading_job": together,
            "tasks_per_batch": 1,
        }
        do("demonstrations", settings, tasks=tasks, prompts=folder / "prompts.parquet", output=output)
        contents.add(output.read_bytes())
    assert len(contents) == 1
    rows = list(records.read(output, Demonstration))
    assert [row.task_id for row in rows] == [name for name in names for _ in range(2)]
    assert {row.completion for row in rows} == {FLIPPED}
    assert records.notes(output) == {"n_tasks": 5, "n_tasks_without_target": 0, "n_too_long": 0}
    assert np.isin([row.turn for row in rows], [1, 2]).all()
