"""SFT and GRPO of a LoRA adapter. Environments (refining/, tool_use/) supply the prompts and the rewards."""
