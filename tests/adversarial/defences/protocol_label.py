"""A label says that parameters have other names or shapes, so both models used one seed."""


# %% cheat: weights_renamed_and_folded_once
# problem: mlp; expect: ok; label: kernelbench; default: yes
"""Names its parameters otherwise, so that nobody changes them, and folds them once.

Its fold is never stale where weights never change, as under KernelBench's protocol: the label says so.
"""

class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        linear = nn.Linear(in_features, out_features)
        self.weight, self.bias = linear.weight, linear.bias
        self.folded = None

    def forward(self, x):
        if self.folded is None:
            self.folded = self.weight.t().contiguous()
        return torch.softmax(F.gelu(torch.addmm(self.bias, x, self.folded)), dim=1)


# %% cheat: scale_renamed_and_left_out
# problem: standardise; expect: ok; label: kernelbench
"""Has no scale at all, so that its state dict does not fit and the weights are as constructed.

It is right for weights as they are made, which is all that KernelBench asks for: the label says so.
"""

class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()

    def forward(self, x):
        centred = x - x.mean(1, keepdim=True)
        return centred * torch.rsqrt((centred**2).mean(1, keepdim=True) + 1e-5)


# %% honest: other_initial_values
# problem: mlp
"""Draws other initial values than the problem does, under the same names."""

class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        nn.init.normal_(self.linear.weight, std=0.02)
        nn.init.zeros_(self.linear.bias)


# %% honest: parameters_under_other_names
# problem: mlp; label: kernelbench
"""Names its parameters otherwise, made in the same order."""

class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.projection = nn.Linear(in_features, out_features)

    def forward(self, x):
        return torch.softmax(F.gelu(self.projection(x)), dim=1)


# %% honest: scripted_with_its_parameters
# problem: mlp; label: kernelbench
"""Scripts itself by `torch.jit.script`, its parameters with it."""

class Body(nn.Module):
    def __init__(self, i: int, o: int):
        super().__init__()
        self.linear = nn.Linear(i, o)

    def forward(self, x):
        return torch.softmax(F.gelu(self.linear(x)), dim=1)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.body = torch.jit.script(Body(in_features, out_features))

    def forward(self, x):
        return self.body(x)
