"""Frames between executor, server and child: struct headers, UTF-8 text, raw grid bytes. Nothing is ever unpickled.

executor -> server   request: lengths, then the source and the input grids
child -> server      result: one frame, checked to the last byte, for the program could have written it
server -> executor   reply: length and CPU seconds, then the result
"""

import socket
import struct
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from arc_refinery.sandbox.types import MAX_COLOR, MAX_SIDE, Grid, Program, Status

TEXT_CHARS = 1000  # of an error's type or message; longer ones are cut
_BYTES_PER_CHAR = 10  # at most, after backslashreplace

_REQUEST = struct.Struct("<IIH")  # bytes of source, bytes of all grids, number of grids
_RESULT = struct.Struct("<4sBiHHH")  # magic, status, line (-1 = none), bytes of type, bytes of message, number of grids
_REPLY = struct.Struct("<Id")  # bytes of result, CPU seconds
_SHAPE = struct.Struct("<HH")
_MAGIC = b"ARC1"
_STATUSES = tuple(Status)


class WireError(Exception):
    """A frame that is not what it should be."""


class Request(NamedTuple):
    """What a server is told of a program."""

    source: str
    inputs: tuple[Grid, ...]


class Result(NamedTuple):
    """What came of a program: an `Outcome` before it has an id and a cost."""

    status: Status
    outputs: tuple[Grid, ...] = ()
    error_type: str = ""
    error_message: str = ""
    error_line: int | None = None


def encode_request(program: Program) -> bytes:
    for grid in program.inputs:
        if grid.ndim != 2 or grid.dtype != np.uint8:
            raise ValueError(f"program {program.program_id}: expected 2-D uint8 inputs, got {grid.ndim}-D {grid.dtype}")
    # A model's text may hold lone surrogates; that they do not compile is the program's error, not ours.
    source = program.source.encode("utf-8", "surrogatepass")
    grids = _pack_grids(program.inputs)
    return _REQUEST.pack(len(source), len(grids), len(program.inputs)) + source + grids


def read_request(sock: socket.socket) -> Request:
    """The next program; EOFError when the executor has closed the connection."""
    source_bytes, grid_bytes, n_grids = _REQUEST.unpack(_read_exactly(sock, _REQUEST.size))
    source = _read_exactly(sock, source_bytes).decode("utf-8", "surrogatepass")
    return Request(source, _unpack_grids(_read_exactly(sock, grid_bytes), n_grids))


def encode_result(result: Result) -> bytes:
    error_type, message = (
        text[:TEXT_CHARS].encode("utf-8", "backslashreplace") for text in (result.error_type, result.error_message)
    )
    line = -1 if result.error_line is None else result.error_line
    status = _STATUSES.index(result.status)
    header = _RESULT.pack(_MAGIC, status, line, len(error_type), len(message), len(result.outputs))
    return header + error_type + message + _pack_grids(result.outputs)


def max_result_bytes(n_inputs: int) -> int:
    return _RESULT.size + 2 * _BYTES_PER_CHAR * TEXT_CHARS + n_inputs * (_SHAPE.size + MAX_SIDE**2)


def decode_result(frame: bytes, n_inputs: int) -> Result:
    """The inverse of `encode_result`; WireError unless every byte is as it must be."""
    try:
        magic, status, line, type_bytes, message_bytes, n_grids = _RESULT.unpack_from(frame)
        message_start = _RESULT.size + type_bytes
        grids_start = message_start + message_bytes
        result = Result(
            status=_STATUSES[status],
            outputs=_unpack_grids(frame[grids_start:], n_grids),
            error_type=frame[_RESULT.size : message_start].decode(),
            error_message=frame[message_start:grids_start].decode(),
            error_line=None if line == -1 else line,
        )
    except (struct.error, ValueError, IndexError) as error:
        raise WireError("malformed result") from error
    if magic != _MAGIC or line < -1 or len(frame) > max_result_bytes(n_inputs):
        raise WireError("malformed result")
    if n_grids != (n_inputs if result.status is Status.ok else 0):
        raise WireError("wrong number of outputs")
    for grid in result.outputs:
        if not all(1 <= side <= MAX_SIDE for side in grid.shape) or grid.max() > MAX_COLOR:
            raise WireError("invalid output grid")
    return result


def encode_reply(result: bytes, cpu_seconds: float) -> bytes:
    return _REPLY.pack(len(result), cpu_seconds) + result


def read_reply(sock: socket.socket, n_inputs: int) -> tuple[Result, float]:
    """Result and CPU seconds of the program that was sent; EOFError when the server is gone."""
    n_bytes, cpu_seconds = _REPLY.unpack(_read_exactly(sock, _REPLY.size))
    return decode_result(_read_exactly(sock, n_bytes), n_inputs), cpu_seconds


def _pack_grids(grids: Iterable[Grid]) -> bytes:
    return b"".join(part for grid in grids for part in (_SHAPE.pack(*grid.shape), grid.tobytes()))


def _unpack_grids(data: bytes, n_grids: int) -> tuple[Grid, ...]:
    grids = []
    start = 0
    for _ in range(n_grids):
        height, width = _SHAPE.unpack_from(data, start)
        start += _SHAPE.size
        cells = np.frombuffer(data, np.uint8, height * width, start)  # ValueError where the data ends too early
        grids.append(cells.reshape(height, width).copy())
        start += height * width
    if start != len(data):
        raise ValueError(f"{len(data) - start} bytes after the last grid")
    return tuple(grids)


def _read_exactly(sock: socket.socket, n_bytes: int) -> bytes:
    data = bytearray()
    while len(data) < n_bytes:
        chunk = sock.recv(n_bytes - len(data))
        if not chunk:
            raise EOFError("the other end has closed the connection")
        data += chunk
    return bytes(data)
