"""The sandbox as its callers know it: programs in, outcomes out. Attacks are in tests/hostile/test_hostile.py."""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
from factories import make_grid
from messages import Wording

from arc_refinery.arc.grids import Grid
from arc_refinery.errors import InputError
from arc_refinery.sandbox import Executor, Limits, Outcome, Program, Status, wire
from arc_refinery.sandbox import executor as executors
from arc_refinery.sandbox.executor import LOOK_AHEAD
from arc_refinery.sandbox.wire import Result

ONE = np.array([[1, 2, 3], [4, 5, 6]], np.uint8)
TWO = np.array([[7]], np.uint8)
LIMITS = Limits(cpu_seconds=1.0, wall_seconds=20.0, memory_mb=256)
SAME = "def transform(grid): return grid"


@pytest.fixture(scope="module")
def executor() -> Iterator[Executor]:
    with Executor(2, LIMITS) as executor:
        yield executor


@pytest.fixture(scope="module")
def lone() -> Iterator[Executor]:
    with Executor(1, LIMITS) as executor:
        yield executor


def run(executor: Executor, source: str, inputs: tuple[Grid, ...] = (ONE, TWO)) -> Outcome:
    (outcome,) = executor.run([Program("it", source, inputs)])
    return outcome


def value(executor: Executor, expression: str, setup: str = "") -> str:
    """Return an expression's value inside the sandbox, carried out by an error message."""
    return run(executor, f"{setup}\nraise ValueError(repr({expression}))").error_message


def test_ok_has_one_grid_for_each_input(executor: Executor) -> None:
    outcome = run(executor, "import numpy as np\ndef transform(grid):\n    return np.flipud(grid)")
    assert (outcome.program_id, outcome.status, outcome.error) == ("it", Status.ok, "")
    assert [grid.tolist() for grid in outcome.outputs] == [[[4, 5, 6], [1, 2, 3]], [[7]]]
    assert all(grid.dtype == np.uint8 for grid in outcome.outputs)


def test_transform_gets_its_own_writable_int64_copy(executor: Executor) -> None:
    source = "def transform(grid):\n    assert str(grid.dtype) == 'int64'\n    grid[0, 0] = 300 - 299\n    return grid"
    assert [grid.tolist() for grid in run(executor, source).outputs] == [[[1, 2, 3], [4, 5, 6]], [[1]]]
    assert TWO.tolist() == [[7]]


@pytest.mark.parametrize(
    "returned", ["[[1, 0]]", "[[True, False]]", "[[1.0, 0.0]]", "np.array([[1, 0]], dtype=object)"]
)
def test_cells_that_equal_integers_are_accepted(executor: Executor, returned: str) -> None:
    outcome = run(executor, f"import numpy as np\ndef transform(grid): return {returned}", (TWO,))
    assert [grid.tolist() for grid in outcome.outputs] == [[[1, 0]]]


@pytest.mark.parametrize(
    ("returned", "problem"),
    [
        ("None", "is None,"),
        ("[[[1]]]", "3-D"),
        ("3", "0-D"),
        ("[[]]", "shape 1x0"),
        ("np.zeros((31, 2))", "shape 31x2"),
        ("[[10]]", "cell 10"),
        ("[[-1]]", "cell -1"),
        ("[[1.5]]", "cell 1.5"),
        ("[[np.nan]]", "cell nan"),
        ("[[None]]", "cell None"),
        ("[['1']]", "<U1"),
        ("[[1j]]", "complex128"),
    ],
)
def test_invalid_output_says_which_and_why(executor: Executor, returned: str, problem: str, wording: Wording) -> None:
    source = f"import numpy as np\ndef transform(grid): return {returned} if grid[0, 0] == 7 else grid"
    outcome = run(executor, source)
    assert (outcome.status, outcome.error_type, outcome.outputs) == (Status.invalid_output, "InvalidOutput", ())
    assert outcome.error_message.startswith("output 1 ") and problem in outcome.error_message
    wording(outcome.error)


