"""A vision transformer as the package transformers builds it: patches, a class token, positions and the encoder."""

import torch
import torch.nn as nn
from transformers import ViTConfig, ViTModel

batch_size = 64
image = 224
patch = 16
hidden = 768
heads = 12
layers = 12


class Model(nn.Module):
    def __init__(self, image, patch, hidden, heads, layers):
        super().__init__()
        config = ViTConfig(
            image_size=image, patch_size=patch, hidden_size=hidden, intermediate_size=4 * hidden, num_hidden_layers=layers,
            num_attention_heads=heads,
        )
        self.model = ViTModel(config, add_pooling_layer=False)

    def forward(self, pixels):
        """pixels: (batch, 3, image, image) -> hidden states (batch, patches + 1, hidden)"""
        return self.model(pixel_values=pixels).last_hidden_state


def get_inputs():
    return [torch.randn(batch_size, 3, image, image)]


def get_init_inputs():
    return [image, patch, hidden, heads, layers]
