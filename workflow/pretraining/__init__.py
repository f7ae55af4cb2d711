"""The embedded model: its tokenizer, its corpus of generated problems and its training."""
