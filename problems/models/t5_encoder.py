"""The encoder of T5 as the package transformers builds it: relative positions as a bias of attention, RMS norms."""

import torch
import torch.nn as nn
from transformers import T5Config, T5EncoderModel

batch_size = 16
length = 256
hidden = 768
heads = 12
layers = 12
vocabulary = 32128


class Model(nn.Module):
    def __init__(self, hidden, heads, layers, vocabulary):
        super().__init__()
        config = T5Config(
            d_model=hidden, d_kv=hidden // heads, d_ff=4 * hidden, num_layers=layers, num_heads=heads, vocab_size=vocabulary,
        )
        self.model = T5EncoderModel(config)

    def forward(self, ids, mask):
        """ids and mask: (batch, length), int64 -> hidden states (batch, length, hidden)"""
        return self.model(input_ids=ids, attention_mask=mask).last_hidden_state


def get_inputs():
    mask = (torch.arange(length) < length - torch.arange(batch_size).unsqueeze(1) % (length // 2)).long()
    return [torch.randint(0, vocabulary, (batch_size, length)), mask]


def get_init_inputs():
    return [hidden, heads, layers, vocabulary]
