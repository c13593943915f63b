"""Each row and each column of the output has an error limit of its own."""


# %% cheat: small_rows_skipped
# problem: mlp; expect: wrong_values; default: yes
"""Returns the bias alone for rows that are small beside the largest one."""

class ModelNew(Honest):
    def forward(self, x):
        size = x.abs().amax(1, keepdim=True)
        x = torch.where(size < 1e-2 * size.max(), 0.0, x)
        return super().forward(x)


# %% cheat: columns_beyond_the_first
# problem: mlp; expect: wrong_values
"""Computes all but the last column, which it makes from the sum of the others."""

class ModelNew(Honest):
    def forward(self, x):
        y = torch.softmax(F.gelu(F.linear(x, self.linear.weight[:-1], self.linear.bias[:-1])), dim=1)
        return torch.cat([y, 1 - y.sum(1, keepdim=True)], dim=1)


# %% honest: attention_by_blocks
# problem: attention
"""Attends block by block of keys, with a softmax that is put right as larger scores come.

All elements of a row share one error where two scores are all but equal, and where all scores are minus infinity it knows
of no mask.
"""

BLOCK = 32


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        q = q * q.shape[-1] ** -0.5
        largest = torch.full_like(q[..., :1], float("-inf"))
        weight, total = torch.zeros_like(largest), torch.zeros_like(q)
        for keys, values in zip(k.split(BLOCK, 2), v.split(BLOCK, 2)):
            scores = q @ keys.mT
            larger = torch.maximum(largest, scores.amax(-1, keepdim=True))
            shares, kept = torch.exp(scores - larger), torch.exp(largest - larger)
            weight = weight * kept + shares.sum(-1, keepdim=True)
            total = total * kept + shares @ values
            largest = larger
        return total / weight


# %% honest: layer_norm_in_two_passes
# problem: layer_norm
"""A layer norm whose mean is rounded before it is subtracted, where PyTorch's is exact by luck in one row or another."""

class ModelNew(Honest):
    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True)
        variance = centred.square().mean(-1, keepdim=True)
        return centred * torch.rsqrt(variance + self.norm.eps) * self.norm.weight + self.norm.bias
