"""Real pools: HTCondor and Slurm on this machine. A package, so that its tests share one pool."""
