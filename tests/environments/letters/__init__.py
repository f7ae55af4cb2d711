"""A domain from outside the package: texts with the letters of a word. Nothing is executed.

A config names this package as its `domain`. docs/development.md explains its modules.
"""
