"""Domains: what a task is, how it is asked, how an answer is graded. Each is a package with `domain` and `config`."""
