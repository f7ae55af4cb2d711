"""One run of Snakemake: its lock, screen, signals and end, and its jobs on an HTCondor pool."""
