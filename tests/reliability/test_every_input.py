"""Every file that a command reads is corrupted by one of the sweeps, or named here with the reason."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from reliability import test_foreign_input, test_records_input
from reliability.sweep import Stage
from reliability.test_every_flag import COMMANDS, actions_of, kind_of, words_of

from arc_refinery import cli

WEIGHTS = "test_every_model_file.py"
ROWS = "read as by other commands, before hours of training"
NOT_CORRUPTED = {
    "doctor --configfile": "as for doctor memory",
    "doctor power --configfile": "as for doctor memory",
    "doctor --others": "our own, of a minute ago",
    "predictions import --tasks-path": "as for grade",
    "predictions submit --challenges": "as for tasks evaluation",
    "predictions submit --solutions": "as for tasks evaluation",
    "prompts refine --overlap": "as for prompts first",
    "prompts demonstrations --overlap": "as for prompts first",
    "report --configfile": "as for doctor memory",
    "sample --lora-path": WEIGHTS,
    "sft --dataset-path": ROWS,
    "tasks overlap --messages": "as for prompts learn",
    "tools conversations --files": "what the model reads, of any content",
    "tools episodes --files": "what the model reads, of any content",
    "tools episodes --lora-path": WEIGHTS,
    "train --continue-from": "test_guard.py",
    "train --dataset-path": ROWS,
    "train --files": "what the model reads, of any content",
    "train --lora-path": WEIGHTS,
}


def command_of(stage: Stage) -> str:
    two = " ".join(stage.words[:2])
    return two if two in cli.COMMANDS else stage.words[0]


def corrupted(stage: Stage) -> Iterator[str]:
    """The flags of the files that are corrupted, or of their folders."""
    flag = ""
    for word in stage.words:
        if word.startswith("--"):
            flag = word
        elif word.startswith("{}/") and any(path.startswith(word.removeprefix("{}/")) for path in stage.inputs):
            yield flag


@pytest.mark.slow
def test_every_file_that_a_command_reads_is_corrupted(tmp_path: Path) -> None:
    stages = [*test_records_input.STAGES.values(), *test_foreign_input.STAGES.values()]
    swept = {f"{command_of(stage)} {flag}" for stage in stages for flag in corrupted(stage)}
    missing = set()
    for name in COMMANDS:
        command = cli.parse(words_of(name, tmp_path))
        written = {flag.replace("_", "-") for flag in command.writes()} if hasattr(command, "writes") else set()
        paths = {action.option_strings[0] for action in actions_of(name) if kind_of(action).startswith("PATH")}
        words = name.partition(" --kind")[0]
        missing |= {f"{words} {flag}" for flag in paths if flag.removeprefix("--") not in written} - swept
    assert missing == NOT_CORRUPTED.keys()