def test_ragged_rows_are_an_invalid_output(executor: Executor, wording: Wording) -> None:
    outcome = run(executor, "def transform(grid): return [[1], [1, 2]]")
    assert outcome.status is Status.invalid_output
    assert outcome.error_message.startswith("output 0 ") and "ValueError: " in outcome.error_message
    wording(outcome.error)


@pytest.mark.parametrize(
    ("source", "error"),
    [
        (
            "def transform(grid):\n    return grid + {}",
            "TypeError: unsupported operand type(s) for +: 'int' and 'dict'",
        ),
        ("x = 1\n\nraise KeyError('why')", "KeyError: 'why' (line 3)"),
        ("x = 1\ny = (\n", "SyntaxError: '(' was never closed (line 2)"),
        ("exec('1 +')", "SyntaxError: invalid syntax (line 1)"),
        ("\nexit(3)", "SystemExit: 3 (line 2)"),
        ("class Mine(BaseException): pass\nraise Mine('two\\nlines')", "Mine: two lines (line 2)"),
        ("x = 1", "NameError: "),
        ("import no_such_thing", "ModuleNotFoundError: No module named 'no_such_thing' (line 1)"),
        ("from common import nothing", "ImportError: cannot import name 'nothing' from 'common' (common.py) (line 1)"),
        ("raise ValueError", "ValueError (line 1)"),
    ],
)
def test_error_has_type_message_and_line(executor: Executor, source: str, error: str, wording: Wording) -> None:
    outcome = run(executor, source)
    assert outcome.status is Status.error
    assert outcome.error.startswith(error)
    wording(outcome.error)


@pytest.mark.parametrize(
    "source",
    [
        "def transform(grid: List[Tuple[int, int]]): return np.fliplr(numpy.array(grid))",
        "def f(a: Optional[Set[int]] = None, b: Callable[[NDArray], Any] | Union[int, str] = 0): pass\n"
        "def transform(grid): return np.fliplr(grid)",
        "def transform(grid): return translate(grid, 0, 0, background=Color.BLACK)[:, ::-1]",
        "np = None\nfrom numpy import fliplr\ndef transform(grid): return fliplr(grid)",
    ],
)
def test_programs_need_not_import_numpy_types_and_the_library(executor: Executor, source: str) -> None:
    outcome = run(executor, source, (make_grid("01", "23"),))
    assert (outcome.status, [grid.tolist() for grid in outcome.outputs]) == (Status.ok, [[[1, 0], [3, 2]]])


def test_error_line_is_the_innermost_one_of_the_program(executor: Executor) -> None:
    source = "import numpy as np\ndef inner():\n    return np.zeros(-1)\n\ndef transform(grid):\n    return inner()"
    assert run(executor, source).error_line == 3


def test_error_messages_are_the_same_in_every_run(executor: Executor) -> None:
    assert run(executor, "def f(): pass\nraise ValueError(f)").error_message == "<function f at 0x...>"


@pytest.mark.parametrize("source", ["x = '\ud800'", "x = 1\0", "# coding: no-such-codec\nx = ", "("])
def test_text_that_does_not_compile_is_an_error(executor: Executor, source: str) -> None:
    assert run(executor, source).status is Status.error


def test_no_text_is_rejected_or_edited(executor: Executor) -> None:
    source = (
        "import os, sys, subprocess  # eval( exec( open( input(\ndef transform(grid):\n    print(grid)\n    return grid"
    )
    assert run(executor, source).status is Status.ok


