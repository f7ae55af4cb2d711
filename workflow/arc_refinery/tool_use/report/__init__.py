"""The report of tool use."""

from arc_refinery.tool_use.report.compare import EXPLAINED, set_section
from arc_refinery.tool_use.report.report import write_report
from arc_refinery.tool_use.report.transcripts import exported, show
