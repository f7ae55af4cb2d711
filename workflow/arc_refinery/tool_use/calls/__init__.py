"""Formats of tool calls, and the protocol of tools."""
