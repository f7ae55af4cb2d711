"""Clusters: messages about jobs on an HTCondor pool."""
