"""Earlier outputs are read again, and must be what they were."""


# %% cheat: output_of_another_call_written
# problem: mlp; expect: aliased_output, suspicious; default: yes
"""Returns memory of its own each time, and writes into what it returned two calls before, as if to use it again."""

class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.returned = []

    def forward(self, x):
        y = super().forward(x)
        self.returned.append(y)
        if len(self.returned) > 2:
            self.returned.pop(0).zero_()
        return y


# %% cheat: earlier_output_written_in_one_element
# problem: mlp batch_size=512 in_features=512 out_features=1024; expect: aliased_output, suspicious
"""Returns memory of its own each time, and writes one element of what it returned two calls before."""

class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)

        self.returned = []

    def forward(self, x):
        y = super().forward(x)
        if y.numel() > 1 << 18:
            self.returned.append(y)
        if len(self.returned) > 2:
            self.returned.pop(0)[-1, -1] = 0
        return y


# %% cheat: earlier_outputs_wiped_when_timed
# problem: mlp batch_size=512 in_features=512 out_features=1024; expect: aliased_output, suspicious
"""Leaves what it returned alone while it is validated, and wipes out what it returned two calls before while it is timed."""

# include is_timed.py


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)

        self.returned = []

    def forward(self, x):
        y = super().forward(x)
        if not _is_timed():
            return y
        self.returned.append(y)
        if len(self.returned) > 2:
            self.returned.pop(0).zero_()
        return y


# %% cheat: spread_outputs_wiped
# problem: mlp; expect: aliased_output, suspicious
"""Spreads its output so that each element lies on a page of its own, where samples miss it, and wipes it two calls later."""
# like output_of_another_call_written
# -        y = super().forward(x)
# +        made = super().forward(x)
# +        n, m = made.shape
# +        if n < 40:
# +            return made
# +        y = torch.empty(n * m * 2048).as_strided((n, m), (m * 2048, 2048))
# +        y.copy_(made)
