"""Scripts in the sandbox: sources, expressions, what is printed; and the bytes that values are packed in."""

import collections
import enum
import itertools
import math
import re
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pytest

from arc_refinery.sandbox import Executor, Limits, Outcome, Program, Script, Status, Value, plain, wire
from arc_refinery.sandbox.plain import MalformedError, NotPlainError, pack, unpack
from arc_refinery.sandbox.wire import Result, WireError


@pytest.fixture(scope="module")
def executor() -> Iterator[Executor]:
    """Unlike the shared one, it lets programs share children."""
    with Executor(2, Limits(cpu_seconds=1.0, wall_seconds=20.0, memory_mb=256), programs_per_child=32) as executor:
        yield executor


def run(executor: Executor, *sources: str, expressions: tuple[str, ...] = (), **settings: Any) -> Outcome:
    (outcome,) = executor.run([Script("it", sources, expressions, **settings)])
    return outcome


# ---- scripts ----


def test_sources_share_a_namespace_and_expressions_see_it(executor: Executor):
    outcome = run(executor, "x = 2", "def f(y): return x * y", expressions=("f(3)", "[f(i) for i in range(2)]"))
    assert (outcome.program_id, outcome.status, outcome.error, outcome.printed) == ("it", Status.ok, "", "")
    assert [unpack(value.data) for value in outcome.values] == [6, [0, 2]]


def test_each_expression_fails_for_itself(executor: Executor):
    outcome = run(executor, "def f(y): return y", expressions=("f(1)", "f(", "1 / 0", "f", "exec('x = 1')", "f(2)"))
    assert [(value.kind, value.error) for value in outcome.values] == [
        ("plain", ""),
        ("error", "SyntaxError: '(' was never closed"),
        ("error", "ZeroDivisionError: division by zero"),
        ("not_plain", "a value of type function"),
        ("plain", ""),
        ("plain", ""),
    ]


def test_expressions_are_evaluated_in_order(executor: Executor):
    outcome = run(executor, "xs = []", expressions=("xs.append(1)", "xs", "xs.clear()", "xs"))
    assert [unpack(value.data) for value in outcome.values] == [None, [1], None, []]


def test_names_are_there_before_the_sources(executor: Executor):
    outcome = run(executor, "y = x + [2]", expressions=("y",), names=(("x", pack([1])),))
    assert unpack(outcome.values[0].data) == [1, 2]


def test_a_source_that_raises_ends_the_script(executor: Executor):
    outcome = run(executor, "x = 1", "\nraise ValueError('no')", "x = 2", expressions=("x",))
    assert (outcome.status, outcome.error, outcome.values) == (Status.error, "ValueError: no (line 2)", ())


def test_only_an_interactive_script_prints_and_is_main(executor: Executor):
    source = "print(__name__)\n__name__"
    assert run(executor, source).printed == ""
    assert run(executor, source, interactive=True).printed == "__main__\n'__main__'\n"


def test_what_was_printed_before_an_error_is_kept(executor: Executor):
    outcome = run(executor, "print('a')\n1 / 0", interactive=True)
    assert (outcome.status, outcome.printed) == (Status.error, "a\n")


def test_printing_is_cut(executor: Executor):
    outcome = run(executor, "for _ in range(1000): print('é' * 100)", interactive=True)
    assert len(outcome.printed.encode()) <= wire.PRINTED_BYTES
    assert outcome.printed.startswith("é" * 100 + "\n")


def test_scripts_and_programs_are_run_side_by_side_and_in_order(executor: Executor):
    """Also where programs share children: no script does."""
    grid = np.array([[1]], np.uint8)
    mixed = [
        Script(f"s{n}", (f"x = {n}",), ("x",))
        if n % 3 == 0
        else Program(f"p{n}", f"def transform(g): return [[{n % 9}]]", (grid,))
        for n in range(20)
    ]
    outcomes = list(executor.run(mixed))
    assert [outcome.program_id for outcome in outcomes] == [program.program_id for program in mixed]
    for n, outcome in enumerate(outcomes):
        if n % 3 == 0:
            assert (unpack(outcome.values[0].data), outcome.outputs) == (n, ())
        else:
            assert (outcome.outputs[0].tolist(), outcome.values) == ([[n % 9]], ())


