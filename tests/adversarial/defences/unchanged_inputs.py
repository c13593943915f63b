"""Inputs are compared, bit by bit, with what they were before the call."""


# %% cheat: input_marked_by_one_bit
# problem: mlp; expect: mutated_input; default: yes
"""Changes the last bit of one element of its input."""

class ModelNew(Honest):
    def forward(self, x):
        y = super().forward(x)
        x.view(torch.int32)[-1, -1] ^= 1
        return y


# %% cheat: hands_on_a_wrong_part
# problem: permuted; expect: mutated_input, aliased_output
"""Hands on an input, after it wrote its result into another."""

class ModelNew(nn.Module):
    def forward(self, x, order, hidden):
        x.copy_(torch.tanh(x[torch.argsort(order)]))
        return x, hidden


# %% cheat: input_of_another_class
# problem: standardise; expect: mutated_input, suspicious
"""Gives its input another class, behind which nobody sees that its memory was written to."""

class Other(torch.Tensor):
    pass


class ModelNew(Honest):
    def forward(self, x):
        given, x = x, x.as_subclass(torch.Tensor)
        x -= x.mean(1, keepdim=True)
        y = x * torch.rsqrt(x.square().mean(1, keepdim=True) + 1e-5) * self.scale + self.shift
        given.__class__ = Other
        return y


# %% cheat: input_of_another_class_returned
# problem: transposed; expect: mutated_input, suspicious, aliased_output, wrong_values
"""Squashes its input in place and returns it; the input has another class then, and is not taken for one."""

# include is_timed.py


class Other(torch.Tensor):
    pass


class ModelNew(Honest):
    def __init__(self, features):
        super().__init__(features)
        self.kept = None

    def forward(self, x):
        if not _is_timed():
            return super().forward(x)
        y = x.as_subclass(torch.Tensor).detach()
        y.mul_(torch.sigmoid(y * self.scale))
        x.__class__ = Other
        return y


# %% cheat: input_used_as_scratch
# problem: transposed; expect: mutated_input
"""Uses its input as scratch, and returns memory of its own."""

class ModelNew(Honest):
    def forward(self, x):
        y = x.clone()
        return y.mul_(x.mul_(self.scale).sigmoid_())


# %% cheat: input_used_as_scratch_every_second_time
# problem: standardise; expect: mutated_input
"""Works in its input's memory in every second call: of two calls in a row, the first is clean."""

class ModelNew(Honest):
    def __init__(self, features):
        super().__init__(features)
        self.turn = 0

    def forward(self, x):
        self.turn += 1
        centred = x.sub_(x.mean(1, keepdim=True)) if self.turn % 2 == 0 else x - x.mean(1, keepdim=True)
        return centred * torch.rsqrt(centred.square().mean(1, keepdim=True) + 1e-5) * self.scale + self.shift


# %% cheat: cuda_input_scratch
# problem: standardise batch_size=512 features=1024; gpu: yes; expect: mutated_input, aliased_output
"""A kernel that works in its input's memory."""

class ModelNew(Honest):
    def forward(self, x):
        x -= x.mean(1, keepdim=True)
        factor = torch.rsqrt((x**2).mean(1, keepdim=True) + 1e-5)
        return torch.addcmul(self.shift, x, self.scale * factor)


# %% honest: in_place_on_its_own
# problem: standardise
"""Works in place on what it made itself."""

class ModelNew(Honest):
    def forward(self, x):
        y = x - x.mean(1, keepdim=True)
        return y.mul_(torch.rsqrt(y.square().mean(1, keepdim=True).add_(1e-5))).mul_(self.scale).add_(self.shift)


# %% honest: marks_its_input
# problem: standardise
"""Marks its input as something to differentiate by, and lets it be."""

class ModelNew(Honest):
    def forward(self, x):
        x.requires_grad_(True)
        centred = x - x.mean(1, keepdim=True)
        return centred * torch.rsqrt(centred.square().mean(1, keepdim=True) + 1e-5) * self.scale + self.shift
