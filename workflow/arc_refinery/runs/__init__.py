"""One run of Snakemake: its lock, signals, end and clock, and its jobs on an HTCondor pool."""
