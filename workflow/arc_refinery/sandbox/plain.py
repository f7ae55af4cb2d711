"""Pack plain data into bytes, to pass a script's values from one child to another.

Plain types are None, bool, int, float, complex, Fraction, Decimal, str, bytes, bytearray, list, tuple, dict and its
views, set, frozenset, range, deque, times of `datetime`, patterns and matches of `re`, and numpy's arrays, also nested;
and iterators, which are consumed. Unpacked data has exactly these types: it has no methods of its own, equals what it
looks like, and runs no code. An instance of a subclass (a named tuple, an IntEnum) is packed as its base type, a numpy
scalar as a Python number.

Instances of classes that both children know by name are packed, too: an Enum's member by its name, any other one as
its base type's content and its attributes. Unpacked, they have the methods that the second child's own class has,
whatever the first child's class of that name does.
"""

import re
import struct
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Any

import numpy as np

MAX_VALUE_BYTES = 2**16
_MAX_DEPTH = 50

_LENGTH = struct.Struct("<I")
_FLOAT = struct.Struct("<d")
_COMPLEX = struct.Struct("<dd")
_CONSTANTS = {b"N": None, b"T": True, b"F": False}
_COLLECTIONS: dict[bytes, type] = {
    b"l": list,
    b"t": tuple,
    b"e": set,
    b"z": frozenset,
    b"K": type({}.keys()),
    b"V": type({}.values()),
    b"I": type({}.items()),
}
_DAY, _CLOCK = ("year", "month", "day"), ("hour", "minute", "second", "microsecond", "tzinfo", "fold")
# types that a call with a few attributes makes, subclasses before their bases
_MADE: dict[bytes, tuple[type, Callable[..., Any], tuple[str, ...]]] = {
    b"R": (Fraction, Fraction, ("numerator", "denominator")),
    b"M": (datetime, datetime, _DAY + _CLOCK),
    b"A": (date, date, _DAY),
    b"H": (time, time, _CLOCK),
    b"L": (timedelta, timedelta, ("days", "seconds", "microseconds")),
    b"P": (re.Pattern, re.compile, ("pattern", "flags")),
}
_ARRAY_TYPES = re.compile(r"[<>|](?:b1|[iu][1248]|f[248]|c8|c16|[US]\d{1,5}|O)", re.ASCII)
KNOWN: dict[str, type] = {"Counter": Counter, "OrderedDict": OrderedDict}


class NotPlainError(Exception):
    """A value cannot be packed; the message says what it is."""


class MalformedError(Exception):
    """The bytes were not written by `pack`, or the classes of the other child are different ones."""


def pack(value: Any, max_bytes: int = MAX_VALUE_BYTES, classes: Collection[str] = ()) -> bytes:
    """Pack plain data, and instances of classes that have one of these names.

    Raises `NotPlainError` for other or too much data, and whatever iterators raise.
    """
    packer = _Packer(max_bytes, classes)
    packer.pack(value, _MAX_DEPTH)
    return bytes(packer.data)


def unpack(data: bytes, classes: Mapping[str, Any] = KNOWN) -> Any:
    """Undo `pack`, with classes by name; raises `MalformedError` unless every byte is valid.

    Sets and dicts of forged numbers may take long to build, and patterns to match: unpack a program's data where time
    is limited.
    """
    try:
        value, end = _unpack(data, 0, _MAX_DEPTH, classes)
    except (  # TypeError: unhashable items; re.error: a forged pattern
        struct.error, ValueError, TypeError, LookupError, ArithmeticError, AttributeError, re.error
    ) as error:  # fmt: skip
        raise MalformedError("no plain data") from error
    if end != len(data):
        raise MalformedError("no plain data")
    return value


def unpack_text(data: bytes) -> str:
    """Unpack a text, which is quick also if it is forged; raises `MalformedError` for other data."""
    if data[:1] != b"s":
        raise MalformedError("not a text")
    return str(unpack(data))


