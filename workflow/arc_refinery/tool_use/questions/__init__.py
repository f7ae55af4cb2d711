"""Questions with known answers: generated, rows of files, or tasks of a domain."""
