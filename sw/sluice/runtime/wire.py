"""Messages between the driver's process and the simulator's, over a Unix socket.

A request is a kind, two numbers and bytes; the reply a status, a number, the simulated cycles and wall seconds that
waiting has taken so far, and bytes (data, or the text of an error).
"""

from __future__ import annotations

import enum
import socket
import struct

__all__ = ["Request", "Status", "receive_reply", "receive_request", "send_reply", "send_request"]

_REQUEST = struct.Struct("<BQQI")
_REPLY = struct.Struct("<BQQdI")
#: Name of the environment variable with the socket's path.
SOCKET_VARIABLE = "SLUICE_SOCKET"
#: ... and with the period of a memory's own clock, in ps; 0 or not set: it has none.
MEMORY_PERIOD_VARIABLE = "SLUICE_MEMORY_PERIOD"
#: The chip's clock period; only ratios matter in simulation.
PERIOD_NS = 10


class Request(enum.IntEnum):
    """What the driver asks for."""

    CSR_READ = 1
    CSR_WRITE = 2
    MEM_READ = 3
    MEM_WRITE = 4
    WAIT = 5
    ADVANCE = 6
    QUIT = 7


class Status(enum.IntEnum):
    """How it went."""

    OK = 0
    REFUSED = 1
    FAILED = 2


def _exactly(connection: socket.socket, size: int) -> bytes:
    parts, left = [], size
    while left:
        part = connection.recv(min(left, 1 << 20))
        if not part:
            raise EOFError("the other side has closed the connection")
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def send_request(connection: socket.socket, kind: Request, a: int = 0, b: int = 0, data: bytes = b"") -> None:
    connection.sendall(_REQUEST.pack(kind, a, b, len(data)) + data)


def receive_request(connection: socket.socket) -> tuple[Request, int, int, bytes]:
    """Raises ``EOFError`` when the driver has gone."""
    kind, a, b, size = _REQUEST.unpack(_exactly(connection, _REQUEST.size))
    return Request(kind), a, b, _exactly(connection, size)


def send_reply(
    connection: socket.socket, status: Status, value: int, cycles: int, seconds: float, data: bytes = b""
) -> None:
    connection.sendall(_REPLY.pack(status, value, cycles, seconds, len(data)) + data)


def receive_reply(connection: socket.socket) -> tuple[Status, int, int, float, bytes]:
    """Raises ``EOFError`` when the simulator has gone."""
    status, value, cycles, seconds, size = _REPLY.unpack(_exactly(connection, _REPLY.size))
    return Status(status), value, cycles, seconds, _exactly(connection, size)
