"""First turns of ARC: a task in an augmentation and an order of its train pairs."""

from dataclasses import replace

import numpy as np

from arc_refinery.arc.augment import IDENTITY, Augmentation, random_augmentation
from arc_refinery.arc.tasks import Task
from arc_refinery.refining.domain import Question
from arc_refinery.refining.domains.arc.config.sampling import Showing
from arc_refinery.refining.domains.arc.prompts import Template, first_turn
from arc_refinery.refining.domains.arc.records import ShownTask


def augmented_first_turn(task: Task, rng: np.random.Generator, own: Showing, template: Template) -> Question:
    """Draw the augmentation, the order of the train pairs and, if only one is shown, the test input."""
    augmentation, order = IDENTITY, tuple(range(len(task.train)))
    if own.use_data_augmentation:
        augmentation, order = random_augmentation(rng), tuple(rng.permutation(len(task.train)).tolist())
    only_test = int(rng.integers(len(task.test))) if own.test_inputs == "one" else None
    return first_turn_in(task, augmentation, order, template, only_test)


def first_turn_in(
    task: Task, augmentation: Augmentation, order: tuple[int, ...], template: Template, only_test: int | None = None
) -> Question:
    """Return the first turn that shows a task in this augmentation and order of its train pairs.

    `only_test` is the index of the only test input in its text; None: the text has all test inputs.
    """
    seen = task.map_grids(augmentation.apply).reorder_train(order)
    visible = seen if only_test is None else replace(seen, test=seen.test[only_test : only_test + 1])
    return Question(first_turn(visible, template), ShownTask(augmentation, order, seen.train, seen.test, seen.hidden))
