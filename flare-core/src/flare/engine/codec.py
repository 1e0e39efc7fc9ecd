"""Wire format between front and engine process: MessagePack, one command or one list of events a message."""

from __future__ import annotations

import msgspec

from flare.engine.messages import Command, Event

_encoder = msgspec.msgpack.Encoder()
_commands = msgspec.msgpack.Decoder(Command)
_events = msgspec.msgpack.Decoder(list[Event])


def encode_command(command: Command) -> bytes:
    """One command."""
    return _encoder.encode(command)


def decode_command(message: bytes) -> Command:
    """Raises msgspec.DecodeError when the message is not a command."""
    return _commands.decode(message)


def encode_events(events: list[Event]) -> bytes:
    """Events of one step, in order."""
    return _encoder.encode(events)


def decode_events(message: bytes) -> list[Event]:
    """Raises msgspec.DecodeError when the message is not a list of events."""
    return _events.decode(message)
