"""ARC: grids, tasks, their augmentation, scores and files."""
