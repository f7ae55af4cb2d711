"""Metrics of each arm's attempts, with intervals and tests."""
