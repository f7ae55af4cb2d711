"""Prompts of each turn: augmentations that do not depend on the budget, parents, and what feedback shows of them."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast, get_args

import pytest
from factories import ARC, first_turns, make_attempt, make_grid, make_task, make_verdict, with_detail

from arc_refinery.arc.augment import IDENTITY, Augmentation
from arc_refinery.arc.grids import Grid
from arc_refinery.arc.tasks import Pair, Task
from arc_refinery.domains.arc.config import Showing
from arc_refinery.domains.arc.prompts import COMPACT, WORDS, Template
from arc_refinery.domains.arc.records import Prompt
from arc_refinery.domains.domain import GradedAttempt
from arc_refinery.domains.prompts import Renderer
from arc_refinery.errors import ModelError
from arc_refinery.models.chat import Message
from arc_refinery.refining import next_turn
from arc_refinery.refining.config import FeedbackKind, History, Sampling
from arc_refinery.refining.next_turn import NextTurnPlan, without

HISTORY = get_args(History)
PLAN = NextTurnPlan(
    branch="arm-turn2", n_considered=99, n_parents=8, n_predictions=8, batch_size=2, include_errors=False
)


def a_task(task_id: str = "it") -> Task:
    train = (
        Pair(make_grid("12", "34", "00"), make_grid("123", "000")),
        Pair(make_grid("50"), make_grid("05")),
        Pair(make_grid("7"), make_grid("77", "71")),
    )
    return make_task(task_id, train=train, test=(Pair(make_grid("999", "989"), make_grid("898", "888")),))


PLAIN = Showing(use_data_augmentation=False)


def sampling(batch_size: int = 4) -> Sampling:
    return Sampling(n_predictions=16, batch_size=batch_size, max_output_tokens=64, top_p=1.0)


def next_turn_prompts(
    graded: Iterable[GradedAttempt], plan: NextTurnPlan, wording: Template, renderer: Renderer, *counts: Counter[str]
) -> Iterator[Prompt]:
    return cast(Iterator[Prompt], next_turn.next_turn_prompts(ARC, graded, plan, wording, renderer, *counts))


def best_incorrect(attempts: Sequence[GradedAttempt], *settings: Any) -> list[str]:
    """The names of the attempts to refine."""
    return [attempt.attempt.attempt_id for attempt in next_turn.best_incorrect(ARC, attempts, *settings)]


def conversation(attempt: GradedAttempt, wording: Template) -> list[Message]:
    """The conversation that asks to refine an attempt and shows what it gave."""
    return ARC.next_turn(attempt, attempt, "whole", wording).messages


def first(renderer: Renderer, n_predictions: int, tasks: tuple[Task, ...] = (a_task(),), seed: int = 0) -> list[Prompt]:
    return list(first_turns(tasks, n_predictions, sampling(), COMPACT, renderer, seed))


def prompt(
    task: Task, renderer: Renderer, augmentation: Augmentation = IDENTITY, order: tuple[int, ...] = (0, 1, 2)
) -> Prompt:
    """A first-turn prompt of a chosen augmentation and order."""
    seen = task.map_grids(augmentation.apply).reorder_train(order)
    (plain,) = first_turns([seen], 1, sampling(1), COMPACT, renderer, shown=PLAIN)
    return with_detail(plain, augmentation=augmentation, train_order=order)


def graded(source: Prompt, name: str, outputs: tuple[Grid, ...] = (), **verdict: Any) -> GradedAttempt:
    """An attempt whose program gave wrong grids unless `verdict` says something else."""
    attempt = make_attempt(source, attempt_id=name, completion=f"my answer {name}")
    fields = {"program_hash": f"hash of {name}", "fingerprint": f"print of {name}", "train_outputs": outputs}
    return GradedAttempt(source, attempt, make_verdict(attempt, **fields | verdict))


# turn 1


def test_the_first_8_of_16_predictions_answer_the_prompts_that_8_would_have(renderer: Renderer) -> None:
    few, many = first(renderer, 8), first(renderer, 16)
    assert (len(few), len(many)) == (2, 4)
    for prompt, other in zip(few, many[:2], strict=True):
        assert (prompt.prompt_id, prompt.text, prompt.n_predictions) == (
            other.prompt_id,
            other.text,
            other.n_predictions,
        )
        assert (prompt.detail.augmentation, prompt.detail.train_order) == (
            other.detail.augmentation,
            other.detail.train_order,
        )


def test_a_prompt_does_not_depend_on_the_other_tasks(renderer: Renderer) -> None:
    alone = first(renderer, 8, (a_task("b"),))
    after = first(renderer, 8, (a_task("a"), a_task("b")))[2:]
    assert [prompt.text for prompt in alone] == [prompt.text for prompt in after]


def test_each_prompt_has_a_name_of_its_own_and_its_share_of_the_predictions(renderer: Renderer) -> None:
    prompts = first(renderer, 10, (a_task("a"), a_task("b")))
    assert [prompt.prompt_id for prompt in prompts] == [
        f"{task}/turn1-00{number}" for task in "ab" for number in range(3)
    ]
    assert [prompt.n_predictions for prompt in prompts] == [4, 4, 2] * 2
    assert {(prompt.turn, prompt.parent_id) for prompt in prompts} == {(1, "")}


def test_prompts_tasks_and_seeds_have_augmentations_of_their_own(renderer: Renderer) -> None:
    prompts = first(renderer, 40, (a_task("a"), a_task("b"))) + first(renderer, 40, (a_task("a"),), seed=1)
    assert len({prompt.detail.augmentation for prompt in prompts}) == len(prompts) == 30
    assert len({prompt.detail.train_order for prompt in prompts}) == 6  # all orders of three pairs


def test_without_augmentation_every_prompt_shows_the_task_as_it_is(renderer: Renderer) -> None:
    prompts = list(first_turns([a_task()], 8, sampling(4), COMPACT, renderer, shown=PLAIN))
    text = (
        "<|user|>\ninput 3x2\n1 12\n2 34\n3 00\noutput 2x3\n1 123\n2 000\ninput 1x2\n1 50\noutput 1x2\n1 05"
        "\ninput 1x1\n1 7\noutput 2x2\n1 77\n2 71<|assistant|>"
    )
    assert [prompt.text for prompt in prompts] == [text, text]
    assert {(prompt.detail.augmentation, prompt.detail.train_order) for prompt in prompts} == {(IDENTITY, (0, 1, 2))}
    assert [pair.input.tolist() for pair in prompts[0].detail.train] == [pair.input.tolist() for pair in a_task().train]


def test_a_prompt_may_show_one_test_input_and_is_still_about_all(renderer: Renderer) -> None:
    test = tuple(Pair(make_grid(str(color)), make_grid("0")) for color in range(1, 6))
    task = replace(a_task(), test=test)
    some, one = sampling(1), Showing(use_data_augmentation=False, test_inputs="one")
    visible = [
        [pair for pair in test if f"Test input:\n{WORDS.notation.write(pair.input)}" in prompt.messages[1]["content"]]
        for prompt in first_turns([task], 16, some, WORDS, renderer, shown=one)
    ]
    assert {len(pairs) for pairs in visible} == {1}
    assert len({pairs[0].input.item() for pairs in visible}) > 2
    (prompt, *_) = first_turns([task], 16, some, WORDS, renderer, shown=one)
    assert len(prompt.detail.test) == 5


def test_a_prompt_holds_the_task_as_the_model_sees_it(renderer: Renderer) -> None:
    for prompt in first(renderer, 16):
        for pair, old in zip(prompt.detail.train, prompt.detail.train_order, strict=True):
            expected = a_task().train[old]
            assert prompt.detail.augmentation.apply(expected.input).tolist() == pair.input.tolist()
            assert prompt.detail.augmentation.apply(expected.output).tolist() == pair.output.tolist()
            assert COMPACT.notation.write(pair.output) in prompt.text
        assert prompt.detail.augmentation.undo(prompt.detail.test[0].input).tolist() == a_task().test[0].input.tolist()


# rendering


def test_rendered_text_ends_where_the_model_answers_and_its_tokens_are_counted(renderer: Renderer) -> None:
    # "<|user|>", "a", "b", "<|assistant|>"
    assert renderer.render([{"role": "user", "content": "ab"}]) == ("<|user|>ab<|assistant|>", 4)


def test_rendered_text_ends_with_what_the_answer_begins_with(renderer: Renderer) -> None:
    begun: list[Message] = [{"role": "user", "content": "ab"}, {"role": "assistant", "content": "I: "}]
    assert renderer.render(begun) == ("<|user|>ab<|assistant|>I: ", 7)


def test_a_folder_without_a_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=str(tmp_path)):
        Renderer(str(tmp_path))


# parents


@pytest.fixture(scope="module")
def source(renderer: Renderer) -> Prompt:
    return prompt(a_task(), renderer)


def test_parents_are_ranked_by_correct_grids_then_pixels_then_order(source: Prompt) -> None:
    attempts = [
        graded(source, "low", train_correct_grids=0.0, train_pixel_score=0.9),
        graded(source, "tie 1", train_correct_grids=1 / 3, train_pixel_score=0.5),
        graded(source, "high", train_correct_grids=1 / 3, train_pixel_score=0.6),
        graded(source, "tie 2", train_correct_grids=1 / 3, train_pixel_score=0.5),
        graded(source, "best", train_correct_grids=2 / 3, train_pixel_score=0.1),
    ]
    assert best_incorrect(attempts, False) == ["best", "high", "tie 1", "tie 2", "low"]


def test_of_equal_fingerprints_the_first_is_kept(source: Prompt) -> None:
    attempts = [
        graded(source, "worse", train_pixel_score=0.1),
        graded(source, "one", train_pixel_score=0.5, fingerprint="same"),
        graded(source, "its copy", train_pixel_score=0.5, fingerprint="same"),
    ]
    assert best_incorrect(attempts, False) == ["one", "worse"]


def test_attempts_that_solve_the_train_pairs_are_no_parents_whatever_their_test_pairs(source: Prompt) -> None:
    attempts = [
        graded(source, "solved", train_correct_grids=1.0, train_pixel_score=1.0, test_correct_grids=1.0),
        graded(source, "misled", train_correct_grids=1.0, train_pixel_score=1.0, test_correct_grids=0.0),
        graded(source, "lucky", train_correct_grids=0.5, train_pixel_score=0.7, test_correct_grids=1.0),
    ]
    assert best_incorrect(attempts, True) == ["lucky"]


def test_test_scores_do_not_rank(source: Prompt) -> None:
    attempts = [
        graded(source, "first", train_pixel_score=0.5),
        graded(source, "second", train_pixel_score=0.5, test_correct_grids=1.0, test_pixel_score=1.0),
    ]
    assert best_incorrect(attempts, False) == ["first", "second"]


def test_programs_that_raised_are_parents_only_if_asked_for_and_come_last(source: Prompt) -> None:
    raised: dict[str, Any] = {"status": "error", "error": "ValueError: no (line 2)", "fingerprint": ""}
    attempts = [
        graded(source, "raised", **raised, program_hash="x"),
        graded(source, "raised again", **raised, program_hash="x"),
        graded(source, "raised too", **raised, program_hash="y"),
        graded(source, "wrong"),
    ]
    assert best_incorrect(attempts, False) == ["wrong"]
    assert best_incorrect(attempts, True) == ["wrong", "raised", "raised too"]


@pytest.mark.parametrize("status", ["no_code", "timeout", "memory", "crash", "protocol", "invalid_output"])
def test_attempts_without_valid_outputs_or_exception_are_no_parents(source: Prompt, status: str) -> None:
    assert best_incorrect([graded(source, "it", status=status, fingerprint="")], True) == []


# prompts of the next turn


def five(source: Prompt) -> list[GradedAttempt]:
    """Attempts a..e whose scores rank them d, b, a, c; e is correct."""
    scores = {"a": 0.3, "b": 0.4, "c": 0.2, "d": 0.5}
    outputs = (make_grid("11"), make_grid("11"), make_grid("11"))
    wrong = [graded(source, name, outputs, train_pixel_score=score) for name, score in scores.items()]
    return [*wrong, graded(source, "e", outputs, train_correct_grids=1.0, train_pixel_score=1.0)]


def test_prompts_cycle_through_the_parents(source: Prompt, renderer: Renderer) -> None:
    prompts = list(next_turn_prompts(five(source), replace(PLAN, n_parents=3), COMPACT, renderer))
    assert [prompt.parent_id for prompt in prompts] == ["d", "b", "a", "d"]
    assert [prompt.n_predictions for prompt in prompts] == [2, 2, 2, 2]
    assert [prompt.prompt_id for prompt in prompts] == [f"it/arm-turn2-00{number}" for number in range(4)]
    assert {(prompt.task_id, prompt.turn) for prompt in prompts} == {("it", 2)}


def test_the_last_prompt_takes_what_is_left_of_the_budget(source: Prompt, renderer: Renderer) -> None:
    prompts = next_turn_prompts(five(source), replace(PLAN, n_predictions=7, batch_size=3), COMPACT, renderer)
    assert [(prompt.parent_id, prompt.n_predictions) for prompt in prompts] == [("d", 3), ("b", 3), ("a", 1)]


def test_only_the_first_considered_attempts_become_parents(source: Prompt, renderer: Renderer) -> None:
    prompts = next_turn_prompts(five(source), replace(PLAN, n_considered=2), COMPACT, renderer)
    assert [prompt.parent_id for prompt in prompts] == ["b", "a", "b", "a"]


def test_each_task_considers_its_own_first_attempts(renderer: Renderer) -> None:
    both = [attempt for name in ("x", "y") for attempt in five(prompt(a_task(name), renderer))]
    prompts = next_turn_prompts(both, replace(PLAN, n_considered=3, n_predictions=4), COMPACT, renderer)
    assert [(prompt.task_id, prompt.parent_id) for prompt in prompts] == [
        ("x", "b"),
        ("x", "a"),
        ("y", "b"),
        ("y", "a"),
    ]


def test_a_task_without_parents_has_no_prompts(renderer: Renderer) -> None:
    solved, open_task = (prompt(a_task(name), renderer) for name in ("solved", "open"))
    attempts = [graded(solved, "done", train_correct_grids=1.0), *five(open_task)]
    prompts = next_turn_prompts(attempts, PLAN, COMPACT, renderer)
    assert {prompt.task_id for prompt in prompts} == {"open"}


def asked(attempts: list[GradedAttempt], feedback: FeedbackKind, renderer: Renderer) -> tuple[list[Prompt], Any]:
    """The prompts that show this, one per parent, and what is counted."""
    counts: Counter[str] = Counter()
    plan = replace(PLAN, n_predictions=3, batch_size=1, n_parents=3, feedback=feedback)
    return list(next_turn_prompts(attempts, plan, COMPACT, renderer, counts)), counts


def test_of_two_rules_a_control_shows_the_results_of_an_attempt_at_the_other(renderer: Renderer) -> None:
    """`x-a` and `x-b` are a pair; `y-b` has no wrong attempt, and `z` no partner."""

    def wrong(task: str, cell: str) -> GradedAttempt:
        return graded(prompt(a_task(task), renderer), f"{task} {cell}", (make_grid(cell),) * 3)

    solved = graded(prompt(a_task("y-b"), renderer), "y-b", train_correct_grids=1.0)
    of_a = [wrong("x-a", cell) for cell in "129"]
    attempts = [*of_a, wrong("x-b", "3"), wrong("y-a", "4"), solved, wrong("z", "5")]
    real = {p.parent_id: p.messages[-1]["content"] for p in asked(attempts, "real", renderer)[0]}
    prompts, counts = asked(attempts, "other-rule", renderer)
    shown = [(p.task_id, p.messages[-2]["content"], p.messages[-1]["content"]) for p in prompts]
    assert shown == [
        ("x-a", "my answer x-a 1", real["x-b 3"]),
        ("x-a", "my answer x-a 2", real["x-b 3"]),
        ("x-a", "my answer x-a 9", real["x-b 3"]),
        *(("x-b", "my answer x-b 3", real["x-a 1"]) for _ in range(3)),
    ]
    assert counts == {without("other-rule"): 2}


def test_controls_show_nothing_or_the_first_turn_again(source: Prompt, renderer: Renderer) -> None:
    attempts = [graded(source, name, (make_grid(name),) * 3) for name in "12"]
    (one, two, _), counts = asked(attempts, "none", renderer)
    assert one.messages[-1]["content"] == two.messages[-1]["content"] == "\nWrite a corrected program."
    (one, two, again), _ = asked(attempts, "fresh", renderer)
    assert one.text == two.text == again.text == source.text
    assert [(p.turn, p.parent_id, p.detail == source.detail) for p in (one, two, again)] == [
        (2, "1", True),
        (2, "2", True),
        (2, "1", True),
    ]
    assert not counts
    # its feedback reveals no check
    assert asked(attempts, "stale", renderer) == ([], {without("stale"): 1})


def test_a_twin_is_the_next_wrong_attempt_with_other_results_in_this_prompts_form(
    source: Prompt, turned: Prompt, renderer: Renderer
) -> None:
    def told(attempts: list[GradedAttempt], counts: Counter[str], **changes: Any) -> list[tuple[str, str]]:
        plan = replace(PLAN, n_predictions=8, feedback="twin", **changes)
        prompts = next_turn_prompts(attempts, plan, COMPACT, renderer, counts)
        return [(prompt.parent_id, prompt.messages[-1]["content"]) for prompt in prompts]

    def real(attempt: GradedAttempt) -> str:
        return conversation(attempt, COMPACT)[-1]["content"]

    # "b" differs from "a" in its test output alone, which no feedback shows; "d" answered another view of the task
    grids = {
        name: (make_grid(cell), make_grid(cell), make_grid(cell)) for name, cell in zip("abcd", "1123", strict=True)
    }
    a, b, c, d = (
        graded(turned if name == "d" else source, name, train, test_outputs=(make_grid(cell),))
        for (name, train), cell in zip(grids.items(), "4567", strict=True)
    )
    d_as_source, a_as_turned = (graded(view, "", grids[name]) for view, name in ((source, "d"), (turned, "a")))
    counts: Counter[str] = Counter()
    assert told([a, b, c, d], counts) == [
        ("a", real(c)),
        ("b", real(c)),
        ("c", real(d_as_source)),
        ("d", real(a_as_turned)),
    ]
    # a parent that is the only one to be refined still has its twin
    assert told([a, b, c, d], counts, n_parents=1) == [("a", real(c))] * 4
    assert not counts
    assert told([a, b], counts) == []
    assert counts == {without("twin"): 1}


def test_a_third_turn_refines_the_second_in_one_conversation(source: Prompt, renderer: Renderer) -> None:
    second = next(next_turn_prompts(five(source), PLAN, COMPACT, renderer))
    wrong = graded(second, "second wrong", (make_grid("22"), make_grid("22"), make_grid("22")))
    third = next(next_turn_prompts([wrong], PLAN, COMPACT, renderer))
    assert (third.turn, third.parent_id) == (3, "second wrong")
    assert [message["role"] for message in third.messages] == ["user", "assistant"] * 2 + ["user"]
    assert third.messages[:3] == second.messages


def test_a_third_turn_may_show_the_last_attempt_alone(source: Prompt, renderer: Renderer) -> None:
    second = next(next_turn_prompts(five(source), PLAN, COMPACT, renderer))
    wrong = graded(second, "second wrong", (make_grid("22"), make_grid("22"), make_grid("22")))
    whole, last = (
        next(next_turn_prompts([wrong], replace(PLAN, history=history), COMPACT, renderer)) for history in HISTORY
    )
    assert last.messages == (*source.messages, *whole.messages[3:])


# what the conversation shows

TURNED = Augmentation(n_rotations=1, transpose=False, colors=(0, 2, 1, 3, 4, 5, 6, 8, 7, 9))  # 1 <-> 2 and 7 <-> 8
SHOWN = (2, 0, 1)  # the model saw the third pair first


@pytest.fixture(scope="module")
def turned(renderer: Renderer) -> Prompt:
    return prompt(a_task(), renderer, TURNED, SHOWN)


def wrong_in_two(source: Prompt) -> GradedAttempt:
    """Outputs in the original task's form and order: the second one is right."""
    return graded(
        source,
        "w",
        (make_grid("120", "000"), make_grid("05"), make_grid("77")),
        test_outputs=(make_grid("888", "888"),),
    )


