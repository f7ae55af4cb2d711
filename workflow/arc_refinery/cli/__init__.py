"""The command line: `arc-refinery <command>`, one command per stage of the experiment.

A command is a dataclass in a module of this package: its fields are the flags, its docstring is the help. Only the
module of the requested command is imported, because imports would dominate the time of a short job.
"""

import ast
import logging
import os
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from textwrap import fill
from types import FrameType
from typing import Any

PURPOSE = "Reinforcement learning that teaches a code model to refine its own programs."

# Each command's module and class.
GROUPS: dict[str, dict[str, str]] = {
    "Stages of an experiment, in running order": {
        "fetch": "fetch.Fetch",
        "problems": "tasks.Problems",
        "tasks": "tasks.Tasks",
        "task-set": "tasks.TaskSet",
        "first-prompts": "prompts.FirstPrompts",
        "sample": "attempts.Sample",
        "judge": "attempts.Judge",
        "refine": "prompts.Refine",
        "demonstrations": "prompts.Demonstrations",
        "sft": "training.Sft",
        "train": "training.Train",
        "report": "results.Report",
    },
    "Stages of a tool-use experiment": {
        "questions": "tool_use.Questions",
        "conversations": "tool_use.Conversations",
        "train-tools": "tool_use.TrainTools",
        "episodes": "tool_use.Episodes",
    },
    "Results": {
        "compare": "results.Compare",
        "side-by-side": "results.SideBySide",
        "curves": "results.Curves",
        "lengths": "prompts.Lengths",
        "times": "results.Times",
        "submission": "results.Submission",
    },
    "Before an experiment": {
        "doctor": "doctor.Doctor",
        "memory": "results.Memory",
    },
    "Tools": {
        "execute": "attempts.Execute",
        "import-predictions": "attempts.ImportPredictions",
        "prompts learn": "prompts.Learn",
        "select-tasks": "tasks.SelectTasks",
    },
    "Maintenance of this repository": {
        "pretrain": "training.Pretrain",
        "config": "results.ConfigDocs",
    },
}
COMMANDS = {name: target for group in GROUPS.values() for name, target in group.items()}


def main() -> None:
    """Run one command. Exit code 1 and one message on bad input, exit code 2 on a wrong command line."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    words = sys.argv[1:]
    if not words or words[0] in ("-h", "--help"):
        print(overview())
        sys.exit(0 if words else 2)
    name = _command(words)
    import tyro

    from arc_refinery.errors import InputError
    from arc_refinery.gpus import complete_visible_devices

    complete_visible_devices()
    signal.signal(signal.SIGTERM, _end_with_all_that_was_started)
    command = tyro.cli(load(name), prog=f"arc-refinery {name}", args=words[len(name.split()) :])
    try:
        command.run()
    except InputError as error:
        sys.exit(f"arc-refinery: {error}")


def load(name: str) -> Callable[..., Any]:
    """Return the dataclass of a command."""
    module, _, class_name = COMMANDS[name].partition(".")
    loaded: Callable[..., Any] = getattr(import_module(f"{__name__}.{module}"), class_name)
    return loaded


def overview() -> str:
    """Return a list of all commands with the first sentence of their help."""
    columns = min(shutil.get_terminal_size().columns, 120)
    indent = 4 + max(map(len, COMMANDS))
    lines = ["usage: arc-refinery <command> [flags]", "", PURPOSE]
    lines.append("`arc-refinery <command> --help` explains a command and its flags.")
    for title, group in GROUPS.items():
        lines += ["", f"{title}:"]
        for name, target in group.items():
            begin = f"  {name}".ljust(indent)
            lines.append(fill(_summary(target), columns, initial_indent=begin, subsequent_indent=" " * indent))
    return "\n".join(lines)


def _end_with_all_that_was_started(number: int, _frame: FrameType | None) -> None:
    """Forward the signal to child processes first: vLLM's engine is one, and would keep the GPU."""
    import psutil

    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _command(words: Sequence[str]) -> str:
    for n_words in (2, 1):
        if (name := " ".join(words[:n_words])) in COMMANDS:
            return name
    close = get_close_matches(words[0], COMMANDS, n=1)
    hint = f"did you mean {close[0]!r}?" if close else "`arc-refinery --help` lists all commands"
    print(f"arc-refinery: {words[0]!r} is not a command; {hint}", file=sys.stderr)
    sys.exit(2)


def _summary(target: str) -> str:
    """First sentence of a command's docstring, read from the source without importing it."""
    module, _, class_name = target.partition(".")
    tree = ast.parse(Path(__file__).with_name(f"{module}.py").read_text())
    (found,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == class_name)
    return (ast.get_docstring(found) or "").partition("\n\n")[0].replace("\n", " ")
