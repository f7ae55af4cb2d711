"""Execute the programs of attempts and grade what they give."""
