"""Config of refining."""

from arc_refinery.config.refining import Refining

Experiment = Refining
