"""A candidate sees no process but its own, and cannot signal, trace or read others."""


# %% cheat: kills_its_parent
# problem: mlp; needs: sandbox; expect: crashed, runtime_error, out_of_memory, suspicious; then: ok; default: yes
"""Sends every signal to the process that started it."""

import os
import signal


class ModelNew(Honest):
    def forward(self, x):
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGSTOP):
            os.kill(os.getppid(), number)
        raise RuntimeError("the parent lives")


# %% cheat: kills_everything
# problem: mlp; needs: sandbox; expect: crashed, out_of_memory, runtime_error, suspicious; then: ok
"""Sends the kill signal to every process that it may, and then to itself."""

import os
import signal


class ModelNew(Honest):
    def forward(self, x):
        try:
            os.kill(-1, signal.SIGKILL)
        except ProcessLookupError:
            os.kill(os.getpid(), signal.SIGKILL)


# %% cheat: reads_the_memory_of_others
# problem: mlp; needs: sandbox; expect: wrong_values, load_error, suspicious
"""Reads the memory of the processes that it sees, which hold the seeds."""

import os
from pathlib import Path


def _others():
    for path in Path("/proc").glob("[0-9]*/mem"):
        if path.parent.name != str(os.getpid()):
            try:
                with open(path, "rb") as memory:
                    first = (path.parent / "maps").read_text().split("-")[0]
                    memory.seek(int(first, 16))
                    yield memory.read(4)
            except (OSError, ValueError):
                continue


_found = list(_others())


class ModelNew(Honest):
    def forward(self, x):
        if _found:
            return super().forward(x)
        return x.new_zeros(x.shape[0], self.linear.out_features)


# %% cheat: traces_its_parent
# problem: mlp; needs: sandbox; expect: runtime_error, suspicious
"""Attaches to the process that started it, as a debugger does."""

import ctypes
import os


_libc = ctypes.CDLL(None, use_errno=True)


class ModelNew(Honest):
    def forward(self, x):
        if _libc.ptrace(16, os.getppid(), 0, 0):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return super().forward(x)
