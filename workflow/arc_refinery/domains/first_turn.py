"""Prompts of turn 1: the task, shown in another form to each group of completions."""

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from arc_refinery.domains.domain import Domain, Question
from arc_refinery.domains.prompts import Renderer
from arc_refinery.errors import InputError
from arc_refinery.records import Prompt
from arc_refinery.refining.config import Sampling
from arc_refinery.seeding import stream

AnyPrompt = TypeVar("AnyPrompt", bound=Prompt)


def first_turn_prompts(
    domain: Domain,
    tasks: Iterable[Any],
    n_predictions: int,
    sampling: Sampling,
    wording: Any,
    renderer: Renderer,
    seed: int,
    branch: str = "turn1",
    own: Any = None,
) -> Iterator[Prompt]:
    """Yield one prompt per `batch_size` completions of each task; `own`: `Domain.first_turn`.

    How a prompt shows its task depends only on the seed, the branch, the task and the prompt's number. So the prompts
    of the first 64 of 128 completions are those of a run with 64, and training prompts differ from evaluation prompts.
    """
    purpose = "augment" if branch == "turn1" else f"augment for {branch}"
    for task in tasks:
        for start in range(0, n_predictions, sampling.batch_size):
            number = start // sampling.batch_size
            with domain.calling("first_turn", task.task_id):
                shown = domain.first_turn(task, stream(seed, purpose, task.task_id, number), own, wording)
            if not isinstance(shown, Question) or not shown.messages:
                fault = f"first_turn gives {shown!r:.60}; expected a Question with one message or more"
                raise InputError(f"domain {domain.package}: {task.task_id}: {fault}")
            if shown.detail is None:
                shown = shown._replace(detail=task)
            n_completions = min(sampling.batch_size, n_predictions - start)
            name = f"{task.task_id}/{branch}-{number:03d}"
            yield rendered(domain.prompt_class, shown, name, task.task_id, n_completions, renderer)


def rendered(
    cls: type[AnyPrompt],
    shown: Question,
    prompt_id: str,
    task_id: str,
    n_predictions: int,
    renderer: Renderer,
    turn: int = 1,
    parent_id: str = "",
) -> AnyPrompt:
    """Return the record of a prompt, with the conversation as the model's chat template writes it."""
    messages = renderer.masked(shown.messages)
    own: dict[str, Any] = {"detail": shown.detail}
    text, n_tokens = renderer.render(messages)
    return cls(
        prompt_id=prompt_id,
        task_id=task_id,
        turn=turn,
        parent_id=parent_id,
        messages=tuple(messages),
        text=text,
        n_tokens=n_tokens,
        n_predictions=n_predictions,
        **own,
    )
