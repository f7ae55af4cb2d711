"""The report of refining."""

from arc_refinery.refining.report.reported import Reported, save_wording
