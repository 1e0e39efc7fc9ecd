"""What an engine and its walking process say to each other: each question has one answer, `Forget` none."""

from __future__ import annotations

import socket

import msgspec


class Start(msgspec.Struct, frozen=True, tag="start"):
    """The vocabulary that grammars are walked with, before everything else; has no answer."""

    tokenizer: bytes
    vocab_size: int
    end_tokens: tuple[int, ...]


class Begin(msgspec.Struct, frozen=True, tag="begin"):
    """See `Walks.begin`. Answered by `Done`."""

    walk: int
    grammar: str
    stop_tokens: tuple[int, ...]


class Fill(msgspec.Struct, frozen=True, tag="fill"):
    """See `Walks.fill` and, with `drafts`, `Walks.fill_drafts`; a mask has `words`. Answered by `Masks`."""

    walk: int
    tokens: tuple[int, ...]
    drafts: tuple[int, ...] | None
    words: int


class Admissible(msgspec.Struct, frozen=True, tag="admissible"):
    """See `Walks.admissible`. Answered by `Count`."""

    walk: int
    tokens: tuple[int, ...]
    drafts: tuple[int, ...]


class Forget(msgspec.Struct, frozen=True, tag="forget"):
    """See `Walks.forget`."""

    walk: int


class Done(msgspec.Struct, frozen=True, tag="done"):
    """It went well."""


class Masks(msgspec.Struct, frozen=True, tag="masks"):
    """i32[words] or i32[drafts + 1, words]."""

    data: bytes


class Count(msgspec.Struct, frozen=True, tag="count"):
    """A number."""

    value: int


class Problem(msgspec.Struct, frozen=True, tag="problem"):
    """An error: that of a grammar, or of the core's tokenizer with the field at fault."""

    message: str
    field: str | None = None


Question = Start | Begin | Fill | Admissible | Forget
Answer = Done | Masks | Count | Problem

encode = msgspec.msgpack.Encoder().encode
decode_question = msgspec.msgpack.Decoder(Question).decode
decode_answer = msgspec.msgpack.Decoder(Answer).decode


def send(connection: socket.socket, message: Question | Answer) -> None:
    """Raises OSError when the other end is gone."""
    data = encode(message)
    connection.sendall(len(data).to_bytes(4, "big") + data)


def receive(connection: socket.socket) -> bytearray | None:
    """One message as bytes; None when the other end is gone."""
    head = _read(connection, 4)
    return None if head is None else _read(connection, int.from_bytes(head, "big"))


def _read(connection: socket.socket, size: int) -> bytearray | None:
    data = bytearray(size)
    view, read = memoryview(data), 0
    while read < size:
        count = connection.recv_into(view[read:])
        if not count:
            return None
        read += count
    return data