class _Packer:
    """Bytes so far. It uses the base types' own methods: those of a subclass could return anything."""

    def __init__(self, max_bytes: int, classes: Collection[str]) -> None:
        self.data = bytearray()
        self._max_bytes, self._classes = max_bytes, classes

    def pack(self, value: Any, depth: int) -> None:
        kind = type(value)
        if depth == 0:
            raise NotPlainError(f"nested deeper than {_MAX_DEPTH}")
        name = next((base.__name__ for base in kind.__mro__ if base.__name__ in self._classes), None)
        if name is None:
            self._pack_plain(value, kind, depth)
        elif issubclass(kind, Enum):
            is_member = value._name_ in kind._member_map_  # not so of flags together
            self._pack_items(b"E", (name, value._name_ if is_member else value._value_), depth)
        else:
            self._pack_items(b"o", (name, object.__getstate__(value)), depth)
            self._pack_plain(value, kind, depth, is_instance=True)
        if len(self.data) > self._max_bytes:
            raise NotPlainError(f"larger than {self._max_bytes} bytes")

    def _pack_plain(self, value: Any, kind: type, depth: int, is_instance: bool = False) -> None:
        data = self.data
        if value is None or kind is bool:
            data += b"N" if value is None else b"T" if value else b"F"
        elif issubclass(kind, int):
            if int.bit_length(value) > 8 * self._max_bytes:
                raise NotPlainError(f"larger than {self._max_bytes} bytes")
            self._pack_bytes(b"i", int.to_bytes(value, int.bit_length(value) // 8 + 1, "little", signed=True))
        elif issubclass(kind, float):
            data += b"f" + _FLOAT.pack(float.__pos__(value))
        elif issubclass(kind, complex):
            number = complex.__pos__(value)
            data += b"c" + _COMPLEX.pack(number.real, number.imag)
        elif issubclass(kind, str):
            self._pack_bytes(b"s", str.encode(value, "utf-8", "surrogatepass"))
        elif issubclass(kind, bytes):
            self._pack_bytes(b"b", bytes.__getitem__(value, slice(None)))
        elif issubclass(kind, bytearray):
            self._pack_bytes(b"y", bytes(bytearray.__getitem__(value, slice(None))))
        elif parts := _parts(value, kind):
            self._pack_items(*parts, depth)
        elif issubclass(kind, dict):
            self._pack_items(b"d", (part for item in dict.items(value) for part in item), depth)
        elif issubclass(kind, np.generic):
            self.pack(np.generic.item(value), depth - 1)
        elif base := next((entry for entry in _COLLECTIONS.items() if issubclass(kind, entry[1])), None):
            self._pack_items(base[0], base[1].__iter__(value), depth)  # type: ignore[attr-defined]
        elif is_instance:
            data += b"N"
        elif issubclass(kind, Iterator):
            self._pack_items(b"g", value, depth)
        else:
            raise NotPlainError(f"a value of type {kind.__name__}")

    def _pack_bytes(self, tag: bytes, body: bytes) -> None:
        self.data += tag + _LENGTH.pack(len(body)) + body

    def _pack_items(self, tag: bytes, items: Iterable[Any], depth: int) -> None:
        self.data += tag
        start = len(self.data)
        self.data += _LENGTH.pack(0)
        n_items = 0
        for item in items:
            self.pack(item, depth - 1)
            n_items += 1
        _LENGTH.pack_into(self.data, start, n_items)


def _parts(value: Any, kind: type) -> tuple[bytes, Iterable[Any]] | None:
    """Return the tag and the parts of a value that is made from a fixed number of them, or from settings and items."""
    if made := next((entry for entry in _MADE.items() if issubclass(kind, entry[1][0])), None):
        tag, (base, _, fields) = made
        return tag, [getattr(base, field).__get__(value) for field in fields]
    if issubclass(kind, range):
        return b"r", (value.start, value.stop, value.step)
    if issubclass(kind, timezone):
        return b"Z", value.__getinitargs__()
    if issubclass(kind, re.Match):
        return b"m", (value.re, value.string, value.endpos, *value.span())
    if issubclass(kind, Decimal):
        return b"D", (Decimal.__str__(value),)
    if issubclass(kind, deque):
        return b"q", (value.maxlen, *deque.__iter__(value))
    if issubclass(kind, np.ndarray):
        array = np.asarray(value)
        if not _ARRAY_TYPES.fullmatch(array.dtype.str):
            raise NotPlainError(f"an array of type {array.dtype}")
        return b"a", (array.dtype.str, array.shape, *array.ravel().tolist())
    return None


def _unpack(data: bytes, start: int, depth: int, classes: Mapping[str, Any]) -> tuple[Any, int]:
    """Return the value that starts at `start`, and its end."""
    if depth == 0:
        raise ValueError("too deep")
    tag, start = data[start : start + 1], start + 1
    if tag in _CONSTANTS:
        return _CONSTANTS[tag], start
    if tag == b"f":
        return _FLOAT.unpack_from(data, start)[0], start + _FLOAT.size
    if tag == b"c":
        return complex(*_COMPLEX.unpack_from(data, start)), start + _COMPLEX.size
    (length,) = _LENGTH.unpack_from(data, start)
    start += _LENGTH.size
    if tag in (b"i", b"s", b"b", b"y"):
        return _from_bytes(tag, data[start : start + length], length), start + length
    items = []
    for _ in range(length):
        item, start = _unpack(data, start, depth - 1, classes)
        items.append(item)
    if tag == b"o":
        content, start = _unpack(data, start, depth, classes)
        return _instance(_known(classes, items[0]), items[1], content), start
    if tag == b"E":
        members = _known(classes, items[0])
        if not issubclass(members, Enum):
            raise ValueError("not an Enum")
        return members[items[1]] if isinstance(items[1], str) else members(items[1]), start
    return _from_items(tag, items), start


def _known(classes: Mapping[str, Any], name: str) -> type:
    if not isinstance(kind := classes[name], type):
        raise ValueError("not a class")
    return kind


def _instance(kind: type, state: Any, content: Any) -> Any:
    """Return an instance without calling what its class defines: `__init__` may want arguments."""
    base: Any = object if content is None else type(content)
    value = base.__new__(kind) if content is None else base.__new__(kind, content)
    if content is not None and base.__init__ is not object.__init__:
        base.__init__(value, content)
    attributes, slots = state if isinstance(state, tuple) else (state, None)
    if attributes:
        value.__dict__.update(attributes)
    for name, item in (slots or {}).items():
        object.__setattr__(value, name, item)
    return value


def _from_bytes(tag: bytes, body: bytes, length: int) -> int | str | bytes | bytearray:
    if len(body) != length:
        raise ValueError("cut off")
    match tag:
        case b"i":
            return int.from_bytes(body, "little", signed=True)
        case b"s":
            return body.decode("utf-8", "surrogatepass")
        case b"y":
            return bytearray(body)
        case _:
            return body


def _from_items(tag: bytes, items: list[Any]) -> Any:
    if tag in _MADE:
        _, make, fields = _MADE[tag]
        return make(**dict(zip(fields, items, strict=True)))
    match tag:
        case b"g":
            return iter(items)
        case b"r":
            return range(*items)
        case b"Z":
            return timezone(*items)
        case b"m":
            return _match(*items)
        case b"D":
            return Decimal(*items)
        case b"q":
            return deque(items[1:], items[0])
        case b"a":
            return _array(items[0], items[1], items[2:])
        case b"V":
            return dict(enumerate(items)).values()
        case b"K":
            value: Any = dict.fromkeys(items).keys()
        case b"I":
            value = dict(items).items()
        case b"d":
            value, items = dict(zip(items[::2], items[1::2], strict=True)), items[::2]
        case _:
            value = _COLLECTIONS[tag](items)
    if len(value) != len(items):
        raise ValueError("equal items")
    return value


def _match(pattern: "re.Pattern[Any]", text: Any, end_of_text: int, start: int, end: int) -> "re.Match[Any]":
    for match in (pattern.match(text, start, end_of_text), pattern.fullmatch(text, start, end)):
        if match and match.end() == end:
            return match
    raise ValueError("another match")


def _array(type_name: str, shape: tuple[int, ...], cells: list[Any]) -> "np.ndarray[Any, Any]":
    if not _ARRAY_TYPES.fullmatch(type_name):
        raise ValueError("another type")
    array = np.empty(len(cells), type_name)
    for index, cell in enumerate(cells):
        array[index] = cell
    return array.reshape(shape)
