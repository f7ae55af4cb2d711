"""Programs that share a child: who may, and that it shows in nothing but the speed."""

import sys
from collections.abc import Iterator

import numpy as np
import pytest
from factories import make_grid

from arc_refinery.barc import common
from arc_refinery.sandbox import Executor, Limits, Outcome, Program
from arc_refinery.sandbox.sharing import VERSION, Sharing

LIMITS = Limits(cpu_seconds=0.5, wall_seconds=20.0, memory_mb=256)
SHARING = Sharing(common, [common])
GRID = make_grid("123", "456")


@pytest.fixture(scope="module")
def alone() -> Iterator[Executor]:
    with Executor(1, LIMITS) as executor:
        yield executor


@pytest.fixture(scope="module")
def shared() -> Iterator[Executor]:
    with Executor(1, LIMITS, programs_per_child=64) as executor:
        yield executor


def outcomes(executor: Executor, sources: list[str]) -> list[Outcome]:
    return list(executor.run(Program(str(i), source, (GRID, GRID)) for i, source in enumerate(sources)))


@pytest.mark.skipif(sys.version_info[:2] != VERSION, reason="no program shares in other versions of Python")
@pytest.mark.parametrize(
    "source",
    [
        "from common import *\nimport numpy as np\ndef transform(grid): return np.flipud(grid)",
        "import numpy as np\ndef transform(grid):\n    grid[0, 0] = 7\n    del grid\n    return np.zeros((2, 2))",
        "from collections import Counter, defaultdict\nfrom itertools import product\nfrom typing import List",
        "from scipy import ndimage\nfrom scipy.ndimage import label\nimport random\nx = np.random.rand()",
        "def f(n):\n    for _ in range(n): print(_)",
        "words = 'open os.system __class__ eval'  # import os",
        "if __name__ == '__main__': print(transform(Color.ALL_COLORS))",
        "def outer():\n    count = 0\n    def inner():\n        nonlocal count\n        count += 1\n    return inner",
    ],
)
def test_programs_that_only_compute_may_share(source: str) -> None:
    assert SHARING.allows(compile(source, "<program>", "exec"))


@pytest.mark.parametrize(
    "source",
    [
        "import os",
        "from os import *",
        "import numpy.ctypeslib",
        "import sys",
        "import gc",
        "import common as c\nc.blit = None",
        "import numpy as np\ndef transform(grid):\n    np.sum = max",
        "[0 for np.sum in (max,)]",
        "del np.sum",
        "def f():\n    return lambda: [exec('1') for x in (1,)]",
        "getattr(np, 'sum')",
        "x.__dict__",
        "np.random._rand",
        "typing.sys.modules",
        "np.lib.stride_tricks.as_strided(x, (10**9,))",
        "np.seterr(all='raise')",
        "grid.shape = (3, 2)",
        "open('file')",
        "globals()['x'] = 1",
        "class A:\n    def __array__(self): pass",
        "import random as r\nfrom ctypes import c_int",
        "operator.methodcaller('x')",
        "warnings.simplefilter('error')",
        "decimal.getcontext()",
        "signal.alarm(1)",
        "typing.get_type_hints(x)",
        "def f():\n    yield 1",
        "async def f(): pass",
        "x = (i for i in y).gi_frame",
        "type('X', (), {})",
        "match x:\n    case object(a=b): pass",
        "'{0.a}'.format(x)",
        "np.load('file')",
        "np.random.set_state(x)",
        "from functools import update_wrapper",
        "def gi_frame(): pass\nx.gi_frame",
        "\n".join(f"x{i} = {i}" for i in range(300)),
    ],
)
def test_programs_with_means_beyond_computing_may_not(source: str) -> None:
    assert not SHARING.allows(compile(source, "<program>", "exec"))


MIX = [
    "def transform(grid): return grid",
    "def transform(grid): return grid.T",
    "import numpy as np\ndef transform(grid): return np.random.randint(0, 10, (3, 3))",
    "import random\ndef transform(grid): return [[random.randrange(10) for _ in range(9)]]",
    "import numpy as np\ndef transform(grid): return np.random.default_rng().integers(0, 10, (3, 3))",
    "import random\ndef transform(grid): return [[random.Random().randrange(10) for _ in range(9)]]",
    "def transform(grid): return 5",
    "def transform(grid): return grid[9]",
    "def transform(grid) return grid",
    "x = '\\ud800'\ndef transform(grid): return grid",
    "x = (" + "(" * 150 + ")" * 151,
    "y = 1",
    "while True: pass",
    "x = bytearray(10**10)",
    "import os; os._exit(0)",
    "import ctypes; ctypes.string_at(0)",
    "import os; os.write(3, b'junk')",
    "import sys; sys.setrecursionlimit(50)\ndef transform(grid): return grid",
    "def transform(grid): return [[recurse(100)]]\ndef recurse(n): return n % 10 if n == 0 else recurse(n - 1)",
    "def transform(grid): return transform(grid)",
    "import numpy as np\nnp.sum = None\ndef transform(grid): return grid",
    "from common import *\ndef transform(grid): return [Color.ALL_COLORS]",
    "from common import *\nColor.ALL_COLORS.clear()\ndef transform(grid): return [Color.ALL_COLORS + [1]]",
    "from common import *\nx = [0] * 10**7\ndef transform(grid): return [Color.ALL_COLORS]",
    "from common import *\ny = [0] * 10**7\ndef transform(grid): return np.array([Color.ALL_COLORS]).T",
    "import numpy as np\ndef transform(grid): return np.sum([grid, grid], axis=0) // 2",
]


@pytest.mark.slow
def test_outcomes_are_those_of_programs_that_run_alone(alone: Executor, shared: Executor) -> None:
    # every program once at each of several places of a batch, and neighbours of many kinds
    rng = np.random.default_rng(0)
    order = [int(i) for _ in range(2) for i in rng.permutation(len(MIX))]
    expected = [(o.status, o.error, [grid.tolist() for grid in o.outputs]) for o in outcomes(alone, MIX)]
    results = outcomes(shared, [f"{MIX[i]}\n# {index}" for index, i in enumerate(order)])
    assert [(o.status, o.error, [grid.tolist() for grid in o.outputs]) for o in results] == [expected[i] for i in order]
    assert {str(status) for status, _, _ in expected} == {
        "ok", "invalid_output", "error", "timeout", "memory", "crash", "protocol"
    }  # fmt: skip


def test_outcomes_of_a_shared_child_come_in_order_one_each(shared: Executor) -> None:
    results = outcomes(shared, [f"def transform(grid): return [[{i % 10}, {i // 10 % 10}]]" for i in range(300)])
    assert [outcome.program_id for outcome in results] == [str(i) for i in range(300)]
    assert [outcome.outputs[1].tolist() for outcome in results] == [[[i % 10, i // 10 % 10]] for i in range(300)]
