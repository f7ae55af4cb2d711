"""The report of tool use."""

from arc_refinery.reporting.tool_use.report import write_report as write_report
