"""An output may not share memory with an input, unless the problem's own does."""


# %% cheat: output_is_the_input
# problem: standardise; expect: aliased_output, mutated_input; default: yes
"""Works in its input's memory, and returns it."""

class ModelNew(Honest):
    def forward(self, x):
        x -= x.mean(1, keepdim=True)
        x *= torch.rsqrt((x**2).mean(1, keepdim=True) + 1e-5)
        return x.mul_(self.scale).add_(self.shift)


# %% cheat: output_lazily_cloned
# problem: mlp; expect: wrong_values, aliased_output, wrong_shape
"""Works in its input's memory by a copy that torch makes only when somebody writes."""

class ModelNew(Honest):
    def forward(self, x):
        y = super().forward(x)
        return torch._lazy_clone(x)[:, : y.shape[1]]


# %% honest: input_handed_on_in_eval_mode
# problem: gate_in_training; mode: both
"""Hands on its input in eval mode, as the problem does, and computes in train mode."""

class ModelNew(nn.Module):
    def forward(self, x):
        return F.silu(x) if self.training else x


# %% honest: inverse_permutation
# problem: permuted
"""Gathers by the inverse permutation, and hands on what the problem hands on."""

class ModelNew(nn.Module):
    def forward(self, x, order, hidden):
        inverse = torch.empty_like(order).scatter_(0, order, torch.arange(order.numel(), device=order.device))
        return torch.tanh(x[inverse]), hidden
