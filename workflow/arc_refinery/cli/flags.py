"""How dataclasses become flags."""

import tyro

Flat = tyro.conf.OmitArgPrefixes  # type: ignore[type-arg]
