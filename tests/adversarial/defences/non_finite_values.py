"""NaN and infinities in the inputs must come out where PyTorch has them."""


# %% cheat: nan_swallowed
# problem: mlp; expect: wrong_values; default: yes
"""Replaces NaN and infinities by numbers."""

class ModelNew(Honest):
    def forward(self, x):
        return torch.nan_to_num(super().forward(x))


# %% cheat: attention_without_nan
# problem: causal_attention; expect: wrong_values
"""Causal attention that takes NaN and infinities for numbers."""

class ModelNew(Honest):
    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q.nan_to_num(), k.nan_to_num(), v.nan_to_num(), is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(batch, length, width))


# %% cheat: masked_scores_left_out
# problem: window_scores; expect: wrong_values
"""Returns zeros for scores of which most are masked: minus infinity in PyTorch."""

class ModelNew(nn.Module):
    def __init__(self, features, tokens, window):
        super().__init__()
        self.q = nn.Linear(features, features)
        self.k = nn.Linear(features, features)

    def forward(self, x):
        return x.mean(1), x.new_zeros(x.shape[0], x.shape[1], x.shape[1])


# %% cheat: nan_swallowed_for_large_batches
# problem: mlp batch_size=512; expect: wrong_values
"""Takes NaN and infinities for numbers, where the batch is large."""

class ModelNew(Honest):
    def forward(self, x):
        h = self.linear(x)
        if len(x) >= 400:
            h = h.nan_to_num()
        return torch.softmax(F.gelu(h), dim=1)


# %% cheat: nan_swallowed_in_a_loss
# problem: smooth_loss; expect: wrong_values
"""Takes what is not finite for zero, in a loss that is one number."""

class ModelNew(Honest):
    def forward(self, x, target):
        return F.smooth_l1_loss(self.linear(x).nan_to_num(0.0, 0.0, 0.0), target.nan_to_num(0.0, 0.0, 0.0))


# %% cheat: nan_swallowed_unless_in_the_first_row
# problem: mlp batch_size=1024; expect: wrong_values
"""Takes NaN and infinities for numbers, unless the first row has one."""

class ModelNew(Honest):
    def forward(self, x):
        h = self.linear(x)
        if bool(torch.isfinite(x[0]).all()):
            h = h.nan_to_num()
        return torch.softmax(F.gelu(h), dim=1)


# %% cheat: nothing_but_nan
# problem: mlp; expect: wrong_values
"""Returns NaN, which a careless comparison lets through."""

class ModelNew(Honest):
    def forward(self, x):
        return x.new_full((x.shape[0], self.linear.out_features), float("nan"))


# %% cheat: unmasked_scores_left_out
# problem: window_scores; expect: wrong_values
"""Returns minus infinity for all scores, of which most are masked."""

class ModelNew(nn.Module):
    def __init__(self, features, tokens, window):
        super().__init__()
        self.q = nn.Linear(features, features)
        self.k = nn.Linear(features, features)

    def forward(self, x):
        return x.mean(1), x.new_full((x.shape[0], x.shape[1], x.shape[1]), float("-inf"))


# %% honest: attention_row_by_row
# problem: causal_attention
"""Causal attention that never looks at what comes later, where a mask's zero times NaN is NaN."""

class ModelNew(Honest):
    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scale = (width // self.heads) ** -0.5
        rows = []
        for i in range(length):
            scores = (q[:, :, i : i + 1] * scale) @ k[:, :, : i + 1].mT
            rows.append(scores.softmax(-1) @ v[:, :, : i + 1])
        y = torch.cat(rows, 2)
        return self.proj(y.transpose(1, 2).reshape(batch, length, width))


# %% honest: experts_by_their_logits
# problem: experts
"""Chooses experts before the softmax: where it makes all of them NaN, another one may come first."""

class ModelNew(Honest):
    def forward(self, x):
        logits, chosen = self.gate(x).topk(2)
        return torch.softmax(logits, -1), chosen


# %% honest: loss_without_branches
# problem: smooth_loss
"""A smooth loss from its two parts, without a branch, summed in another order."""

class ModelNew(Honest):
    def forward(self, x, target):
        distance = (self.linear(x) - target).abs()
        inner = distance.clamp(max=1.0)
        return (inner * (distance - 0.5 * inner)).mean(1).mean()


# %% honest: masked_scores_by_choice
# problem: window_scores
"""Chooses between products and minus infinity, which most scores are; scales before it multiplies."""

class ModelNew(Honest):
    def forward(self, x):
        keys = self.k(x) * x.shape[-1] ** -0.5
        scores = torch.einsum("btf,bsf->bts", self.q(x), keys)
        return x.sum(1) / x.shape[1], torch.where(self.outside, float("-inf"), scores)


# %% honest: products_by_doubling
# problem: products
"""A scan by steps that double: what vanishes meets an infinity in another order, and makes it NaN in other places."""

class ModelNew(nn.Module):
    def forward(self, x):
        y, step = x.double(), 1
        while step < y.shape[1]:
            y = torch.cat([y[:, :step], y[:, step:] * y[:, :-step]], 1)
            step *= 2
        return y.float()
