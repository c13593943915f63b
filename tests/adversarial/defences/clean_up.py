"""Scratch folders are removed, whatever a candidate made of them."""


# %% cheat: folders_in_folders
# problem: mlp; expect: runtime_error, wrong_values, suspicious; then: ok; default: yes
"""Makes folders in folders, deeper than a path can name, to outlive the cleaning up."""

import os


class ModelNew(Honest):
    def forward(self, x):
        for _ in range(3000):
            os.mkdir("deeper")
            os.chdir("deeper")
        raise RuntimeError("deep enough")


# %% cheat: folder_that_cannot_be_read
# problem: mlp; expect: runtime_error, suspicious
"""Takes all rights from its scratch folder, so that nobody can clean up."""

import os
from pathlib import Path


class ModelNew(Honest):
    def forward(self, x):
        inner = Path("locked")
        inner.mkdir()
        (inner / "file").write_text("kgen-adversary")
        inner.chmod(0)
        os.chmod(".", 0)
        raise RuntimeError("locked")
