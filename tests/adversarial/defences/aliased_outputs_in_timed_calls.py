"""Outputs of timed calls are held, and checked for shared memory."""


# %% cheat: output_kept_only_when_timed
# problem: mlp batch_size=512 in_features=512 out_features=1024; expect: aliased_output, suspicious; default: yes
"""Gives fresh outputs while it is validated, and the same memory again and again while it is timed."""

# include timed.py


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.kept = None

    def forward(self, x):
        if not _timed(x):
            return super().forward(x)
        if self.kept is None:
            self.kept = x.new_empty(x.shape[0], self.linear.out_features)
        return torch.softmax(F.gelu(self.linear(x)), dim=1, out=self.kept)


# %% cheat: outputs_in_a_ring_only_when_timed
# problem: mlp batch_size=512 in_features=512 out_features=1024; expect: aliased_output, suspicious
"""Gives fresh outputs while it is validated, and sixteen in turns while it is timed."""

import itertools
from collections import deque


_CALLS = itertools.count()


def _is_timed():
    """Whether as many calls were made as validation makes."""
    return next(_CALLS) >= 40


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)

        self.ring = deque()

    def forward(self, x):
        if not _is_timed():
            return super().forward(x)
        if len(self.ring) < 16:
            self.ring.append(x.new_empty(x.shape[0], self.linear.out_features))
        self.ring.rotate()
        return torch.softmax(F.gelu(self.linear(x)), dim=1, out=self.ring[0])


# %% cheat: outputs_in_turns_only_when_timed
# problem: mlp batch_size=512 in_features=512 out_features=1024; expect: aliased_output, suspicious
"""Gives fresh outputs while it is validated, and two in turns while it is timed."""

# include is_timed.py


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.kept = []

    def forward(self, x):
        if not _is_timed():
            return super().forward(x)
        if len(self.kept) < 2:
            self.kept.append(x.new_empty(x.shape[0], self.linear.out_features))
        self.kept.reverse()
        return torch.softmax(F.gelu(self.linear(x)), dim=1, out=self.kept[0])


# %% cheat: cuda_outputs_in_turns_only_when_timed
# problem: mlp batch_size=300 in_features=256 out_features=1024; gpu: yes; expect: aliased_output, suspicious
"""Gives fresh outputs while it is validated, and two in turns while it is timed."""
# like outputs_in_turns_only_when_timed
