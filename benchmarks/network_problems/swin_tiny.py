"""Swin tiny as the package torchvision builds it."""

import torch
import torch.nn as nn
from torchvision.models import swin_t

batch_size = 32
image = 224


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = swin_t()

    def forward(self, pixels):
        """pixels: (batch, 3, image, image) -> scores (batch, 1000)"""
        return self.model(pixels)


def get_inputs():
    return [torch.randn(batch_size, 3, image, image)]


def get_init_inputs():
    return []
