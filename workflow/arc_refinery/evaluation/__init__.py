"""What each arm made of its budget, and how sure one can be of it."""
