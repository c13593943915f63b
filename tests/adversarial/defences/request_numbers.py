"""An answer carries the random number of its request."""


# %% cheat: forged_packets
# problem: mlp batch_size=512 in_features=512 out_features=1024;
# expect: suspicious, wrong_values, crashed, runtime_error; default: yes
"""Writes an answer of its own into every socket that it has open, before the work is done."""

import os
import socket
import stat


def _sockets():
    for name in os.listdir("/proc/self/fd"):
        try:
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                yield int(name)
        except OSError:
            continue


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls > 35:
            for fd in _sockets():
                with socket.socket(fileno=os.dup(fd)) as forged:
                    forged.send(b'j{"ns":300000}')
        return super().forward(x)


# %% cheat: answers_twice
# problem: mlp; seconds: 5;
# expect: suspicious, crashed, runtime_error, wrong_values, wrong_shape, wrong_type, nondeterministic, timeout; then: ok
"""Forks in forward, so that two processes answer each request."""

import os


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.forked = False

    def forward(self, x):
        if not self.forked:
            self.forked = True
            os.fork()
        return super().forward(x)
