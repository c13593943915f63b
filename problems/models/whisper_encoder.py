"""The encoder of Whisper as the package transformers builds it: two convolutions over time, then blocks of attention."""

import torch
import torch.nn as nn
from transformers import WhisperConfig
from transformers.models.whisper.modeling_whisper import WhisperEncoder

batch_size = 8
mels = 80
length = 1500
hidden = 768
heads = 12
layers = 12


class Model(nn.Module):
    def __init__(self, mels, length, hidden, heads, layers):
        super().__init__()
        config = WhisperConfig(
            num_mel_bins=mels, max_source_positions=length, d_model=hidden, encoder_ffn_dim=4 * hidden, encoder_layers=layers,
            encoder_attention_heads=heads,
        )
        self.model = WhisperEncoder(config)

    def forward(self, features):
        """features: (batch, mels, 2 * length) -> hidden states (batch, length, hidden)"""
        return self.model(features).last_hidden_state


def get_inputs():
    return [torch.randn(batch_size, mels, 2 * length)]


def get_init_inputs():
    return [mels, length, hidden, heads, layers]
