"""Frames between executor, server and child: struct headers, UTF-8 text, raw grid bytes. Nothing is ever unpickled.

executor -> server   batch: number of programs; for each: lengths, the source and the input grids, or a packed script
child -> server      a reply for each program, checked to the last byte, because the program could have written it: the
                     child's CPU seconds so far, then the result; only a script's values are passed on unchecked
server -> executor   replies of a batch: length of all and peak memory so far, as the kernel reports it to the server;
                     for each program its CPU seconds, then the result
"""

import socket
import struct
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np

from arc_refinery.arc.grids import MAX_SIDE, N_COLORS, Grid
from arc_refinery.sandbox import plain
from arc_refinery.sandbox.types import Program, Script, Status, Value

TEXT_CHARS = 1000  # length of an error's type or message; longer ones are truncated
_BYTES_PER_CHAR = 10  # at most, after backslashreplace
PRINTED_BYTES = 2**15  # output of an interactive script

# Instead of a result: the program has none yet and needs its own child.
ALONE = b"!"

_BATCH = struct.Struct("<I")
# bytes of source (of the whole script), of all grids; number of outputs; is a script; its CPU seconds, 0: the server's
_REQUEST = struct.Struct("<IIH?d")
# magic, status, line (-1 = none), bytes of type, message, grids or blocks; number of these
_RESULT = struct.Struct("<4sBiHHIH")
_REPLIES = struct.Struct("<II")  # bytes of all, peak memory in kB
_CPU = struct.Struct("<d")
_SHAPE = struct.Struct("<HH")
_BLOCK = struct.Struct("<I")
_LINE = struct.Struct("<i")  # before an expression's error; -1 = none
_MAGIC = b"ARC2"
_STATUSES = tuple(Status)
_CELLS = bytes(range(N_COLORS))
_KINDS: dict[bytes, Literal["plain", "not_plain", "error"]] = {b"=": "plain", b"?": "not_plain", b"!": "error"}
_TAGS = {kind: tag for tag, kind in _KINDS.items()}


class WireError(Exception):
    """A malformed frame."""


class OutputForm(NamedTuple):
    """Outputs that a request asks for: a number of grids or, for a script, a number of blocks of bytes."""

    n_outputs: int
    is_script: bool = False


class Request(NamedTuple):
    """A program or a script, as sent to a server."""

    source: str
    inputs: tuple[Grid, ...]
    script: bytes = b""  # packed, instead of the other two
    n_blocks: int = 0  # for what it printed, and for its values
    cpu_seconds: float = 0.0  # a script's own limit; 0: the server's

    @property
    def form(self) -> OutputForm:
        return OutputForm(self.n_blocks, is_script=True) if self.script else OutputForm(len(self.inputs))


class Result(NamedTuple):
    """Result of a program: an `Outcome` without id and CPU time."""

    status: Status
    outputs: tuple[Grid, ...] = ()
    error_type: str = ""
    error_message: str = ""
    error_line: int | None = None
    values: tuple[Value, ...] = ()  # values of a script's expressions
    printed: str | None = None  # by a script


def form_of(program: Program | Script) -> OutputForm:
    if isinstance(program, Script):
        return OutputForm(1 + len(program.expressions), is_script=True)
    return OutputForm(len(program.inputs))


def encode_request(program: Program | Script, cpu_seconds: float = 0.0) -> bytes:
    if isinstance(program, Script):
        script = plain.pack(
            (
                program.sources,
                program.expressions,
                program.names,
                program.interactive,
                program.n_replayed,
                program.program,
                program.classes,
            ),
            max_bytes=2**31,
        )
        return _REQUEST.pack(len(script), 0, *form_of(program), cpu_seconds) + script
    for grid in program.inputs:
        if grid.ndim != 2 or grid.dtype != np.uint8:
            raise ValueError(f"program {program.program_id}: expected 2-D uint8 inputs, got {grid.ndim}-D {grid.dtype}")
    # A model's text may contain lone surrogates; they do not compile, which is the program's error, not ours.
    source = program.source.encode("utf-8", "surrogatepass")
    grids = _pack_grids(program.inputs)
    return _REQUEST.pack(len(source), len(grids), *form_of(program), 0.0) + source + grids


