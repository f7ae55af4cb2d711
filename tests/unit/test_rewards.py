"""Rewards by hand, and what executing completions in the real sandbox earns."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from checkout import ROOT
from factories import ARC, make_grid, make_prompt, make_task
from messages import Wording

from arc_refinery.arc.grids import UNKNOWN, Grid
from arc_refinery.arc.tasks import Pair
from arc_refinery.config import check_files, inputs, own_functions, validate_experiment
from arc_refinery.domains.arc.config import REWARDS, ArcExperiment, Grade
from arc_refinery.domains.arc.grading import Subject, grade_answers
from arc_refinery.domains.arc.records import Prompt
from arc_refinery.domains.domain import Answer
from arc_refinery.errors import InputError
from arc_refinery.models.chat import Message
from arc_refinery.refining.config import Grpo, Refinement
from arc_refinery.refining.config.rewards import ATTEMPT_REWARDS
from arc_refinery.sandbox import Executor, Limits

ONE, TWO = make_grid("12", "34"), make_grid("56", "78")
END = 2

PAIRS = (Pair(ONE, ONE), Pair(ONE, make_grid("10", "00")))
PLUS_ONE = (Pair(make_grid("1"), make_grid("2")),)
RIGHT_IN_HALF = "```python\ndef transform(grid):\n    return grid\n```"
ADDS_ONE = "```python\ndef transform(grid):\n    return grid + 1\n```"


def graded(outputs: tuple[Grid, ...], status: str = "ok") -> Grade:
    return Grade(status, "", None if status == "no_code" else ADDS_ONE, outputs, (ONE, TWO), n_shown=1)


FUNCTIONS = REWARDS | ATTEMPT_REWARDS
HALF = make_grid("12", "00")  # two of the four cells of ONE


@pytest.mark.parametrize(
    ("what", "v1", "v2", "staged", "solved"),
    [
        (graded((ONE, TWO)), 10.0, 10.0, 3.0, 1.0),  # 1 + 8 + 1; 1 + 9; 1 + 1 + 1
        (graded((HALF, TWO)), 1 + 4 + 0.75, 1 + 4.5, 2.5, 0.0),
        (graded((HALF, ONE)), 1.25, 1.0, 2.0, 0.0),  # pixels: 2 / 4 and none
        (graded((), "timeout"), 0.0, 0.0, 1.0, 0.0),  # there was code
        (graded((), "crash"), 0.0, 0.0, 1.0, 0.0),
        (replace(graded((), "error"), code="x = "), 0.0, 0.0, 1.0, 0.0),
        (replace(graded((), "error"), code="\n"), 0.0, 0.0, 0.0, 0.0),  # a block without code
        (graded((), "no_code"), 0.0, 0.0, 0.0, 0.0),
    ],
)
def test_rewards_by_hand(what: Grade, v1: float, v2: float, staged: float, solved: float) -> None:
    assert {name: reward(what) for name, reward in REWARDS.items()} == {
        "arc-v1": pytest.approx(v1),
        "arc-v2-no-pixel-score": pytest.approx(v2),
        "staged": pytest.approx(staged),
        "solved": solved,
    }


def answer(text: str) -> Answer:
    """An answer that is right if its program returns its input."""
    return Answer(text, Subject((ONE,), (ONE,), 1))


def test_grades_by_hand(executor: Executor) -> None:
    text = "```python\ndef transform(grid):\n    return grid if grid[0, 0] == 1 else grid[:1]\n```"
    truths = (ONE, TWO)
    (half,) = grade_answers([Answer(text, Subject((ONE, TWO), truths, 2))], executor)
    assert half.correct_grids == 0.5
    assert half.pixel_score == (1 + 2 / 4) / 2  # a row of two in a box of four cells
    assert not half.is_solved


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("def transform(grid): return grid", "no_code"),
        ("```python\ndef transform(grid):\n    return grid[9, 9]\n```", "error"),
        ("```python\nimport os\ndef transform(grid):\n    os._exit(1)\n```", "crash"),
        ("```python\ndef transform(grid):\n    return [[10]]\n```", "invalid_output"),
        ("```python\ndef transform(grid\n```", "error"),
        pytest.param("```python\ndef transform(grid):\n    while True: pass\n```", "timeout", marks=pytest.mark.slow),
    ],
)
def test_an_answer_without_valid_outputs_is_graded_by_its_status(executor: Executor, text: str, status: str) -> None:
    (what,) = grade_answers([answer(text)], executor)
    assert (what.status, what.outputs, what.correct_grids) == (status, (), 0.0)
    assert REWARDS["arc-v1"](what) == REWARDS["arc-v2-no-pixel-score"](what) == 0.0


def test_grades_come_in_order(executor: Executor) -> None:
    answers = [answer(text) for text in (ADDS_ONE, "none", RIGHT_IN_HALF, ADDS_ONE)]
    assert [what.correct_grids for what in grade_answers(answers, executor)] == [0.0, 0.0, 1.0, 0.0]


def test_a_sandbox_that_is_gone_is_no_reward_of_zero() -> None:
    with Executor(1, Limits()) as gone:
        pass
    with pytest.raises(RuntimeError, match="closed"):
        list(grade_answers([answer(RIGHT_IN_HALF)], gone))


# What completions earn in training: the reward with its optional terms, and the figures of the step


def prompt(pairs: tuple[Pair, ...], *said: str, prefix: str = "") -> Prompt:
    roles = ["user", "assistant"] * len(said)
    messages = [Message(role=role, content=text) for role, text in zip(roles, said, strict=False)]
    messages += [Message(role="assistant", content=prefix)] if prefix else []
    return make_prompt(make_task(train=pairs, test=()), messages=tuple(messages))


def score(
    executor: Executor, texts: list[str], source: Prompt, ids: list[list[int]] | None = None, **settings: Any
) -> tuple[list[float], dict[str, float]]:
    from arc_refinery.refining.rollout import TrainingPrompt
    from arc_refinery.refining.scoring import Scorer
    from arc_refinery.training.rewards import Reward

    metrics: dict[str, float] = {}
    common = {"learning_rate": 1e-3, "num_generations": len(texts), "gradient_accumulation_steps": 1}
    grpo = Grpo.model_validate(common | {"rewards": ["arc-v2-no-pixel-score"]} | settings)
    scorer = Scorer(grpo, Reward(grpo.rewards, FUNCTIONS), ARC, (executor,), [END], [TrainingPrompt.of(ARC, source)])
    scored = scorer(
        prompt_index=[0] * len(texts),
        completions=[[{"role": "assistant", "content": text}] for text in texts],
        completion_ids=ids or [[5, END]] * len(texts),
        log_metric=metrics.__setitem__,
        task_id=["another column"] * len(texts),
    )
    return [completion.reward for completion in scored.completions], metrics


def test_half_of_the_grids_right_earn_half_of_the_nine(executor: Executor) -> None:
    earned, metrics = score(executor, [RIGHT_IN_HALF, ADDS_ONE, "none"], prompt(PAIRS, "?"))
    assert earned == [5.5, 1.0, 0.0]
    assert (metrics["reward/max"], metrics["share/no_code"], metrics["share/solved"]) == (5.5, 1 / 3, 0.0)


def test_an_answer_is_executed_with_what_it_began_with(executor: Executor) -> None:
    head, tail = RIGHT_IN_HALF[:20], RIGHT_IN_HALF[20:]
    assert score(executor, [tail, tail], prompt(PAIRS, "?", prefix=head))[0] == [5.5, 5.5]
    assert score(executor, [tail, tail], prompt(PAIRS, "?"))[0] == [0.0, 0.0]


ARC_V2 = "arc-v2-no-pixel-score"
IMPROVEMENT = [ARC_V2, {"reward": "improvement", "weight": 0.5}]


def test_what_improves_on_the_refined_attempt_earns_more_and_what_does_not_loses_nothing(executor: Executor) -> None:
    refining = prompt(PLUS_ONE, "?", RIGHT_IN_HALF, "no")  # the attempt gave no right grid: 1
    earned, metrics = score(executor, [ADDS_ONE, "none"], refining, rewards=IMPROVEMENT)
    assert earned == [10 + 0.5 * 9, 0.0]
    assert (metrics[f"reward_term/{ARC_V2}"], metrics["reward_term/improvement"]) == (5.0, 4.5)
    assert score(executor, [ADDS_ONE, "none"], prompt(PLUS_ONE, "?"), rewards=IMPROVEMENT)[0] == [10.0, 0.0]


def test_without_another_reward_of_programs_the_gain_is_that_in_solving(executor: Executor) -> None:
    refining = prompt(PLUS_ONE, "?", RIGHT_IN_HALF, "no")
    assert score(executor, [ADDS_ONE, "none"], refining, rewards=["improvement"])[0] == [1.0, 0.0]


def test_a_solution_near_the_refined_program_earns_more_than_another_and_a_copy_nothing(executor: Executor) -> None:
    texts = [ADDS_ONE, ADDS_ONE.replace("grid + 1", "2 * grid"), RIGHT_IN_HALF, "none"]
    earned, _ = score(executor, texts, prompt(PLUS_ONE, "?", ADDS_ONE.replace("+", "-"), "no"), rewards=["near"])
    # Of ten words and signs nine are in both, `def transform ( grid ) : return grid 1`; of the second only eight
    assert earned == [0.5 + 0.5 * 9 / 10, 0.5 + 0.5 * 8 / 10, 0.0, 0.0]
    assert score(executor, texts, prompt(PLUS_ONE, "?"), rewards=["near"])[0] == [1.0, 1.0, 0.0, 0.0]
    assert score(executor, texts, prompt(PLUS_ONE, "?", "text", "no"), rewards=["near"])[0] == [0.5, 0.5, 0.0, 0.0]


def test_a_function_of_the_user_reads_the_refined_attempt(executor: Executor, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "def score(attempt):\n"
        "    if attempt.parent_grade is None:\n"
        "        return -1 if attempt.parent_program is None and attempt.feedback == '' else 99\n"
        "    gain = attempt.correct_grids - attempt.parent_grade.correct_grids\n"
        "    return 10 * gain + len(attempt.code) - len(attempt.parent_program) + attempt.feedback.count('?')\n"
    )
    rewards = [f"{path}:score"]
    refining = prompt(PAIRS, "two?", ADDS_ONE, "why??", prefix="")
    assert score(executor, [RIGHT_IN_HALF, ADDS_ONE], refining, rewards=rewards)[0] == [10 * 0.5 - 4 + 2, 2.0]
    begun = prompt(PAIRS, "two?", ADDS_ONE, "why??", prefix="Sure:")
    assert score(executor, [RIGHT_IN_HALF, ADDS_ONE], begun, rewards=rewards)[0] == [10 * 0.5 - 4 + 2, 2.0]
    assert score(executor, [RIGHT_IN_HALF, ADDS_ONE], prompt(PAIRS, "?"), rewards=rewards)[0] == [-1.0, -1.0]


def test_refined_attempts_are_executed_only_for_terms_that_read_them(
    executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    executed: list[str] = []
    grade = type(ARC).grade

    def graded(domain: Any, answers: list[Answer], executors: Any) -> Any:
        executed.extend(answer.text for answer in answers)
        return grade(domain, answers, executors)

    monkeypatch.setattr(type(ARC), "grade", graded)
    refining = prompt(PAIRS, "?", "parent", "no")
    for rewards, n_executed in ((["solved", "repetition"], 1), (["solved", "near"], 2), (["improvement"], 2)):
        executed.clear()
        score(executor, ["answer", "answer"], refining, rewards=rewards)
        assert len({*executed}) == n_executed


# lengths that make shares with rounding errors
IDS = [[7] * 9, [1, 3, 4, 1, 3, 4, 1, 3, END], [5, END], [*[1, 2, 3, 4, 5] * 5, 9]]


@pytest.mark.parametrize(
    "weights", [(0.0, 0.0, 0.0), (0.3, 0.0, 0.0), (0.0, 0.7, 0.1), (0.3, 0.7, 0.1), (1.1, 1.3, 1.7)]
)
@pytest.mark.parametrize("name", REWARDS)
def test_the_sum_of_terms_equals_the_formula_bit_for_bit(
    executor: Executor, name: str, weights: tuple[float, float, float]
) -> None:
    """Reward, plus improvement, minus repetition, minus truncation, added in this order."""
    pairs = (Pair(ONE, ONE), Pair(ONE, make_grid("10", "00")), Pair(TWO, ONE))
    texts, parent = [RIGHT_IN_HALF, "none", ADDS_ONE, RIGHT_IN_HALF], ADDS_ONE
    repeated = [1 - 1 / 6, 1 - 4 / 6, 0.0, 1 - 6 / 23]  # 4-grams of IDS
    truncated = [ids[-1] != END for ids in IDS]
    subject = Subject(tuple(pair.input for pair in pairs), tuple(pair.output for pair in pairs), len(pairs))
    *grades, parent_grade = grade_answers([Answer(text, subject) for text in (*texts, parent)], executor)
    reward = REWARDS[name]
    expected = []
    for grade, share, is_truncated in zip(grades, repeated, truncated, strict=True):
        total = reward(grade)
        total += weights[0] * max(0.0, reward(grade) - reward(parent_grade))
        if weights[1]:
            total -= weights[1] * share
        expected.append(total - weights[2] * is_truncated)
    signs = {"improvement": 1, "repetition": -1, "truncation": -1}
    terms = [{"reward": term, "weight": signs[term] * weight} for term, weight in zip(signs, weights, strict=True)]
    earned, _ = score(
        executor,
        texts,
        prompt(pairs, "?", parent, "no"),
        IDS,
        rewards=[name, *(term for term in terms if term["weight"])],
    )
    assert earned == expected


def test_repetition_and_being_cut_cost_what_the_settings_say(executor: Executor) -> None:
    ids = [[7] * 8, [1, 3, 4, 5, END]]  # four of the first one's five 4-grams repeat; it has no end
    terms = [ARC_V2, {"reward": "repetition", "weight": -2.0}, {"reward": "truncation", "weight": -3.0}]
    earned, metrics = score(executor, [ADDS_ONE, ADDS_ONE], prompt(PLUS_ONE, "?"), ids, rewards=terms)
    assert earned == [pytest.approx(10 - 2 * 4 / 5 - 3), 10.0]
    assert metrics["share/truncated"] == 0.5
    assert metrics["repetition/truncated"] == pytest.approx(0.8)
    assert metrics["reward_term/truncation"] == 0.5


# a function of the user

DOCS = (ROOT / "docs/your-own.md").read_text().partition("## A reward, and training")[2].partition("\n#")[0]


def test_the_pages_reward_runs_as_it_stands(
    executor: Executor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The function and the terms of docs/your-own.md, in the file that the page names."""
    code, settings = (re.findall(rf"```{language}\n(.*?)```", DOCS, re.DOTALL) for language in ("python", "yaml"))
    monkeypatch.chdir(tmp_path)
    Path("config").symlink_to(ROOT / "config")  # lists of tasks
    Path("examples").mkdir()
    Path("examples/rewards.py").write_text(*code)
    own_functions.import_file.cache_clear()  # another test may have imported a file of this name
    content = yaml.safe_load((ROOT / "tests/refining.yaml").read_text())
    content["model"]["path"] = str(ROOT / content["model"]["path"])
    content["training"]["grpo"] |= yaml.safe_load(*settings)["training"]["grpo"]
    experiment = validate_experiment(content, "mine.yaml", ArcExperiment)
    check_files(experiment, "mine.yaml")
    assert inputs.files_of_grpo(experiment) == ["examples/rewards.py"]
    refining = prompt(PLUS_ONE, "?", "no program", "no")
    terms = [term.model_dump() for term in experiment.rewards]
    long = f"{ADDS_ONE}\n{'Because. ' * 50}"
    earned, metrics = score(executor, [ADDS_ONE, long, "none"], refining, rewards=terms)
    assert earned == [10 + 0.5, 10.0, 0.0]
    assert metrics["reward_term/is_brief"] == pytest.approx(1 / 3)


