"""Word problems whose answer is a number, as rows of GSM8K or generated."""
