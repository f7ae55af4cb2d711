"""A domain of refining: programs that print a text. A config names it: `domain: my_domain`."""
