"""Programs that reach beyond themselves by names that look plain, so that they may share a child with good ones.

Alone they hurt nobody but themselves. In the shared mode they must either run alone or leave their neighbours unhurt.
"""

from collections.abc import Callable

import pytest
from hostile import arena
from hostile.arena import GOOD

from arc_refinery.sandbox import Executor, Outcome, Status

pytestmark = pytest.mark.hostile

Attack = Callable[[str], Outcome]

# Each ends with np.sum, or np.pi, being another one.
REACHES = {
    "frame of a generator": """
import numpy as np
def generator(): yield
scope = generator().gi_frame.f_builtins
scope["setattr"](np, "sum", lambda *args, **kwargs: 7)
""",
    "frame of a coroutine": """
import numpy as np
async def coroutine(): pass
waiting = coroutine()
scope = waiting.cr_frame.f_builtins
waiting.close()
scope["setattr"](np, "sum", lambda *args, **kwargs: 7)
""",
    "format string": """
import numpy as np
import string
names, _ = string.Formatter().get_field("0.__dict__", [np], {})
names["sum"] = lambda *args, **kwargs: 7
""",
    "class pattern": """
import numpy as np
match np:
    case object(__dict__=names):
        names["sum"] = lambda *args, **kwargs: 7
""",
    "update_wrapper": """
import collections, functools
import numpy as np
source = collections.namedtuple("Source", "sum")(lambda *args, **kwargs: 7)
functools.update_wrapper(np, source, assigned=("sum",), updated=())
""",
    "annotation that is evaluated": """
import functools
import numpy as np
def evil(*args, **kwargs): return 7
def function(x): pass
def variant(x: "np.__dict__.__setitem__('sum', evil) or int"): pass
functools.singledispatch(function).register(variant)
""",
    "pickle": """
import collections
import numpy as np
data = b"cbuiltins\\nexec\\n(S'import numpy; numpy.sum = lambda *args, **kwargs: 7'\\ntR."
at = [0]
def read(n=-1):
    start, at[0] = at[0], len(data) if n < 0 else min(at[0] + n, len(data))
    return data[start:at[0]]
def readline(): return read(data.index(b"\\n", at[0]) + 1 - at[0])
def seek(offset, whence=0): at[0] = offset + at[0] * whence
def tell(): return at[0]
file = collections.namedtuple("File", "read readline seek tell")(read, readline, seek, tell)
np.load(file, allow_pickle=True)
""",
    "state of a copy": """
import copy
import numpy as np
state = {"sum": lambda *args, **kwargs: 7}
Source = type("Source", (), {"__reduce_ex__": lambda self, protocol: (lambda: np, (), (None, state))})
copy.copy(Source())
""",
    "address": """
import numpy as np
interface = {"version": 3, "shape": (1,), "typestr": "<f8", "data": (id(np.pi) + 16, False)}
Memory = type("Memory", (), {"__array_interface__": interface})
np.asarray(Memory())[0] = 3.0
""",
}


@pytest.mark.parametrize("name", REACHES)
def test_reaching_for_libraries(attack: Attack, name: str) -> None:
    outcome = attack(f"{REACHES[name]}\n{GOOD}")
    assert [grid.tolist() for grid in outcome.outputs] == [[[2, 1]]]


@pytest.mark.parametrize("name", REACHES)
def test_reaching_for_libraries_works(executor: Executor, name: str) -> None:
    """Not an attack: it shows that the programs of the test above do what they try, to themselves."""
    source = f"{REACHES[name]}\ndef transform(grid): return [[np.sum(grid), int(100 * np.pi) % 10]]"
    (outcome,) = arena.outcomes_of(executor, [source])
    assert [grid.tolist() for grid in outcome.outputs] == [[[3, 0]] if name == "address" else [[7, 4]]]


def test_answering_for_its_neighbours_by_the_name_of_an_error(attack: Attack) -> None:
    source = """
Bytes = type("Bytes", (bytes,), {"__len__": lambda self: 0})
grid = b"\\x01\\x00\\x01\\x00\\x07"
answer = bytes(8) + b"ARC2\\x00" + b"\\xff" * 4 + bytes(4) + len(grid).to_bytes(4, "little") + b"\\x01\\x00" + grid
methods = {"__getitem__": lambda self, key: self, "encode": lambda self, *args: Bytes(5 * answer)}
Name = type("Name", (str,), methods)
def transform(grid): raise type(Name("Error"), (Exception,), {})("")
"""
    # A protocol error where what it wrote is seen; an error where it is made harmless before.
    assert attack(source).status in (Status.protocol, Status.error)


LATE = """
def late():
    try:
        yield
    finally:
        while True: pass
waiting = late()
next(waiting)
def transform(grid): return grid[:, ::-1]
"""
COLLECTING = "def transform(grid):\n    x = [[] for _ in range(5000)]\n    return grid\n# {}"


def test_what_a_program_leaves_to_the_garbage_collector(executor: Executor) -> None:
    """It must not cost its neighbours their time: the second program is collected while the third runs."""
    sources = [COLLECTING.format(i) for i in range(11)]
    sources.insert(1, LATE)
    outcomes = arena.outcomes_of(executor, sources)
    outcomes.pop(1)  # whether its own answer or its own hang comes first is all the same
    assert [outcome.error for outcome in outcomes] == [""] * 11


def test_what_a_program_leaves_to_the_next_check(attack: Attack) -> None:
    source = """
from common import *
def hang(self, other):
    while True: pass
Color.ALL_COLORS[0] = type("Item", (), {"__eq__": hang})()
def transform(grid): return grid
"""
    attack(source)  # its own outcome: ok, or a timeout where the check is on its own account
