"""The config of refining: every key with its type, default and meaning."""

from arc_refinery.refining.config.evaluation import Arm, Evaluation, FeedbackKind, Turn
from arc_refinery.refining.config.experiment import Refining
from arc_refinery.refining.config.rewards import AttemptTerm
from arc_refinery.refining.config.sampling import (
    LEARNED,
    History,
    PromptedModel,
    Refinement,
    Sampling,
    Selection,
    TemplateRows,
    TestInputs,
)
from arc_refinery.refining.config.tasks import CONCEPTS, DIFFICULTY, Parts, Problems, TaskSet
from arc_refinery.refining.config.training import Demonstrations, Grpo, Sft, Training

Experiment = Refining
