"""Stages of refining, for the rules: files that they read, and commands with the flags that an experiment sets.

>>> from arc_refinery.config import load_experiment
>>> experiment = load_experiment(Path("config/config.yaml"), Refining)
>>> job = sample(experiment, "heldout", "turn1")
>>> job.temperature, job.words()[:4], job.words(tuning=True)
(1.0, ['--model-path', 'workflow/models/tiny', '--dtype', 'float32'], ['--gpu-memory-utilization', '0.9'])
"""

from pathlib import Path
from typing import Any

from arc_refinery.commands.stages import on_disk, sampler_settings, training_settings
from arc_refinery.config import Lengths
from arc_refinery.config.inputs import model_path, rows_files
from arc_refinery.refining import inputs as inputs
from arc_refinery.refining.commands.attempts import GradeAttempts, SampleAttempts
from arc_refinery.refining.commands.prompts import FirstPrompts, Learn, Refine, WriteDemonstrations
from arc_refinery.refining.commands.tasks import EvaluationTasks, FindOverlap, Tasks
from arc_refinery.refining.commands.training import Train
from arc_refinery.refining.config import DIFFICULTY, Problems, PromptedModel, Refining
from arc_refinery.refining.inputs import grpo_inputs as grpo_inputs
from arc_refinery.refining.inputs import report_inputs as report_inputs
from arc_refinery.refining.inputs import sft_inputs as sft_inputs
from arc_refinery.refining.inputs import template

# Tasks


def wording(experiment: Refining) -> Learn:
    rows = experiment.template_rows
    assert rows
    (messages,) = rows_files(experiment, rows)
    return Learn(messages=Path(messages), n_rows=rows.n_rows, min_share=rows.min_share, colors=experiment.model.colors)


def tasks(experiment: Refining) -> Tasks:
    parts, problems = experiment.parts, experiment.problems
    assert parts and problems
    return Tasks(problems=on_disk(experiment, problems), tasks_per_part=parts.tasks_per_part, seed=experiment.seed)


def evaluation_tasks(experiment: Refining, tasks: str) -> EvaluationTasks:
    task_set, problems = experiment.evaluation_set(tasks), experiment.problems
    if task_set.source != "generator":
        return EvaluationTasks(task_set=task_set)
    changes: dict[str, Any] = {"seed": experiment.seed if task_set.seed is None else task_set.seed}
    if problems:
        changes |= {key: getattr(problems, key) for key in DIFFICULTY if getattr(task_set, key) is None}
    max_cells = (problems or Problems(source="generator")).max_cells
    return EvaluationTasks(task_set=task_set.model_copy(update=changes), max_cells=max_cells)


def overlap(experiment: Refining) -> FindOverlap:
    rows = experiment.template_rows
    if not rows:
        return FindOverlap()
    (messages,) = rows_files(experiment, rows)
    return FindOverlap(messages=Path(messages), template=template(experiment), n_rows=rows.n_rows)


# Prompts, attempts, verdicts


def first_prompts(experiment: Refining, tasks: str, branch: str) -> FirstPrompts:
    changes: dict[str, Any] = {"n_predictions": experiment.first_turn_predictions(tasks, branch)}
    if tasks in experiment.part_names:
        changes["use_data_augmentation"] = experiment.augments_parts
    model = experiment.sampler(tasks, branch)
    return FirstPrompts(
        **_prompt_settings(experiment, model, experiment.sampling_seed(tasks, branch)),
        max_model_len=model.window,
        sampling=experiment.sampling.model_copy(update=changes),
    )


def sample(experiment: Refining, tasks: str, branch: str) -> SampleAttempts:
    return SampleAttempts(
        **sampler_settings(experiment, experiment.sampler(tasks, branch)),
        max_output_tokens=experiment.sampling.max_output_tokens,
        temperature=experiment.temperature(tasks, branch),
        top_p=experiment.sampling.top_p,
        seed=experiment.sampling_seed(tasks, branch),
    )


def grade(experiment: Refining) -> GradeAttempts:
    return GradeAttempts(sandbox=experiment.sandbox, seed=experiment.seed)


def refining_prompts(experiment: Refining, tasks: str, branch: str) -> Refine:
    arm, number = experiment.arm_and_turn(branch)
    before, turn = arm.turns[number - 2 : number]
    refinement, model = turn.refinement(experiment.refinement), experiment.model_of(turn)
    return Refine(
        **_prompt_settings(experiment, model, experiment.seed_of_arm(arm)),
        **_files_of_turn(experiment, tasks),
        **refinement.model_dump(),
        branch=branch,
        max_model_len=model.window,
        max_output_tokens=experiment.sampling.max_output_tokens,
        n_considered=before.n_predictions,
        n_predictions=turn.n_predictions,
        batch_size=experiment.sampling.batch_size,
        feedback=turn.feedback,
    )


def _prompt_settings(experiment: Refining, model: PromptedModel, seed: int) -> dict[str, Any]:
    return {
        "model_path": model_path(experiment, model),
        "template": template(experiment),
        "colors": model.colors,
        "seed": seed,
    }


def _files_of_turn(experiment: Refining, tasks: str) -> dict[str, int]:
    """Return the numbers of files that a turn is split into."""
    return {"n_shards": experiment.n_shards(tasks), "shards_per_grading_job": experiment.shards_per_grading_job}


# Training


def training_prompts(experiment: Refining, tasks: str) -> FirstPrompts | Refine:
    training, sampling = experiment.training, experiment.sampling
    assert training
    settings = _prompt_settings(experiment, experiment.model, experiment.seed)
    window, max_output_tokens = _training_window(experiment), training.max_completion_length
    if training.prompts == "first-turn":  # each prompt has its own augmentation
        sizes = {"n_predictions": training.prompts_per_task, "batch_size": 1, "max_output_tokens": max_output_tokens}
        return FirstPrompts(
            **settings, max_model_len=window, sampling=sampling.model_copy(update=sizes), branch="training"
        )
    return Refine(  # one prompt per task, which refines its best incorrect attempt
        **settings,
        **_files_of_turn(experiment, tasks),
        include_errors=experiment.refinement.include_errors,
        form=experiment.refinement.form,
        branch="training",
        max_model_len=window,
        max_output_tokens=max_output_tokens,
        n_considered=sampling.n_predictions,
        n_parents=1,
        n_predictions=1,
        batch_size=sampling.batch_size,
    )


def demonstrations(experiment: Refining, tasks: str) -> WriteDemonstrations:
    training = experiment.training
    assert training and training.sft
    return WriteDemonstrations(
        **_prompt_settings(experiment, experiment.model, experiment.seed),
        **_files_of_turn(experiment, tasks),
        include_errors=experiment.refinement.include_errors,
        form=experiment.refinement.form,
        n_considered=experiment.sampling.n_predictions,
        max_seq_length=_training_window(experiment),
        max_completion_length=training.max_completion_length,
        demonstrations=training.sft.demonstrations,
        sandbox=experiment.sandbox,
    )


def _training_window(experiment: Refining) -> int:
    assert experiment.training
    return min(experiment.model.window, experiment.training.max_seq_length)


def train(experiment: Refining, adapter: str) -> Train:
    training = experiment.training
    assert training
    return Train(
        **training_settings(experiment, adapter),
        lengths=Lengths(max_completion_length=training.max_completion_length, max_seq_length=training.max_seq_length),
        template=template(experiment),
        colors=experiment.model.colors,
        form=experiment.refinement.form,
        include_errors=experiment.refinement.include_errors,
        sandbox=experiment.sandbox,
    )
