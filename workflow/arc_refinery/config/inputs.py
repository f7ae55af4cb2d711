"""The files that each stage reads. `<results>` is a variable of Snakemake: the folder of the experiment's results."""

from pathlib import Path

from arc_refinery import hub
from arc_refinery.config.base import ConfigError
from arc_refinery.config.experiment import Experiment
from arc_refinery.config.sampling import Network
from arc_refinery.config.stages import fetched, rows_files, template
from arc_refinery.config.tool_use import ToolUse
from arc_refinery.prompts import template_files

Paths = list[str]


def models(experiment: Experiment | ToolUse, model: Network | None = None) -> Paths:
    """The model where it is fetched, by default the experiment's: an input of all that read it."""
    download = (model or experiment.model).download
    return [fetched(experiment, download)] if download else []


def templates(experiment: Experiment) -> Paths:
    """Files of the wording of all prompts."""
    return [str(path) for path in template_files(template(experiment))]


def fetched_records(experiment: Experiment | ToolUse) -> Paths:
    return [str(hub.record_of(Path(fetched(experiment, one)))) for one in experiment.downloads]


def adapters(names: list[str]) -> Paths:
    return [f"<results>/adapters/{name}" for name in names]


def start_of(experiment: Experiment | ToolUse, run: str) -> Paths:
    """The adapter of SFT, where GRPO follows it."""
    name = experiment.start_of(run)
    return adapters([name] if name else [])


def demonstrations(experiment: Experiment | ToolUse) -> dict[str, Paths]:
    """What fine-tuning learns from, under the name of the rule's input."""
    if isinstance(experiment, ToolUse):
        return {"conversations": ["<results>/training/conversations.parquet"]}
    rows = [f"<results>/{tasks}/training/demonstrations.parquet" for tasks in experiment.training_tasks]
    return {"demonstrations": rows}


def trained_on(experiment: Experiment | ToolUse) -> dict[str, Paths]:
    """What all GRPO trainings of the experiment are trained on, under the names of the rule's inputs."""
    if isinstance(experiment, ToolUse):
        return {"questions": training_questions(experiment), "files": files_to_read(experiment)}
    return {"prompts": training_prompts(experiment), "template": templates(experiment)}


def compared(experiment: Experiment | ToolUse) -> Paths:
    """What the report compares."""
    if isinstance(experiment, ToolUse):
        return [*heldout_questions(experiment), *episodes(experiment)]
    return [
        *(f"<results>/tasks/{one.name}.parquet" for one in experiment.evaluation.sets),
        *training_prompts(experiment),
        *evaluation_prompts(experiment),
        *evaluated(experiment, "attempts"),
        *evaluated(experiment, "verdicts"),
    ]


def reports(experiment: Experiment, origin: str) -> Paths:
    """The reports of the experiments to compare. Each is made with its own config: here, others have to be there.

    Raises `ConfigError` that blames the file `origin`.
    """
    if not experiment.compare:
        raise ConfigError(f"{origin}: compare: names no experiments; name those to compare, [demo, seeds-demo]")
    for name in experiment.compare:
        if name != experiment.experiment and not Path(f"results/{name}.md").exists():
            raise ConfigError(
                f"{origin}: compare: results/{name}.md does not exist. Make it first: snakemake --cores 2"
                f" --configfile <the config that says `experiment: {name}`>"
            )
    return [f"results/{name}.md" for name in experiment.compare]


# Refining


def task_set(experiment: Experiment, tasks: str) -> Paths:
    """The files that an evaluation set is read from, and the one that says which of its tasks are wanted."""
    chosen = experiment.evaluation_set(tasks)
    return [path for path in (chosen.path, chosen.solutions, chosen.only) if path]


def shards(experiment: Experiment, tasks: str, branch: str, what: str) -> Paths:
    """Paths of all shards of the `attempts` or `verdicts` of one branch of a part or an evaluation set, in order.

    Thousands: only functions of wildcards may ask, since every job on a cluster parses the rules and few need them.
    """
    return [f"<results>/{tasks}/{branch}/{what}/{shard:03d}.parquet" for shard in range(experiment.n_shards(tasks))]


def first_turn(experiment: Experiment, tasks: str, what: str) -> Paths:
    return shards(experiment, tasks, "turn1", what)


def parents(experiment: Experiment, tasks: str, branch: str, what: str) -> Paths:
    """The `attempts` or `verdicts` that a branch of turn 2 or later refines."""
    return shards(experiment, tasks, experiment.branch_before(branch), what)


def parent_prompts(experiment: Experiment, tasks: str, branch: str) -> str:
    return f"<results>/{tasks}/{experiment.branch_before(branch)}/prompts.parquet"


def sampler(experiment: Experiment, tasks: str, branch: str) -> Paths:
    return models(experiment, experiment.sampler(tasks, branch))


def adapter(experiment: Experiment, tasks: str, branch: str) -> Paths:
    """The trained adapter where a branch is sampled with one."""
    name = experiment.adapter_of(tasks, branch)
    return adapters([name] if name else [])


def training_prompts(experiment: Experiment) -> Paths:
    return [f"<results>/{tasks}/training/prompts.parquet" for tasks in experiment.training_tasks if experiment.runs]


def evaluated(experiment: Experiment, what: str) -> Paths:
    """All `attempts` or `verdicts` that the report compares."""
    return [path for tasks, branch in _branches(experiment) for path in shards(experiment, tasks, branch, what)]


def evaluation_prompts(experiment: Experiment) -> Paths:
    """The prompts that these answer; the report says how long they are."""
    return [f"<results>/{tasks}/{branch}/prompts.parquet" for tasks, branch in _branches(experiment)]


def all_prompts(experiment: Experiment) -> Paths:
    """Every file of prompts of the experiment: first turns, what is trained on, what the arms answer."""
    first = [f"<results>/{tasks}/turn1/prompts.parquet" for tasks in experiment.refined_for_training]
    return list(dict.fromkeys([*first, *training_prompts(experiment), *evaluation_prompts(experiment)]))


def _branches(experiment: Experiment) -> list[tuple[str, str]]:
    """(evaluation set, branch) of everything that the report compares."""
    return [(task_set.name, branch) for task_set in experiment.evaluation.sets for branch in experiment.branches]


# Tool use


def rows_of(experiment: ToolUse, name: str) -> Paths:
    """What a set of questions is read from."""
    return rows_files(experiment, experiment.sets[name])


def training_questions(experiment: ToolUse) -> Paths:
    return [f"<results>/questions/{one.name}.parquet" for one in experiment.data.train]


def heldout_questions(experiment: ToolUse) -> Paths:
    return [f"<results>/questions/{one.name}.parquet" for one in experiment.data.heldout]


def episodes(experiment: ToolUse) -> Paths:
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
    """All that `read_file` can read: a folder's own time says nothing of the files in it."""
    if "read_file" not in experiment.tools or not experiment.data.files:
        return []
    return sorted(str(path) for path in Path(experiment.data.files).rglob("*") if path.is_file())
