"""A model's folder: fetched from the hub, its files, shape, tokenizer and chat template; shared attention."""
