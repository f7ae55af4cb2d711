"""The config of the domain `gsm8k`: the keys of every domain whose tasks are rows of a file."""

from arc_refinery.refining.config import RowsExperiment

Experiment = RowsExperiment