def test_the_conversation_is_the_one_that_the_model_had_and_its_own_text(turned: Prompt) -> None:
    messages = conversation(wrong_in_two(turned), COMPACT)
    assert messages[:-1] == [*turned.messages, {"role": "assistant", "content": "my answer w"}]
    assert messages[-1]["role"] == "user"


def test_feedback_shows_outputs_turned_recoloured_and_in_the_order_that_the_model_saw(turned: Prompt) -> None:
    # The third pair is shown first: 77 becomes 88 and, a quarter counter-clockwise, a column of two; its truth is
    # 77/71, as seen 82/88, of which the column covers the right-hand one only with one cell, the left with two: 2 / 4.
    # The first comes second: 120/000 becomes 210/000, turned 00/10/20; its truth 123/000 as seen 30/10/20: 5 / 6.
    assert conversation(wrong_in_two(turned), COMPACT)[-1]["content"] == (
        "Executing your program gave:"
        "\npair 1 wrong, pixel similarity 50%, expected shape 2x2, given 2x1\n1 8\n2 8"
        "\npair 2 wrong, pixel similarity 83%, given 3x2\n1 00\n2 10\n3 20"
        "\npair 3 correct"
        "\nWrite a corrected program."
    )


def test_the_refining_prompt_keeps_augmentation_order_and_the_task_as_seen(turned: Prompt, renderer: Renderer) -> None:
    refining = next(next_turn_prompts([wrong_in_two(turned)], PLAN, COMPACT, renderer))
    assert (refining.detail.augmentation, refining.detail.train_order) == (TURNED, SHOWN)
    assert [pair.output.tolist() for pair in refining.detail.train] == [
        pair.output.tolist() for pair in turned.detail.train
    ]
    assert refining.text.startswith(turned.text + "my answer w<|end|><|user|>Executing your program gave:")
    assert refining.text.endswith("\n1 00\n2 10\n3 20\npair 3 correct\nWrite a corrected program.<|assistant|>")
    assert renderer.render(refining.messages) == (refining.text, refining.n_tokens)


