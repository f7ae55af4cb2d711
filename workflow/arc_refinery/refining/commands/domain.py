"""Flags of all commands that depend on what is refined."""

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import BaseModel, create_model

from arc_refinery import config
from arc_refinery.commands.flags import Command
from arc_refinery.config.base import sections_in

if TYPE_CHECKING:
    from arc_refinery.refining.domain import Domain

AnyCommand = TypeVar("AnyCommand", bound=type[Command])
# Sections of commands, and their places in an experiment
SECTIONS = {
    "problems": ("problems",),
    "task_set": ("evaluation", "sets"),
    "sampling": ("sampling",),
    "training": ("training", "grpo"),
    "demonstrations": ("training", "sft", "demonstrations"),
}


class DomainFlags(Command):
    domain: config.Line = "arc"  # what is refined: arc, code, or the package of a domain; other flags depend on it

    def loaded(self) -> "Domain":
        from arc_refinery.refining.domain import load_domain

        return load_domain(self.domain)


def own_class(command: AnyCommand, domain: str) -> AnyCommand:
    """Return the domain's class of a command: with the sections of its experiments as flags.

    If the domain has a subclass of the same name in its module `commands`, that class, with flags of its own.
    """
    own: AnyCommand = _own_class(command, domain)
    return own


@cache
def _own_class(command: type[Command], domain: str) -> Any:
    experiment = config.experiment_class("refining", domain)
    package = config.domain_part(domain, "config").__name__.removesuffix(".config")
    if find_spec(f"{package}.commands") is not None:
        command = getattr(import_module(f"{package}.commands"), command.__name__, command)
    sections: dict[str, Any] = {}
    for name, place in SECTIONS.items():
        field, section = command.model_fields.get(name), _section_at(experiment, place)
        if not field or not field.is_required():
            continue
        usual: Any = field.annotation
        if section is not usual and issubclass(section, usual):
            sections[name] = (Annotated[section, *field.metadata], ...)
    if not sections:
        return command
    return create_model(command.__name__, __base__=command, __module__=command.__module__, **sections)


def _section_at(section: type[BaseModel], place: tuple[str, ...]) -> type[BaseModel]:
    for name in place:
        (section, *_) = sections_in(section, name)
    return section
