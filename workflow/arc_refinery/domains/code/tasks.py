"""Tasks of domain `code`, from rows of MBPP, HumanEval or a file of one's own.

A row of MBPP (text, code, test_list, ...), and its task with one shown test:

    {"task_id": 2, "text": "Write a function to double a number.", "code": "def double(n): return 2 * n",
     "test_list": ["assert double(2) == 4", "assert double(-3) == -6"]}
    task    mbpp-2, names ("double",), shown ("assert double(2) == 4",), hidden ("assert double(-3) == -6",)

HumanEval   `prompt`, a program without its end, `test`, a function `check(candidate)`, optionally
            `canonical_solution`, the program's end, and `entry_point`. Its asserts are hidden, also those in loops over
            literals; shown are the examples behind `>>>` in the docstring, without any the asserts whose calls the
            docstring has, without any the first assert. What the prompt defines before the entry point is setup.
LeetCode    as HumanEval, with an entry point `Solution().name`, and a prompt that may have only what is given: then
            `problem_description` or `query` is the text, `starter_code` follows the prompt, `completion` is the program
Contests    APPS, CodeContests, LiveCodeBench: judged.py. Public tests are shown, or the first one
Own rows    `prompt` and `tests`, a list of asserts; optionally `hidden_tests`, `setup`, code that the tests need,
            `starter`, code that the prompt shows, `reference` (or `code`), a program that passes all tests, `task_id`,
            `revealed_tests`, which the first turn does not show, but feedback does once they fail

A row of another shape is an error. One whose tests cannot decide is left out, and counted by reason.
"""

import ast
import doctest
import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

from arc_refinery.asserts.rows import TEST_IS_UNUSED, Identity, mbpp_row
from arc_refinery.asserts.split import (
    Asserts,
    Check,
    Suite,
    Unsupported,
    bound_names,
    called_names,
    hidden_checks,
    needed_setup,
    plan,
    without_truth,
)
from arc_refinery.domains.code.check_function import CheckFunction
from arc_refinery.domains.code.judged import PRINTED, judged, runnable
from arc_refinery.domains.code.starters import begun_names, completed, helpers_before, name_of, provided
from arc_refinery.errors import InputError
from arc_refinery.files import in_words
from arc_refinery.programs import UNREADABLE, defined_names, parsed
from arc_refinery.rows import numbered, read_rows, row_id, text_field, texts_field

NO_TESTS = "no tests"
NO_ASSERT = "a test is not an assert"
UNDEFINED = "the entry point is not defined"
UNSUPPORTED = "a test cannot be checked without trusting the program"
SHOWN_AND_REVEALED = "a revealed test makes only calls that the first turn shows"
SHOWN_AND_HIDDEN = "a hidden test makes only calls that prompts show"
FAILS = "its own program fails a test"
UNCHECKABLE = "no program could pass its tests here"  # their setup fails, or their values cannot be compared

logger = logging.getLogger(__name__)

NAMED = 5  # rows that are named, of those left out for one reason
_DEFAULT_SHOWN = 1  # of MBPP, and of rows of one's own without `hidden_tests`


