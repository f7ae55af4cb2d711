"""Run untrusted programs: docs/internals.md says what is covered and what is not."""

from arc_refinery.sandbox.executor import Executor
from arc_refinery.sandbox.types import Limits, Outcome, Program, Script, Status, Value
