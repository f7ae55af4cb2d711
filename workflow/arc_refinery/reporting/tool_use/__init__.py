"""The report of a tool-use experiment."""
