"""The stages of all jobs of an experiment by name, without shards."""

from arc_refinery.config import Refining, ToolUse, stages
from arc_refinery.config.stages import Stage


def of_refining(experiment: Refining) -> dict[str, Stage]:
    sets, training = [one.name for one in experiment.evaluation.sets], experiment.training
    evaluated = [(name, branch) for name in sets for branch in experiment.branches]
    trained = [(tasks, "turn1") for tasks in experiment.training_tasks] if training else []
    branches = list(dict.fromkeys([*trained, *evaluated]))
    jobs = {"grade": stages.grade(experiment)}
    if experiment.parts:
        jobs["tasks"] = stages.tasks(experiment)
    if training and training.grpo:
        jobs["training_prompts"] = stages.training_prompts(experiment)
    if training and training.sft:
        jobs["demonstrations"] = stages.demonstrations(experiment)
    jobs |= {f"evaluation_tasks {name}": stages.evaluation_tasks(experiment, name) for name in sets}
    for tasks, branch in branches:
        first = branch.startswith("turn1")
        jobs[f"sample {tasks} {branch}"] = stages.sample(experiment, tasks, branch)
        jobs[f"prompts {tasks} {branch}"] = (
            stages.first_prompts(experiment, tasks, branch) if first else stages.refining_prompts(experiment, branch)
        )
    return jobs | _trainings(experiment)


def of_tool_use(experiment: ToolUse) -> dict[str, Stage]:
    jobs = {
        **{f"questions {name}": stages.questions(experiment, name) for name in experiment.sets},
        **{
            f"episodes {name} {arm.name}": stages.episodes(experiment, name, arm.name)
            for name in experiment.set_names
            for arm in experiment.arms
        },
    }
    if experiment.training and experiment.training.sft:
        jobs["conversations"] = stages.conversations(experiment)
    return jobs | _trainings(experiment)


def _trainings(experiment: Refining | ToolUse) -> dict[str, Stage]:
    return {
        **{f"sft {name}": stages.sft(experiment, name) for name in experiment.sft_adapters},
        **{f"train {name}": stages.train(experiment, name) for name in experiment.runs},
    }
