"""Make the prompts of each turn: the task itself in turn 1, then chosen incorrect attempts with what they gave."""
