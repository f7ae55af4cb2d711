"""Versions of the packages that results depend on. Jobs may run in other environments than the report."""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version

PACKAGES = ("arc-refinery", "snakemake", "torch", "transformers", "trl", "peft", "vllm", "unsloth", "numpy", "scipy")


@cache
def installed_versions() -> Mapping[str, str]:
    """Return the versions of those of `PACKAGES` that this environment has."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions
