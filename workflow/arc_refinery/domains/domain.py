"""A domain: what experiments of both kinds are about. They ask it for tasks, prompts, grades, feedback and metrics.

    task       is shown by    first_turn  -> messages that ask for a program
    answer     is graded by   grade       -> status, score on the checks that prompts may show, solved or not
    attempt    becomes        feedback    -> text of the next turn: what its program gave, what was expected

`arc`, `code`, `gsm8k` and `text` are domains, and so is a package of the user with the modules `domain`, which has a
class `Domain`, and `config`, which has a class `Experiment` (docs/development.md). If its tasks are rows of a file, it
needs six members: `task_class`, `grade_class`, `task`, `first_turn`, `grade` and `feedback`. All others have defaults.
"""

import logging
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields, is_dataclass, make_dataclass, replace
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
from pydantic import PlainValidator, TypeAdapter

from arc_refinery import records
from arc_refinery.config import ConfigError, Sandbox, domain_part
from arc_refinery.config.own_functions import reason_of
from arc_refinery.config.rewards import Functions
from arc_refinery.domains.mutations import mutations
from arc_refinery.domains.prompts import next_turn, opening, program_and_end
from arc_refinery.errors import InputError
from arc_refinery.evaluation.attempts import NAMES
from arc_refinery.evaluation.metrics import PASS_RATE, PROGRAMS, SOLVED, Metric
from arc_refinery.grades import REWARDS, Grade
from arc_refinery.models.chat import Message
from arc_refinery.models.hub import FETCH_FIRST
from arc_refinery.refining.config import Split
from arc_refinery.rows import is_numbered, numbered, read_rows, row_id
from arc_refinery.sandbox import Executor, Status

logger = logging.getLogger(__name__)

# Fields that other data sets have and that matter, and why: multiple choice, questions on a text
NOT_SHOWN = dict.fromkeys(
    ("choices", "options", "context", "passage"), "the question does not show it; add it to its text"
)


class Question(NamedTuple):
    """A conversation that asks for an answer, and the `detail` of its prompt."""

    messages: list[Message]
    detail: Any = None  # None: the task


class Result(NamedTuple):
    """The columns of a verdict that depend on the domain."""

    score: float
    solved: bool
    fingerprint: str  # equal for programs that give the same on the inputs that the prompt shows; empty unless ok
    detail: Any = None


class Answer(NamedTuple):
    """A whole answer, and what it is graded against."""

    text: str
    subject: Any


