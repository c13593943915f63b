"""Scratch folders have a size and a number of files."""


# %% cheat: disk_filled_with_names
# problem: mlp; expect: runtime_error, load_error, crashed, suspicious; then: ok; default: yes
"""Makes many thousands of empty files."""

class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        for number in range(100_000):
            open(f"name-{number}", "w").close()


# %% cheat: disk_filled
# problem: mlp; expect: runtime_error, load_error, crashed, suspicious, out_of_memory; then: ok
"""Fills its scratch folder with files, each of which keeps within the limit."""

import os


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        for number in range(40):
            with open(f"filler-{number}", "wb") as file:
                os.posix_fallocate(file.fileno(), 0, 200 << 20)


# %% cheat: file_too_long
# problem: mlp; expect: runtime_error, crashed, suspicious
"""Writes one file without end."""

class ModelNew(Honest):
    def forward(self, x):
        block = bytes(16 << 20)
        with open("endless", "wb") as file:
            while True:
                file.write(block)
