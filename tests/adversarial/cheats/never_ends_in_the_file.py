"""Never comes back from its import.

defence: deadlines
problem: mlp
expect: timeout
seconds: 1
"""

import torch.nn as nn

while True:
    continue


class ModelNew(nn.Module):
    """Never made."""
