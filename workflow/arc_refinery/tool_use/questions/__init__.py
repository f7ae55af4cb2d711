"""Questions with known answers: tasks of a domain."""
