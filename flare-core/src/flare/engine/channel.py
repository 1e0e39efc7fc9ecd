"""The front's end of the socket to one engine process, on an asyncio event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import zmq

from flare.engine.codec import decode_events, encode_command
from flare.engine.messages import Command, Event
from flare.engine.socket_directory import SocketDirectory


class Channel:
    """A PAIR socket bound in a private temporary directory.

    `on_event` is called on the event loop for every event in order.
    """

    def __init__(self, on_event: Callable[[Event], None]) -> None:
        self._on_event = on_event
        self._directory = SocketDirectory()
        self.endpoint = f"ipc://{self._directory.path}/engine"
        self._context = zmq.Context[zmq.Socket[bytes]](io_threads=1)
        self._socket: zmq.Socket[bytes] = self._context.socket(zmq.PAIR)
        self._socket.sndhwm = self._socket.rcvhwm = 0
        self._socket.linger = 0
        self._socket.bind(self.endpoint)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket.FD, self._receive)
        self._loop.call_soon(self._receive)

    def send(self, command: Command) -> bool:
        """Queue a command without waiting; False when there is no engine at the other end."""
        if self._socket.closed:
            return False
        try:
            self._socket.send(encode_command(command), zmq.NOBLOCK)
        except zmq.Again:
            return False
        # The descriptor signals edges, and sending may have used one up.
        self._loop.call_soon(self._receive)
        return True

    async def drain(self, grace_s: float) -> None:
        """Take in what a process that has ended left behind: until nothing arrived for `grace_s`."""
        while not self._socket.closed:
            if not self._receive():
                await asyncio.sleep(grace_s)
                if not self._receive():
                    return

    def close(self) -> None:
        """Idempotent."""
        if not self._socket.closed:
            self._loop.remove_reader(self._socket.FD)
            self._socket.close()
            self._context.term()
            self._directory.remove()

    def _receive(self) -> int:
        """Deliver everything that arrived; returns the number of messages."""
        count = 0
        while not self._socket.closed:
            try:
                message = self._socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                break
            count += 1
            for event in decode_events(message):
                self._on_event(event)
        return count
