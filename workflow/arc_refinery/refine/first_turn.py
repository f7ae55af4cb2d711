"""Prompts of turn 1: the task, augmented anew for each group of completions."""

from collections.abc import Iterable, Iterator

from arc_refinery.augment import IDENTITY, random_augmentation
from arc_refinery.config import Sampling
from arc_refinery.prompts import Template, first_turn
from arc_refinery.records import Prompt
from arc_refinery.refine.rendering import Renderer
from arc_refinery.seeding import stream
from arc_refinery.tasks import Task


def first_turn_prompts(
    tasks: Iterable[Task], n_predictions: int, sampling: Sampling, template: Template, renderer: Renderer, seed: int
) -> Iterator[Prompt]:
    """For each task, one prompt for every `batch_size` completions.

    A prompt's augmentation and order depend on the seed, the task and the prompt's number alone: the first 64 of 128
    completions are those that 64 would have been.
    """
    for task in tasks:
        for start in range(0, n_predictions, sampling.batch_size):
            number = start // sampling.batch_size
            rng = stream(seed, "augment", task.task_id, number)
            augmentation, order = IDENTITY, tuple(range(len(task.train)))
            if sampling.use_data_augmentation:
                augmentation, order = random_augmentation(rng), tuple(rng.permutation(len(task.train)).tolist())
            seen = task.map_grids(augmentation.apply).reorder_train(order)
            messages = first_turn(seen, template)
            text, n_tokens = renderer.render(messages)
            yield Prompt(
                prompt_id=f"{task.task_id}/turn1-{number:03d}",
                task_id=task.task_id,
                turn=1,
                parent_id="",
                augmentation=augmentation,
                train_order=order,
                messages=tuple(messages),
                text=text,
                n_tokens=n_tokens,
                n_predictions=min(sampling.batch_size, n_predictions - start),
                train=seen.train,
                test=seen.test,
            )
