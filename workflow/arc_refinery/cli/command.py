"""The base of the commands that people type.

    class Show(Command):
        '''Print one attempt.'''

        side: Annotated[config.Line, Positional]  # folder of results
        attempt: config.NonNegativeInt | None = None  # number of the attempt; default: the first that is correct

A comment is the help of a flag. pydantic checks all values (parsing.py).
"""

from tyro.conf import Positional

from arc_refinery.config.base import Strict
from arc_refinery.outputs import Outputs, Writes, check_outputs, flag_of


class Command(Strict):
    def run(self) -> None:
        raise NotImplementedError

    def writes(self) -> Outputs:
        """Outputs by the name of their flag: those of fields with the mark `Writes`."""
        marks = [(name, mark) for name, field in type(self).model_fields.items() for mark in field.metadata]
        return {name: mark.outputs(getattr(self, name)) for name, mark in marks if isinstance(mark, Writes)}

    @classmethod
    def label(cls, name: str) -> str:
        """Return what a person typed for a field: a flag, or an argument without one."""
        field = cls.model_fields.get(name)
        return name if field and Positional in field.metadata else flag_of(name)

    def check_outputs(self) -> None:
        """Raise `InputError` if it would replace an input or something that it did not make."""
        check_outputs(dict(self), self.writes(), self.label)
