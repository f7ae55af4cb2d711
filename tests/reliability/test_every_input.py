"""Every file that a command reads is corrupted by one of the sweeps, or named here with the reason."""

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import get_type_hints

import pytest
from reliability import test_foreign_input, test_records_input
from reliability.sweep import Stage
from reliability.test_every_flag import actions_of, kind_of, words_of

from arc_refinery import cli, stages
from arc_refinery.config import KINDS
from arc_refinery.outputs import Writes, flag_of

WEIGHTS = "test_every_model_file.py"
ROWS = "read as by other commands, before hours of training"
NOT_CORRUPTED = {
    "doctor --configfile": "as for doctor memory",
    "doctor power --configfile": "as for doctor memory",
    "doctor --others": "our own, of a minute ago",
    "predictions import --tasks-path": "as for the stage grade",
    "predictions submit --challenges": "as for the stage evaluation_tasks",
    "predictions submit --solutions": "as for the stage evaluation_tasks",
    "report --configfile": "as for doctor memory",
    "sample --dataset-path": "as for the stages sample and evaluation_tasks",
    "sample --lora-path": WEIGHTS,
    "stage break_programs --tasks": "as for first_prompts",
    "stage demonstrations --overlap": "as for first_prompts",
    "stage episodes --adapter": WEIGHTS,
    "stage reference_logprobs --adapter": WEIGHTS,
    "stage reference_logprobs --prompts": "as for sample",
    "stage reference_logprobs --tasks": "as for demonstrations",
    "stage refining_prompts --overlap": "as for first_prompts",
    "stage sample --adapter": WEIGHTS,
    "stage sft --data": ROWS,
    "stage train --before": "test_guard.py",
    "stage train --data": ROWS,
    "stage train --start": WEIGHTS,
    "train --dataset-path": ROWS,
}


def command_of(stage: Stage) -> str:
    two = " ".join(stage.words[:2])
    return two if two in cli.COMMANDS or stage.words[0] == "stage" else stage.words[0]


def corrupted(stage: Stage) -> Iterator[str]:
    """The flags of the files that are corrupted, or of their folders."""
    flag = ""
    for word in stage.words:
        if word.startswith("--"):
            flag = word
        elif word.startswith("{}/") and any(path.startswith(word.removeprefix("{}/")) for path in stage.inputs):
            yield flag


def files_of_stages(kind: str) -> Iterator[tuple[str, str]]:
    """The flags of files that stages read."""
    for name in stages.stages_of(kind):
        stage = stages.load(name, kind)
        hints = get_type_hints(stage, include_extras=True)
        for parameter in inspect.signature(stage).parameters.values():
            hint = hints[parameter.name]
            marks = getattr(hint, "__metadata__", ())
            is_written = any(isinstance(mark, Writes) for mark in marks)
            if parameter.kind is parameter.KEYWORD_ONLY and "Path" in str(hint) and not is_written:
                yield name, flag_of(parameter.name)


@pytest.mark.slow
def test_every_file_that_a_command_reads_is_corrupted(tmp_path: Path) -> None:
    sweeps = [*test_records_input.STAGES.values(), *test_foreign_input.STAGES.values()]
    swept = {f"{command_of(stage)} {flag}" for stage in sweeps for flag in corrupted(stage)}
    missing = {f"stage {stage} {flag}" for kind in KINDS for stage, flag in files_of_stages(kind)} - swept
    for name in cli.COMMANDS:
        command = cli.parse(words_of(name, tmp_path))
        written = {flag.replace("_", "-") for flag in command.writes()} if hasattr(command, "writes") else set()
        paths = {action.option_strings[0] for action in actions_of(name) if kind_of(action).startswith("PATH")}
        missing |= {f"{name} {flag}" for flag in paths if flag.removeprefix("--") not in written} - swept
    assert missing == NOT_CORRUPTED.keys()
