"""An exception, `SystemExit` among them, ends the evaluation with a status of its own."""


# %% cheat: exits_in_forward
# problem: mlp; expect: runtime_error, crashed; default: yes
"""Raises `SystemExit(0)` from forward."""

class ModelNew(Honest):
    def forward(self, x):
        raise SystemExit(0)


# %% cheat: exits_in_the_file
# problem: mlp; expect: load_error, crashed
"""Leaves with exit code 0 when it is imported."""

import sys


sys.exit(0)


class ModelNew(nn.Module):
    """Never made."""


# %% cheat: interrupts
# problem: mlp; expect: runtime_error, crashed
"""Raises `KeyboardInterrupt`, as if somebody had pressed a key."""

class ModelNew(Honest):
    def forward(self, x):
        raise KeyboardInterrupt


# %% cheat: interrupts_in_the_constructor
# problem: mlp; expect: load_error, crashed
"""Raises `GeneratorExit`, which is no `Exception`, when it is made."""

class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        raise GeneratorExit


# %% cheat: message_of_a_signal
# problem: mlp; expect: runtime_error, out_of_memory
"""Raises an error that says memory ran out.

A shortage that a candidate only claims is its own error like any other.
"""

class ModelNew(Honest):
    def forward(self, x):
        raise RuntimeError("CUDA error: out of memory")


# %% cheat: message_that_raises
# problem: mlp; expect: runtime_error, crashed
"""Raises an error that raises when its text is asked for."""

class Shy(Exception):
    def __str__(self):
        raise self

    __repr__ = __str__


class ModelNew(Honest):
    def forward(self, x):
        raise Shy