@pytest.mark.parametrize(
    ("source", "status", "error_type", "number"),
    [
        pytest.param("while True: pass", Status.timeout, "Timeout", "1 s", marks=pytest.mark.slow),
        ("raise MemoryError", Status.memory, "MemoryError", "256 MB"),
        ("import os; os._exit(0)", Status.crash, "Crash", ""),
        ("import ctypes; ctypes.string_at(0)", Status.crash, "Crash", "signal 11"),
        ("import os; os.write(3, b'ok')", Status.protocol, "Protocol", ""),
    ],
)
def test_other_statuses(
    executor: Executor, source: str, status: Status, error_type: str, number: str, wording: Wording
) -> None:
    outcome = run(executor, source)
    assert (outcome.status, outcome.error_type, outcome.outputs) == (status, error_type, ())
    assert number in outcome.error_message
    wording(outcome.error)


@pytest.mark.parametrize(("share", "status"), [(0.9, Status.ok), (1.1, Status.memory)])
def test_memory_limit_counts_from_the_servers_own_size(executor: Executor, share: float, status: Status) -> None:
    n_bytes = int(share * LIMITS.memory_mb * 2**20)
    assert run(executor, f"import numpy as np\nx = np.empty({n_bytes}, np.uint8)\n{SAME}").status is status


@pytest.mark.slow
def test_cpu_limit_is_over_all_inputs(executor: Executor) -> None:
    source = (
        "import time\n\ndef transform(grid):\n"
        "    end = time.process_time() + 0.3\n    while time.process_time() < end: pass\n    return grid"
    )
    assert run(executor, source, (ONE,)).status is Status.ok
    assert run(executor, source, (ONE,) * 5).status is Status.timeout


def test_common_is_there(executor: Executor) -> None:
    source = "from common import *\ndef transform(grid): return np.full((1, 1), Color.RED)"
    assert [grid.tolist() for grid in run(executor, source).outputs] == [[[2]], [[2]]]


@pytest.mark.parametrize(
    "expression",
    [
        "random.random()",
        "random.Random().random()",
        "(random.seed(), random.random())",
        "np.random.rand()",
        "np.random.default_rng().random()",
        "list(set('some letters'))",
    ],
)
def test_chance_repeats_in_each_child_and_server(executor: Executor, lone: Executor, expression: str) -> None:
    setup = "import random\nimport numpy as np"
    assert len({value(each, expression, setup) for each in (lone, lone, executor, executor)}) == 1


@pytest.mark.parametrize("source", ["import os\nos.urandom(8)", "import secrets\nsecrets.randbelow(9)"])
def test_the_kernels_chance_is_refused(executor: Executor, source: str) -> None:
    assert run(executor, source).error_type == "PermissionError"


def test_random_is_seeded_with_0(executor: Executor) -> None:
    # python -c 'import random; random.seed(0); print(random.random())', and the same of numpy
    assert value(executor, "random.random()", "import random") == "0.8444218515250481"
    assert value(executor, "float(np.random.rand())", "import numpy as np") == "0.5488135039273248"


@pytest.mark.parametrize(
    "patch",
    [
        "import numpy as np\nnp.array = np.asarray = np.ndarray = np.uint8 = None",
        "import builtins\nbuiltins.len = builtins.compile = builtins.tuple = None",
        "import common\ncommon.Color = None",
        "import os, sys\nos._exit = os.write = None\nsys.modules.clear()",
        "from arc_refinery.sandbox import child, wire\nchild.run_program = wire.encode_result = None",
        "import random\nrandom.seed(7)",
    ],
)
def test_nothing_leaks_into_the_next_program(lone: Executor, patch: str) -> None:
    probe = "from common import *\ndef transform(grid): return np.full((1, len('abc')), int(10 * random.random()))"
    run(lone, f"{patch}\n{SAME}")
    assert [grid.tolist() for grid in run(lone, probe, (TWO,)).outputs] == [[[8, 8, 8]]]  # random() is 0.844...


def test_the_callers_environment_is_not_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "secret")
    with Executor(1, LIMITS) as executor:
        assert "secret" not in value(executor, "dict(os.environ)", "import os")


