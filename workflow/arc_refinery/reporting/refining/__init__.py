"""Reports of refining experiments, and comparisons between them."""
