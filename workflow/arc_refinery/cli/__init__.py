"""The command line: `arc-refinery <command>`, and `arc-refinery stage`, which does a job of an experiment.

A command is a pydantic class in a module of this package (command.py): its fields are the flags, its docstring is the
help. Only the module of the requested command is imported, because imports would dominate the time of a short job.
"""

import ast
import errno
import gc
import logging
import os
import select
import shutil
import signal
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from textwrap import fill
from typing import Any, NoReturn, TextIO

PURPOSE = "Reinforcement learning that teaches a code model to refine its own programs."

# Each command's module in this package, and its class
SECTIONS: dict[str, dict[str, str]] = {
    "Before an experiment": {
        "init": "init.Init",
        "doctor": "doctor.Doctor",
        "doctor memory": "doctor.Memory",
        "doctor power": "doctor.Power",
        "prompts learn": "prompts.Learn",
        "prompts export": "prompts.ExportTemplate",
        "tasks select": "prompts.SelectTasks",
    },
    "Results": {
        "report": "results.WriteReport",
        "compare": "results.Compare",
        "show": "results.Show",
        "report curves": "results.Curves",
        "report samples": "results.ShowSamples",
        "report lengths": "prompts.StudyLengths",
        "report export": "results.Export",
        "report publish": "results.Publish",
    },
    "Programs and predictions from elsewhere": {
        "execute": "programs.Execute",
        "predictions import": "programs.ImportPredictions",
        "predictions submit": "results.Submission",
    },
    "Command lines of the published scripts": {"sample": "published.Sample", "train": "published.Train"},
    "Changes to this repository, and a domain of your own": {
        "dev config": "results.ConfigDocs",
        "dev new-domain": "init.NewDomain",
    },
}
COMMANDS = {name: target for section in SECTIONS.values() for name, target in section.items()}

# What the extra `train` of pyproject.toml installs, by the names of modules
OF_MODELS = ("accelerate", "datasets", "peft", "safetensors", "tensorboard", "torch", "transformers", "trl")
_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
_CLOSED_PIPE = 128 + signal.SIGPIPE  # the exit code of a shell's command that such a pipe ends


def main() -> None:
    """Run one command. Exit code 1 and one message on bad input, exit code 2 on a wrong command line."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # SIGINT may be ignored in the background
        signal.signal(signal.SIGINT, _interrupt)
    # read when torch is loaded: threads that wait leave their core to others, instead of spinning
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    _open_closed_streams()
    try:
        try:
            _run()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        if not (_is_closed(sys.stdout) or _is_closed(sys.stderr)):
            raise
        _discard_output()
        sys.exit(_CLOSED_PIPE)
    except OSError as error:
        if error.filename is not None or error.errno not in _UNWRITABLE:  # `files.writing` explains those of files
            raise
        _discard_output()
        sys.exit(f"arc-refinery: standard output cannot be written: {error.strerror}; send it elsewhere")


def _interrupt(*_: object) -> NoReturn:
    """End at Ctrl-C without a traceback, also where an import makes another error of it."""
    sys.excepthook = _stop
    raise KeyboardInterrupt


def _stop(*_: object) -> None:
    from arc_refinery.runs.ending import end

    print(
        "arc-refinery: stopped. The same command continues sampling and training; others start again.", file=sys.stderr
    )
    end(signal.SIGINT)


def _open_closed_streams() -> None:
    """Open what a job's starter has closed (`2>&-`): the next file would get its number, and all that is printed."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            if null > number and not os.path.exists(f"/proc/self/fd/{number}"):
                os.dup2(null, number)
            setattr(sys, name, os.fdopen(null, mode, closefd=False))


