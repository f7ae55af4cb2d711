"""Domain `code`: Python functions that must pass asserts, some of which the prompt shows."""