def test_a_script_leaves_nothing_to_the_next(executor: Executor):
    run(executor, "import builtins, math\nbuiltins.len = lambda x: 7\nmath.pi = 3", interactive=True)
    outcomes = [run(executor, "import math", expressions=("len([])", "math.pi", f"{n}")) for n in range(4)]
    assert [[unpack(value.data) for value in outcome.values[:2]] for outcome in outcomes] == [[0, math.pi]] * 4


@pytest.mark.slow
def test_a_script_is_limited(executor: Executor):
    assert run(executor, expressions=("1", "sum(range(10**12))")).status is Status.timeout
    assert run(executor, expressions=("[0] * 10**9",)).status is Status.memory


# ---- plain data ----

PLAIN = [
    None,
    True,
    0,
    -1,
    2**4000,
    -(2**31),
    1.5,
    -0.0,
    math.inf,
    2 - 3j,
    "",
    "é \ud800",
    b"\0\xff",
    [],
    [1, [2, (3,)]],
    (),
    {1: {2: 3}, "a": None},
    {1, 2},
    frozenset({(1, 2)}),
    {True: 1, 2.0: [{}]},
    range(5, 0, -2),
    collections.deque([1, [2]], 3),
    collections.deque(),
    {1: 0, "a": [2]}.keys(),
    {1: [0]}.items(),
    bytearray(b"a"),
    Fraction(-1, 2),
    Decimal("1.50"),
    [range(2), {"a": collections.deque("b")}],
]


@pytest.mark.parametrize("value", PLAIN, ids=repr)
def test_plain_data_come_out_as_they_went_in(value: Any):
    out = unpack(pack(value))
    assert (out, repr(out), type(out)) == (value, repr(value), type(value))


def test_views_of_values_come_out_as_they_went_in():
    """Equal only to themselves."""
    out = unpack(pack({1: [0], 2: "a"}.values()))
    assert (type(out), list(out)) == (type({}.values()), [[0], "a"])


@pytest.mark.parametrize(
    "value",
    [
        np.arange(6).reshape(2, 3),
        np.array(5),
        np.array([[1.5, 2]], dtype=np.float32),
        np.array([True, False]),
        np.array(["ab", "c"]),
        np.array([b"ab"]),
        np.array([1, "a", None], dtype=object),
        np.array([2**63], dtype=np.uint64),
        np.array([1j]),
        np.zeros((0, 3)),
        np.ma.masked_array([1, 2]),
    ],
    ids=repr,
)
def test_arrays_come_out_as_they_went_in(value: Any):
    out = unpack(pack(value))
    assert (type(out), out.dtype, out.shape) == (np.ndarray, value.dtype, value.shape)
    assert out.tolist() == value.tolist()


class Point(NamedTuple):
    x: int
    y: int


class Suit(enum.IntEnum):
    HEARTS = 3


class Always(list):  # type: ignore[type-arg]
    def __eq__(self, other: object) -> bool:
        return True

    def __iter__(self) -> Iterator[Any]:
        return iter("lies")

    def __len__(self) -> int:
        return 0