@dataclass(frozen=True, slots=True)
class CodeTask:
    """A function or class to write, with its tests."""

    KIND: ClassVar = "tasks"
    task_id: str
    text: str  # empty if the starter says what to do
    names: tuple[str, ...]  # functions and classes that the tests call
    shown: tuple[str, ...]  # asserts that the first turn shows
    hidden: tuple[str, ...]  # asserts that also decide whether an attempt solves the task
    revealable: tuple[str, ...] = ()  # asserts that feedback shows: the first one that fails
    imports: tuple[str, ...] = ()  # that the tests need
    setup: str = ""  # code that the tests need
    starter: str = ""  # code that the prompt shows
    reference: str = ""  # a program that passes all tests; empty if the row has none
    origin: str = ""

    def suite(self, statements: Sequence[str]) -> Suite:
        """Return some of the tests with code that defines what they call."""
        code = "" if self.is_script else self.reference
        if not code and set(self.names) <= defined_names(self.starter):
            code = self.starter
        return Suite(
            Asserts(tuple(statements), self.imports, self.setup),
            code or "\n".join(map(_stub, self.names)),
            provided=provided(self.starter, self.names),
        )

    @property
    def is_script(self) -> bool:
        """Whether the program reads an input and prints, instead of defining what tests call."""
        return self.setup == PRINTED

    def runnable(self, program: str) -> str:
        """Return a program as the tests run it."""
        return runnable(program) if self.is_script else program

    @property
    def visible(self) -> tuple[str, ...]:
        """The tests that are, or may be, in a prompt."""
        return self.shown + self.revealable

    @property
    def tests(self) -> tuple[str, ...]:
        return self.visible + self.hidden

    @property
    def shown_code(self) -> str:
        """The shown tests, behind the setup code that they need."""
        setup = "" if self.is_script else needed_setup(Asserts(self.shown, setup=self.setup))
        return "\n".join(filter(None, [setup, *self.shown]))

    @property
    def identity(self) -> Identity:
        return Identity.of(self.task_id, f"{self.text}\n{self.starter}", self.tests)


LeftOutRows = dict[str, tuple[str, str]]  # reason and detail of each row that gives no task, by name


def described(left_out: LeftOutRows) -> Counter[str]:
    """Return counts of reasons, each with the names of the first rows, and with the detail of one."""
    by_reason: dict[str, dict[str, str]] = {}
    for name, (reason, detail) in left_out.items():
        by_reason.setdefault(reason, {})[name] = detail
    counts: Counter[str] = Counter()
    for reason, details in by_reason.items():
        names = ", ".join([*details][:NAMED]) + (", ..." if len(details) > NAMED else "")
        name, detail = next(((name, detail) for name, detail in details.items() if detail), ("", ""))
        of_one = "" if len({*details.values()}) == 1 else f" {name} has"
        counts[f"{reason} ({names})" + (f":{of_one} {detail:.200}" if detail else "")] = len(details)
    return counts


class _UnusableError(Exception):
    """A row gives no task: reason and detail."""


def read_tasks(
    path: Path,
    n_shown_tests: int | None,
    left_out: LeftOutRows,
    first_row: int = 0,
    n_revealed: int = 0,
    rows: Iterable[Any] | None = None,
) -> Iterator[CodeTask]:
    """Yield the tasks of a file, in order, without running their own programs; raise `InputError` for a bad row.

    `first_row`: rows to skip. `n_shown_tests`: tests that a first turn shows; None: the default of the row's form.
    `n_revealed`: tests after these that feedback may reveal. `rows`: generated ones instead of the file's, with the
    generator's name as `path`.
    """
    stem = Path(path.name.removesuffix(".gz")).stem
    names: set[str] = set()
    n_unused = 0
    try:
        for number, row in enumerate(islice(rows or read_rows(path), first_row, None), 1 + first_row):
            where = f"{path}: row {number}"
            task = _task_of(row, numbered(stem, number), where, n_shown_tests, n_revealed)
            if task.task_id in names:
                raise InputError(f"{where}: a row before it is called {task.task_id}, too; give each its own task_id")
            names.add(task.task_id)
            n_unused += "test_list" in row and bool(row.get("test"))
            try:
                if not (task.tests or "test" in row or row.get("tests") is not None):
                    raise _UnusableError(NO_TESTS, f"tests is missing; the row has {', '.join(map(str, row))}")
                yield _checked(replace(task, origin=stem))
            except _UnusableError as unusable:
                left_out[task.task_id] = unusable.args
    finally:  # also if the caller takes only the first tasks
        if n_unused:
            logger.warning("%s: field 'test' of %d rows is not used: %s", path, n_unused, TEST_IS_UNUSED)


