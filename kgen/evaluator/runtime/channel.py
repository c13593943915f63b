"""Private channels between the evaluator's processes: JSON messages, with file descriptors beside them.

A channel is one end of a ``SOCK_SEQPACKET`` socket pair: a message arrives whole or not at all. A candidate's prints
and files do not get in, and nothing is ever unpickled. A message too long for a packet travels in a memory file whose
descriptor takes the packet's place.
"""

import json
import os
import select
import socket
import time
from typing import Any, Sequence

PACKET_BYTES = 48 * 1024  #: longer messages travel in a memory file
MESSAGE_BYTES = 64 << 20  #: longer messages are refused
_MAX_FDS = 64
#: As plain numbers: operators of the flags' class take longer than the call.
_CLOSE_ON_EXEC, _CUT_OFF = int(socket.MSG_CMSG_CLOEXEC), int(socket.MSG_TRUNC | socket.MSG_CTRUNC)


class ChannelClosed(Exception):
    """The other end is closed."""


class ChannelTimeout(Exception):
    """Nothing arrived in time."""


class ChannelGarbage(Exception):
    """The packet is no message."""


class Channel:
    """One end of a private channel. Not thread-safe: one user at a time."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock

    @classmethod
    def pair(cls) -> tuple["Channel", "Channel"]:
        left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return cls(left), cls(right)

    @classmethod
    def from_fd(cls, fd: int) -> "Channel":
        return cls(socket.socket(fileno=fd))

    def fileno(self) -> int:
        return self.sock.fileno()

    def close(self) -> None:
        self.sock.close()

    def send(self, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
        """Send ``message`` and descriptors beside it. Raises :class:`ChannelClosed`."""
        data = json.dumps(message, separators=(",", ":")).encode()
        if len(data) <= PACKET_BYTES:
            self._send(b"j" + data, list(fds))
            return
        carrier = memory_file("kgen-message", len(data))
        try:
            os.pwrite(carrier, data, 0)
            self._send(b"m" + str(len(data)).encode(), [carrier, *fds])
        finally:
            os.close(carrier)

    def _send(self, packet: bytes, fds: list[int]) -> None:
        try:
            socket.send_fds(self.sock, [packet], fds)
        except OSError as error:
            raise ChannelClosed(str(error)) from error

    def receive(self, deadline: float | None = None) -> tuple[dict[str, Any], list[int]]:
        """The next message with its descriptors, which the caller closes. ``deadline`` is a ``time.monotonic()`` value.
        Raises :class:`ChannelTimeout`, :class:`ChannelClosed` or :class:`ChannelGarbage`."""
        left = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
        poller = select.poll()
        try:
            poller.register(self.sock, select.POLLIN)
        except ValueError as error:
            raise ChannelClosed("this end is closed") from error
        if not poller.poll(left):
            raise ChannelTimeout("nothing arrived in time")
        try:
            packet, fds, flags, _ = socket.recv_fds(self.sock, PACKET_BYTES + 1, _MAX_FDS, _CLOSE_ON_EXEC)
        except OSError as error:
            raise ChannelClosed(str(error)) from error
        if not packet:
            raise ChannelClosed("the other end closed the channel")
        try:
            if flags & _CUT_OFF:
                raise ChannelGarbage("a packet was cut off")
            message = json.loads((packet[1:] if packet[:1] == b"j" else self._carried(packet, fds)).decode())
            if not isinstance(message, dict):
                raise ChannelGarbage("a message is no object")
        except (ValueError, RecursionError, ChannelGarbage) as error:
            for fd in fds:
                os.close(fd)
            raise ChannelGarbage(str(error)) from error
        return message, fds

    def _carried(self, packet: bytes, fds: list[int]) -> bytes:
        """The text of a message that came in a memory file."""
        if packet[:1] != b"m" or not fds:
            raise ChannelGarbage("a packet of unknown kind")
        size = int(packet[1:])
        if not 0 <= size <= MESSAGE_BYTES:
            raise ChannelGarbage("a message is too long")
        carrier = fds.pop(0)
        try:
            return os.pread(carrier, size, 0)
        finally:
            os.close(carrier)


def memory_file(name: str, size: int) -> int:
    """A descriptor of an anonymous file in memory of ``size`` bytes, all zero."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    return fd
