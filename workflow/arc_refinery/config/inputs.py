"""The files that each stage reads. `<results>` is a variable of Snakemake: the folder of the experiment's results."""

from functools import singledispatch
from pathlib import Path

from arc_refinery import hub
from arc_refinery.config.base import ConfigError
from arc_refinery.config.experiment import Experiment
from arc_refinery.config.refining import Refining
from arc_refinery.config.sampling import ModelConfig
from arc_refinery.config.stages import fetched_folder, rows_files, template
from arc_refinery.config.tool_use import ToolUse
from arc_refinery.prompts import template_files

Paths = list[str]


def models(experiment: Experiment, model: ModelConfig | None = None) -> Paths:
    """The model where it is fetched, by default the experiment's: an input of all that read it."""
    download = (model or experiment.model).download
    return [fetched_folder(experiment, download)] if download else []


def templates(experiment: Refining) -> Paths:
    """Files of the wording of all prompts."""
    return [str(path) for path in template_files(template(experiment))]


def fetched_records(experiment: Experiment) -> Paths:
    return [str(hub.record_of(Path(fetched_folder(experiment, one)))) for one in experiment.downloads]


def adapters(names: list[str]) -> Paths:
    return [f"<results>/adapters/{name}" for name in names]


def start_of(experiment: Experiment, run: str) -> Paths:
    """The adapter of SFT, where GRPO follows it."""
    name = experiment.start_of(run)
    return adapters([name] if name else [])


# Inputs of the rules that every kind of experiment shares. Each kind registers its own.


@singledispatch
def sft_inputs(experiment: Experiment) -> dict[str, Paths]:
    """Inputs of the rule `sft` by name: `data`, the rows to learn from, and other files that decide its result."""
    raise NotImplementedError(f"{experiment.kind}: register config.inputs.sft_inputs")


@singledispatch
def grpo_inputs(experiment: Experiment) -> dict[str, Paths]:
    """Inputs of the rule `train` by name: `data`, the files to train on, and other files that decide its result."""
    raise NotImplementedError(f"{experiment.kind}: register config.inputs.grpo_inputs")


@singledispatch
def report_inputs(experiment: Experiment) -> Paths:
    """Files that the report compares."""
    raise NotImplementedError(f"{experiment.kind}: register config.inputs.report_inputs")


def reports(experiment: Refining, origin: str) -> Paths:
    """The reports of the experiments to compare. Each is made with its own config: here, others have to be there.

    Raises `ConfigError` that blames the file `origin`.
    """
    if not experiment.compare:
        raise ConfigError(f"{origin}: compare: names no experiments; name those to compare, [demo, seeds-demo]")
    for name in experiment.compare:
        if name != experiment.experiment and not Path(f"results/{name}.md").exists():
            raise ConfigError(
                f"{origin}: compare: results/{name}.md does not exist. Make it first: snakemake --cores 2"
                f" --configfile <the config with `experiment: {name}`>"
            )
    return [f"results/{name}.md" for name in experiment.compare]


# Refining


@sft_inputs.register
def _(experiment: Refining) -> dict[str, Paths]:
    return {"data": [f"<results>/{tasks}/training/demonstrations.parquet" for tasks in experiment.training_tasks]}


@grpo_inputs.register
def _(experiment: Refining) -> dict[str, Paths]:
    return {"data": training_prompt_files(experiment), "template": templates(experiment)}


@report_inputs.register
def _(experiment: Refining) -> Paths:
    return [
        *(f"<results>/tasks/{one.name}.parquet" for one in experiment.evaluation.sets),
        *training_prompt_files(experiment),
        *evaluation_prompts(experiment),
        *evaluated_shards(experiment, "attempts"),
        *evaluated_shards(experiment, "verdicts"),
    ]


def task_set(experiment: Refining, tasks: str) -> Paths:
    """The files that an evaluation set is read from, and the list of the tasks to keep."""
    chosen = experiment.evaluation_set(tasks)
    return [path for path in (chosen.path, chosen.solutions, chosen.only) if path]


