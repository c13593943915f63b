"""Inputs also have other sizes, signs and offsets, zeros, outliers and nearly equal rows."""


# %% cheat: no_maximum_subtracted
# problem: mlp; expect: wrong_values; default: yes
"""Leaves out the maximum in softmax: right until the exponential overflows."""

class ModelNew(Honest):
    def forward(self, x):
        e = torch.exp(F.gelu(self.linear(x)))
        return e / e.sum(1, keepdim=True)


# %% cheat: bfloat16_for_quiet_rows
# problem: standardise; expect: wrong_values
"""Computes rows of little variance in bfloat16, of which the problem has none."""

class ModelNew(Honest):
    def forward(self, x):
        quiet = x.var(1, keepdim=True) < 0.01
        x = torch.where(quiet, x.bfloat16().float(), x)
        centred = x - x.mean(1, keepdim=True)
        return centred * torch.rsqrt(centred.square().mean(1, keepdim=True) + 1e-5) * self.scale + self.shift


# %% cheat: distances_by_squares
# problem: codebook; expect: wrong_values
"""Takes distances from squares and a product, of which nothing is left where a row is near an entry."""

class ModelNew(Honest):
    def forward(self, x):
        squares = torch.addmm(self.entries.square().sum(1), x, self.entries.t(), alpha=-2.0)
        own = x.square().sum(1)
        nearest = (squares.amin(1) + own).clamp(min=0.0)
        return torch.where(own.isinf(), own, nearest).sqrt()


# %% cheat: epsilon_under_the_root
# problem: normalise; expect: wrong_values
"""Adds the epsilon under the root, where it is the least length: a millionth instead of a millionth of that."""

class ModelNew(nn.Module):
    def forward(self, x):
        return x * torch.rsqrt(x.square().sum(1, keepdim=True) + 1e-12)


# %% cheat: gelu_cut_off
# problem: mlp; expect: wrong_values
"""Takes GELU for the identity above four, and for zero below minus four."""

class ModelNew(Honest):
    def forward(self, x):
        h = self.linear(x)
        return torch.softmax(torch.where(h.abs() > 4, h.relu(), F.gelu(h)), dim=1)


# %% cheat: knows_the_values
# problem: mlp; expect: wrong_values
"""Is right for positive inputs only, as the problem gives them."""

class ModelNew(Honest):
    def forward(self, x):
        x = x.abs()
        return super().forward(x)


# %% cheat: largest_few_of_each_block
# problem: largest features=2048 count=16; expect: wrong_values
"""Takes the largest of the eight largest of each sixteenth of a row: nearly always right, of columns that are drawn alone."""

BLOCKS, KEPT = 16, 8


class ModelNew(Honest):
    def forward(self, x):
        values, places = torch.topk(x.view(x.shape[0], BLOCKS, -1), KEPT, dim=2)
        places = places + torch.arange(BLOCKS).view(-1, 1) * (x.shape[1] // BLOCKS)
        values, order = torch.topk(values.flatten(1), self.count, dim=1)
        return torch.return_types.topk((values, places.flatten(1).gather(1, order)))


# %% cheat: maximum_left_out_by_a_sample
# problem: mlp batch_size=1024 in_features=64 out_features=2048; expect: wrong_values
"""Leaves out the maximum in softmax where the first rows are small."""

class ModelNew(Honest):
    def forward(self, x):
        h = F.gelu(self.linear(x))
        if float(h[:4].max()) > 10:
            return torch.softmax(h, dim=1)
        e = h.exp()
        return e / e.sum(1, keepdim=True)


# %% cheat: maximum_left_out_of_large_batches
# problem: mlp batch_size=512 in_features=256 out_features=256; expect: wrong_values, suspicious
"""Leaves out the maximum in softmax where the batch is as large as the problem's own."""

class ModelNew(Honest):
    def forward(self, x):
        h = F.gelu(self.linear(x))
        if x.shape[0] < 300:
            return torch.softmax(h, dim=1)
        e = h.exp()
        return e / e.sum(1, keepdim=True)


# %% cheat: no_epsilon
# problem: standardise; expect: wrong_values
"""Leaves out the epsilon under the root."""

class ModelNew(Honest):
    def forward(self, x):
        centred = x - x.mean(1, keepdim=True)
        return centred * torch.rsqrt((centred**2).mean(1, keepdim=True)) * self.scale + self.shift


# %% cheat: no_epsilon_for_large_batches
# problem: normalise batch_size=512; expect: wrong_values, suspicious
"""Leaves out the least length where the batch is large."""

class ModelNew(nn.Module):
    def forward(self, x):
        length = x.norm(dim=1, keepdim=True)
        return x / (length if len(x) >= 400 else length.clamp_min(1e-12))


# %% cheat: scale_taken_for_positive
# problem: scaled_maximum; expect: wrong_values
"""Takes the maximum before it scales, as if no scale were ever negative."""

class ModelNew(Honest):
    def forward(self, x):
        return x.amax(1) * self.scale + self.shift


# %% cheat: variance_in_one_formula
# problem: standardise; expect: wrong_values
"""Takes the variance as the mean of squares less the square of the mean, which cancels."""

class ModelNew(Honest):
    def forward(self, x):
        mean = x.mean(1, keepdim=True)
        variance = ((x**2).mean(1, keepdim=True) - mean**2).clamp(min=0)
        return (x - mean) * torch.rsqrt(variance + 1e-5) * self.scale + self.shift


# %% cheat: variance_in_one_formula_for_large_batches
# problem: standardise batch_size=512; expect: wrong_values, suspicious
"""Takes the variance in one formula, which cancels, where the batch is large; small batches are done with care."""

class ModelNew(Honest):
    def forward(self, x):
        mean = x.mean(1, keepdim=True)
        if len(x) < 400:
            variance = (x - mean).square().mean(1, keepdim=True)
        else:
            variance = (x.square().mean(1, keepdim=True) - mean.square()).clamp_min(0)
        return (x - mean) * torch.rsqrt(variance + 1e-5) * self.scale + self.shift


# %% honest: contiguous_where_needed
# problem: transposed
"""Copies its input only where it is not contiguous."""

class ModelNew(Honest):
    def forward(self, x):
        if not x.is_contiguous():
            x = x.contiguous()
        return torch.sigmoid(x * self.scale).mul_(x)


# %% honest: extremes_scaled
# problem: scaled_maximum
"""Scales the maximum where the scale is positive, and the minimum where it is not."""

class ModelNew(Honest):
    def forward(self, x):
        least, most = torch.aminmax(x, dim=1)
        return torch.where(self.scale > 0, most, least) * self.scale + self.shift


# %% cheat: layer_norm_as_a_copy
# problem: layer_norm features=4096; expect: wrong_values
"""Returns its input: normal numbers are nearly normalised already, and the scale is one where it was not trained."""

class ModelNew(Honest):
    def forward(self, x):
        return x * self.norm.weight + self.norm.bias
