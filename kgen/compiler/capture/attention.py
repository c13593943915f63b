"""Decompositions of attention, and of the layers around it that PyTorch fuses, in ATen's operators.

A function that returns ``NotImplemented`` leaves a call as it is.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    import torch


def _dot_product_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """softmax(q k^T * scale + mask) v; a row that is masked as a whole gives zeros."""
    import torch

    if dropout_p or (attn_mask is not None and is_causal) or q.dim() < 3:
        return NotImplemented
    shared = enable_gqa and k.shape[-3] == v.shape[-3] != q.shape[-3]
    shape = (*q.shape[:-1], v.shape[-1])
    if shared:  # each head of keys and values meets several of queries side by side
        groups = k.shape[-3], q.shape[-3] // k.shape[-3]
        q = q.reshape(*q.shape[:-3], *groups, *q.shape[-2:])
        k, v = (t.unsqueeze(-3).expand(*t.shape[:-3], *groups, *t.shape[-2:]) for t in (k, v))
    if not q.shape[:-2] == k.shape[:-2] == v.shape[:-2]:
        return NotImplemented
    scores = torch.matmul(q, k.transpose(-2, -1)) * (1.0 / math.sqrt(q.shape[-1]) if scale is None else scale)
    infinite = torch.full((), -math.inf, dtype=scores.dtype, device=scores.device)
    if is_causal:
        rows, columns = (torch.arange(size, device=q.device) for size in scores.shape[-2:])
        scores = torch.where(rows.unsqueeze(-1) >= columns, scores, infinite)
    elif attn_mask is not None:
        of_groups = scores.shape
        scores = scores.reshape(*shape[:-1], scores.shape[-1]) if shared else scores
        scores = torch.where(attn_mask, scores, infinite) if attn_mask.dtype == torch.bool else scores + attn_mask
        if scores.shape[:-1] != shape[:-1]:
            return NotImplemented  # the mask has more heads than the queries
    found = torch.softmax(scores, -1)
    if attn_mask is not None:
        found = torch.where(scores.amax(-1, keepdim=True) == -math.inf, torch.zeros_like(infinite), found).reshape(
            of_groups
        )
    return torch.matmul(found, v).reshape(shape)


def _keeps(mask: torch.Tensor, mask_type: int | None) -> torch.Tensor:
    """Where attention looks, of shape (batch, heads, length, length) or one that broadcasts to it.

    ``mask_type`` 0 is (length, length), 1 is (batch, length) of keys, 2 is the whole shape.
    """
    keeps = mask == 0
    return keeps[:, None, None, :] if mask_type == 1 else keeps


def _attention(
    query: Any,
    key: Any,
    value: Any,
    width: int,
    heads: int,
    qkv_weight: Any,
    qkv_bias: Any,
    weight: Any,
    bias: Any,
    mask: Any = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> Any:
    import torch

    if need_weights or query is not key or key is not value:
        return NotImplemented
    y = torch.nn.functional.linear(query, qkv_weight, qkv_bias)
    parts = (
        y[..., at * width : (at + 1) * width].unflatten(-1, (heads, width // heads)).transpose(1, 2) for at in range(3)
    )
    seen = torch.nn.functional.scaled_dot_product_attention(*parts, None if mask is None else _keeps(mask, mask_type))
    return torch.nn.functional.linear(seen.transpose(1, 2).flatten(2), weight, bias), query.new_empty(0)


def _encoder_layer(
    x: Any,
    width: int,
    heads: int,
    qkv_weight: Any,
    qkv_bias: Any,
    weight: Any,
    bias: Any,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    weight_1: Any,
    bias_1: Any,
    weight_2: Any,
    bias_2: Any,
    ffn_weight_1: Any,
    ffn_bias_1: Any,
    ffn_weight_2: Any,
    ffn_bias_2: Any,
    mask: Any = None,
    mask_type: int | None = None,
) -> Any:
    import torch.nn.functional as F

    def attention(x: Any) -> Any:
        return _attention(x, x, x, width, heads, qkv_weight, qkv_bias, weight, bias, mask, False, True, mask_type)[0]

    def forward(x: Any) -> Any:
        y = F.linear(x, ffn_weight_1, ffn_bias_1)
        return F.linear(F.gelu(y) if use_gelu else F.relu(y), ffn_weight_2, ffn_bias_2)

    norms = [
        lambda x: F.layer_norm(x, [width], weight_1, bias_1, eps),
        lambda x: F.layer_norm(x, [width], weight_2, bias_2, eps),
    ]
    for part, norm in zip((attention, forward), norms):
        x = x + part(norm(x)) if norm_first else norm(x + part(x))
    return x


#: Operators that PyTorch fuses: the parts of one are the operators that a program calls elsewhere.
FUSED: dict[str, Callable[..., Any]] = {
    "aten._native_multi_head_attention.default": _attention,
    "aten._transformer_encoder_layer_fwd.default": _encoder_layer,
    "aten.scaled_dot_product_attention.default": _dot_product_attention,
}