def shards(experiment: Refining, tasks: str, branch: str, what: str) -> Paths:
    """Paths of all shards of the `attempts` or `verdicts` of one branch of a part or an evaluation set, in order.

    Thousands: only functions of wildcards may ask, since every job on a cluster parses the rules and few need them.
    """
    return [f"<results>/{tasks}/{branch}/{what}/{shard:03d}.parquet" for shard in range(experiment.n_shards(tasks))]


def first_turn_shards(experiment: Refining, tasks: str, what: str) -> Paths:
    return shards(experiment, tasks, "turn1", what)


def parents(experiment: Refining, tasks: str, branch: str, what: str) -> Paths:
    """The `attempts` or `verdicts` that a branch of turn 2 or later refines."""
    return shards(experiment, tasks, experiment.branch_before(branch), what)


def parent_prompts(experiment: Refining, tasks: str, branch: str) -> str:
    return f"<results>/{tasks}/{experiment.branch_before(branch)}/prompts.parquet"


def sampler(experiment: Refining, tasks: str, branch: str) -> Paths:
    return models(experiment, experiment.sampler(tasks, branch))


def adapter(experiment: Refining, tasks: str, branch: str) -> Paths:
    """The trained adapter where a branch is sampled with one."""
    name = experiment.adapter_of(tasks, branch)
    return adapters([name] if name else [])


def training_prompt_files(experiment: Refining) -> Paths:
    return [f"<results>/{tasks}/training/prompts.parquet" for tasks in experiment.training_tasks if experiment.runs]


def evaluated_shards(experiment: Refining, what: str) -> Paths:
    """All `attempts` or `verdicts` that the report compares."""
    return [path for tasks, branch in _branches(experiment) for path in shards(experiment, tasks, branch, what)]


def evaluation_prompts(experiment: Refining) -> Paths:
    """The prompts of these attempts; the report shows their lengths."""
    return [f"<results>/{tasks}/{branch}/prompts.parquet" for tasks, branch in _branches(experiment)]


def all_prompts(experiment: Refining) -> Paths:
    """Every file of prompts of the experiment: first turns, what is trained on, what the arms answer."""
    first = [f"<results>/{tasks}/turn1/prompts.parquet" for tasks in experiment.refined_for_training]
    return list(dict.fromkeys([*first, *training_prompt_files(experiment), *evaluation_prompts(experiment)]))


def _branches(experiment: Refining) -> list[tuple[str, str]]:
    """(evaluation set, branch) of everything that the report compares."""
    return [(task_set.name, branch) for task_set in experiment.evaluation.sets for branch in experiment.branches]


# Tool use


@sft_inputs.register
def _(_: ToolUse) -> dict[str, Paths]:
    return {"data": ["<results>/training/conversations.parquet"]}


@grpo_inputs.register
def _(experiment: ToolUse) -> dict[str, Paths]:
    return {"data": training_questions(experiment), "files": files_to_read(experiment)}


@report_inputs.register
def _(experiment: ToolUse) -> Paths:
    return [*heldout_questions(experiment), *episode_files(experiment)]


def rows_of(experiment: ToolUse, name: str) -> Paths:
    """The file that a set of questions is read from."""
    return rows_files(experiment, experiment.sets[name])


def training_questions(experiment: ToolUse) -> Paths:
    return [f"<results>/questions/{one.name}.parquet" for one in experiment.data.train]


def heldout_questions(experiment: ToolUse) -> Paths:
    return [f"<results>/questions/{one.name}.parquet" for one in experiment.data.heldout]


def episode_files(experiment: ToolUse) -> Paths:
    """The episodes that the report compares."""
    return [
        f"<results>/{one.name}/{arm.name}/{shard:03d}.parquet"
        for one in experiment.data.heldout
        for arm in experiment.evaluation.arms
        for shard in range(one.shards)
    ]


def arm_adapter(experiment: ToolUse, arm: str) -> Paths:
    name = experiment.adapter_of(arm)
    return adapters([name] if name else [])


def files_to_read(experiment: ToolUse) -> Paths:
    """Every file that `read_file` can read: the time of a folder does not show changes of its files."""
    if "read_file" not in experiment.tools or not experiment.data.files:
        return []
    return sorted(str(path) for path in Path(experiment.data.files).rglob("*") if path.is_file())
