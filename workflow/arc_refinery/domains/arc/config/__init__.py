"""The config of the domain `arc`."""

from arc_refinery.domains.arc.config.experiment import LEARNED, Arc, ArcExperiment, Showing, TemplateRows
from arc_refinery.domains.arc.config.rewards import REWARDS, Grade
from arc_refinery.domains.arc.config.tasks import DIFFICULTY, Problems, TaskSet

Experiment = ArcExperiment
