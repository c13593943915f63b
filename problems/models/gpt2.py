"""GPT-2 as the package transformers builds it, without its head: token and position embeddings, causal blocks."""

import torch
import torch.nn as nn
from transformers import GPT2Config, GPT2Model

batch_size = 8
length = 512
hidden = 768
heads = 12
layers = 12
vocabulary = 50257


class Model(nn.Module):
    def __init__(self, length, hidden, heads, layers, vocabulary):
        super().__init__()
        self.model = GPT2Model(GPT2Config(n_positions=length, n_embd=hidden, n_head=heads, n_layer=layers, vocab_size=vocabulary))

    def forward(self, ids):
        """ids: (batch, length), int64 -> hidden states (batch, length, hidden)"""
        return self.model(input_ids=ids, use_cache=False).last_hidden_state


def get_inputs():
    return [torch.randint(0, vocabulary, (batch_size, length))]


def get_init_inputs():
    return [length, hidden, heads, layers, vocabulary]
