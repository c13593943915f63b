"""An output's elements may not share memory among themselves, unless the problem's own do."""


# %% cheat: one_row_expanded
# problem: mlp; expect: aliased_output; default: yes
"""Returns one row, shown as many times as there are rows."""

class ModelNew(Honest):
    def forward(self, x):
        return torch.softmax(F.gelu(self.linear(x[:1])), dim=1).expand(x.shape[0], -1)


# %% cheat: mean_expanded
# problem: row_means; expect: aliased_output
"""Shows the mean of each row as often as there are columns, where the problem writes it as often."""

class ModelNew(nn.Module):
    def __init__(self, written):
        super().__init__()

    def forward(self, x):
        return x.mean(1, keepdim=True).expand_as(x)


# %% honest: mean_expanded_as_pytorch_does
# problem: row_means written=0
"""Shows the mean of each row as often as there are columns, as the problem does."""

class ModelNew(nn.Module):
    def __init__(self, written):
        super().__init__()

    def forward(self, x):
        return (x.sum(1, keepdim=True) / x.shape[1]).expand_as(x)
