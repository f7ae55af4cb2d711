"""How models write tool calls, and what a tool is."""
