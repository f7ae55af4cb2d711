"""The tool-use experiment: a model learns to call tools before it gives an answer that can be checked."""