def _task_of(row: Any, name: str, where: str, n_shown: int | None, n_revealed: int) -> CodeTask:
    """Convert a row; its tests are not checked."""
    fields = set(row) if isinstance(row, dict) else set()
    if "test_list" in fields:
        content = mbpp_row(row, name, where)
        n_shown = _DEFAULT_SHOWN if n_shown is None else n_shown
        return CodeTask(
            task_id=content.task_id,
            text=content.text,
            names=(),
            shown=content.tests[:n_shown],
            hidden=content.tests[n_shown + n_revealed :],
            revealable=content.tests[n_shown : n_shown + n_revealed],
            imports=content.imports,
            setup=content.setup,
            reference=content.code,
        )
    if isinstance(row, dict) and isinstance(name_of_row := row.get("task_id"), str):
        row = row | {"task_id": name_of_row.replace("/", "-")}
    if fields and (contest := judged(row, where)):
        name = row_id(row, name, where) if "task_id" in row else _id_of(row, name)
        n_shown = max(len(contest.shown), _DEFAULT_SHOWN) if n_shown is None else n_shown
        task = CodeTask(
            task_id=name,
            text=contest.text,
            names=(contest.name,),
            shown=contest.shown,
            hidden=contest.others,
            setup=PRINTED if contest.is_script else "",
            starter=contest.starter,
            reference=contest.reference,
        )
        tests = contest.shown + tuple(_not_repeating(task, contest.shown, contest.others))
        return replace(
            task,
            shown=tests[:n_shown],
            hidden=tests[n_shown + n_revealed :],
            revealable=tests[n_shown : n_shown + n_revealed],
        )
    if "prompt" not in fields:
        found = f"the fields {', '.join(sorted(map(str, fields)))}" if fields else in_words(row)
        raise InputError(
            f"{where} has {found}; expected those of MBPP (text, code, test_list), of HumanEval (prompt, entry_point, "
            "test, canonical_solution), of a contest (docs/your-own.md), or prompt and tests"
        )
    if "test" in fields and "tests" not in fields:
        return _humaneval_task(row, name, where, n_shown, n_revealed)
    fields_of_tests = ("tests", "revealed_tests", "hidden_tests")
    tests, revealed, hidden = (texts_field(row, field, where, or_none=True) for field in fields_of_tests)
    if n_shown is None:
        n_shown = _DEFAULT_SHOWN if row.get("hidden_tests") is None else len(tests)
    unseen = tuple(dict.fromkeys(tests[n_shown:] + hidden))
    return CodeTask(
        task_id=row_id(row, name, where),
        text=text_field(row, "prompt", where).strip(),
        names=(),
        shown=tests[:n_shown],
        hidden=unseen[n_revealed:],
        revealable=revealed + unseen[:n_revealed],
        setup=_optional(row, "setup", where),
        starter=_optional(row, "starter", where).strip("\n"),
        reference=_optional(row, "reference", where) or _optional(row, "code", where),
    )


def _id_of(row: Any, name: str) -> str:
    """Return the name that a contest's row has for itself."""
    found = next((str(row[field]) for field in ("question_id", "problem_id", "name") if row.get(field) is not None), "")
    return re.sub(r"[^\w.-]+", "-", found).strip("-") or name


def _stub(name: str) -> str:
    """Return what stands for a program of unknown content; whatever is done with an instance belongs to it."""
    return f"class {name}: pass" if name[:1].isupper() else f"def {name}(*args, **kwargs): pass"


def _optional(row: Any, field: str, where: str) -> str:
    return "" if row.get(field) is None else text_field(row, field, where, or_empty=True)


