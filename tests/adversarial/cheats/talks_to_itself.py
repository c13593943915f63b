"""Puts a socket of its own where the channel was, and so answers nobody.

defence: message format
problem: mlp
expect: crashed, timeout, runtime_error, suspicious
seconds: 3
then: ok
"""

import os
import socket
import stat

import torch.nn as nn

_pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
_own = {sock.fileno() for sock in _pair}


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        for name in os.listdir("/proc/self/fd"):
            fd = int(name)
            if fd not in _own and os.path.exists(f"/proc/self/fd/{fd}") and stat.S_ISSOCK(os.stat(fd).st_mode):
                os.dup2(_pair[0].fileno(), fd)
        return x
