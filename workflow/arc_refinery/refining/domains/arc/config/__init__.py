"""The config of the domain `arc`."""

from arc_refinery.refining.domains.arc.config.experiment import ArcExperiment, Evaluation, Grpo, Training
from arc_refinery.refining.domains.arc.config.rewards import AttemptTerm, Grade
from arc_refinery.refining.domains.arc.config.sampling import (
    LEARNED,
    Parts,
    PromptedModel,
    Refinement,
    Sampling,
    TemplateRows,
    TestInputs,
)
from arc_refinery.refining.domains.arc.config.tasks import DIFFICULTY, Problems, TaskSet

Experiment = ArcExperiment
