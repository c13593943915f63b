"""A network for images as the package torchvision builds it; ``network`` is the name of its function there."""

import torch
import torch.nn as nn
import torchvision

network = "resnet50"
batch_size = 64
image = 224


class Model(nn.Module):
    def __init__(self, network):
        super().__init__()
        self.model = torchvision.models.get_model(network)

    def forward(self, pixels):
        """pixels: (batch, 3, image, image) -> scores (batch, 1000)"""
        return self.model(pixels)


def get_inputs():
    return [torch.randn(batch_size, 3, image, image)]


def get_init_inputs():
    return [network]
