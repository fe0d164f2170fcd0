#!/usr/bin/env python3
"""Writes transformer.golden: attention modules, transformers and grouped queries in float64, by PyTorch.

    python3 tests/golden/make_transformer.py

The forms of cases of modules: module_cases.py. Grouped queries have no module: [gqa_NAME] has the numbers of query, key,
value, pull, output and the three gradients, one after the other.
"""
import warnings

import torch
from torch import nn
import torch.nn.functional as F

import golden_file
from module_cases import case, flat

warnings.simplefilter("ignore")
torch.set_default_dtype(torch.float64)
torch.manual_seed(33)
N, L, S, E, HEADS = 2, 3, 4, 4, 2
sections = []


def numbers(*shape):
    return torch.randn(*shape)


def spread(module):
    """Biases and norms that are not zeros and ones."""
    with torch.no_grad():
        for x in module.parameters():
            x.add_(0.3 * torch.randn_like(x))
    return module


def attention(name, inputs, weights=True, **options):
    forward = {k: options.pop(k) for k in ("average_attn_weights",) if k in options}
    m = spread(nn.MultiheadAttention(E, HEADS, **options))

    def call(m, q, k=None, v=None, padding=None, mask=None):
        k = q if k is None else k
        v = k if v is None else v
        out = m(q, k, v, key_padding_mask=padding, attn_mask=mask, need_weights=weights, **forward)
        return [x for x in out if x is not None]

    sections.extend(case(name, m, inputs, call))


padding = torch.zeros(N, S, dtype=torch.bool)
padding[1, 2:] = True
later = torch.ones(L, S, dtype=torch.bool).triu(1)
attention("self", [numbers(L, N, E)])
attention("self_output", [numbers(L, N, E)], weights=False, bias=False)
attention("cross", [numbers(L, N, E), numbers(S, N, E)])
attention("three", [numbers(L, N, E), numbers(S, N, E), numbers(S, N, E)], average_attn_weights=False)
attention("features", [numbers(N, L, E), numbers(N, S, 3), numbers(N, S, 5)], batch_first=True, kdim=3, vdim=5)
attention("bools", [numbers(L, N, E), numbers(S, N, E), None, padding, later])
attention("bools_output", [numbers(L, N, E), numbers(S, N, E), None, padding, later], weights=False)
attention("padded", [numbers(N, L, E), numbers(N, S, E), None, padding], weights=False, batch_first=True)
attention("added", [numbers(L, N, E), numbers(S, N, E), None, None, numbers(L, S)])
attention("mixed", [numbers(L, N, E), numbers(S, N, E), None, padding, numbers(N * HEADS, L, S)], weights=False)
attention("more_keys", [numbers(L, N, E), numbers(S, N, E), None, padding, later], add_bias_kv=True, add_zero_attn=True)
attention("zero_key", [numbers(L, N, E), numbers(S, N, E)], weights=False, add_zero_attn=True, bias=False)
attention("single", [numbers(L, E), numbers(S, E), None, padding[1], numbers(HEADS, L, S)])
attention("single_self", [numbers(L, E)], weights=False, batch_first=True)
square = torch.ones(L, L, dtype=torch.bool).triu(1)


def causal(name, batch_first, weights, padded=False, **options):
    m = spread(nn.MultiheadAttention(E, HEADS, batch_first=batch_first, **options))
    mask = torch.zeros(N, L, dtype=torch.bool)
    mask[0, 2] = True
    x = numbers(N, L, E) if batch_first else numbers(L, N, E)

    def call(m, x, k, v, padding=None):
        out = m(x, x, x, key_padding_mask=padding, attn_mask=square, need_weights=weights)
        return [y for y in out if y is not None]

    sections.extend(case(name, m, [x, None, None] + ([mask] if padded else []), call))


causal("causal", True, False)
causal("causal_weights", False, True)
causal("causal_padded", True, False, True, add_bias_kv=True)

