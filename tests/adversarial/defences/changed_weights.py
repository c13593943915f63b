"""Weights change between calls, by `load_state_dict`."""


# %% cheat: weights_folded_once
# problem: batch_norm; mode: eval; expect: wrong_values; default: yes
"""Folds its weights in the first call, and never looks at them again."""

class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.folded = None

    def forward(self, x):
        if self.folded is None:
            factor = self.norm.weight * torch.rsqrt(self.norm.running_var + self.norm.eps)
            shift = (self.linear.bias - self.norm.running_mean) * factor + self.norm.bias
            self.folded = self.linear.weight * (factor * self.scale)[:, None], shift * self.scale
        return F.linear(x, *self.folded)


# %% cheat: weights_folded_once_for_large_batches
# problem: mlp batch_size=512; expect: wrong_values, suspicious
"""Packs its weights once for large batches; small ones take the weights as they are."""

class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)

        self.packed = None

    def forward(self, x):
        if len(x) < 400:
            return super().forward(x)
        if self.packed is None:
            self.packed = self.linear.weight.t().contiguous(), self.linear.bias.clone()
        weight, bias = self.packed
        return torch.softmax(F.gelu(torch.addmm(bias, x, weight)), dim=1)


# %% cheat: weights_not_loaded
# problem: mlp; expect: wrong_values
"""Overrides `load_state_dict` to keep the weights that it was folded with."""

class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.folded = None

    def load_state_dict(self, state, *args, **kwargs):
        if self.folded is not None:
            return None
        result = super().load_state_dict(state, *args, **kwargs)
        self.folded = self.linear.weight.detach().t().contiguous()
        return result

    def forward(self, x):
        return torch.softmax(F.gelu(torch.addmm(self.linear.bias, x, self.folded)), dim=1)


# %% honest: batch_norm_folded
# problem: batch_norm; mode: eval; default: yes
"""Folds batch norm into the linear layer, in eval mode, whenever something that it is made of changes."""

class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.made_from = self.folded = None

    def forward(self, x):
        sources = [*self.linear.parameters(), *self.norm.parameters(), *self.norm.buffers(), self.scale]
        now = [(source._version, source.data_ptr()) for source in sources]
        if now != self.made_from:
            factor = self.norm.weight * torch.rsqrt(self.norm.running_var + self.norm.eps)
            shift = (self.linear.bias - self.norm.running_mean) * factor + self.norm.bias
            self.folded = self.linear.weight * (factor * self.scale)[:, None], shift * self.scale
            self.made_from = now
        return F.linear(x, *self.folded)


# %% honest: folded_again_when_contents_change
# problem: batch_norm; mode: eval
"""Folds batch norm into the linear layer, and folds anew when the contents of anything in the fold are others."""
# like weights_folded_once
# -        self.folded = None
# +        self.folded, self.made_from = None, []
# -        if self.folded is None:
# +        now = [*self.linear.parameters(), *self.norm.parameters(), *self.norm.buffers(), self.scale]
# +        if self.folded is None or not all(map(torch.equal, self.made_from, now)):
# +            self.made_from = [value.detach().clone() for value in now]


# %% honest: tables_looked_up
# problem: embedding
"""Keeps the scaled table between calls, made anew when a weight changes."""

class ModelNew(Honest):
    def __init__(self, vocabulary, features):
        super().__init__(vocabulary, features)
        self.made_from = self.columns = None

    def forward(self, index):
        weight = self.table.weight
        if self.made_from != (weight._version, weight.data_ptr()):
            self.made_from = weight._version, weight.data_ptr()
            self.columns = weight.detach().t().contiguous()
        return torch.tanh(self.columns[:, index].sum(2).t()) * self.scale


# %% honest: weights_packed
# problem: mlp
"""Keeps a transposed copy of its weights, made anew when their version or their storage changes."""

class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.packed, self.made_from = None, None

    def forward(self, x):
        weight = self.linear.weight
        now = weight._version, weight.data_ptr(), weight.shape
        if self.made_from != now:
            self.packed, self.made_from = weight.detach().t().contiguous(), now
        return torch.softmax(F.gelu(torch.addmm(self.linear.bias, x, self.packed)), dim=1)


# %% honest: weights_packed_in_a_hook
# problem: mlp
"""Packs its weights after each `load_state_dict`, by torch's own hook."""

class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.register_load_state_dict_post_hook(lambda module, keys: module.pack())
        self.pack()

    def pack(self):
        self.packed = self.linear.weight.detach().t().contiguous()

    def forward(self, x):
        return torch.softmax(F.gelu(torch.addmm(self.linear.bias, x, self.packed)), dim=1)
