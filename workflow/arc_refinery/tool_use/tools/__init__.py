"""Tools: built-in ones, and those of the user."""
