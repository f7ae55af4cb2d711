"""Columns of a record class: derived from the types of its fields, for any dataclass with a `KIND`.

str, int, float, bool, Literal["a", "b"]   string, int64, double, bool, string
Annotated[int, "int8"]                     int8: any name of a type in Arrow
tuple[Call, ...], X | None                 a list, a column that may have nulls
Call, a dataclass or TypedDict             a struct of its fields
Annotated[X, column]                       what `column` makes of it, a `Column`
"""

from collections.abc import Sequence
from dataclasses import is_dataclass
from functools import cache
from itertools import accumulate, pairwise
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    Protocol,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import pyarrow as pa

_SCALARS = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}


class RecordClass(Protocol):
    """A dataclass whose instances are the rows of files of one kind; its first field is their id."""

    KIND: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Any]]


Record = TypeVar("Record", bound=RecordClass)


class Column(Protocol):
    """Storage of a type that is not one of these, such as `arc.grids.Grid`."""

    def arrow_type(self) -> pa.DataType: ...

    def to_arrow(self, values: Sequence[Any]) -> pa.Array: ...

    def from_arrow(self, array: pa.Array, path: str) -> list[Any]:
        """Return the values; `path` leads to them from the record, like `test.output`. Raises `ValueError`."""


@cache
def schema(cls: type[RecordClass]) -> pa.Schema:
    """Return the columns of files of a class: its fields, in order."""
    return pa.schema([(name, _arrow_type(hint)) for name, hint in field_types(cls).items()])


@cache
def field_types(cls: type) -> dict[str, Any]:
    """Return the types of the fields of a dataclass or a TypedDict, in order."""
    hints = get_type_hints(cls, include_extras=True)
    return {name: hint for name, hint in hints.items() if get_origin(hint) is not ClassVar and hint is not ClassVar}


def non_null_type(hint: Any) -> Any:
    """Return X for `X | None`, and None for other types."""
    if get_origin(hint) in (UnionType, Union) and NoneType in get_args(hint):
        return next(option for option in get_args(hint) if option is not NoneType)
    return None


def to_arrow(values: Sequence[Any], hint: Any) -> pa.Array:
    """Convert values of a field, one per row."""
    if (inner := non_null_type(hint)) is not None:
        numbers = accumulate(value is not None for value in values)
        rows = [None if value is None else number - 1 for value, number in zip(values, numbers, strict=True)]
        return to_arrow([value for value in values if value is not None], inner).take(pa.array(rows, pa.int32()))
    if column := _own_column(hint):
        return column.to_arrow(values)
    if get_origin(hint) is tuple:
        ends = pa.array(accumulate(map(len, values), initial=0), pa.int32())
        return pa.ListArray.from_arrays(ends, to_arrow([item for value in values for item in value], get_args(hint)[0]))
    if hint in _SCALARS or get_origin(hint) in (Annotated, Literal):
        return pa.array(values, _arrow_type(hint))
    get = dict.__getitem__ if is_typeddict(hint) else getattr
    members = field_types(hint)
    arrays = [to_arrow([get(value, name) for value in values], inner) for name, inner in members.items()]
    return pa.StructArray.from_arrays(arrays, list(members))


def from_arrow(array: pa.Array, hint: Any, path: str) -> list[Any]:
    """Return the values of a field, one per row; `path` is its name."""
    if (inner := non_null_type(hint)) is not None:
        present = iter(from_arrow(array.drop_null(), inner, path))
        return [next(present) if is_present else None for is_present in array.is_valid().to_pylist()]
    if column := _own_column(hint):
        return column.from_arrow(array, path)
    if get_origin(hint) is tuple:
        items = from_arrow(array.flatten(), get_args(hint)[0], path)
        return [
            tuple(items[start:end]) for start, end in pairwise(accumulate(array.value_lengths().to_pylist(), initial=0))
        ]
    if not pa.types.is_struct(array.type):
        values: list[Any] = array.to_pylist()
        return values
    members = field_types(hint)
    columns = [from_arrow(array.field(name), inner, f"{path}.{name}") for name, inner in members.items()]
    if is_typeddict(hint):
        return [dict(zip(members, row, strict=True)) for row in zip(*columns, strict=True)]
    return list(map(hint, *columns))


def fault_of(record: RecordClass) -> str:
    """Return which value of a record no stage writes, and what is expected; empty if there is none.

    A record class may have a method `fault` that returns this.
    """
    for name, hint in field_types(type(record)).items():
        if get_origin(hint) is Literal and (value := getattr(record, name)) not in get_args(hint):
            return f"column {name!r} is {value!r}, expected one of {', '.join(map(str, get_args(hint)))}"
    fault = getattr(record, "fault", None)
    return str(fault()) if fault else ""


def _arrow_type(hint: Any) -> pa.DataType:
    if (inner := non_null_type(hint)) is not None:
        return _arrow_type(inner)
    if column := _own_column(hint):
        return column.arrow_type()
    if get_origin(hint) is Annotated:
        return pa.type_for_alias(hint.__metadata__[0])
    if get_origin(hint) is Literal:
        return pa.string()
    if get_origin(hint) is tuple:
        return pa.list_(_arrow_type(get_args(hint)[0]))
    if hint in _SCALARS:
        return _SCALARS[hint]
    if not (is_dataclass(hint) or is_typeddict(hint)):
        raise TypeError(f"a field of records has the type {hint}; expected those that {__name__} lists")
    return pa.struct([(name, _arrow_type(inner)) for name, inner in field_types(hint).items()])


def _own_column(hint: Any) -> Column | None:
    note = hint.__metadata__[0] if get_origin(hint) is Annotated else ""
    return None if isinstance(note, str) else note
