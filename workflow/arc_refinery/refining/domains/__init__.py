"""Domains: what a refining experiment refines. Each is a package with `domain` and `config` (docs/development.md)."""
