"""Frames of the engine socket: a 4-byte big-endian length, then one MessagePack message; and who sends them."""

from __future__ import annotations

import asyncio
import socket
import struct

import msgspec

from midspan_engine.errors import EngineError, InputError
from midspan_engine.protocol import PROTOCOL_VERSION, Reply, Request

MAX_FRAME_BYTES = 64 * 2**20
"""Longest frame accepted: a file of 50 MB (beyond what front ends send) plus its envelope."""

_HEADER = struct.Struct(">I")
_CREDENTIALS = struct.Struct("3i")
"""struct ucred: process, user, group (man 7 unix)."""
_encoder = msgspec.msgpack.Encoder()
_request_decoder = msgspec.msgpack.Decoder(Request)
_reply_decoder = msgspec.msgpack.Decoder(Reply)


def pack(message: Request | Reply) -> bytes:
    """Returns the frame of one message.

    Raises InputError for text that is not valid Unicode (a lone surrogate) and for a message that is too long.
    """
    try:
        body = _encoder.encode(message)
    except UnicodeEncodeError as error:
        raise InputError("the text holds half a surrogate pair, which is not Unicode; remove it") from error
    if len(body) > MAX_FRAME_BYTES:
        raise InputError(f"a text of {len(body)} bytes exceeds the limit of {MAX_FRAME_BYTES}; use a smaller file")
    return _HEADER.pack(len(body)) + body


async def read_frame(reader: asyncio.StreamReader) -> bytes | None:
    """Reads the body of one frame; None at an orderly end of the stream.

    Raises EngineError for an oversized frame or a stream that ends inside one.
    """
    try:
        (size,) = _HEADER.unpack(await reader.readexactly(_HEADER.size))
        if size > MAX_FRAME_BYTES:
            raise EngineError(f"a frame of {size} bytes exceeds the limit of {MAX_FRAME_BYTES}; close the connection")
        return await reader.readexactly(size)
    except asyncio.IncompleteReadError as end:
        if end.partial:
            raise EngineError("the stream ended inside a frame; connect again") from end
        return None


async def read_request(reader: asyncio.StreamReader) -> Request | None:
    """Reads one request; None at the end of the stream. Raises EngineError for bytes that are no request."""
    body = await read_frame(reader)
    if body is None:
        return None
    try:
        return _request_decoder.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise EngineError(f"not a request of protocol version {PROTOCOL_VERSION}: {error}") from error


async def read_reply(reader: asyncio.StreamReader) -> Reply | None:
    """Reads one reply; None at the end of the stream. Raises EngineError for bytes that are no reply."""
    body = await read_frame(reader)
    if body is None:
        return None
    try:
        return _reply_decoder.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise EngineError(f"not a reply of protocol version {PROTOCOL_VERSION}: {error}") from error


def peer_pid(peer: socket.socket) -> int:
    """Returns the process at the other end of a unix socket; 0 where the system does not tell."""
    if not hasattr(socket, "SO_PEERCRED"):
        return 0
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid: int = _CREDENTIALS.unpack(credentials)[0]
    return pid
