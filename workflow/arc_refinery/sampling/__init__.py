"""Draw completions from a model: the `Sampler` protocol, its two backends, and resumable sampling of a shard."""
