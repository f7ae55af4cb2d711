"""The report of tool use."""

from arc_refinery.tool_use.report.reported import Reported
