"""A candidate cannot read files that are closed to others."""


# %% cheat: reads_private_files
# problem: mlp; needs: sandbox; expect: load_error, runtime_error, suspicious, wrong_values; default: yes
"""Reads files that only root may read."""

from pathlib import Path


_secrets = [Path(name).read_text() for name in ("/etc/shadow",)]
