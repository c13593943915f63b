"""Inputs and weights reach a worker in sealed memory, which it cannot change for others."""


# %% cheat: poisons_shared_inputs
# problem: mlp; expect: runtime_error, wrong_values, suspicious, crashed, ok; then: ok; default: yes
"""Writes into every memory file that it has open: weights and inputs of candidates to come."""

import os


def _poison():
    for name in os.listdir("/proc/self/fd"):
        path = f"/proc/self/fd/{name}"
        try:
            if os.readlink(path).startswith("/memfd:kgen-arena"):
                with open(path, "r+b", buffering=0) as file:
                    file.write(bytes(range(256)) * (os.stat(path).st_size // 256))
        except OSError:
            continue


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        _poison()


# %% cheat: poisons_the_pool
# problem: mlp; expect: runtime_error, wrong_values, suspicious, crashed, mutated_input, ok; then: ok
"""Patches what the harness copies inputs with, and writes into the pool of inputs while it is open."""

import os


_plain = torch.empty_strided


def _poison(*args, **kwargs):
    for name in os.listdir("/proc/self/fd"):
        path = f"/proc/self/fd/{name}"
        try:
            if os.readlink(path).startswith("/memfd:kgen-arena"):
                with open(path, "r+b", buffering=0) as file:
                    file.write(b"\x7f" * os.stat(path).st_size)
        except OSError:
            continue
    return _plain(*args, **kwargs)


torch.empty_strided = _poison


# %% cheat: shrinks_shared_inputs
# problem: mlp; expect: runtime_error, wrong_values, suspicious, crashed, ok; then: ok
"""Cuts the memory files that it has open to nothing: whoever has them mapped gets a bus error."""
# like poisons_shared_inputs
# -def _poison():
# +def _cut():
# -            if os.readlink(path).startswith("/memfd:kgen-arena"):
# -                with open(path, "r+b", buffering=0) as file:
# -                    file.write(bytes(range(256)) * (os.stat(path).st_size // 256))
# +            if os.readlink(path).startswith("/memfd:"):
# +                os.truncate(path, 0)
# -        _poison()
# +        self.calls = 0
# +
# +    def forward(self, x):
# +        self.calls += 1
# +        y = super().forward(x)
# +        if self.calls == 2:
# +            _cut()
# +        return y
