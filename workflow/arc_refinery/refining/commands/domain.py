"""Flags of all commands that depend on what is refined."""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, TypeVar

from arc_refinery import config
from arc_refinery.commands.flags import Command

if TYPE_CHECKING:
    from arc_refinery.refining.domain import Domain

AnyCommand = TypeVar("AnyCommand", bound=type[Command])


class DomainFlags(Command):
    domain: config.Line = "arc"  # what is refined: arc, code, or the package of a domain; other flags depend on it

    def loaded(self) -> "Domain":
        from arc_refinery.refining.domain import load_domain

        return load_domain(self.domain)


def own_class(command: AnyCommand, domain: str) -> AnyCommand:
    """Return the domain's class of a command, if it has one: a subclass of the same name, with flags of its own."""
    package = config.domain_part(domain, "config").__name__.removesuffix(".config")
    if find_spec(f"{package}.commands") is None:
        return command
    own: AnyCommand = getattr(import_module(f"{package}.commands"), command.__name__, command)
    return own
