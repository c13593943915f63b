"""A label says that a candidate draws random numbers of its own."""


# %% cheat: dropout_masks_in_stock
# problem: dropout; expect: ok; label: random numbers of its own; default: yes
"""Draws sixty-four masks beforehand, and takes one after the other."""

class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        generator = torch.Generator().manual_seed(3)
        self.masks = [(torch.rand(96, 48, generator=generator) >= 0.3).float() / 0.7 * 2.0 for _ in range(64)]
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        y = self.linear(x)
        return y * self.masks[self.calls % 64][: len(y)] if self.training else y * 2.0
