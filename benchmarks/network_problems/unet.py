"""A U-Net of four levels, with batch norm and transposed convolutions, as repositories of segmentation have it."""

import torch
from torch import nn

batch_size = 8
channels = 64
height = 256
width = 256
classes = 2


def _pair(read: int, written: int) -> nn.Sequential:
    parts: list[nn.Module] = []
    for first in (read, written):
        parts += [nn.Conv2d(first, written, 3, padding=1, bias=False), nn.BatchNorm2d(written), nn.ReLU(inplace=True)]
    return nn.Sequential(*parts)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        sizes = [channels << level for level in range(5)]
        self.down = nn.ModuleList(_pair(read, written) for read, written in zip([3, *sizes], sizes, strict=False))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * size, size, 2, stride=2) for size in reversed(sizes[:4]))
        self.joined = nn.ModuleList(_pair(2 * size, size) for size in reversed(sizes[:4]))
        self.last = nn.Conv2d(channels, classes, 1)
        self.pool = nn.MaxPool2d(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = []
        for level, block in enumerate(self.down):
            x = block(self.pool(x) if level else x)
            kept.append(x)
        for up, block, beside in zip(self.up, self.joined, reversed(kept[:4]), strict=True):
            x = block(torch.cat((beside, up(x)), 1))
        return self.last(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(batch_size, 3, height, width)]
