"""Commands of refining."""

from arc_refinery.cli.training import Train as Train
