"""Stages that write prompts and demonstrations."""

import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from arc_refinery import records
from arc_refinery.branch_files import BranchFiles
from arc_refinery.config import ATTEMPTS, Line, PositiveInt, Sandbox, Seed, marked
from arc_refinery.config.base import PROMPTS, Strict
from arc_refinery.domains.domain import Domain, GradedAttempt, LoadedDomain
from arc_refinery.domains.first_turn import first_turn_prompts
from arc_refinery.domains.prompts import Renderer
from arc_refinery.errors import InputError
from arc_refinery.outputs import Writes, records_file
from arc_refinery.refining.config import Demonstrations, FeedbackKind, PromptChoice, PromptedModel, Refinement, Sampling
from arc_refinery.refining.demonstrations import DemonstrationPlan, make_demonstrations
from arc_refinery.refining.graded import read_graded
from arc_refinery.refining.next_turn import NextTurnPlan, next_turn_prompts
from arc_refinery.refining.prompt_files import with_pass_rate, write_prompts
from arc_refinery.refining.training_tasks import left_out

Prompts = Annotated[Path, Writes(records_file, "prompts")]


def wording_of(domain: Domain, model: PromptedModel, form: str = "") -> Any:
    """Load the texts of prompts, with feedback in this form."""
    return domain.wording(form=form, **model.model_dump(include=marked(type(model), PROMPTS)))


def first_prompts(
    domain: LoadedDomain,
    model: PromptedModel,
    sampling: Sampling,
    branch: Line,
    seed: Seed,
    own: Strict | None = None,
    enable_thinking: bool | None = None,
    *,
    tasks: Path,
    overlap: Path | None = None,
    output: Prompts,
) -> None:
    """Write first-turn prompts for a file of tasks.

    `branch` is a part of prompt ids, and each has its own augmentations; tasks in `overlap` are left out.
    """
    task_ids = records.texts(tasks, domain.task_class, "task_id")
    if not task_ids:
        raise InputError(f"{tasks}: has no tasks, so there is nothing to ask; make it again")
    excluded = left_out(overlap)
    if excluded.issuperset(task_ids):
        raise InputError(
            f"{tasks}: all of its {len(task_ids)} tasks are also evaluated, so they are left out ({overlap}); train on "
            "other tasks"
        )
    wording, answer = wording_of(domain, model), sampling.max_output_tokens
    renderer = Renderer(model.path, enable_thinking, model.is_served)
    renderer.check_texts(domain.texts(wording), model.window - answer)
    asked = (task for task in records.read(tasks, domain.task_class) if task.task_id not in excluded)
    prompts = first_turn_prompts(domain, asked, sampling.n_predictions, sampling, wording, renderer, seed, branch, own)
    settings = sampling.model_dump(exclude=marked(type(sampling), ATTEMPTS))
    settings |= {"template": domain.texts(wording), "max_model_len": model.window, "branch": branch}
    write_prompts(domain.prompt_class, output, prompts, model.window, answer, seed, settings, [tasks])


def refining_prompts(
    domain: LoadedDomain,
    model: PromptedModel,
    sampling: Sampling,
    refinement: Refinement,
    feedback: FeedbackKind,
    select: PromptChoice,
    n_considered: PositiveInt,
    branch: Line,
    seed: Seed,
    n_shards: PositiveInt,
    shards_per_grading_job: PositiveInt,
    tasks_per_batch: PositiveInt,
    enable_thinking: bool | None = None,
    *,
    prompts: Path,
    overlap: Path | None = None,
    output: Prompts,
) -> None:
    """Turn incorrect attempts into next-turn prompts, with execution feedback.

    The attempts are in the folder of the `prompts` that they answer; of each task, the first `n_considered` may be
    used, and `sampling.n_predictions` completions follow.
    """
    wording, answer = wording_of(domain, model, refinement.form), sampling.max_output_tokens
    plan = NextTurnPlan(
        branch,
        n_considered,
        refinement.n_parents,
        sampling.n_predictions,
        sampling.batch_size,
        refinement.include_errors,
        feedback,
        refinement.history,
    )
    renderer = Renderer(model.path, enable_thinking, model.is_served)
    renderer.check_texts(domain.texts(wording), model.window - answer)
    files = BranchFiles(prompts.parent, n_shards, shards_per_grading_job, tasks_per_batch)
    statuses: Counter[str] = Counter()

    def graded() -> Iterator[GradedAttempt]:
        for attempt in read_graded(domain, files, left_out(overlap)):
            statuses[attempt.verdict.status] += 1
            yield attempt

    counts: Counter[str] = Counter()
    chosen = with_pass_rate(graded(), select.min_pass_rate, select.max_pass_rate, n_considered, counts)
    written = next_turn_prompts(domain, chosen, plan, wording, renderer, counts)
    settings = {"plan": plan, "select": select, "window": model.window, "answer": answer, "seed": seed}
    settings["template"] = domain.texts(wording)
    write_prompts(
        domain.prompt_class, output, written, model.window, answer, seed, settings, statuses=statuses, counts=counts
    )


def demonstrations(
    domain: LoadedDomain,
    model: PromptedModel,
    refinement: Refinement,
    demonstrations: Demonstrations,
    sandbox: Sandbox,
    max_completion_length: PositiveInt,
    n_considered: PositiveInt,
    seed: Seed,
    n_shards: PositiveInt,
    shards_per_grading_job: PositiveInt,
    tasks_per_batch: PositiveInt,
    enable_thinking: bool | None = None,
    *,
    tasks: Path,
    prompts: Path,
    overlap: Path | None = None,
    n_jobs: PositiveInt = 1,
    output: Annotated[Path, Writes(records_file, "demonstrations")],
) -> None:
    """Pair incorrect first attempts with a correct program: the training data of SFT.

    `max_completion_length`: tokens of completion and end token, which fit into the model's window with their prompt.
    """
    wording = wording_of(domain, model, refinement.form)
    renderer = Renderer(model.path, enable_thinking, model.is_served)
    renderer.check_texts(domain.texts(wording), model.window)
    plan = DemonstrationPlan(
        demonstrations, n_considered, refinement.include_errors, model.window, max_completion_length
    )
    files = BranchFiles(prompts.parent, n_shards, shards_per_grading_job, tasks_per_batch)
    records.check_made_from(files.prompts, [tasks])
    counts = Counter(n_tasks=0, n_tasks_without_target=0, n_too_long=0)
    sources: dict[str, str] = {}
    if demonstrations.targets == "source":
        with domain.executors(sandbox, n_jobs) as executors:
            sources = domain.source_answers(records.read(tasks, domain.task_class), wording, executors)
    written = make_demonstrations(
        domain,
        read_graded(domain, files, left_out(overlap)),
        sources,
        plan,
        wording,
        renderer,
        counts,
        domain.may_be_learned(records.read(tasks, domain.task_class)),
    )
    settings = {"plan": plan, "sandbox": sandbox.model_dump(), "seed": seed, "template": domain.texts(wording)}
    records.write(output, records.Demonstration, written, seed, settings, lambda: dict(counts))
    logging.info("%d demonstrations; %s", records.count(output), dict(counts))
