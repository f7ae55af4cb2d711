"""The files that each stage of tool use reads. `<results>` is Snakemake's variable for the folder of results."""

from collections.abc import Iterable
from itertools import chain
from pathlib import Path

from arc_refinery.config.inputs import Paths, adapters, rows_files
from arc_refinery.tool_use.config import ToolChoice, ToolUse


def sft_inputs(_: ToolUse) -> dict[str, Paths]:
    return {"data": ["<results>/training/conversations.parquet"]}


def grpo_inputs(experiment: ToolUse) -> dict[str, Paths]:
    data, files = training_questions(experiment), files_to_read(experiment)
    return {"data": data, "files": files, "tools": tools_in_training(experiment)}


def report_inputs(experiment: ToolUse) -> Paths:
    return [*heldout_questions(experiment), *episode_files(experiment)]


def rows_of(experiment: ToolUse, name: str) -> Paths:
    """The file that a set of questions is read from."""
    return rows_files(experiment, experiment.sets[name])


def training_questions(experiment: ToolUse) -> Paths:
    return [f"<results>/questions/{questions.name}.parquet" for questions in experiment.data.train]


def heldout_questions(experiment: ToolUse) -> Paths:
    return [f"<results>/questions/{questions.name}.parquet" for questions in experiment.data.heldout]


def episode_files(experiment: ToolUse) -> Paths:
    """The episodes that the report compares."""
    return [
        f"<results>/{questions.name}/{arm.name}/{shard:03d}.parquet"
        for questions in experiment.data.heldout
        for arm in experiment.arms
        for shard in range(questions.shards)
    ]


def arm_adapter(experiment: ToolUse, arm: str) -> Paths:
    name = experiment.adapter_of(arm)
    return adapters([name] if name else [])


def files_to_read(experiment: ToolUse) -> Paths:
    """Every file that `read_file` can read: the time of a folder does not show changes of its files."""
    if not experiment.reads_files(experiment.all_tools.values()) or not experiment.data.files:
        return []
    return sorted(str(path) for path in Path(experiment.data.files).rglob("*") if path.is_file())


def files_of_tools(tools: Iterable[ToolChoice]) -> Paths:
    """Files that define tools."""
    return sorted({str(path) for tool in tools for path in tool.files})


def tools_in_training(experiment: ToolUse) -> Paths:
    """Files that define the tools of training questions."""
    tools_of_sets = (questions.tools for questions in experiment.data.train)
    return files_of_tools([*experiment.tools, *chain.from_iterable(tools_of_sets)])


def tools_of_arm(experiment: ToolUse, questions: str, arm: str) -> Paths:
    return files_of_tools(experiment.tools_of(questions)) if experiment.arm(arm).tools else []
