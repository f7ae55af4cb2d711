"""Domains: what one gets that says little, how jobs and configs name one, and what unknown names are told."""

import hashlib
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
from experiments import do, settings_of

from arc_refinery import records, stages
from arc_refinery.config import ConfigError, Sandbox, validate_experiment
from arc_refinery.domains import domain
from arc_refinery.domains.arc.domain import Domain as Arc
from arc_refinery.domains.domain import Answer, GradedAttempt, Question, load_domain
from arc_refinery.domains.first_turn import first_turn_prompts
from arc_refinery.domains.prompts import Renderer
from arc_refinery.errors import InputError
from arc_refinery.grades import Grade
from arc_refinery.jobs import train
from arc_refinery.models.chat import Message
from arc_refinery.refining import jobs
from arc_refinery.refining.config import Refining, Sampling
from arc_refinery.refining.grading import grade_attempts
from arc_refinery.refining.next_turn import NextTurnPlan, best_incorrect, next_turn_prompts
from arc_refinery.refining.training_tasks import overlaps

# A domain without programs: an answer has to spell a word, whose first half is shown


@dataclass(frozen=True, slots=True)
class Word:
    KIND: ClassVar = "tasks"
    task_id: str
    word: str
    origin: str = "by hand"


@dataclass(frozen=True, slots=True)
class Spelling(Grade):
    word: str = ""

    @property
    def score(self) -> float:
        half = len(self.word) // 2
        return sum(a == b for a, b in zip(self.code or "", self.word[:half], strict=False)) / half

    @property
    def is_solved(self) -> bool:
        return self.code == self.word


class Words(domain.Domain):
    task_class = Word

    def first_turn(self, task: Word, rng: np.random.Generator, sampling: Any, wording: Any) -> Question:
        return Question([Message(role="user", content=f"spell {task.word[: len(task.word) // 2]}")])

    @contextmanager
    def executors(self, sandbox: Sandbox, n_jobs: int) -> Iterator[tuple[()]]:
        yield ()

    def grade(self, answers: Sequence[Answer], executors: Any) -> Generator[Spelling, None, None]:
        for answer in answers:
            failed = {"": "no_code", "fail": "error"}.get(answer.text, "ok")
            yield Spelling(failed, "oops" * (failed == "error"), answer.text or None, answer.subject.word)

    def grade_of(self, graded: GradedAttempt) -> Spelling:
        return Spelling(graded.verdict.status, graded.verdict.error, graded.attempt.completion, "....")

    def feedback(self, prompt: Any, grade: Spelling, wording: Any) -> str:
        return f"{grade.code} is wrong"


class WordsExperiment(Refining):
    forms: ClassVar = ("short", "long")


TASKS = {word: Word(word, word) for word in ("abcd", "efgh")}
PLAN = NextTurnPlan("x-turn2", n_considered=9, n_parents=1, n_predictions=1, batch_size=1, include_errors=False)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of the domain's package."""
    return write_package(tmp_path, monkeypatch, "words_domain", {})


