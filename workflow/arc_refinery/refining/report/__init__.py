"""The report of refining."""

from arc_refinery.refining.report.compare import EXPLAINED, set_section
from arc_refinery.refining.report.export import exported
from arc_refinery.refining.report.report import save_wording, write_report
from arc_refinery.refining.report.show import show