def test_programs_import_as_common_the_library_that_the_executor_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "darker.py").write_text("def darker(grid):\n    return grid - 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    with Executor(1, LIMITS, library="darker") as executor:
        program = "from common import *\ndef transform(grid): return darker(grid)"
        assert [grid.tolist() for grid in run(executor, program, (TWO,)).outputs] == [(TWO - 1).tolist()]
        assert run(executor, "from common import blit", (TWO,)).error_type == "ImportError"


def test_outcomes_come_in_input_order_exactly_one_each(executor: Executor) -> None:
    slow = f"import time; time.sleep(0.2)\n{SAME}"
    programs = [Program(str(i), f"{slow if i % 7 == 0 else SAME}  # {i}", (TWO,)) for i in range(40)]
    assert [outcome.program_id for outcome in executor.run(programs)] == [str(i) for i in range(40)]


def test_input_is_consumed_lazily_with_a_bounded_look_ahead(
    executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executors, "LOOK_AHEAD", 8)  # for each server: the second one is soon through with 16
    taken = itertools.count()
    slow_first = (Program(str(i), f"x{i}" if i else "import time; time.sleep(0.5)", ()) for i in taken)
    outcomes = executor.run(slow_first)
    next(outcomes)
    assert 2 < next(taken) <= 2 * 8 + 1
    outcomes.close()


def test_equal_programs_on_equal_inputs_are_executed_once(executor: Executor) -> None:
    source = "import time\nraise ValueError(time.time_ns())"
    inputs = [(ONE,), (TWO,), (ONE.copy(),), (ONE,)]
    outcomes = list(executor.run(Program(str(i), source, grids) for i, grids in enumerate(inputs)))
    assert [outcome.program_id for outcome in outcomes] == ["0", "1", "2", "3"]
    one, two, too, again = [outcome.error_message for outcome in outcomes]
    assert one == too == again != two


def test_more_equal_programs_than_are_read_ahead(lone: Executor) -> None:
    n_programs = 3 * LOOK_AHEAD + 1
    outcomes = list(lone.run(Program(str(i), SAME, (TWO,)) for i in range(n_programs)))
    assert [outcome.program_id for outcome in outcomes] == [str(i) for i in range(n_programs)]


@pytest.mark.parametrize("limit", ["cpu_seconds", "wall_seconds", "memory_mb"])
def test_limits_are_positive_and_within_what_a_machine_has(limit: str, wording: Wording) -> None:
    for value in (0, -1, float("nan"), float("inf"), 10**18):
        with pytest.raises(InputError) as caught:
            Limits(**{limit: value})  # type: ignore[arg-type]
        assert f"{limit} is {value}" in str(caught.value)
        wording(caught.value)


def test_no_programs_give_no_outcomes_and_no_inputs_no_outputs(executor: Executor) -> None:
    assert list(executor.run([])) == []
    assert (run(executor, SAME, ()).status, run(executor, SAME, ()).outputs) == (Status.ok, ())


def test_an_abandoned_run_leaves_the_executor_usable(executor: Executor) -> None:
    for outcome in executor.run(Program(str(i), f"{SAME}  # {i}", (ONE,)) for i in itertools.count()):
        if outcome.program_id == "5":
            break
    assert [outcome.program_id for outcome in executor.run([Program("a", SAME, (TWO,))])] == ["a"]


def test_two_runs_at_once_are_refused(executor: Executor, wording: Wording) -> None:
    first = executor.run([Program("a", SAME, ()), Program("b", SAME, ())])
    next(first)
    with pytest.raises(RuntimeError) as caught:
        next(executor.run([]))
    wording(caught.value)
    assert [outcome.program_id for outcome in first] == ["b"]


def test_an_error_of_the_callers_iterable_propagates(executor: Executor) -> None:
    def broken() -> Iterator[Program]:
        yield Program("a", SAME, ())
        raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        list(executor.run(broken()))
    assert run(executor, SAME).status is Status.ok


def test_inputs_must_be_grids(executor: Executor, wording: Wording) -> None:
    with pytest.raises(ValueError) as caught:
        run(executor, SAME, (np.array([1, 2]),))
    assert "program it" in str(caught.value) and "1-D int64" in str(caught.value)
    wording(caught.value)


def test_a_closed_executor_says_so(wording: Wording) -> None:
    executor = Executor(1, LIMITS)
    executor.close()
    executor.close()
    with pytest.raises(RuntimeError) as caught:
        next(executor.run([]))
    wording(caught.value)


def test_it_does_not_start_where_a_trivial_program_fails(wording: Wording) -> None:
    with pytest.raises(RuntimeError) as caught:
        Executor(2, Limits(cpu_seconds=1e-6))
    assert "timeout" in str(caught.value)
    wording(caught.value)


def test_the_caller_is_never_forked_and_servers_have_one_thread() -> None:
    forks = []
    os.register_at_fork(before=lambda: forks.append(1))
    before = set(psutil.Process().children())
    with Executor(2, LIMITS) as executor:
        run(executor, SAME)
        servers = set(psutil.Process().children()) - before
        assert [server.num_threads() for server in servers] == [1, 1]
    assert not forks
    assert not any(server.is_running() for server in servers)


GOOD = Result(Status.ok, (ONE, TWO))
FRAME = wire.encode_result(GOOD)


def test_results_survive_the_wire() -> None:
    error = Result(Status.error, (), "TypeError", "é \ud800", 12)
    assert wire.decode_result(wire.encode_result(error), 2) == error._replace(error_message="é \\ud800")
    assert [grid.tolist() for grid in wire.decode_result(FRAME, 2).outputs] == [ONE.tolist(), TWO.tolist()]


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        FRAME[:-1],
        FRAME + b"\0",
        b"X" + FRAME[1:],
        FRAME[:4] + b"\x07" + FRAME[5:],  # there are 7 statuses
        FRAME[:-1] + b"\x0a",  # colour 10
        wire.encode_result(GOOD._replace(outputs=(ONE,))),
        wire.encode_result(GOOD._replace(outputs=(ONE, np.zeros((31, 1), np.uint8)))),
        wire.encode_result(GOOD._replace(outputs=(ONE, np.zeros((0, 1), np.uint8)))),
        wire.encode_result(GOOD._replace(status=Status.error)),
        wire.encode_result(Result(Status.error, (), "A", "b")).replace(b"Ab", b"A\xff"),
    ],
)
def test_malformed_results_are_refused(frame: bytes) -> None:
    with pytest.raises(wire.WireError):
        wire.decode_result(frame, 2)


