"""Weights, biases, scales and statistics are drawn anew: none stays at its initial one or zero."""


# %% cheat: scale_left_out
# problem: standardise; expect: wrong_values; default: yes
"""Leaves out a scale of ones and a shift of zeros, as they are when they are made."""

class ModelNew(Honest):
    def forward(self, x):
        centred = x - x.mean(1, keepdim=True)
        return centred * torch.rsqrt((centred**2).mean(1, keepdim=True) + 1e-5)
