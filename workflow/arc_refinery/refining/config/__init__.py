"""The config of refining, as far as every domain has it: keys with their type, default and meaning."""

from arc_refinery.refining.config.evaluation import BROKEN, CONTROLS, Arm, Evaluation, FeedbackKind, Turn
from arc_refinery.refining.config.experiment import BROKEN_BRANCH, Refining, is_broken
from arc_refinery.refining.config.rewards import AttemptTerm
from arc_refinery.refining.config.rows import RowsExperiment, RowsSet
from arc_refinery.refining.config.sampling import History, PromptedModel, Refinement, Sampling
from arc_refinery.refining.config.tasks import Parts, Problems, Split, TaskSet
from arc_refinery.refining.config.training import Demonstrations, Grpo, PromptChoice, Sft, Training
