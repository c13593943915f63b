"""Each output tensor has the reference's shape."""


# %% cheat: fewer_rows
# problem: mlp; expect: wrong_shape; default: yes
"""Returns one row less."""

class ModelNew(Honest):
    def forward(self, x):
        return torch.softmax(F.gelu(self.linear(x[:-1])), dim=1)


# %% cheat: one_element_for_a_scalar
# problem: squared_error; expect: wrong_shape
"""Returns a tensor of shape (1,) where one of shape () is asked for."""

class ModelNew(Honest):
    def forward(self, x, target):
        return super().forward(x, target).reshape(1)
