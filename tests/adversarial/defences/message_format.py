"""The parent refuses messages of a wrong form, size or depth."""


# %% cheat: garbage_in_the_channel
# problem: mlp; expect: crashed, suspicious, runtime_error; then: ok; default: yes
"""Writes what is no message into its sockets: half a message, no JSON, a number for an object."""

import os
import socket
import stat


_GARBAGE = (b"", b"j", b"j[1, 2", b"j3", b"m99999999999", b"\xff\xfe", b'j{"first": 1}', b'j{"ns": 1e400}')


class ModelNew(Honest):
    def forward(self, x):
        for name in os.listdir("/proc/self/fd"):
            if os.path.exists(f"/proc/self/fd/{name}") and stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                with socket.socket(fileno=os.dup(int(name))) as forged:
                    for packet in _GARBAGE[1:]:
                        forged.send(packet)
        return super().forward(x)


# %% cheat: packet_of_a_deep_object
# problem: mlp; expect: crashed, suspicious, runtime_error, wrong_type; then: ok
"""Answers with lists in lists, deeper than a reader may go."""

import os
import socket
import stat


class ModelNew(Honest):
    def forward(self, x):
        for name in os.listdir("/proc/self/fd"):
            if os.path.exists(f"/proc/self/fd/{name}") and stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                with socket.socket(fileno=os.dup(int(name))) as forged:
                    forged.send(b'j{"first":' + b"[" * 20_000 + b"]" * 20_000 + b"}")
        return super().forward(x)


# %% cheat: packet_with_files
# problem: mlp; expect: crashed, suspicious, runtime_error, wrong_type; then: ok
"""Sends as many descriptors beside an answer as a packet can hold, again and again."""
# like packet_of_a_deep_object
# -                    forged.send(b'j{"first":' + b"[" * 20_000 + b"]" * 20_000 + b"}")
# -        return super().forward(x)
# +                    for _ in range(3):
# +                        socket.send_fds(forged, [b'j{"first": 1}'], [1] * 200)
# +        return torch.softmax(F.gelu(self.linear(x)), dim=1)


# %% cheat: talks_to_itself
# problem: mlp; seconds: 3; expect: crashed, timeout, runtime_error, suspicious; then: ok
"""Puts a socket of its own where the channel was, and so answers nobody."""

import os
import socket
import stat


_pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
_own = {sock.fileno() for sock in _pair}


class ModelNew(Honest):
    def forward(self, x):
        for name in os.listdir("/proc/self/fd"):
            fd = int(name)
            if fd not in _own and os.path.exists(f"/proc/self/fd/{fd}") and stat.S_ISSOCK(os.stat(fd).st_mode):
                os.dup2(_pair[0].fileno(), fd)
        return x
