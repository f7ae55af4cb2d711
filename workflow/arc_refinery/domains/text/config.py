"""The config of the domain `text`: the keys of every domain whose tasks are rows of a file."""

from arc_refinery.refining.config import RowsExperiment

Experiment = RowsExperiment
