"""Pack plain data into bytes, to pass a script's values from one child to another.

Plain types are None, bool, int, float, complex, Fraction, Decimal, str, bytes, bytearray, list, tuple, dict and its
views, set, frozenset, range, deque and numpy's arrays, also nested; and iterators, which are consumed. Unpacked data
has exactly these types: it has no methods of its own, equals what it looks like, and runs no code. An instance of a
subclass (Counter, a named tuple, an IntEnum) is packed as its base type, a numpy scalar as a Python number.
"""

import re
import struct
from collections import deque
from collections.abc import Iterable, Iterator
from decimal import Decimal
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
_ARRAY_TYPES = re.compile(r"[<>|](?:b1|[iu][1248]|f[248]|c8|c16|[US]\d{1,5}|O)", re.ASCII)


class NotPlainError(Exception):
    """A value cannot be packed; the message says what it is."""


class MalformedError(Exception):
    """The bytes were not written by `pack`."""


def pack(value: Any, max_bytes: int = MAX_VALUE_BYTES) -> bytes:
    """Pack plain data; raises `NotPlainError` for other or too much data, and whatever iterators raise."""
    data = bytearray()
    _pack(value, data, max_bytes, _MAX_DEPTH)
    return bytes(data)


def unpack(data: bytes) -> Any:
    """Undo `pack`; raises `MalformedError` unless every byte is valid.

    Sets and dicts of forged numbers may take long to build: unpack a program's data where time is limited.
    """
    try:
        value, end = _unpack(data, 0, _MAX_DEPTH)
    except (struct.error, ValueError, TypeError, LookupError, ArithmeticError) as error:  # TypeError: unhashable items
        raise MalformedError("no plain data") from error
    if end != len(data):
        raise MalformedError("no plain data")
    return value


def unpack_text(data: bytes) -> str:
    """Unpack a text, which is quick also if it is forged; raises `MalformedError` for other data."""
    if data[:1] != b"s":
        raise MalformedError("not a text")
    return str(unpack(data))


def _pack(value: Any, data: bytearray, max_bytes: int, depth: int) -> None:
    # Use the base types' own methods: those of a subclass could return anything.
    kind = type(value)
    if depth == 0:
        raise NotPlainError(f"nested deeper than {_MAX_DEPTH}")
    if value is None or kind is bool:
        data += b"N" if value is None else b"T" if value else b"F"
    elif issubclass(kind, int):
        if int.bit_length(value) > 8 * max_bytes:
            raise NotPlainError(f"larger than {max_bytes} bytes")
        _pack_bytes(b"i", int.to_bytes(value, int.bit_length(value) // 8 + 1, "little", signed=True), data)
    elif issubclass(kind, float):
        data += b"f" + _FLOAT.pack(float.__pos__(value))
    elif issubclass(kind, complex):
        number = complex.__pos__(value)
        data += b"c" + _COMPLEX.pack(number.real, number.imag)
    elif issubclass(kind, str):
        _pack_bytes(b"s", str.encode(value, "utf-8", "surrogatepass"), data)
    elif issubclass(kind, bytes):
        _pack_bytes(b"b", bytes.__getitem__(value, slice(None)), data)
    elif issubclass(kind, bytearray):
        _pack_bytes(b"y", bytes(bytearray.__getitem__(value, slice(None))), data)
    elif parts := _parts(value, kind):
        _pack_items(*parts, data, max_bytes, depth)
    elif issubclass(kind, dict):
        _pack_items(b"d", (part for item in dict.items(value) for part in item), data, max_bytes, depth)
    elif issubclass(kind, np.generic):
        _pack(np.generic.item(value), data, max_bytes, depth - 1)
    elif issubclass(kind, Iterator):
        _pack_items(b"g", value, data, max_bytes, depth)
    else:
        tag, base = next((entry for entry in _COLLECTIONS.items() if issubclass(kind, entry[1])), (b"", type(None)))
        if not tag:
            raise NotPlainError(f"a value of type {kind.__name__}")
        _pack_items(tag, base.__iter__(value), data, max_bytes, depth)  # type: ignore[attr-defined]
    if len(data) > max_bytes:
        raise NotPlainError(f"larger than {max_bytes} bytes")


def _parts(value: Any, kind: type) -> tuple[bytes, Iterable[Any]] | None:
    """Return the tag and the parts of a value that is made from a fixed number of them, or from settings and items."""
    if issubclass(kind, range):
        return b"r", (value.start, value.stop, value.step)
    if issubclass(kind, Fraction):
        return b"R", (value.numerator, value.denominator)
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


def _pack_bytes(tag: bytes, body: bytes, data: bytearray) -> None:
    data += tag + _LENGTH.pack(len(body)) + body


def _pack_items(tag: bytes, items: Iterable[Any], data: bytearray, max_bytes: int, depth: int) -> None:
    data += tag
    start = len(data)
    data += _LENGTH.pack(0)
    n_items = 0
    for item in items:
        _pack(item, data, max_bytes, depth - 1)
        n_items += 1
    _LENGTH.pack_into(data, start, n_items)


def _unpack(data: bytes, start: int, depth: int) -> tuple[Any, int]:
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
        item, start = _unpack(data, start, depth - 1)
        items.append(item)
    return _from_items(tag, items), start


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
    match tag:
        case b"g":
            return iter(items)
        case b"r":
            return range(*items)
        case b"R":
            return Fraction(*items)
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


def _array(type_name: str, shape: tuple[int, ...], cells: list[Any]) -> "np.ndarray[Any, Any]":
    if not _ARRAY_TYPES.fullmatch(type_name):
        raise ValueError("another type")
    array = np.empty(len(cells), type_name)
    for index, cell in enumerate(cells):
        array[index] = cell
    return array.reshape(shape)
