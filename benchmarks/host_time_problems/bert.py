"""BERT's embeddings and encoder in eval mode: with 12 layers, BERT base."""

import torch
import torch.nn as nn
import torch.nn.functional as F

layers = 2
hidden = 768
heads = 12
batch_size = 4
sequence = 128


class Layer(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(hidden, hidden) for _ in range(3))
        self.output = nn.Linear(hidden, hidden)
        self.attention_norm = nn.LayerNorm(hidden, eps=1e-12)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)
        self.output_norm = nn.LayerNorm(hidden, eps=1e-12)

    def forward(self, x):
        q, k, v = (f(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f in (self.query, self.key, self.value))
        attention = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = self.attention_norm(self.output(attention) + x)
        return self.output_norm(self.down(F.gelu(self.up(x))) + x)


class Model(nn.Module):
    def __init__(self, layers, hidden, heads, sequence):
        super().__init__()
        self.words, self.positions = nn.Embedding(30522, hidden), nn.Parameter(torch.randn(sequence, hidden) * 0.02)
        self.norm = nn.LayerNorm(hidden, eps=1e-12)
        self.layers = nn.ModuleList(Layer(hidden, heads) for _ in range(layers))

    def forward(self, tokens):
        x = self.norm(self.words(tokens) + self.positions)
        for layer in self.layers:
            x = layer(x)
        return x


def get_inputs():
    return [torch.randint(30522, (batch_size, sequence))]


def get_init_inputs():
    return [layers, hidden, heads, sequence]
