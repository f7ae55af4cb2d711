"""Asserts that a program must pass: what a program evaluates of them, and what is evaluated where it never ran."""
