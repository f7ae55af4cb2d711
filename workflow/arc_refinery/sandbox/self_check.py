"""Check on this machine that the sandbox keeps its promises: small hostile programs with their expected outcomes.

`import os; os.fork()` must end in `error: PermissionError`. docs/sandbox.md lists all promises with their tests; these
are the ones that depend on the machine's kernel and take only seconds to test.
"""

import numpy as np

from arc_refinery.sandbox.executor import Executor
from arc_refinery.sandbox.types import Program, Status, Trial

REFUSED = (Status.error, "PermissionError")
# Each promise, the body of a `transform` that tests it, and the expected status and type of error
PROMISES: dict[str, tuple[str, Status, str]] = {
    "a right program gives its grid": ("return grid", Status.ok, ""),
    "an endless loop is ended": ("while True: pass", Status.timeout, ""),
    "memory is limited": ("return bytearray(2**40)", Status.memory, "MemoryError"),
    "no file is read": ("open('/etc/passwd').read()", *REFUSED),
    "no file is made": ("open('/tmp/arc-refinery-self-check', 'w')", *REFUSED),
    "no folder is listed": ("import os; os.listdir('/')", *REFUSED),
    "no process is started": ("import os; os.fork()", *REFUSED),
    "no network is reached": ("import socket; socket.socket()", *REFUSED),
    "no other process gets a signal": ("import os; os.kill(os.getppid(), 0)", *REFUSED),
    "no random numbers come from the kernel": ("import os; os.urandom(1)", *REFUSED),
    "leaving without an answer is a crash": ("import os; os._exit(0)", Status.crash, ""),
}


def self_check(executor: Executor) -> list[Trial]:
    """Run the hostile programs; return a trial for each, in the order of `PROMISES`."""
    grid = np.ones((1, 1), np.uint8)
    programs = (
        Program(promise, f"def transform(grid):\n    {body}", (grid,)) for promise, (body, _, _) in PROMISES.items()
    )
    trials = []
    for outcome in executor.run(programs):
        _, status, error_type = PROMISES[outcome.program_id]
        is_kept = outcome.status is status and (not error_type or outcome.error_type == error_type)
        result = f"{outcome.status}, {outcome.error}" if outcome.error else str(outcome.status)
        trials.append(Trial(outcome.program_id, is_kept, result))
    return trials
