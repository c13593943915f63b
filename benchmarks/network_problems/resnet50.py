"""ResNet-50 as the package torchvision builds it."""

import torch
import torch.nn as nn
from torchvision.models import resnet50

batch_size = 64
image = 224


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = resnet50()

    def forward(self, pixels):
        """pixels: (batch, 3, image, image) -> scores (batch, 1000)"""
        return self.model(pixels)


def get_inputs():
    return [torch.randn(batch_size, 3, image, image)]


def get_init_inputs():
    return []
