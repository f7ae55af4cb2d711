"""The tool `python`: its use by a model, and that an episode with state is not a way out of the sandbox."""

from pathlib import Path

import pytest
from hostile import arena

from arc_refinery.sandbox import Executor
from arc_refinery.tool_use.tools.toolbox import Toolbox

pytestmark = pytest.mark.hostile


def attacked(executor: Executor, *codes: str) -> list[str]:
    """The results of an episode's calls; no process has come or gone, and other episodes are unhurt."""
    before = arena.descendants()
    hostile, other = (Toolbox(("python",), executor) for _ in range(2))
    with arena.time_limit(arena.PATIENCE_SECONDS):
        other.run("python", {"code": "x = 41"})
        results = [hostile.run("python", {"code": code}).text for code in codes]
        assert other.run("python", {"code": "x += 1\nprint(x)\nsorted('ba')"}).text == "42\n['a', 'b']"
    assert arena.descendants() == before
    return results


DENIED = "Error: PermissionError: [Errno 1] Operation not permitted"


@pytest.mark.parametrize(
    "code",
    [
        "open({secret!r}).read()",
        "open({folder!r} + '/made', 'w')",
        "import os\nos.remove({secret!r})",
        "import os\nos.listdir({folder!r})",
        "import socket\nsocket.socket()",
        "import os\nos.fork()",
        "import os\nos.kill(os.getppid(), 9)",
        "import os\nopen(f'/proc/{{os.getppid()}}/mem', 'rb')",
        "import subprocess\nsubprocess.run(['true'])",
    ],
)
def test_it_reaches_nothing_outside_in_a_later_call_either(executor: Executor, tmp_path: Path, code: str):
    secret = tmp_path / "answers.txt"
    secret.write_text("42")
    attempt = code.format(secret=str(secret), folder=str(tmp_path))
    first, set_up, again = attacked(executor, attempt, "x = 1", attempt)
    assert (first[: len(DENIED)], again[: len(DENIED)]) == (DENIED, DENIED)
    assert set_up.startswith("(no output)")
    assert [path.name for path in tmp_path.iterdir()] == ["answers.txt"]


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("while True: pass", "Error: Timeout: more than 1 s of CPU time"),
        (
            "import time\nwhile True:\n    try: time.sleep(9)\n    except BaseException: pass",
            "Error: Timeout: more than 6 s",
        ),
        ("def f():\n    try: f()\n    finally: f()\nf()", "Error: Timeout: more than 1 s of CPU time"),
        ("x = [0] * 10**9", "Error: MemoryError: more than 256 MB"),
        ("x = []\nwhile True: x.append(bytes(10**6))", "Error: MemoryError: more than 256 MB"),
        ("import os\nos._exit(0)", "Error: Crash: the process ended without a result"),
        ("import ctypes\nctypes.string_at(0)", "Error: Crash: killed by signal 11"),
        ("while True: print('x' * 1000)", "Error: Timeout: more than 1 s of CPU time"),
    ],
)
def test_what_does_not_end_well_is_a_result_and_leaves_the_session(executor: Executor, code: str, error: str):
    before, failed, after = attacked(executor, "y = 7", code, "y")
    assert before.startswith("(no output)")
    assert failed.startswith(error)
    assert after == "7"


@pytest.mark.parametrize(
    "code",
    [
        "import builtins\nbuiltins.sorted = builtins.print = lambda *_: 'broken'",
        "import builtins\nbuiltins.x = 5",
        "import sys\nsys.stdout = None",
        "import sys\nsys.modules.clear()",
        "import random\nrandom.seed = None",
        "import sys\nsys.setrecursionlimit(60)",
        "__builtins__ = None",
    ],
)
def test_what_a_session_breaks_is_its_own(executor: Executor, code: str):
    attacked(executor, code, "1")  # looks at another episode in the end
    fresh = Toolbox(("python",), executor)
    assert fresh.run("python", {"code": "x"}).text == "Error: NameError: name 'x' is not defined (line 1)"


def test_the_code_of_other_episodes_cannot_be_found(executor: Executor):
    other = Toolbox(("python",), executor)
    other.run("python", {"code": "secret = 'the answer is 42'"})
    look = """
import gc, sys
frame, found = sys._getframe(), []
while frame:
    found += [repr(value) for value in (*frame.f_locals.values(), *frame.f_globals.values())]
    frame = frame.f_back
found += [repr(one) for one in gc.get_objects()]
word = " ".join(["the", "answer", "is", "42"])
any(word in one for one in found)
"""
    assert attacked(executor, look)[0] == "False"
    assert other.run("python", {"code": look}).text == "True"  # it does find what is there


def test_endless_loops_after_many_calls_end(executor: Executor):
    *_, last = attacked(executor, *[f"x{n} = {n}" for n in range(3)], "while True: pass")
    # 3 calls and this one have 0.5 s each
    assert last == ("Error: Timeout: more than 2 s of CPU time, including 3 earlier calls, which are run again")
