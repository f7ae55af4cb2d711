"""Teach the model to refine: rewards that execute programs, and GRPO on next-turn prompts."""
