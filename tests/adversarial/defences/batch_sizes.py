"""Other batch sizes than the problem's are tried, some of them drawn."""


# %% cheat: tail_rows_skipped
# problem: mlp; expect: wrong_values; default: yes
"""Computes rows in groups of eight, and forgets those that are left."""

class ModelNew(Honest):
    def forward(self, x):
        y = x.new_zeros(x.shape[0], self.linear.out_features)
        rows = x.shape[0] // 8 * 8
        y[:rows] = torch.softmax(F.gelu(self.linear(x[:rows])), dim=1)
        return y


# %% cheat: knows_the_batches
# problem: mlp; expect: wrong_values, runtime_error
"""Works for the batch sizes that the evaluator is known to try, and for no other."""

class ModelNew(Honest):
    def forward(self, x):
        y = super().forward(x)
        return y if x.shape[0] in (1, 7, 63, 64, 65, 96, 256) else torch.zeros_like(y)


# %% cheat: knows_the_sizes
# problem: mlp; expect: wrong_values, runtime_error
"""Works for the batch of the problem and its neighbours only."""

class ModelNew(Honest):
    def forward(self, x):
        if x.shape[0] < 32:
            raise ValueError("the batch is too small")
        return super().forward(x)


# %% cheat: last_tile_skipped
# problem: mlp batch_size=512; expect: wrong_values
"""Computes tiles of 128 rows: whole ones, or a part where it is the only one."""

class ModelNew(Honest):
    def forward(self, x):
        rows = max(x.shape[0] // 128 * 128, min(x.shape[0], 128))
        y = x.new_zeros(x.shape[0], self.linear.out_features)
        y[:rows] = torch.softmax(F.gelu(self.linear(x[:rows])), dim=1)
        return y


# %% cheat: last_two_rows_forgotten
# problem: standardise; expect: wrong_values
"""Forgets the last two rows of batches that are even and no multiple of four."""

class ModelNew(Honest):
    def forward(self, x):
        rows = len(x) // 4 * 4 if len(x) % 4 == 2 else len(x)
        centred = x - x.mean(1, keepdim=True)
        y = centred * torch.rsqrt(centred.square().mean(1, keepdim=True) + 1e-5) * self.scale + self.shift
        y[rows:] = y[rows - 1:rows]
        return y


# %% cheat: tail_of_eights_forgotten
# problem: mlp batch_size=512; expect: wrong_values
"""Computes tiles of 64 rows; where the batch is a multiple of eight, it takes it for one of 64, and forgets the rest."""

class ModelNew(Honest):
    def forward(self, x):
        n = len(x)
        whole = n // 64 * 64 if n % 8 == 0 else n
        y = torch.zeros(n, self.linear.out_features)
        y[:whole] = torch.softmax(F.gelu(self.linear(x[:whole])), dim=1)
        return y


# %% cheat: tail_of_four_forgotten
# problem: mlp; expect: wrong_values
"""Goes by eight rows, then by four, two and one, and forgets the four."""

class ModelNew(Honest):
    def forward(self, x):
        y = super().forward(x)
        if x.shape[0] % 8 == 4:
            y[-4:] = 0
        return y


# %% cheat: tiles_of_256_without_a_tail
# problem: mlp batch_size=1024; expect: wrong_values
"""Computes large batches in tiles of 256 rows, and leaves out what is behind the last whole one."""

class ModelNew(Honest):
    def forward(self, x):
        whole = len(x) if len(x) <= 384 else len(x) // 256 * 256
        y = x.new_zeros(len(x), self.linear.out_features)
        y[:whole] = torch.softmax(F.gelu(self.linear(x[:whole])), dim=1)
        return y


# %% cheat: wrong_for_some_small_batches
# problem: convolution; expect: wrong_values
"""Knows the batches one, seven and eight, of which the problem has eight."""

class ModelNew(Honest):
    def forward(self, x):
        y = super().forward(x)
        return y if x.shape[0] in (1, 7, 8) else torch.zeros_like(y)


# %% honest: batch_norm_of_one_row
# problem: batch_norm; mode: train
"""Normalises a batch of one row too, which PyTorch refuses to do in train mode."""

class ModelNew(Honest):
    def forward(self, x):
        norm, y = self.norm, self.linear(x)
        variance, mean = norm.running_var, norm.running_mean
        if self.training:
            variance, mean = torch.var_mean(y, 0, correction=0)
            norm.running_mean.mul_(0.9).add_(mean, alpha=0.1)
            norm.running_var.mul_(0.9).add_(variance * (len(y) / max(len(y) - 1, 1)), alpha=0.1)
            norm.num_batches_tracked += 1
        return ((y - mean) * (norm.weight * torch.rsqrt(variance + norm.eps)) + norm.bias) * self.scale


# %% honest: contiguous_every_other_column
# problem: every_other_column
"""Copies an input with gaps, to have none."""

class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(x.contiguous()).sum(1)
