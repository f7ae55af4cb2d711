"""Commands of refining."""

from arc_refinery.refining.commands.training import Train