def encode_batch(requests: Sequence[bytes]) -> bytes:
    return _BATCH.pack(len(requests)) + b"".join(requests)


def read_batch(sock: socket.socket) -> list[Request]:
    """Read the next programs; EOFError when the executor has closed the connection."""
    (n_programs,) = _BATCH.unpack(_read_exactly(sock, _BATCH.size))
    return [_read_request(sock) for _ in range(n_programs)]


def _read_request(sock: socket.socket) -> Request:
    source_bytes, grid_bytes, n_outputs, is_script, cpu_seconds = _REQUEST.unpack(_read_exactly(sock, _REQUEST.size))
    body = _read_exactly(sock, source_bytes + grid_bytes)
    if is_script:
        return Request("", (), body, n_outputs, cpu_seconds)
    source = body[:source_bytes].decode("utf-8", "surrogatepass")
    return Request(source, _unpack_grids(body[source_bytes:], n_outputs))


def encode_result(result: Result) -> bytes:
    error_type, message = _text(result.error_type), _text(result.error_message)
    outputs = _pack_grids(result.outputs) if result.printed is None else _pack_values(result.printed, result.values)
    header = _RESULT.pack(
        _MAGIC,
        _STATUSES.index(result.status),
        -1 if result.error_line is None else result.error_line,
        len(error_type),
        len(message),
        len(outputs),
        len(result.outputs) if result.printed is None else 1 + len(result.values),
    )
    return header + error_type + message + outputs


def max_reply_bytes(n_outputs: int, is_script: bool = False) -> int:
    return _CPU.size + max_result_bytes(n_outputs, is_script)


def max_result_bytes(n_outputs: int, is_script: bool = False) -> int:
    per_output = _BLOCK.size + 1 + plain.MAX_VALUE_BYTES if is_script else _SHAPE.size + MAX_SIDE**2
    return _RESULT.size + 2 * _BYTES_PER_CHAR * TEXT_CHARS + n_outputs * per_output


def result_bytes(data: bytes | bytearray, n_outputs: int, is_script: bool = False) -> int | None:
    """Return the length of the result at the start; None until enough has arrived. WireError if it is not a result."""
    if data.startswith(ALONE):
        return len(ALONE)
    if len(data) < _RESULT.size:
        return None
    magic, _, _, type_bytes, message_bytes, output_bytes, _ = _RESULT.unpack_from(data)
    size: int = _RESULT.size + type_bytes + message_bytes + output_bytes
    if magic != _MAGIC or size > max_result_bytes(n_outputs, is_script):
        raise WireError("malformed result")
    return size


def decode_result(frame: bytes, n_outputs: int, is_script: bool = False) -> Result:
    """Undo `encode_result`; WireError unless every byte is valid."""
    try:
        magic, status, line, type_bytes, message_bytes, _, n_sent = _RESULT.unpack_from(frame)
        message_start = _RESULT.size + type_bytes
        outputs_start = message_start + message_bytes
        printed, values = _unpack_values(frame[outputs_start:], n_sent) if is_script else (None, ())
        result = Result(
            status=_STATUSES[status],
            outputs=() if is_script else _unpack_grids(frame[outputs_start:], n_sent),
            error_type=frame[_RESULT.size : message_start].decode(),
            error_message=frame[message_start:outputs_start].decode(),
            error_line=None if line == -1 else line,
            values=values,
            printed=printed,
        )
    except (struct.error, ValueError, LookupError) as error:
        raise WireError("malformed result") from error
    if magic != _MAGIC or line < -1 or len(frame) > max_result_bytes(n_outputs, is_script):
        raise WireError("malformed result")
    is_ok = result.status is Status.ok
    if n_sent != (n_outputs if is_ok else 0) and not (is_script and not is_ok and n_sent == 1):
        raise WireError("wrong number of outputs")
    if is_script and result.status is Status.invalid_output:
        raise WireError("not a script's status")
    for grid in result.outputs:
        if max(grid.shape) > MAX_SIDE or min(grid.shape) < 1 or grid.tobytes().translate(None, _CELLS):
            raise WireError("invalid output grid")
    return result


def encode_reply(result: bytes, cpu_seconds: float) -> bytes:
    return _CPU.pack(cpu_seconds) + result