def test_a_program_that_raised_is_told_its_exception(source: Prompt) -> None:
    raised = graded(source, "it", status="error", error="IndexError: too far (line 3)", fingerprint="")
    assert conversation(raised, COMPACT)[-1]["content"] == (
        "Executing your program failed with IndexError: too far (line 3)\nWrite a corrected program."
    )


@pytest.mark.parametrize("template", [COMPACT, WORDS])
def test_feedback_does_not_depend_on_the_test_pairs(turned: Prompt, template: Template) -> None:
    wrong = wrong_in_two(turned)
    elsewhere = with_detail(turned, test=(Pair(make_grid("123"), make_grid("444")),) * 2)
    verdict = with_detail(wrong.verdict, test_outputs=(make_grid("666", "666"),) * 2)
    other = GradedAttempt(elsewhere, wrong.attempt, verdict)
    messages, others = (conversation(attempt, template) for attempt in (wrong, other))
    assert messages[-1] == others[-1]
    assert messages[-1]["content"].count("\npair ") == 3


def test_no_test_grid_appears_in_a_compact_refining_prompt(turned: Prompt, renderer: Renderer) -> None:
    refining = next(next_turn_prompts([wrong_in_two(turned)], PLAN, COMPACT, renderer))
    (test,) = turned.detail.test
    output = TURNED.apply(make_grid("888", "888"))
    for hidden in (test.input, test.output, output):
        assert COMPACT.notation.write(hidden) not in refining.text