def test_a_changed_function_weight_or_form_refuses_the_checkpoints(executor: Executor, tmp_path: Path) -> None:
    from arc_refinery.config import Lengths
    from arc_refinery.domains.arc.prompts import load_template
    from arc_refinery.refining.environment import RefineEnvironment
    from arc_refinery.refining.rollout import TrainingPrompt

    path = tmp_path / "mine.py"

    def identity(weight: float, value: int, form: str = "") -> dict[str, Any]:
        path.write_text(f"def score(attempt):\n    return {value}\n")
        terms = ["solved", {"reward": f"{path}:score", "weight": weight}]
        return RefineEnvironment(
            prompts=[TrainingPrompt.of(ARC, prompt(PAIRS, "?"))],
            prompts_hash="",
            training=Grpo.model_validate({"learning_rate": 1e-4, "rewards": terms}),
            lengths=Lengths(max_completion_length=8, max_seq_length=64),
            domain=ARC,
            wording=load_template("compact"),
            refinement=Refinement(form=form),
            executors=(executor,),
            seed=0,
        ).identity()

    assert identity(0.5, 1) == identity(0.5, 1)
    assert identity(0.5, 1) != identity(0.5, 1, "residual")
    assert identity(0.5, 1) != identity(0.25, 1)
    assert identity(0.5, 1) != identity(0.5, 2)