def write_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, more: Mapping[str, str]) -> str:
    modules = {
        "__init__": "",
        "domain": "from test_domains import Words as Domain",
        "config": "from test_domains import WordsExperiment as Experiment",
    }
    (tmp_path / name).mkdir()
    for module, source in {**modules, **more}.items():
        (tmp_path / name / f"{module}.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    return name


def attempt(task: str, number: int, text: str, prompt: records.Prompt | None = None) -> records.Attempt:
    return records.Attempt(
        attempt_id=f"{task}/turn1-000/{number:03d}",
        prompt_id=prompt.prompt_id if prompt else f"{task}/turn1-000",
        task_id=task,
        turn=prompt.turn if prompt else 1,
        parent_id="",
        model="m",
        adapter="",
        seed=0,
        temperature=1.0,
        top_p=1.0,
        completion=text,
        n_prompt_tokens=9,
        n_tokens=5,
        finish_reason="stop",
        logprob=-1.0,
    )


def graded(renderer: Renderer, answers: Mapping[str, Sequence[str]]) -> list[GradedAttempt]:
    """Attempts at the first-turn prompt of each task, by their texts."""
    entries = []
    for task, texts in answers.items():
        (prompt,) = first_turn_prompts(Words(), [TASKS[task]], 8, Sampling(max_output_tokens=8), None, renderer, 0)
        attempts = [attempt(task, number, text) for number, text in enumerate(texts)]
        verdicts = grade_attempts(Words(), attempts, TASKS, ())
        entries += [GradedAttempt(prompt, *pair) for pair in zip(attempts, verdicts, strict=True)]
    return entries


# defaults


def test_a_task_to_train_on_is_an_evaluated_one_by_its_id_or_its_content():
    same_tasks = Words().same_tasks({"a": [Word("x", "abcd")], "b": [Word("x", "efgh"), Word("y", "abcd")]})
    assert same_tasks(Word("x", "other")) == {("a", "x"): "id", ("b", "x"): "id"}
    assert same_tasks(Word("new", "abcd", origin="elsewhere")) == {("a", "x"): "content", ("b", "y"): "content"}
    assert same_tasks(Word("x", "abcd")) == {("a", "x"): "id", ("b", "x"): "id", ("b", "y"): "content"}
    assert same_tasks(Word("new", "other")) == {}


def test_numbers_of_rows_are_not_ids():
    same_tasks = Words().same_tasks({"a": [Word("tasks-000001", "abcd")]})
    assert same_tasks(Word("tasks-000001", "other")) == {}
    assert same_tasks(Word("more-000007", "abcd")) == {("a", "tasks-000001"): "content"}


def test_tasks_need_no_field_origin():
    @dataclass(frozen=True)
    class Bare:
        task_id: str
        word: str

    assert Words().content(Bare("x", "abcd")) == Words().content(Bare("y", "abcd"))


def test_the_overlap_of_files_is_found_by_the_domains_rule(tmp_path: Path):
    records.write(tmp_path / "part1.parquet", Word, TASKS.values(), 0, {})
    same_tasks = Words().same_tasks({"heldout": [Word("efgh", "x")]})
    (overlap,) = overlaps(Word, [tmp_path / "part1.parquet"], same_tasks)
    assert (overlap.tasks, overlap.task_id, overlap.evaluated_in, overlap.by) == ("part1", "efgh", "heldout", "id")


def test_tasks_differ_in_more_than_their_origin():
    content = Words().content(Word("x", "abcd", origin="here"))
    assert content == Words().content(Word("x", "abcd", origin="there"))
    assert content != Words().content(Word("x", "efgh", origin="here"))


def test_a_verdict_has_score_solved_and_the_hash_of_the_program(tmp_path: Path):
    attempts = [attempt("abcd", number, text) for number, text in enumerate(["abcd", "abxx", "axxx", "fail", ""])]
    verdicts = list(grade_attempts(Words(), attempts, TASKS, ()))
    assert [(verdict.status, verdict.score, verdict.solved) for verdict in verdicts] == [
        ("ok", 1.0, True),
        ("ok", 1.0, False),
        ("ok", 0.5, False),
        ("error", 0.0, False),
        ("no_code", 0.0, False),
    ]
    prints = [hashlib.sha256(text.encode()).hexdigest()[:16] for text in ("abcd", "abxx", "axxx")]
    assert [verdict.fingerprint for verdict in verdicts] == [*prints, "", ""]
    assert [type(verdict) for verdict in verdicts] == [records.Verdict] * 5
    records.write(tmp_path / "verdicts.parquet", records.Verdict, verdicts, 0, {})
    assert list(records.read(tmp_path / "verdicts.parquet", records.Verdict)) == verdicts


def test_an_attempt_with_the_whole_score_is_right_on_what_is_shown():
    attempts = Words().derive(pd.DataFrame({"score": [1.0, 0.5]}))
    assert attempts["shown_solved"].tolist() == [True, False]


def test_attempts_to_refine_are_ranked_by_score(renderer: Renderer):
    entries = graded(renderer, {"abcd": ["xxxx", "axxx", "axxx", "fail", "abxx", "", "xbxx"]})

    def names(include_errors: bool) -> list[str]:
        return [entry.attempt.completion for entry in best_incorrect(Words(), entries, include_errors)]

    assert names(False) == ["axxx", "xbxx", "xxxx"]  # abxx is right on what is shown
    assert names(True) == ["axxx", "xbxx", "xxxx", "fail"]


def test_the_next_turn_continues_the_conversation_with_feedback(renderer: Renderer):
    entries = graded(renderer, {"abcd": ["axxx"], "efgh": ["exxx"]})

    def said(**changes: Any) -> list[list[tuple[str, str]]]:
        prompts = next_turn_prompts(Words(), entries, replace(PLAN, **changes), None, renderer)
        return [[(message["role"], message["content"]) for message in prompt.messages] for prompt in prompts]

    first = [("user", "spell ab"), ("assistant", "axxx")], [("user", "spell ef"), ("assistant", "exxx")]
    assert said() == [[*first[0], ("user", "axxx is wrong")], [*first[1], ("user", "exxx is wrong")]]
    assert said(feedback="fresh") == [first[0][:1], first[1][:1]]
    nothing = ("user", "Write a corrected program.")
    assert said(feedback="none") == [[*first[0], nothing], [*first[1], nothing]]


def test_a_third_turn_may_leave_out_the_first_answer(renderer: Renderer):
    (second,) = next_turn_prompts(Words(), graded(renderer, {"abcd": ["axxx"]}), PLAN, None, renderer)
    answer = attempt("abcd", 0, "xbxx", second)
    (verdict,) = grade_attempts(Words(), [answer], TASKS, ())

    def contents(**changes: Any) -> list[str]:
        entries = [GradedAttempt(second, answer, verdict)]
        (third,) = next_turn_prompts(Words(), entries, replace(PLAN, **changes), None, renderer)
        assert (third.turn, third.parent_id) == (3, answer.attempt_id)
        return [message["content"] for message in third.messages]

    assert contents() == ["spell ab", "axxx", "axxx is wrong", "xbxx", "xbxx is wrong"]
    assert contents(history="last") == ["spell ab", "xbxx", "xbxx is wrong"]


# a domain with faults, or in another language than Python


@dataclass(frozen=True, slots=True)
class Printed(Grade):
    printed: str = ""
    hidden_right: bool = False
    score: Any = 0.5
    is_solved: Any = False


class Printer(Words):
    grade_class, package = Printed, "printer"
    columns: ClassVar = ("hidden_right",)

    def __init__(self, *grades: Any) -> None:
        self.grades = grades

    def grade(self, answers: Sequence[Answer], executors: Any) -> Any:
        return list(self.grades)  # instead of a generator


def verdicts(*grades: Any, n: int | None = None) -> list[records.Verdict]:
    answers = [attempt("abcd", number, f"print {number}") for number in range(len(grades) if n is None else n)]
    return list(grade_attempts(Printer(*grades), answers, TASKS, ()))


def test_programs_are_alike_that_give_the_same_where_it_is_shown():
    once, twice, other, failed = (
        Printed("ok", "", "a", "1"), Printed("ok", "", "b", "1", True), Printed("ok", "", "a", "2"), Printed("error")
    )  # fmt: skip
    prints = [verdict.fingerprint for verdict in verdicts(once, twice, other, failed)]
    assert prints[0] == prints[1] != prints[2] and prints[3] == ""


@pytest.mark.parametrize(
    ("text", "program", "ends"),
    [
        ("```sql\nSELECT 1\n```", "SELECT 1\n", True),
        ("```sql\nSELECT 1\n```\nIt prints\n```\n1\n```", "SELECT 1\n", True),
        ("```sql\nSELECT 0\n```\n~~~sql\nSELECT 1\n~~~", "SELECT 1\n", True),
        ("```sql\nSELECT 0\n```\n```sql\nSELECT", "SELECT", False),
        ("```\nSELECT 1\n```", "SELECT 1\n", True),
        ("<think>```sql\nSELECT 0\n```</think>SELECT 1", None, False),
        ("```sql\nSELECT 0\n```\n```python\nx = 1\n```", "x = 1\n", True),
        ("```python\nx = 1", "x = 1", False),
    ],
)
def test_a_program_may_be_in_any_language(text: str, program: str | None, ends: bool):
    assert (Words().program(text, None), Words().has_closed_code(text)) == (program, ends)


@pytest.mark.parametrize(
    ("grade", "expected"),
    [
        (Printed("fine"), "the status 'fine'"),
        (Printed(None), "the status None"),  # type: ignore[arg-type]
        (Printed("ok", score=2.0), "the score 2.0"),
        (Printed("ok", score=float("nan")), "the score nan"),
        (Printed("ok", score=None), "the score None"),
        (Printed("ok", is_solved=None), "is_solved = None"),
        (Printed("no_code", is_solved=True), "is_solved = True with the status no_code"),
        (Printed("ok", None), "the error None"),  # type: ignore[arg-type]
        (None, "is None"),
        (Grade("ok"), "is Grade"),
    ],
)
def test_a_grade_that_no_table_can_read_is_refused(grade: Any, expected: str):
    with pytest.raises(InputError, match=expected) as caught:
        verdicts(Printed("ok"), grade)
    assert str(caught.value).startswith("domain printer: abcd/turn1-000/001: ")


@pytest.mark.parametrize("n", [1, 3])
def test_each_answer_has_a_grade(n: int):
    with pytest.raises(InputError, match=f"domain printer: .* for {n} answers"):
        verdicts(Printed("ok"), Printed("ok"), n=n)


def test_tasks_are_named_once_and_are_tasks(tmp_path: Path):
    class Given(Words):
        package = "given"

        def task(self, row: Mapping[str, Any], task_id: str, where: str) -> Any:
            return row["word"] if task_id == "text" else Word(row["word"], row["word"])

    path = tmp_path / "words.jsonl"
    for rows, expected in (
        ('{"word": "a"}\n{"word": "a"}\n', "row 2: a row before it is called a, too"),
        ('{"word": "a", "task_id": "text"}\n', "row 1: domain given: task gives 'a'"),
    ):
        path.write_text(rows)
        with pytest.raises(InputError, match=expected):
            list(Given().tasks_of_file(path, Counter()))


class Raising(Words):
    package = "raising"

    def task(self, row: Mapping[str, Any], task_id: str, where: str) -> Any:
        return row["nokey"]

    def first_turn(self, task: Word, rng: np.random.Generator, own: Any, wording: Any) -> Any:
        return 1 // (task.word != "abcd") and Question([])

    def grade(self, answers: Sequence[Answer], executors: Any) -> Generator[Any, None, None]:
        yield from super().grade(answers[:1], executors)
        raise OSError("no printer")

    def feedback(self, prompt: Any, grade: Any, wording: Any) -> str:
        return str(prompt.nothing)


def test_what_a_domain_raises_is_one_line_with_its_place(tmp_path: Path, renderer: Renderer):
    """Also what is not a conversation."""
    (tmp_path / "words.jsonl").write_text('{"word": "a"}\n')
    entry = graded(renderer, {"abcd": ["xx"]})[0]

    def asked(word: str) -> list[Any]:
        return list(first_turn_prompts(Raising(), [TASKS[word]], 1, Sampling(max_output_tokens=8), None, renderer, 0))

    first, second = (attempt("abcd", number, "x") for number in (0, 1))
    line = f"in line \\d+ of {__file__}"
    calls: dict[str, Callable[[], Any]] = {
        f"row 1: task raised KeyError {line}": lambda: list(
            Raising().tasks_of_file(tmp_path / "words.jsonl", Counter())
        ),
        f"abcd: first_turn raised ZeroDivisionError {line}": lambda: asked("abcd"),
        "efgh: first_turn gives Question": lambda: asked("efgh"),
        f"{first.attempt_id} to {second.attempt_id}: grade raised OSError {line}: no printer": (
            lambda: list(grade_attempts(Raising(), [first, second], TASKS, ()))
        ),
        f"{first.attempt_id}: feedback raised AttributeError {line}": (
            lambda: Raising().next_turn(entry, entry, "whole", None)
        ),
    }
    for expected, call in calls.items():
        with pytest.raises(InputError, match=f"^domain raising: .*{expected}"):
            call()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ("grade = domain.Domain.grade", "lacks grade"),
        ("feedback, first_turn = domain.Domain.feedback, domain.Domain.first_turn", "lacks first_turn, feedback"),
        ("task_class = type('T', (), {'KIND': 'tasks'})", "its task_class is <class"),
        ("columns = ('share',)", "columns has 'share', but its grades have no such field"),
        ("columns = ('n_calls',)", "columns has 'n_calls', which tables have already"),
        ("flags = ('shown_solved', 'turn')", "flags has 'turn', which tables have already"),
        ("metrics = (Metric('pass_rate', 'score'),)", "metrics has 'pass_rate', which tables have already"),
        ("metrics = (Metric('a', ('score', 'shares')),)", "metrics has 'shares'"),
        ("metrics = (Metric('a', 'hidden_right'), Metric('b', 'tokens'))", ""),
    ],
)
def test_what_would_be_found_late_is_found_first(
    changes: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    imports = "from arc_refinery.domains import domain\nfrom arc_refinery.evaluation.metrics import Metric\n"
    source = f"{imports}from test_domains import Printer\nclass Domain(Printer):\n    {changes}\n"
    name = write_package(tmp_path, monkeypatch, tmp_path.name, {"domain": source})
    if not expected:
        assert load_domain(name).package == name
        return
    with pytest.raises(ConfigError, match=f"domain {name}: .*{expected}"):
        load_domain(name)


# names


def test_arc_is_a_domain_by_its_name():
    assert type(load_domain("arc")) is Arc


def test_the_settings_of_a_job_select_its_domain(package: str):
    experiment = validated(package)
    for stage, planned, files in (
        ("first_prompts", jobs.first_prompts(experiment, "small", "turn1"), {"tasks": ["t"], "output": ["p"]}),
        ("sample", jobs.sample(experiment, "small", "turn1"), {"prompts": ["p"], "output": ["a"]}),
    ):
        assert settings_of(planned)["domain"] == package
        arguments = stages.validated(stages.load(stage, "refining"), settings_of(planned), files, type(experiment))
        assert type(arguments["domain"]) is Words


@pytest.mark.parametrize("name", ["no_such_domain", "no-such.domain", ".."])
def test_an_unknown_domain_is_told_which_there_are(name: str):
    known = rf"domain is '{name}'; expected arc.*, or .*package"
    with pytest.raises(ConfigError, match=rf"mine\.yaml: {known}"):
        validate_experiment(content(name), "mine.yaml")
    with pytest.raises(InputError, match=known):
        do("first_prompts", {"domain": name})
    with pytest.raises(ConfigError, match=known):
        load_domain(name)


@pytest.mark.parametrize("value", [3, ["arc"]])
def test_a_domain_is_named_by_a_text(value: Any):
    with pytest.raises(ConfigError, match=r"mine\.yaml: domain is .*; expected arc.*, or the package of a domain"):
        validate_experiment(content(value), "mine.yaml")


def test_the_experiment_of_a_domain_is_one_of_refining(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    more = {"config": "from arc_refinery.config import Experiment"}
    name = write_package(tmp_path, monkeypatch, "plain_domain", more)
    with pytest.raises(ConfigError, match=rf"mine\.yaml: domain is {name}, but its config:Experiment is not .*Rows"):
        validate_experiment(content(name), "mine.yaml")


# config


def content(name: Any, **changes: Any) -> dict[str, Any]:
    turns = [{"n_predictions": 2}, {"n_predictions": 2}]
    return {
        "experiment": "tiny",
        "domain": name,
        "model": {"path": "./models/m", "template": "compact", "window": 100},
        "sampling": {"max_output_tokens": 16},
        "evaluation": {"sets": [{"name": "small"}], "arms": [{"name": "refine", "turns": turns}]},
        **changes,
    }


def validated(name: str, **changes: Any) -> Refining:
    return validate_experiment(content(name, **changes), "mine.yaml", Refining)


def test_a_form_of_feedback_is_one_of_the_domain(package: str):
    assert validated(package, refinement={"form": "long"}).refinement.form == "long"
    with pytest.raises(ConfigError, match=r"refinement\.form is 'given'; expected short, long"):
        validated(package, refinement={"form": "given"})


def test_a_turns_form_is_one_of_the_domain(package: str):
    turns: list[dict[str, Any]] = [{"n_predictions": 2}, {"n_predictions": 2, "form": "odd"}]
    evaluation = {"sets": [{"name": "small"}], "arms": [{"name": "refine", "turns": turns}]}
    with pytest.raises(ConfigError, match=r"evaluation\.arms\.0\.turns\.1\.form is 'odd'; expected short, long"):
        validated(package, evaluation=evaluation)
    turns[1]["form"] = "short"
    assert validated(package, evaluation=evaluation).arms[0].turns[1].form == "short"


def test_a_form_of_arcs_feedback_is_refused_with_the_known_ones():
    arms = [{"name": "refine", "turns": [{"n_predictions": 2}, {"n_predictions": 2}]}]
    sets = [{"name": "small", "source": "generator", "n_tasks": 4}]
    changes: dict[str, Any] = {"evaluation": {"sets": sets, "arms": arms}, "refinement": {"form": "odd"}}
    with pytest.raises(ConfigError, match=r"refinement\.form is 'odd'; expected given, residual"):
        validate_experiment(content("arc", **changes), "mine.yaml")


def test_the_training_is_given_turns_and_history(package: str):
    grpo = {"learning_rate": 1e-4, "rollout": "on-policy", "n_turns": 4}
    training = {"sets": ["small"], "max_seq_length": 90, "max_completion_length": 16, "prompts": "first-turn"}
    training |= {"grpo": grpo}
    experiment = validated(package, training=training, refinement={"history": "last"})
    job = settings_of(train(experiment, "trained"))
    assert (job["grpo"]["rollout"], job["grpo"]["n_turns"]) == ("on-policy", 4)
    assert job["refinement"]["history"] == "last"
    with pytest.raises(ConfigError, match=r"training\.grpo\.n_turns"):
        validated(package, training=training | {"grpo": grpo | {"n_turns": 1}})
