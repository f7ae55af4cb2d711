"""Training on tool use: the environment, the terms of the reward, demonstrations."""