def take_reply(data: bytearray, n_outputs: int, is_script: bool = False) -> tuple[bytes, float] | None:
    """Remove a reply from the front of the data; None if it is incomplete. WireError if it is not a reply."""
    size = result_bytes(data[_CPU.size :], n_outputs, is_script)
    if size is None or len(data) < _CPU.size + size:
        return None
    (cpu_seconds,) = _CPU.unpack_from(data)
    result = bytes(data[_CPU.size : _CPU.size + size])
    del data[: _CPU.size + size]
    return result, cpu_seconds


def encode_replies(replies: Iterable[tuple[bytes, float]], peak_kb: int) -> bytes:
    body = b"".join(encode_reply(result, cpu_seconds) for result, cpu_seconds in replies)
    return _REPLIES.pack(len(body), peak_kb) + body


def read_replies(sock: socket.socket, forms: Sequence[OutputForm]) -> tuple[list[tuple[Result | None, float]], int]:
    """Read the (result, CPU seconds) of each program of a batch, in order, and the peak memory in kB.

    The result is None for `ALONE`. EOFError: the server is gone.
    """
    n_bytes, peak_kb = _REPLIES.unpack(_read_exactly(sock, _REPLIES.size))
    body = bytearray(_read_exactly(sock, n_bytes))
    replies = []
    for form in forms:
        reply = take_reply(body, *form)
        assert reply is not None  # the server is ours
        result, cpu_seconds = reply
        replies.append((None if result == ALONE else decode_result(result, *form), cpu_seconds))
    return replies, peak_kb


def _pack_grids(grids: Iterable[Grid]) -> bytes:
    return b"".join(part for grid in grids for part in (_SHAPE.pack(*grid.shape), grid.tobytes()))


def _unpack_grids(data: bytes, n_grids: int) -> tuple[Grid, ...]:
    grids = []
    start = 0
    for _ in range(n_grids):
        height, width = _SHAPE.unpack_from(data, start)
        start += _SHAPE.size
        cells = np.frombuffer(data, np.uint8, height * width, start)  # ValueError if the data ends too early
        grids.append(cells.reshape(height, width).copy())
        start += height * width
    if start != len(data):
        raise ValueError(f"{len(data) - start} bytes after the last grid")
    return tuple(grids)


def _pack_values(printed: str, values: Iterable[Value]) -> bytes:
    blocks = [printed.encode("utf-8", "backslashreplace")[:PRINTED_BYTES].decode("utf-8", "ignore").encode()]
    for value in values:
        error = _LINE.pack(-1 if value.line is None else value.line) + _text(value.error)
        blocks.append(_TAGS[value.kind] + (value.data or error))
    return b"".join(part for block in blocks for part in (_BLOCK.pack(len(block)), block))


def _unpack_values(data: bytes, n_blocks: int) -> tuple[str, tuple[Value, ...]]:
    """Return the printed text and the values; KeyError or ValueError if the bytes are malformed."""
    blocks = []
    start = 0
    for _ in range(n_blocks):
        (length,) = _BLOCK.unpack_from(data, start)
        start += _BLOCK.size + length
        blocks.append(data[start - length : start])
    if start != len(data):
        raise ValueError("the blocks are longer or shorter than they say")
    values = []
    for block in blocks[1:]:
        kind, body = _KINDS[block[:1]], block[1:]
        if kind == "plain":
            values.append(Value(kind, data=body))
        else:
            (line,) = _LINE.unpack_from(body)
            error = body[_LINE.size :].decode()
            values.append(Value(kind, error=error, line=line if line >= 0 else None))
    return blocks[0].decode() if blocks else "", tuple(values)


def _text(text: str) -> bytes:
    # Use the methods of `str` itself: those of a subclass could return anything.
    return str.encode(str.__getitem__(text, slice(TEXT_CHARS)), "utf-8", "backslashreplace")


def _read_exactly(sock: socket.socket, n_bytes: int) -> bytes:
    data = sock.recv(n_bytes)
    if len(data) == n_bytes:
        return data
    parts = bytearray(data)
    while len(parts) < n_bytes:
        chunk = sock.recv(n_bytes - len(parts))
        if not chunk:
            raise EOFError("the other end has closed the connection")
        parts += chunk
    return bytes(parts)
