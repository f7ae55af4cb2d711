"""Questions with known answers: generated, or rows of GSM8K, MBPP and files."""
