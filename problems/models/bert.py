"""BERT as the package transformers builds it: embeddings, encoder and pooler, with a mask of padded tokens."""

import torch
import torch.nn as nn
from transformers import BertConfig, BertModel

batch_size = 32
length = 128
hidden = 768
heads = 12
layers = 12
vocabulary = 30522


class Model(nn.Module):
    def __init__(self, hidden, heads, layers, vocabulary):
        super().__init__()
        config = BertConfig(
            hidden_size=hidden, intermediate_size=4 * hidden, num_hidden_layers=layers, num_attention_heads=heads,
            vocab_size=vocabulary,
        )
        self.model = BertModel(config)

    def forward(self, ids, mask):
        """ids and mask: (batch, length), int64 -> hidden states (batch, length, hidden) and pooled ones (batch, hidden)"""
        out = self.model(input_ids=ids, attention_mask=mask)
        return out.last_hidden_state, out.pooler_output


def get_inputs():
    mask = (torch.arange(length) < length - torch.arange(batch_size).unsqueeze(1) % (length // 2)).long()
    return [torch.randint(0, vocabulary, (batch_size, length)), mask]


def get_init_inputs():
    return [hidden, heads, layers, vocabulary]
