"""The sister experiment: a model learns to call tools on the way to an answer that can be checked."""
