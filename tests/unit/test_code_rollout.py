"""On-policy turns of domain `code`: answers that were decided beforehand, executed, with the feedback between them."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from decided_turns import CHATML, Sampling, bytewise, ids_of

from arc_refinery.config import Sandbox
from arc_refinery.domains.code.grading import Prompt
from arc_refinery.domains.code.tasks import CodeTask
from arc_refinery.domains.code.wording import first_turn
from arc_refinery.domains.domain import Domain, load_domain
from arc_refinery.refining.rollout import OnPolicyTurns, TrainingPrompt

pytestmark = pytest.mark.slow  # starts three servers of the sandbox

CODE = load_domain("code")
TEXTS = CODE.wording("plain", "failing-tests")
TASK = CodeTask("double", "Double a number.", ("double",), ("assert double(2) == 4",), ("assert double(-30) == -60",))
BROKEN, WRONG, LUCKY, RIGHT = (
    f"```python\n{program}\n```"
    for program in (
        "def double(n) return n",
        "def double(n):\n    return n + 1",
        "def double(n):\n    return n + 2",
        "def double(n):\n    return 2 * n",
    )
)


@pytest.fixture(scope="module")
def executors() -> Iterator[Any]:
    with CODE.executors(Sandbox(), 1) as opened:
        yield opened


def episode_of(
    executors: Any, *answers: str, domain: Domain = CODE, task: CodeTask = TASK, **changed: Any
) -> tuple[Any, str]:
    """Run one episode, and return it with the text of all its tokens."""
    tokenizer = bytewise(CHATML, "<|im_start|>", "<|im_end|>")
    messages = tuple(first_turn(task, TEXTS))
    prompt = Prompt("double/0", "double", 1, "", messages, "", 0, 1, task)
    sampling = Sampling(
        tokenizer, list(messages), *([[*ids_of(tokenizer, answer), tokenizer.eos_token_id]] for answer in answers)
    )
    settings: dict[str, Any] = {"include_errors": True, "n_turns": 4, "history": "whole", "max_tokens": 10_000}
    rollout = OnPolicyTurns(
        domain=domain,
        prompts=[TrainingPrompt.of(domain, prompt)],
        executors=executors,
        wording=TEXTS,
        mask_truncated=True,
        **settings | changed,
    )
    (episode,) = rollout(sampling.rows, sampling)["episode"]
    assert not sampling.turns  # all answers were asked for
    return episode, tokenizer.decode(episode.completion_ids)


def test_a_program_is_refined_until_it_passes_all_tests(executors: Any) -> None:
    episode, text = episode_of(executors, BROKEN, WRONG, RIGHT)
    assert [(grade.status, grade.score, grade.is_solved) for grade in episode.grades] == [
        ("error", 0.0, False),
        ("ok", 0.0, False),
        ("ok", 1.0, True),
    ]
    feedback = "Your program passes 0 of 1 tests.\n\nassert double(2) == 4\ndouble(2) returned 3, expected 4\n\n"
    between = f"<|im_end|>\n<|im_start|>user\n{feedback}{TEXTS.correct}<|im_end|>\n<|im_start|>assistant\n"
    assert text.endswith(f"{WRONG}{between}{RIGHT}<|im_end|>")
    assert text.startswith(f"{BROKEN}<|im_end|>\n<|im_start|>user\nYour program raised SyntaxError")
    assert "-60" not in text and "-30" not in text  # the hidden test


def test_each_turn_reveals_the_first_test_that_its_answer_fails(executors: Any) -> None:
    task = replace(TASK, revealable=("assert double(7) == 14", "assert double(90) == 180"))
    capped = "```python\ndef double(n):\n    return 2 * min(n, 50)\n```"
    episode, text = episode_of(executors, LUCKY, capped, RIGHT, task=task)
    assert [grade.score for grade in episode.grades] == [1 / 3, 2 / 3, 1.0]
    first, second, _ = text.split("<|im_start|>assistant\n")
    assert "passes 1 of 3 tests.\n\nassert double(7) == 14\ndouble(7) returned 9, expected 14\n\nCorrect" in first
    assert "passes 2 of 3 tests.\n\nassert double(90) == 180\ndouble(90) returned 100, expected 180\n\n" in second
    assert "90" not in first and "-60" not in text


def test_a_program_that_passes_the_shown_tests_alone_has_nothing_to_refine(executors: Any) -> None:
    episode, text = episode_of(executors, LUCKY)
    assert [(grade.score, grade.hidden_score, grade.is_solved) for grade in episode.grades] == [(1.0, 0.0, False)]
    assert text == f"{LUCKY}<|im_end|>"


def test_a_program_that_cannot_be_called_ends_the_episode_unless_errors_are_refined(executors: Any) -> None:
    episode, _ = episode_of(executors, BROKEN, include_errors=False)
    assert len(episode.grades) == 1


def test_with_the_last_answer_as_history_earlier_ones_are_not_in_the_row(executors: Any) -> None:
    episode, text = episode_of(executors, BROKEN, WRONG, RIGHT, history="last")
    assert BROKEN not in text and text.startswith(WRONG) and text.endswith(f"{RIGHT}<|im_end|>")
    assert sum(episode.mask) == len(RIGHT) + 1  # a token per character, and the end token
