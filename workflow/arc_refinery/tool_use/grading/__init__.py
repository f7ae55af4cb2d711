"""Answers, programs and asserts: whether an episode's answer is right, and what is counted."""
