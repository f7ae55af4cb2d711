"""A kind of experiment from outside the package: a model learns to write words with the letter e.

A config names this package as its `kind`. Its modules are the parts of a kind: docs/development.md.
"""