small = dict(dim_feedforward=5, dropout=0.0)
src_padding = torch.zeros(N, S, dtype=torch.bool)
src_padding[0, 3] = True
tgt_padding = torch.zeros(N, L, dtype=torch.bool)
tgt_padding[1, 2] = True


def one(m, *inputs):
    return [m(*inputs)]


sections.extend(case("encoder_layer", spread(nn.TransformerEncoderLayer(E, HEADS, **small)), [numbers(S, N, E)], one))
sections.extend(case("encoder_layer_first", spread(nn.TransformerEncoderLayer(
    E, HEADS, activation="gelu", batch_first=True, norm_first=True, bias=False, layer_norm_eps=1e-3, **small)),
    [numbers(N, S, E), numbers(S, S), src_padding], one))
sections.extend(case("encoder_layer_causal", spread(nn.TransformerEncoderLayer(E, HEADS, **small)), [numbers(L, N, E)],
                     lambda m, x: [m(x, square, is_causal=True)]))
sections.extend(case("decoder_layer", spread(nn.TransformerDecoderLayer(E, HEADS, **small)),
                     [numbers(L, N, E), numbers(S, N, E)], one))
sections.extend(case("decoder_layer_masks", spread(nn.TransformerDecoderLayer(
    E, HEADS, activation="gelu", batch_first=True, norm_first=True, bias=False, **small)),
    [numbers(N, L, E), numbers(N, S, E), square, later, tgt_padding, src_padding], one))
sections.extend(case("encoder", spread(nn.TransformerEncoder(
    nn.TransformerEncoderLayer(E, HEADS, batch_first=True, **small), 2, nn.LayerNorm(E))),
    [numbers(N, S, E), None, src_padding], one))
sections.extend(case("decoder", spread(nn.TransformerDecoder(nn.TransformerDecoderLayer(E, HEADS, **small), 2)),
                     [numbers(L, N, E), numbers(S, N, E), square], one))
sections.extend(case("transformer", spread(nn.Transformer(E, HEADS, 2, 1, **small)),
                     [numbers(S, N, E), numbers(L, N, E), None, square, None, src_padding, tgt_padding, src_padding],
                     one))
sections.extend(case("transformer_causal", spread(nn.Transformer(E, HEADS, 1, 2, activation="gelu", batch_first=True,
                                                                 norm_first=True, bias=False, **small)),
                     [numbers(N, S, E), numbers(N, L, E)], lambda m, x, y: [m(x, y, tgt_mask=square)]))


def grouped(name, q, k, v, **options):
    leaves = [x.requires_grad_(True) for x in (q, k, v)]
    out = F.scaled_dot_product_attention(*leaves, enable_gqa=True, **options)
    pull = torch.randn_like(out)
    (out * pull).sum().backward()
    sections.append(("gqa_" + name, flat(leaves + [pull, out] + [x.grad for x in leaves])))


grouped("plain", numbers(2, 4, 3, 2), numbers(2, 2, 5, 2), numbers(2, 2, 5, 3))
grouped("causal", numbers(2, 6, 3, 2), numbers(2, 2, 3, 2), numbers(2, 2, 3, 3), is_causal=True)
grouped("mask", numbers(2, 4, 3, 2), numbers(2, 2, 5, 2), numbers(2, 2, 5, 3),
        attn_mask=(torch.arange(2 * 4 * 3 * 5) % 3 != 0).reshape(2, 4, 3, 5))
grouped("three", numbers(4, 3, 2), numbers(1, 5, 2), numbers(1, 5, 3),
        attn_mask=(torch.arange(15) % 3 != 0).reshape(3, 5))
grouped("apart", numbers(2, 4, 3, 2), numbers(2, 2, 5, 2), numbers(2, 1, 5, 3))
grouped("five", numbers(1, 2, 4, 3, 2), numbers(1, 2, 2, 5, 2), numbers(1, 2, 2, 5, 3))
names = [s[0] for s in sections if s[0].startswith("gqa_") is False and s[1] and isinstance(s[1][0], str)]
golden_file.write("transformer", "make_transformer.py", "attention and transformers", [("cases", names)] + sections)