class GradedAttempt(NamedTuple):
    """An attempt with its prompt and its verdict, of the domain's classes."""

    prompt: Any
    attempt: Any
    verdict: Any


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Numbers of problems and pairs that are in no task, by reason."""

    problems: Counter[str] = field(default_factory=Counter)
    pairs: Counter[str] = field(default_factory=Counter)  # their rows' other pairs are used


class Domain:
    """The defaults of all domains."""

    package = ""  # the name that a config gives it
    task_class: type[Any]  # a frozen dataclass with KIND "tasks", whose first field is `task_id`
    grade_class: type[Any] | None = None  # a frozen subclass of `Grade`: what `grade` yields
    program_rewards: ClassVar[Functions] = REWARDS  # built-in rewards that read the program alone, by name
    # Records. Their `detail` is, by default, the task of a prompt and the grade of a verdict, without its code.
    prompt_class: type[Any] = records.Prompt
    attempt_class: type[Any] = records.Attempt
    verdict_class: type[Any] = records.Verdict

    def __init_subclass__(cls) -> None:
        own = vars(cls)
        if own.get("task_class") and "prompt_class" not in own:
            cls.prompt_class = _with_detail(records.Prompt, cls.task_class)
        if own.get("grade_class") and "verdict_class" not in own:
            cls.verdict_class = _with_detail(records.Verdict, own["grade_class"])

    @contextmanager
    def calling(self, member: str, about: str) -> Iterator[None]:
        """Raise one `InputError` for whatever a member of a user's domain raises on a row, a task or an attempt."""
        module = type(self).__module__
        try:
            yield
        except InputError:
            raise
        except Exception as error:
            if module.startswith("arc_refinery."):
                raise
            own = str(sys.modules[module].__file__)
            lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == own]
            where = f"in line {lines[-1]} of {own}" if lines else "in another file"
            fault = f"{member} raised {reason_of(error, where)}; correct it"
            raise InputError(f"domain {self.package}: {about}: {fault}") from error

    def check(self) -> None:
        """Raise `ConfigError` for what would only be found late: members without a default, names of no column."""
        needed = ("task_class", "first_turn", "grade", "feedback")
        if lacking := [name for name in needed if getattr(type(self), name, None) is getattr(Domain, name, None)]:
            raise ConfigError(f"domain {self.package}: its Domain lacks {', '.join(lacking)} (docs/development.md)")
        names = [field.name for field in fields(self.task_class)] if is_dataclass(self.task_class) else []
        if names[:1] != ["task_id"] or getattr(self.task_class, "KIND", "") != "tasks":
            expected = 'a frozen dataclass with KIND = "tasks", whose first field is task_id'
            raise ConfigError(f"domain {self.package}: its task_class is {self.task_class!r:.60}; expected {expected}")
        record = {field.name: field.type for field in fields(self.verdict_class)}
        detail: Any = record.get("detail")
        if not is_dataclass(detail):
            return
        taken = {*NAMES, "is_valid", "has_program", "has_closed_code", "raised"}
        clashes = {f"columns has {name!r}" for name in self.columns if name in taken or name in self.flags}
        clashes |= {
            f"flags has {name!r}" for name in self.flags if name in taken - {"shown_solved", "solved", "raised"}
        }
        names = [metric.name for metric in (*PROGRAMS, *self.metrics)]
        clashes |= {f"metrics has {name!r}" for name in names if name in (PASS_RATE, SOLVED) or names.count(name) > 1}
        if clashes:
            raise ConfigError(f"domain {self.package}: {min(clashes)}, which tables have already; choose another name")
        named = dict.fromkeys(self.columns, "columns")
        known = {field.name for field in fields(detail)}
        if type(self).derive is Domain.derive:  # else there may be others
            known |= {*record, *records.Attempt.__dataclass_fields__, "shown_solved", "tokens", "tokens_unshared"}
            for metric in self.metrics:
                columns = [metric.columns] if isinstance(metric.columns, str) else metric.columns
                named |= dict.fromkeys(columns, "metrics")
        for name, member in named.items():
            if name not in known:
                raise ConfigError(f"domain {self.package}: {member} has {name!r}, but its grades have no such field")

    # Tasks

    unused: ClassVar[Mapping[str, str]] = {}  # fields of rows that matter and are not used, and what to do

    def task(self, row: Mapping[str, Any], task_id: str, where: str) -> Any:
        """Return the task of a row of a file; None if the row gives none.

        Raises `InputError` for a row of another shape, with its place `where` (rows.py).
        """
        raise NotImplementedError

    def tasks_of_file(self, path: Path, left_out: Counter[str], first_row: int = 0) -> Iterator[Any]:
        """Yield the tasks of the rows of a file; raise `InputError` if there is none."""
        names: set[str] = set()
        unused: Counter[str] = Counter()
        stem = path.name.partition(".")[0]
        for number, row in enumerate(islice(read_rows(path), first_row, None), 1 + first_row):
            where = f"{path}: row {number}"
            name = row_id(row, numbered(stem, number), where)
            with self.calling("task", where):
                task = self.task(row, name, where)
            if task is None:
                left_out["the row gives no task"] += 1
                continue
            if not isinstance(task, self.task_class):
                raise InputError(f"{where}: domain {self.package}: task gives {task!r:.60}; expected a task")
            if task.task_id in names:
                raise InputError(f"{where}: a row before it is called {task.task_id}, too; give each its own task_id")
            names.add(task.task_id)
            for key in self.unused:
                if row.get(key):
                    unused[key] += 1
                    if unused[key] == 1:
                        logger.warning("%s: its field %r is not used: %s", path, key, self.unused[key])
            yield task
        if not names:
            raise InputError(f"{path}: no row after the first {first_row} gives a task; correct the rows")

    def tasks_of_set(self, task_set: Any, left_out: Counter[str], sandbox: Sandbox, split: Split) -> Iterator[Any]:
        """Yield the tasks of a set; `left_out` counts by reason what gives no task.

        `split` is for generators: tasks to train on are never held out.
        """
        yield from islice(self.tasks_of_file(Path(task_set.path), left_out, task_set.first_row), task_set.n_tasks)

    def all_of_set(self, task_set: Any, left_out: Counter[str], sandbox: Sandbox, split: Split) -> Iterator[Any]:
        """Yield them; raise `InputError` at their end if they are fewer than the set's `n_tasks`."""
        if getattr(task_set, "source", "") == "hub":
            raise InputError(f"{task_set.name}: {FETCH_FIRST}")
        n_tasks = 0
        for n_tasks, task in enumerate(self.tasks_of_set(task_set, left_out, sandbox, split), 1):  # noqa: B007
            yield task
        wanted = task_set.expected_size or 0
        if n_tasks < wanted:
            raise InputError(
                f"the set {task_set.name} gives {n_tasks} tasks, but its n_tasks is {wanted}; lower n_tasks, or leave "
                "it out for all tasks"
            )

    def training_tables(
        self, problems: Any, n_wanted: int, seed: int, n_jobs: int, left_out: LeftOut, sandbox: Sandbox
    ) -> Iterator[pa.Table]:
        """Yield the tasks to train on, as tables of records; a source that makes any number makes `n_wanted`.

        `n_jobs`: processes.
        """
        yield from records.tables(self.task_class, self.tasks_of_file(Path(problems.path), left_out.problems))

    def tasks_in_messages(self, path: Path, template: str, n_rows: int | None) -> Iterator[Any]:
        """Yield the tasks of rows of messages, in the words of a template, that the model was trained on before."""
        raise NotImplementedError

    def same_tasks(self, sets: Mapping[str, Iterable[Any]]) -> Callable[[Any], dict[tuple[str, str], str]]:
        """Return a function of a task: the evaluated tasks that it is, as {(set, task id): "id" or "content"}."""
        known: dict[str, dict[tuple[str, str], str]] = {}  # by id or content; an id outdoes content
        for name, tasks in sets.items():
            for task in tasks:
                known.setdefault(self.content(task), {})[name, task.task_id] = "content"
                if not is_numbered(task.task_id):
                    known.setdefault(task.task_id, {})[name, task.task_id] = "id"
        return lambda task: known.get(self.content(task), {}) | known.get(task.task_id, {})

    def content(self, task: Any) -> str:
        """Return a text that is equal for two tasks if everything but their id and origin is."""
        names = [field.name for field in fields(task) if field.name not in ("task_id", "origin")]
        return repr([getattr(task, name) for name in names])

    # Prompts

    def wording(self, template: str, form: str) -> Any:
        """Load the texts of prompts, with feedback in this form; empty: the domain's own. Raises `InputError`."""
        if template:
            raise InputError(f"template is {template!r}, but the domain has one wording; leave it out")
        return None

    wording_files: ClassVar[tuple[str, ...]] = ()  # names of the files of texts that people can edit

    def save_wording(self, wording: Any, folder: Path) -> None:
        """Write the texts as files that `wording` reads again."""
        raise InputError("the domain has no wording that can be edited")

    def texts(self, wording: Any) -> dict[str, str]:
        """Return the texts by name, for their length and for the hash of settings."""
        return {}

    def first_turn(self, task: Any, rng: np.random.Generator, own: Any, wording: Any) -> Question:
        """Return the conversation that asks for a task's program; `rng` is for augmentation.

        `own` says how to show the task, if the domain's config has keys for that (`Refining.own_of`).
        """
        raise NotImplementedError

    def feedback(self, prompt: Any, grade: Any, wording: Any) -> str:
        """Return what the model reads about an answer to a prompt. It may not depend on hidden checks."""
        raise NotImplementedError

    def no_feedback(self, wording: Any) -> str:
        """Return a text that asks for another answer and says nothing on the first one: a control."""
        return "Write a corrected program."

    def stale(self, prompt: Any, grade: Any) -> Any | None:
        """Return a grade whose feedback reveals the first revealable check that is right instead; None without one.

        What the control `stale` shows; feedback may reveal checks that the first turn does not show.
        """
        return None

    def fresh(self, parent: GradedAttempt, wording: Any) -> Question:
        """Return the first turn again, with the check that feedback on this attempt reveals: the control `fresh`.

        Default, of a domain whose feedback reveals none: as it was.
        """
        return Question(opening(list(parent.prompt.messages)), parent.prompt.detail)

    def next_turn(
        self, parent: GradedAttempt, executed: GradedAttempt | None, history: str, wording: Any, grade: Any = None
    ) -> Question:
        """Return the conversation that asks to refine an attempt.

        `executed` is the attempt whose feedback it shows, another one in a control; None: no feedback. `grade` is that
        attempt's, unless a control shows another one.
        """
        feedback = self.no_feedback(wording)
        if executed:
            grade = self.grade_of(executed) if grade is None else grade
            with self.calling("feedback", executed.attempt.attempt_id):
                feedback = self.feedback(executed.prompt, grade, wording)
        earlier = list(parent.prompt.messages)
        messages = next_turn(opening(earlier) if history == "last" else earlier, parent.attempt.completion, feedback)
        return Question(messages, parent.prompt.detail)

    def attempt_detail(self, prompt: Any) -> Any:
        """Return the `detail` of attempts at a prompt; None if the domain's attempts have none."""
        return None

    # Grading

    failures_to_refine: ClassVar[tuple[str, ...]] = (Status.error,)  # statuses that `include_errors` is about
    n_executors: ClassVar[int] = 1  # sandboxes that `grade` gets; 0: it executes nothing

    def program(self, text: str, subject: Any) -> str | None:
        """Return the program in an answer that is graded against the subject; None without a block of code."""
        return program_and_end(text)[0]

    def has_closed_code(self, text: str) -> bool:
        """Return whether the program in an answer has an end; that of a truncated answer has none."""
        return program_and_end(text)[1]

    @contextmanager
    def executors(self, sandbox: Sandbox, n_jobs: int) -> Iterator[tuple[Executor, ...]]:
        """Open what `grade` executes programs with."""
        with ExitStack() as stack:
            yield tuple(stack.enter_context(sandbox.executor(n_jobs)) for _ in range(self.n_executors))

    def subjects(self, attempts: Iterable[Any], tasks: Mapping[str, Any]) -> Iterator[Any]:
        """Yield what each attempt is graded against."""
        return (tasks[attempt.task_id] for attempt in attempts)

    def check_attempts(self, paths: Sequence[Path], tasks_path: Path, tasks: Mapping[str, Any]) -> None:
        """Raise `InputError` unless the attempts in these files answer these tasks; their ids are checked already."""

    def subject(self, prompt: Any) -> Any:
        """Return what answers to a prompt are graded against in training, from the prompt alone."""
        return prompt.detail

    def grade(self, answers: Sequence[Answer], executors: tuple[Executor, ...]) -> Generator[Any, None, None]:
        """Yield a `Grade` per answer, in order. A failing program is a grade; a failing sandbox raises.

        A list will do, also of an `async def`.
        """
        raise NotImplementedError

    def result(self, grade: Any, attempt: Any, task: Any) -> Result:
        """Return what a verdict records of a grade.

        The grade's own fields say what its program gave, but those named `hidden_...`; without any, the program does.
        """
        own = [field.name for field in fields(grade) if field.name not in Grade.__dataclass_fields__]
        shown = repr([getattr(grade, name) for name in own if "hidden" not in name])
        given = sha256((shown if self.grade_class and own else grade.code or "").encode()).hexdigest()[:16]
        detail = replace(grade, code="") if self.grade_class else None  # the attempt has the code
        return Result(grade.score, grade.is_solved, given if grade.is_valid else "", detail)

    def grade_of(self, graded: GradedAttempt) -> Any:
        """Return the grade that `feedback` reads, from a verdict."""
        return graded.verdict.detail

    def rank(self, verdict: Any) -> tuple[float, ...]:
        """Return a key that sorts attempts to refine, best first. It may not depend on hidden checks."""
        return (-verdict.score,)

    # Metrics

    columns: ClassVar[tuple[str, ...]] = ()  # numbers of a verdict's `detail` that tables have
    # Yes or no per attempt, for the table of attempts; `raised`: failed with an exception (default: by status)
    flags: ClassVar[tuple[str, ...]] = ("shown_solved", "solved")
    metrics: ClassVar[Sequence[Metric]] = ()  # the domain's own, of a task
    metrics_explained: ClassVar[str] = "- **solved**: tasks that an attempt solves."

    def derive(self, attempts: pd.DataFrame) -> pd.DataFrame:
        """Add columns to a table of attempts: `shown_solved`, right on what the prompt shows, and the domain's own."""
        return attempts.assign(shown_solved=attempts["score"] == 1.0)

    # Report

    language: ClassVar[str] = ""  # of the programs, as a fenced block names it
    checks: ClassVar[str] = "checks"  # what an answer is right on: "pairs", "tests"
    shown: ClassVar[str] = "shown checks"  # those that prompts show
    hidden: ClassVar[str] = "hidden checks"  # those that they do not; empty if there are none
    outcomes: ClassVar[str] = (
        "*correct*: right on everything; *shown checks only*: right on what the prompt shows, not on the rest; "
        "*wrong*: ran to its end, but is not right on what the prompt shows; errors by type."
    )
    limits: ClassVar[tuple[str, ...]] = ()  # further limitations of what is measured
    has_guesses: ClassVar[bool] = False  # whether attempts that are right on what prompts show vote for two guesses

    def verdict_lines(self, graded: GradedAttempt) -> Iterator[str]:
        """Yield what a person reads about an attempt, hidden checks included."""
        verdict = graded.verdict
        yield verdict.error or f"{verdict.status.replace('_', ' ')}, score {verdict.score:.2f}"

    # A module that draws tasks: `draw`, `facts_in_words` for the text beside a picture, `changes` for how a prompt
    # shows a task in another form (domains/arc/report/words.py)
    pictures: ClassVar[Any] = None

    def sections(self, experiment: Any, metrics: Mapping[tuple[str, str], pd.DataFrame]) -> list[str]:
        """Return further blocks of the report; `metrics`: `per_task` by set and arm."""
        return []

    # With tools (kind: tool-use)

    def asked(self, task: Any) -> str:
        """Return the question that an episode begins with; default: the messages of the first turn."""
        shown = self.first_turn(task, np.random.default_rng(0), None, self.wording("", ""))
        return "\n\n".join(message["content"] for message in shown.messages if message["role"] != "assistant")

    def to_json(self, task: Any) -> str:
        """Return a task as text, from which `from_json` makes it again."""
        return TypeAdapter(self.task_class).dump_json(task).decode()

    def from_json(self, text: str) -> Any:
        return TypeAdapter(self.task_class).validate_json(text)

    answers_are_programs: ClassVar[bool] = True  # else the report shows the correct answer, and answers vote
    given_to_tools: ClassVar[str] = ""  # what `tool_setup` defines, in words; the description of tools ends with it

    def tool_setup(self, task: Any) -> str:
        """Return code that tools run before each program of the model. It may not depend on hidden checks."""
        return ""

    def grade_final(self, answers: Sequence[Answer], executors: tuple[Executor, ...]) -> Iterator[Any]:
        """Yield a grade per answer that ends an episode; its `code` is what a report shows of the answer."""
        return self.grade(answers, executors)

    def correct(self, task: Any) -> str:
        """Return what a person reads as the correct answer, or as the checks of answers."""
        return ""

    def is_marked(self, text: str) -> bool:
        """Whether the answer in a text has the form that was asked for; a program has."""
        return True

    # Of demonstrations: the answer without its reasoning, None for tasks that have none; the reasoning, with
    # calculations marked <<48/2=24>>, which become calls; or the task's own program with an expression that tries it

    def final_answer(self, task: Any) -> str | None:
        return None

    def worked(self, task: Any) -> str | None:
        return None

    def trial(self, task: Any) -> tuple[str, str] | None:
        """Return the program to run, and the expression at its end."""
        return None

    # Demonstrations

    def source_answers(self, tasks: Iterable[Any], wording: Any, executors: tuple[Executor, ...]) -> dict[str, str]:
        """Return, by task id, a whole answer with the task's own program, if that is right."""
        return {}

    def broken(self, task: Any, answer: str, rng: np.random.Generator) -> Iterator[str]:
        """Yield whole answers that differ from a right one by a mutation of its program, and may be right, too."""
        program, _ = program_and_end(answer)
        return (answer.replace(program, mutated, 1) for mutated in mutations(program or "", rng) if program)

    def shows_task_itself(self, prompt: Any) -> bool:
        """Return whether the task's own program answers a prompt: not if the prompt augments the task."""
        return True

    def may_be_learned(self, tasks: Iterable[Any]) -> Callable[[GradedAttempt], bool]:
        """Return a function of a correct attempt at one of the tasks: whether SFT may learn its program."""
        return lambda graded: True


def _with_detail(record: type[Any], detail: type[Any]) -> type[Any]:
    return make_dataclass(record.__name__, [("detail", detail)], bases=(record,), frozen=True, slots=True)


def load_domain(name: str) -> Domain:
    """Load a domain by its name, built in or a package. Raises `ConfigError`."""
    domain: Domain = domain_part(name, "domain:Domain")()
    domain.package = name
    domain.check()
    return domain


LoadedDomain = Annotated[Domain, PlainValidator(load_domain)]  # the argument of a stage
