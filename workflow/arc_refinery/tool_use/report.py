"""The report of tool use."""

from arc_refinery.reporting.tool_use.compare import EXPLAINED as EXPLAINED
from arc_refinery.reporting.tool_use.compare import set_section as set_section
from arc_refinery.reporting.tool_use.report import write_report as write_report
