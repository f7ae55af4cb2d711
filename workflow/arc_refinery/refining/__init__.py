"""Refining programs: prompts of each turn, grades of answers, rewards, and the training environment."""
