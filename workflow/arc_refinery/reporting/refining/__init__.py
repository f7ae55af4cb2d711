"""The report of a refining experiment, and comparisons of several."""
