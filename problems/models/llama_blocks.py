"""Two decoder layers of Llama as the package transformers builds them: grouped heads, rotary positions, a causal mask."""

import torch
import torch.nn as nn
from transformers import LlamaConfig, LlamaModel

batch_size = 4
length = 1024
hidden = 2048
heads = 16
kv_heads = 4
layers = 2
vocabulary = 32000


class Model(nn.Module):
    def __init__(self, hidden, heads, kv_heads, layers, vocabulary):
        super().__init__()
        config = LlamaConfig(
            hidden_size=hidden, intermediate_size=4 * hidden, num_hidden_layers=layers, num_attention_heads=heads,
            num_key_value_heads=kv_heads, vocab_size=vocabulary,
        )
        self.model = LlamaModel(config)

    def forward(self, ids):
        """ids: (batch, length), int64 -> hidden states (batch, length, hidden)"""
        return self.model(input_ids=ids, use_cache=False).last_hidden_state


def get_inputs():
    return [torch.randint(0, vocabulary, (batch_size, length))]


def get_init_inputs():
    return [hidden, heads, kv_heads, layers, vocabulary]
