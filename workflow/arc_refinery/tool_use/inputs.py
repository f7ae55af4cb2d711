"""The files that each stage of tool use reads. `<results>` is Snakemake's variable for the folder of results."""

from collections.abc import Iterable
from pathlib import Path

from arc_refinery.config.inputs import Paths, adapters
from arc_refinery.config.loading import domain_sources
from arc_refinery.tool_use.config import Questions, ToolChoice, ToolUse


def sft_inputs(_: ToolUse) -> dict[str, Paths]:
    return {"data": ["<results>/training/conversations.parquet"]}


def grpo_inputs(experiment: ToolUse) -> dict[str, Paths]:
    data, files = training_questions(experiment), files_to_read(experiment)
    return {"data": data, "files": files, "tools": tools_in_training(experiment)}


def report_inputs(experiment: ToolUse) -> Paths:
    episodes = [
        f"<results>/{questions.name}/{arm.name}/{shard:03d}.parquet"
        for questions in experiment.data.heldout
        for arm in experiment.arms
        for shard in range(questions.shards)
    ]
    return [*heldout_questions(experiment), *episodes, *_modules(*experiment.data.heldout)]


def rows_of(experiment: ToolUse, name: str) -> Paths:
    """The files that a set of questions is read from."""
    questions = experiment.sets[name]
    return [*questions.files_read(experiment), *_modules(questions)]


def _modules(*sets: Questions) -> Paths:
    """The modules of domains of the user's own."""
    return [str(path) for name in sorted({questions.domain for questions in sets}) for path in domain_sources(name)]


def training_questions(experiment: ToolUse) -> Paths:
    return [f"<results>/questions/{questions.name}.parquet" for questions in experiment.data.train]


def heldout_questions(experiment: ToolUse) -> Paths:
    return [f"<results>/questions/{questions.name}.parquet" for questions in experiment.data.heldout]


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
    tools_of_sets = [tool for questions in experiment.data.train for tool in questions.tools]
    return [*files_of_tools([*experiment.tools, *tools_of_sets]), *_modules(*experiment.data.train)]


def tools_of_arm(experiment: ToolUse, questions: str, arm: str) -> Paths:
    tools = experiment.tools_of(questions) if experiment.arm(arm).tools else ()
    return [*files_of_tools(tools), *_modules(experiment.sets[questions])]
