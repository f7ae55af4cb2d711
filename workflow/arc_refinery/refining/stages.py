"""Stages of refining, for the rules: files that they read, and commands with the flags that an experiment sets.

>>> from arc_refinery.config import load_experiment
>>> experiment = load_experiment(Path("config/config.yaml"), Refining)
>>> job = sample(experiment, "heldout", "turn1")
>>> job.temperature, job.words()[:4], job.words(tuning=True)
(1.0, ['--model-path', 'workflow/models/tiny', '--dtype', 'float32'], ['--gpu-memory-utilization', '0.9'])
"""

from typing import Any, TypeVar

from arc_refinery.commands.stages import sampler_settings, training_settings
from arc_refinery.config import Lengths
from arc_refinery.config.inputs import model_path, with_local_path
from arc_refinery.refining import inputs as inputs
from arc_refinery.refining.commands.attempts import GradeAttempts, SampleAttempts
from arc_refinery.refining.commands.domain import DomainFlags, own_class
from arc_refinery.refining.commands.prompts import FirstPrompts, Refine, WriteDemonstrations
from arc_refinery.refining.commands.tasks import EvaluationTasks, FindOverlap, Tasks
from arc_refinery.refining.commands.training import Train
from arc_refinery.refining.config import PromptedModel, Refining
from arc_refinery.refining.inputs import grpo_inputs as grpo_inputs
from arc_refinery.refining.inputs import report_inputs as report_inputs
from arc_refinery.refining.inputs import sft_inputs as sft_inputs

AnyCommand = TypeVar("AnyCommand", bound=DomainFlags)


def _command(experiment: Refining, command: type[AnyCommand], **settings: Any) -> AnyCommand:
    """Make a command of the experiment's domain."""
    named = {} if experiment.domain == "arc" else {"domain": experiment.domain}
    return own_class(command, experiment.domain)(**named, **settings)


# Tasks


def tasks(experiment: Refining) -> Tasks:
    parts, problems = experiment.parts, experiment.problems
    assert parts and problems
    return _command(
        experiment,
        Tasks,
        problems=with_local_path(experiment, problems),
        tasks_per_part=parts.tasks_per_part,
        seed=experiment.seed,
        **experiment.task_settings,
    )


def evaluation_tasks(experiment: Refining, tasks: str) -> EvaluationTasks:
    return _command(experiment, EvaluationTasks, **experiment.settings_of_set(tasks))


def overlap(experiment: Refining) -> FindOverlap:
    return _command(experiment, FindOverlap, **experiment.more_to_keep_apart)


# Prompts, attempts, verdicts


def first_prompts(experiment: Refining, tasks: str, branch: str) -> FirstPrompts:
    changes = {"n_predictions": experiment.first_turn_predictions(tasks, branch)}
    sampled = experiment.sampled(tasks, branch)
    return _command(
        experiment,
        FirstPrompts,
        **_prompt_settings(experiment, sampled.model, sampled.seed),
        max_model_len=sampled.model.window,
        sampling=experiment.sampling_of(tasks).model_copy(update=changes),
    )


def sample(experiment: Refining, tasks: str, branch: str) -> SampleAttempts:
    sampled = experiment.sampled(tasks, branch)
    return _command(
        experiment,
        SampleAttempts,
        **sampler_settings(experiment, sampled.model),
        max_output_tokens=sampled.max_output_tokens,
        tasks_per_batch=experiment.sampling.tasks_per_batch,
        temperature=sampled.temperature,
        top_p=sampled.top_p,
        seed=sampled.seed,
    )


def grade(experiment: Refining) -> GradeAttempts:
    return _command(experiment, GradeAttempts, sandbox=experiment.sandbox, seed=experiment.seed)


def refining_prompts(experiment: Refining, tasks: str, branch: str) -> Refine:
    arm, number = experiment.arm_and_turn(branch)
    before, turn = arm.turns[number - 2 : number]
    refinement, model = turn.refinement(experiment.refinement), experiment.model_of(turn)
    return _command(
        experiment,
        Refine,
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
        **experiment.wording,
        "seed": seed,
    }


def _files_of_turn(experiment: Refining, tasks: str) -> dict[str, int]:
    """Return how a turn is split into files."""
    return {
        "n_shards": experiment.n_shards(tasks),
        "shards_per_grading_job": experiment.shards_per_grading_job,
        "tasks_per_batch": experiment.sampling.tasks_per_batch,
    }


# Training


def training_prompts(experiment: Refining, tasks: str) -> FirstPrompts | Refine:
    training, sampling = experiment.training, experiment.sampling
    assert training
    settings = _prompt_settings(experiment, experiment.model, experiment.seed)
    window, max_output_tokens = _training_window(experiment), training.max_completion_length
    if training.prompts == "first-turn":  # each prompt has its own augmentation
        sizes = {"n_predictions": training.prompts_per_task, "batch_size": 1, "max_output_tokens": max_output_tokens}
        return _command(
            experiment,
            FirstPrompts,
            **settings,
            max_model_len=window,
            sampling=sampling.model_copy(update=sizes),
            branch="training",
        )
    return _command(  # one prompt per task, which refines its best incorrect attempt
        experiment,
        Refine,
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
        **(training.select.model_dump(include={"min_pass_rate", "max_pass_rate"}) if training.select else {}),
    )


def demonstrations(experiment: Refining, tasks: str) -> WriteDemonstrations:
    training = experiment.training
    assert training and training.sft
    return _command(
        experiment,
        WriteDemonstrations,
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
    history = experiment.refinement.history
    is_read = history != "whole" and training.grpo is not None and not training.grpo.answers_once
    return _command(
        experiment,
        Train,
        **training_settings(experiment, adapter),
        lengths=Lengths(max_completion_length=training.max_completion_length, max_seq_length=training.max_seq_length),
        **experiment.wording,
        form=experiment.refinement.form,
        include_errors=experiment.refinement.include_errors,
        **({"history": history} if is_read else {}),
        sandbox=experiment.sandbox,
    )