def _humaneval_task(row: Any, name: str, where: str, n_shown: int | None, n_revealed: int) -> CodeTask:
    prompt, test = text_field(row, "prompt", where), text_field(row, "test", where)
    check = CheckFunction(test, _optional(row, "entry_point", where), where)
    entry, root = check.entry, check.root
    text, starter = "", prompt.strip("\n")
    if not completed(starter):  # it is not code
        text, starter = starter.strip(), ""
    elif root not in begun_names(starter):  # it has only what is given
        meta = row["meta"] if isinstance(row.get("meta"), dict) else {}
        text = next(filter(None, (_optional(row, key, where) for key in ("problem_description", "query"))), "")
        text = text.strip() or _optional(meta, "query", where).strip()
        code = _optional(row, "starter_code", where) or _optional(meta, "lang_code", where)
        starter = f"{starter}\n\n{code}".strip("\n")
    beginning = completed(starter)
    solutions = (_optional(row, key, where) for key in ("canonical_solution", "completion"))
    solution = next(filter(str.strip, solutions), "")
    reference = solution if root in defined_names(solution) else solution and prompt + solution
    helpers = helpers_before(beginning, root)
    first = next((node for node in (beginning.body if beginning else ()) if root in name_of(node)), None)
    if helpers and first and reference != solution:
        line = min(item.lineno for item in (first, *getattr(first, "decorator_list", ())))
        reference = "\n".join(reference.strip("\n").split("\n")[line - 1 :])
    program = parsed(reference or starter) or beginning or ast.Module([], [])
    imports = [
        ast.unparse(node)
        for tree in filter(None, (beginning, program))
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    imports = [*dict.fromkeys([*imports, *check.imports])]
    own_setup = needed_setup(Asserts(tuple(check.tests), setup="\n".join(check.setup)))
    setup = "\n".join(filter(None, [*map(ast.unparse, helpers), own_setup]))
    tests = Asserts(tuple(check.tests), tuple(imports), setup)
    shown = _examples(program, entry, root) if check.tests else []
    if not shown:
        hidden = hidden_checks(Suite(tests, reference or _stub(root), prompt))
        shown = [test for test, is_hidden in zip(check.tests, hidden, strict=True) if not is_hidden] or check.tests[:1]
    task = CodeTask(
        task_id=row_id(row, name, where),
        text=text,
        names=(root,),
        shown=tuple(shown),
        hidden=tuple(dict.fromkeys(check.tests)),
        imports=tests.imports,
        setup=tests.setup,
        starter=starter,
        reference=reference,
    )
    # most functions `check` repeat examples of the docstring, which the starter shows whatever `n_shown` is
    unseen = tuple(_not_repeating(task, task.shown, task.hidden))
    n_shown = len(shown) if n_shown is None else n_shown
    n_more = max(n_shown - len(shown), 0)
    return replace(
        task,
        shown=(*shown[:n_shown], *unseen[:n_more]),
        hidden=unseen[n_more + n_revealed :],
        revealable=unseen[n_more : n_more + n_revealed],
    )


def _not_repeating(task: CodeTask, seen: tuple[str, ...], tests: tuple[str, ...]) -> list[str]:
    """Return the tests that make a call that neither these seen ones make nor the prompt shows."""
    suite = replace(task.suite(seen + tests), text=f"{task.text}\n{task.starter}")
    checks = plan(suite.asserts, suite.reference)
    calls = [
        {without_truth(checks.calls[index]) for index in check.values} if isinstance(check, Check) else None
        for check in checks.checks
    ]
    shown: set[str] = set().union(*filter(None, calls[: len(seen)]))
    made_by = list(zip(calls, hidden_checks(suite), strict=True))[len(seen) :]
    return [
        test
        for test, (made, is_hidden) in zip(tests, made_by, strict=True)
        if made is None or (is_hidden and not made <= shown)
    ]


def _examples(program: ast.Module, entry: str, root: str) -> list[str]:
    """Return the examples behind `>>>` in the docstring of the entry point as asserts."""
    name = entry.rpartition(".")[2]
    functions = (node for node in ast.walk(program) if isinstance(node, ast.FunctionDef) and node.name == name)
    docstring = next((ast.get_docstring(node) for node in functions), None) or ""
    try:
        examples = doctest.DocTestParser().get_examples(docstring)
    except ValueError:
        return []
    asserts: list[str] = []
    for example in examples:
        try:
            call = ast.parse(example.source.strip(), mode="eval").body
            if example.want.strip():
                ast.literal_eval(example.want.strip())
                asserts.append(f"assert {ast.unparse(call)} == {example.want.strip()}")
            elif isinstance(call, ast.Compare):
                asserts.append(f"assert {ast.unparse(call)}")
        except UNREADABLE:
            continue
    return [statement for statement in asserts if root in called_names([statement])]


def _checked(task: CodeTask) -> CodeTask:
    """Return a task with one assert per test and the names that these call; raise `_UnusableError`."""
    imports: list[str] = []
    shown, revealable, hidden = (
        tuple(line for test in tests for line in _asserts(test, imports))
        for tests in (task.shown, task.revealable, task.hidden)
    )
    task = replace(task, imports=(*task.imports, *imports), shown=shown, revealable=revealable, hidden=hidden)
    if not task.visible:
        raise _UnusableError(NO_TESTS, "none that a prompt could show" if hidden else "")
    try:
        provided = bound_names("\n".join([*task.imports, task.setup]))
    except UNREADABLE as error:
        raise _UnusableError(UNSUPPORTED, f"the imports or the setup code cannot be read: {error}") from None
    if not (task.text or begun_names(task.starter) & {*task.names}):
        raise _UnusableError(UNDEFINED, f"no field says what {', '.join(task.names)} does")
    called = called_names(task.tests)
    # without a program of the row's, whatever its tests call is to be defined
    has_names = task.reference and not task.is_script
    defined = defined_names(task.reference) if has_names else called - provided
    if missing := set(task.names) - defined:
        raise _UnusableError(UNDEFINED, ", ".join(sorted(missing)))
    if not called & defined:
        raise _UnusableError(UNDEFINED, ", ".join(sorted(called)) or "the tests call nothing")
    task = replace(task, names=tuple(sorted(called & defined)))
    suite = task.suite(task.tests)
    checks = plan(suite.asserts, suite.reference).checks
    for statement, check in zip(task.tests, checks, strict=True):
        if isinstance(check, Unsupported):
            raise _UnusableError(UNSUPPORTED, f"{statement}: {check.reason}")
    for reason, seen, others in (
        (SHOWN_AND_REVEALED, task.shown, task.revealable),
        (SHOWN_AND_HIDDEN, task.visible, task.hidden),
    ):
        unseen = _not_repeating(task, seen, others)
        if equal := [test for test in others if test not in unseen]:
            raise _UnusableError(reason, equal[0])
    return task


def _asserts(test: str, imports: list[str]) -> list[str]:
    """Return the asserts of a test, with the literals that it names before them; add its imports to `imports`."""
    try:
        nodes = ast.parse(test.strip()).body
    except UNREADABLE as error:
        raise _UnusableError(NO_ASSERT, f"{test.strip():.80}: {error}") from None
    asserts: list[ast.stmt] = []
    literals = _Literals()
    for node in nodes:
        match node:
            case ast.Assert():
                asserts.append(literals.visit(node))
            case ast.Import() | ast.ImportFrom():
                imports.append(ast.unparse(node))
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if _is_literal(value):
                literals.by_name[name] = value
            case _:
                raise _UnusableError(
                    NO_ASSERT,
                    f"{ast.unparse(node).splitlines()[0]:.80}; expected asserts, behind imports and names of literals",
                )
    if not asserts:
        raise _UnusableError(NO_ASSERT, f"{test.strip():.80}")
    return [test.strip()] if len(nodes) == 1 else list(map(ast.unparse, asserts))


class _Literals(ast.NodeTransformer):
    def __init__(self) -> None:
        self.by_name: dict[str, ast.expr] = {}

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if not isinstance(node.ctx, ast.Load) and node.id in self.by_name:
            raise _UnusableError(NO_ASSERT, f"{node.id} is a name of the test, and of a part of it")
        return self.by_name.get(node.id, node)


def _is_literal(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except (*UNREADABLE, TypeError):
        return False
    return True
