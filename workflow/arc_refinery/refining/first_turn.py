"""Prompts of turn 1: the task, with a new augmentation for each group of completions."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from arc_refinery.arc.augment import IDENTITY, Augmentation, random_augmentation
from arc_refinery.arc.tasks import Task
from arc_refinery.records import Prompt
from arc_refinery.refining.config import Sampling
from arc_refinery.refining.prompts import Renderer, Template, first_turn
from arc_refinery.seeding import stream


def first_turn_prompts(
    tasks: Iterable[Task],
    n_predictions: int,
    sampling: Sampling,
    template: Template,
    renderer: Renderer,
    seed: int,
    branch: str = "turn1",
) -> Iterator[Prompt]:
    """Yield one prompt per `batch_size` completions of each task.

    A prompt's augmentation and order depend only on the seed, the branch, the task and the prompt's number. So the
    prompts of the first 64 of 128 completions are those of a run with 64, and training prompts differ from
    evaluation prompts.
    """
    purpose = "augment" if branch == "turn1" else f"augment for {branch}"
    for task in tasks:
        for start in range(0, n_predictions, sampling.batch_size):
            number = start // sampling.batch_size
            rng = stream(seed, purpose, task.task_id, number)
            augmentation, order = IDENTITY, tuple(range(len(task.train)))
            if sampling.use_data_augmentation:
                augmentation, order = random_augmentation(rng), tuple(rng.permutation(len(task.train)).tolist())
            only_test = None
            if sampling.test_inputs == "one":
                only_test = int(rng.integers(len(task.test)))
            n_completions = min(sampling.batch_size, n_predictions - start)
            name = f"{task.task_id}/{branch}-{number:03d}"
            yield first_turn_prompt(task, name, augmentation, order, n_completions, template, renderer, only_test)


def first_turn_prompt(
    task: Task,
    prompt_id: str,
    augmentation: Augmentation,
    order: tuple[int, ...],
    n_predictions: int,
    template: Template,
    renderer: Renderer,
    only_test: int | None = None,
) -> Prompt:
    """Return the prompt that shows a task in this augmentation and order of its train pairs.

    `only_test` is the index of the only test input in its text; None: the text has all test inputs.
    """
    seen = task.map_grids(augmentation.apply).reorder_train(order)
    visible = seen if only_test is None else replace(seen, test=seen.test[only_test : only_test + 1])
    messages = renderer.masked(first_turn(visible, template))
    text, n_tokens = renderer.render(messages)
    return Prompt(
        prompt_id=prompt_id,
        task_id=task.task_id,
        turn=1,
        parent_id="",
        augmentation=augmentation,
        train_order=order,
        messages=tuple(messages),
        text=text,
        n_tokens=n_tokens,
        n_predictions=n_predictions,
        train=seen.train,
        test=seen.test,
    )