def _discard_output() -> None:
    """Discard also what Python flushes when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _is_closed(stream: TextIO) -> bool:
    """Return whether a stream is a pipe that nothing reads any more, as `| head -1` leaves it."""
    poll = select.poll()
    poll.register(stream, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _run() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    if (encoding := sys.getfilesystemencoding()) != "utf-8":  # of names and of what is written
        sys.exit(f"arc-refinery: the locale's encoding is {encoding}, not UTF-8; set LC_ALL=C.UTF-8 or PYTHONUTF8=1")
    words = sys.argv[1:]
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    if words == ["--version"]:
        from importlib.metadata import version

        print(f"arc-refinery {version('arc-refinery')}")
        return
    if words == ["--completion"]:
        from arc_refinery.cli.command import completion

        print(completion())
        return
    if not words or words[0] in ("-h", "--help"):
        print(overview())
        sys.exit(0 if words else 2)
    from arc_refinery.errors import InputError
    from arc_refinery.runs.ending import end_at_sigterm, end_with_snakemake
    from arc_refinery.sampling.gpus import complete_visible_devices, set_vllm_variables

    gc.set_threshold(10_000)  # else the collector takes a fifth of the time that torch and transformers are imported
    complete_visible_devices()
    set_vllm_variables()
    end_at_sigterm()
    end_with_snakemake()
    try:
        if words[0] == "stage":
            _check_unicode("stage", words)
            from arc_refinery import stages

            stages.run(words[1:])
            return
        command = parse(words)
        command.check_outputs()
        command.run()
    except InputError as error:
        sys.exit(f"arc-refinery: {error}")
    except ModuleNotFoundError as error:
        if (name := (error.name or "").partition(".")[0]) not in OF_MODELS:
            raise
        sys.exit(
            f"arc-refinery: {name} is not installed here, and this samples from a model's weights or trains them; "
            "pip install 'arc-refinery[train]', or sample from a server: model.backend: endpoint (docs/your-own.md)"
        )


def parse(words: Sequence[str]) -> Any:
    """Return a command with its flags; exit with code 2 on a wrong command line."""
    name, flags = _command(words)
    _check_unicode(name, flags)
    from arc_refinery.cli.command import read

    return read(load(name), flags, f"arc-refinery {name}")


def _check_unicode(name: str, words: Sequence[str]) -> None:
    # bytes of a file's name, which Parquet and JSON cannot hold
    if unreadable := [word for word in words if word != word.encode(errors="ignore").decode()]:
        print(f"arc-refinery {name}: {unreadable[0]!r} is not valid UTF-8; rename the file", file=sys.stderr)
        sys.exit(2)


def load(name: str) -> Any:
    """Return the class of a command."""
    module, class_name = COMMANDS[name].split(".")
    return getattr(import_module(f"{__name__}.{module}"), class_name)


def overview(group: str = "") -> str:
    """Return a list of all commands, or those of a group, with the first sentence of their help."""
    columns = min(shutil.get_terminal_size().columns, 120)
    indent = 4 + max(map(len, COMMANDS))
    lines = [f"usage: arc-refinery {group or '<command>'} {'<command> ' if group else ''}[flags]", "", PURPOSE]
    lines.append("`arc-refinery <command> --help` explains a command and its flags, and shows an example.")
    lines.append("`arc-refinery stage --help` lists the stages, which jobs of an experiment call.")
    lines.append("`source <(arc-refinery --completion)` lets bash complete commands and flags.")
    for title, section in SECTIONS.items():
        commands = {name: target for name, target in section.items() if name.split()[0] == group or not group}
        lines += ["", f"{title}:"] if commands else []
        for name, target in commands.items():
            begin = f"  {name}".ljust(indent)
            lines.append(fill(_summary(target), columns, initial_indent=begin, subsequent_indent=" " * indent))
    return "\n".join(lines)


def _command(words: Sequence[str]) -> tuple[str, list[str]]:
    """Return the name of the command and the words after it; exit if there is no such command."""
    for n_words in (2, 1):
        if (name := " ".join(words[:n_words])) in COMMANDS:
            return name, list(words[n_words:])
    if words[0] in {name.split()[0] for name in COMMANDS}:
        print(overview(words[0]))
        sys.exit(0 if words[1:2] in (["-h"], ["--help"]) else 2)
    close = get_close_matches(" ".join(words[:2]), COMMANDS, n=1) or get_close_matches(words[0], COMMANDS, n=1)
    hint = f"did you mean {close[0]!r}?" if close else "`arc-refinery --help` lists all commands"
    print(f"arc-refinery: {words[0]!r} is not a command; {hint}", file=sys.stderr)
    sys.exit(2)


def _summary(target: str) -> str:
    """First sentence of a command's docstring, read from the source without importing it."""
    module, class_name = target.split(".")
    tree = ast.parse(Path(__file__).with_name(f"{module}.py").read_text())
    (command,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == class_name)
    return (ast.get_docstring(command) or "").partition("\n\n")[0].replace("\n", " ")
