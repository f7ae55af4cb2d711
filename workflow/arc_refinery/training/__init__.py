"""SFT and GRPO of a LoRA adapter. Environments (refine/, tool_use/) supply the prompts and the rewards."""