def test_no_result_is_longer_than_the_server_reads() -> None:
    worst = Result(Status.error, (), "\ud800" * 5000, "\ud800" * 5000)
    assert len(wire.encode_result(worst)) <= wire.max_result_bytes(0)
    full = Result(Status.ok, (np.zeros((30, 30), np.uint8),) * 3)
    assert len(wire.encode_result(full)) <= wire.max_result_bytes(3)


def test_peak_memory_is_that_of_the_largest_child_and_stays(lone: Executor) -> None:
    taking = "import numpy as np\ndef transform(grid):\n    np.ones({n} * 2**17)\n    return grid"  # n MiB, touched
    assert run(lone, SAME).status is Status.ok
    before = lone.peak_mb
    assert 10 < before < 500  # numpy and scipy, not what this process has
    assert run(lone, taking.format(n=180)).status is Status.ok
    grown = lone.peak_mb
    assert 150 < grown - before < 200
    assert run(lone, SAME + " # again").status is Status.ok
    assert lone.peak_mb == grown


@pytest.mark.slow
def test_peak_memory_is_not_that_of_the_process_which_started_the_servers() -> None:
    ballast = np.ones(2**27, np.uint8)  # 128 MiB more than a server has
    with Executor(1, LIMITS) as executor, Executor(2, LIMITS) as two:
        assert executor.peak_mb < psutil.Process().memory_info().rss / 2**20 - 64
        assert two.peak_mb == pytest.approx(2 * executor.peak_mb, rel=0.1)
    assert ballast.all()
