"""Reinforcement learning that teaches a code model to repair its own programs: one subcommand a stage.

`arc-refinery <stage> --help` explains a stage and its flags.
"""

import logging
import sys
from collections.abc import Callable
from typing import Any

import tyro

from arc_refinery.cli.attempts import Execute, ImportPredictions, Judge, Sample
from arc_refinery.cli.prompts import Demonstrations, FirstPrompts, Lengths, Prompts, Refine
from arc_refinery.cli.results import Compare, ConfigDocs, Curves, Report, SideBySide, Submission, Times
from arc_refinery.cli.tasks import Problems, SelectTasks, Tasks, TaskSet
from arc_refinery.cli.tool_use import Conversations, Episodes, Questions, ToolReport, TrainTools
from arc_refinery.cli.training import Pretrain, Sft, Train
from arc_refinery.errors import InputError

STAGES: dict[str, Callable[..., Any]] = {
    "problems": Problems,
    "tasks": Tasks,
    "task-set": TaskSet,
    "first-prompts": FirstPrompts,
    "prompts": tyro.conf.OmitSubcommandPrefixes[Prompts],
    "refine": Refine,
    "sample": Sample,
    "execute": Execute,
    "import-predictions": ImportPredictions,
    "judge": Judge,
    "demonstrations": Demonstrations,
    "sft": Sft,
    "train": Train,
    "questions": Questions,
    "conversations": Conversations,
    "train-tools": TrainTools,
    "episodes": Episodes,
    "tool-report": ToolReport,
    "curves": Curves,
    "report": Report,
    "compare": Compare,
    "side-by-side": SideBySide,
    "times": Times,
    "lengths": Lengths,
    "submission": Submission,
    "pretrain": Pretrain,
    "select-tasks": SelectTasks,
    "config": ConfigDocs,
}


def main() -> None:
    """Run one stage; bad input ends with one message and exit code 1."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    stage = tyro.extras.subcommand_cli_from_dict(STAGES, prog="arc-refinery", description=__doc__)
    try:
        stage.run()
    except InputError as error:
        sys.exit(f"arc-refinery: {error}")