@pytest.mark.parametrize(
    ("value", "plain_value"),
    [
        (collections.Counter("aab"), {"a": 2, "b": 1}),
        (collections.OrderedDict(a=1), {"a": 1}),
        (collections.defaultdict(int, a=1), {"a": 1}),
        (Point(1, 2), (1, 2)),
        (Suit.HEARTS, 3),
        (Always([1, 2]), [1, 2]),
        (np.int64(3), 3),
        (np.float64(1.5), 1.5),
        (np.bool_(True), True),
        (np.str_("a"), "a"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_kinds_of_plain_data_are_taken_for_their_base(value: Any, plain_value: Any):
    out = unpack(pack(value))
    assert (type(out), list.__eq__(out, plain_value) if type(out) is list else out == plain_value) == (
        type(plain_value),
        True,
    )


@pytest.mark.parametrize("value", [iter([1, 2]), (n for n in (1, 2)), map(int, "12"), filter(None, [1, 0, 2])])
def test_iterators_stay_iterators(value: Any):
    out = unpack(pack(value))
    assert out != [1, 2]
    assert (next(out), list(out)) == (1, [2])


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (object(), "a value of type object"),
        (len, "a value of type builtin_function_or_method"),
        (int, "a value of type type"),
        (slice(3), "a value of type slice"),
        (np.zeros(2, "M8[D]"), "an array of type datetime64"),
        ([1, [object()]], "a value of type object"),
        (CIRCLE, "nested deeper than 50"),
        (nested(60), "nested deeper than 50"),
        (itertools.count(), "larger than 65536 bytes"),
        ("x" * 70_000, "larger than 65536 bytes"),
        (1 << 10**6, "larger than 65536 bytes"),
        ([0] * 20_000, "larger than 65536 bytes"),
    ],
    ids=lambda value: str(type(value)),
)
def test_what_is_not_plain_is_said(value: Any, message: str):
    with pytest.raises(NotPlainError, match=message):
        pack(value)


@pytest.mark.parametrize("value", [[1, "a", (2.5, None)], {1: 2}, {3, 4}, "text", 77], ids=repr)
def test_no_part_of_the_bytes_and_nothing_longer_is_taken(value: Any):
    data = pack(value)
    for end in range(len(data)):
        with pytest.raises(MalformedError):
            unpack(data[:end])
    with pytest.raises(MalformedError):
        unpack(data + b"N")


@pytest.mark.parametrize(
    "data",
    [
        b"x",
        b"l\xff\xff\xff\xff",
        b"s\x01\0\0\0\xff",  # no UTF-8
        b"e\x02\0\0\0NN",  # equal items
        b"d\x04\0\0\0NTNT",
        b"e\x01\0\0\0l\0\0\0\0",  # a list in a set
        b"d\x02\0\0\0l\0\0\0\0N",
        b"d\x03\0\0\0NTF",
        b"l\x01\0\0\0" * 60 + b"N",
        b"\0\0\0\0\0",
        b"r\x01\0\0\0N",
        b"K\x02\0\0\0NN",
        b"I\x01\0\0\0N",
        b"R" + pack((1, 0))[1:],
        b"D" + pack(("x",))[1:],
        b"A" + pack((2024, 13, 1))[1:],  # no month
        b"L" + pack(("a", 0, 0))[1:],
        b"Z" + pack((1,))[1:],
        b"P" + pack(("(", 0))[1:],
        b"m" + pack((re.compile("a"), "ba", 2, 0, 1))[1:],  # no match there
        b"E" + pack(("Counter", "A"))[1:],  # not an Enum
        b"o" + pack(("int", None))[1:] + b"N",  # a class that nobody named
        b"o" + pack(("Counter", {"__class__": 1}))[1:] + pack([1]),  # of another base
        b"q" + pack(("x", 1))[1:],
        b"a" + pack(("<i8", (3,), 1))[1:],
        b"a" + pack(("<M8[D]", (1,), 1))[1:],
        b"a" + pack(("<i8", (1,), 2**80))[1:],
        b"a" + pack((1, (1,), 2))[1:],
    ],
)
def test_forged_bytes_are_refused(data: bytes):
    with pytest.raises(MalformedError):
        unpack(data)


# ---- frames ----

GOOD = Result(Status.ok, values=(plain_value := Value("plain", data=pack(1)), Value("error", error="é")), printed="hü")


def test_a_scripts_result_comes_out_as_it_went_in():
    assert wire.decode_result(wire.encode_result(GOOD), 3, is_script=True) == GOOD
    failed = Result(Status.error, (), "ValueError", "no", 3, printed="before")
    assert wire.decode_result(wire.encode_result(failed), 3, is_script=True) == failed


FRAME = wire.encode_result(GOOD)


@pytest.mark.parametrize(
    "frame",
    [
        FRAME[:-1],
        FRAME + b"\0",
        FRAME.replace(b"=i", b"#i"),  # no kind of value
        FRAME.replace("é".encode(), b"\xff\xff"),
        FRAME.replace("ü".encode(), b"\xff\xff"),
        wire.encode_result(GOOD._replace(values=(plain_value,))),  # too few
        wire.encode_result(GOOD._replace(status=Status.error)),  # values of a script that failed
        wire.encode_result(Result(Status.invalid_output, printed="")),  # what only a program can be
        wire.encode_result(Result(Status.ok, (np.ones((1, 1), np.uint8),) * 3)),  # grids
    ],
)
def test_other_frames_are_refused(frame: bytes):
    assert frame != FRAME
    with pytest.raises(WireError):
        wire.decode_result(frame, 3, is_script=True)


def test_a_program_cannot_answer_with_values():
    with pytest.raises(WireError):
        wire.decode_result(FRAME, 3)


def test_the_largest_result_fits():
    worst = Value("plain", data=b"s" * plain.MAX_VALUE_BYTES)
    full = Result(Status.ok, values=(worst,) * 2, printed="é" * wire.PRINTED_BYTES)
    assert len(wire.encode_result(full)) <= wire.max_result_bytes(3, is_script=True)
