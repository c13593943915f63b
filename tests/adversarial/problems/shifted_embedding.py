"""Bags of tokens of a large vocabulary, embedded, summed, shifted and squashed."""

import torch
import torch.nn as nn

batch_size = 96
tokens = 12
vocabulary = 50000
features = 32


class Model(nn.Module):
    def __init__(self, vocabulary, features):
        super().__init__()
        self.table = nn.Embedding(vocabulary, features)
        self.shift = nn.Parameter(torch.zeros(features))

    def forward(self, index):
        return torch.tanh(self.table(index).sum(1) + self.shift)


def get_inputs():
    return [torch.randint(0, vocabulary, (batch_size, tokens))]


def get_init_inputs():
    return [vocabulary, features]
