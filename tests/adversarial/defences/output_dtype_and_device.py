"""Each output tensor has the reference's dtype and device."""


# %% cheat: double_precision
# problem: mlp; expect: wrong_type; default: yes
"""Returns float64."""

class ModelNew(Honest):
    def forward(self, x):
        return super().forward(x).double()


# %% cheat: index_of_another_dtype
# problem: several; expect: wrong_type
"""Returns 32-bit indices for 64-bit ones."""

class ModelNew(Honest):
    def forward(self, x):
        y = torch.tanh(self.linear(x))
        return {"y": y, "parts": (y.sum(1), y.argmax(1).int()), "features": y.shape[1]}


# %% cheat: number_of_another_kind
# problem: several; expect: wrong_type, wrong_values
"""Returns the number as a float, which compares equal to the integer."""

class ModelNew(Honest):
    def forward(self, x):
        y = torch.tanh(self.linear(x))
        return {"y": y, "parts": (y.sum(1), y.argmax(1)), "features": float(y.shape[1])}


# %% cheat: on_the_meta_device
# problem: mlp; expect: wrong_type
"""Returns a tensor on the meta device, which has a shape and no values."""

class ModelNew(Honest):
    def forward(self, x):
        return torch.empty(x.shape[0], self.linear.out_features, device="meta")


# %% cheat: cuda_on_the_host
# problem: mlp batch_size=300 in_features=256 out_features=1024; gpu: yes; expect: wrong_type
"""Computes on the CPU, and returns a tensor there."""

class ModelNew(Honest):
    def forward(self, x):
        return (super().forward(x)).cpu()