@pytest.mark.parametrize("body", ["return attempt.outputs[0]", "raise ValueError('no')"])
def test_a_function_that_gives_no_number_is_named_with_the_task(
    executor: Executor, tmp_path: Path, body: str, wording: Wording
) -> None:
    path = tmp_path / "mine.py"
    path.write_text(f"def score(attempt):\n    {body}\n")
    with pytest.raises(InputError, match=r"mine\.py:score, on the task \w+: ") as raised:
        score(executor, [ADDS_ONE, ADDS_ONE], prompt(PLUS_ONE, "?"), rewards=[f"{path}:score"])
    wording(raised.value)


def test_the_name_that_metrics_carry(executor: Executor) -> None:
    from arc_refinery.refining.scoring import Scorer
    from arc_refinery.training.rewards import Reward

    grpo = Grpo.model_validate({"learning_rate": 1.0, "rewards": ["arc-v1", "repetition"]})
    assert Scorer(grpo, Reward(grpo.rewards, FUNCTIONS), ARC, (executor,), [END], []).name == "arc-v1"


def test_a_test_pair_whose_output_nobody_knows_is_not_asked_for() -> None:
    from arc_refinery.refining.rollout import TrainingPrompt

    task = make_task(train=(Pair(ONE, TWO),), test=(Pair(ONE, UNKNOWN), Pair(TWO, ONE)))
    subject = TrainingPrompt.of(ARC, make_prompt(task)).answer("text").subject
    assert subject.n_shown == 1
    assert [grid.tolist() for grid in subject.inputs] == [ONE.tolist(), TWO.tolist()]
    assert [grid.tolist() for grid in subject.truths] == [TWO.tolist(), ONE.tolist()]
