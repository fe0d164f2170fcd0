#!/usr/bin/env python3
"""A small GPT-2 written in PyTorch alone: tests/golden/gpt2/model.safetensors, in the published form, and gpt2.golden.

The weights are random f32; logits, loss and gradients are computed with them in f64.
"""
import os

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

import golden_file

VOCAB, POSITIONS, EMBD, LAYER, HEAD = 37, 10, 12, 2, 3
HERE = os.path.dirname(os.path.abspath(__file__))


def weights():
    torch.manual_seed(11)
    w = {"wte.weight": torch.randn(VOCAB, EMBD), "wpe.weight": torch.randn(POSITIONS, EMBD) * 0.5}
    for i in range(LAYER):
        h = "h.%d." % i
        for name, size in (("attn.c_attn", (EMBD, 3 * EMBD)), ("attn.c_proj", (EMBD, EMBD)),
                           ("mlp.c_fc", (EMBD, 4 * EMBD)), ("mlp.c_proj", (4 * EMBD, EMBD))):
            w[h + name + ".weight"] = torch.randn(size) * 0.4
            w[h + name + ".bias"] = torch.randn(size[1]) * 0.2
        for name in ("ln_1", "ln_2"):
            w[h + name + ".weight"] = 1 + torch.randn(EMBD) * 0.3
            w[h + name + ".bias"] = torch.randn(EMBD) * 0.2
        w[h + "attn.bias"] = torch.tril(torch.ones(POSITIONS, POSITIONS)).view(1, 1, POSITIONS, POSITIONS)
    w["ln_f.weight"] = 1 + torch.randn(EMBD) * 0.3
    w["ln_f.bias"] = torch.randn(EMBD) * 0.2
    return w


def conv1d(w, name, x):
    return x @ w[name + ".weight"] + w[name + ".bias"]


def norm(w, name, x):
    return F.layer_norm(x, (EMBD,), w[name + ".weight"], w[name + ".bias"], 1e-5)


def forward(w, ids):
    n, t = ids.shape
    x = w["wte.weight"][ids] + w["wpe.weight"][:t]
    for i in range(LAYER):
        h = "h.%d." % i
        q, k, v = (part.view(n, t, HEAD, EMBD // HEAD).transpose(1, 2)
                   for part in conv1d(w, h + "attn.c_attn", norm(w, h + "ln_1", x)).split(EMBD, dim=2))
        scores = q @ k.transpose(-2, -1) / (EMBD // HEAD) ** 0.5
        scores = scores.masked_fill(~torch.ones(t, t, dtype=torch.bool).tril(), float("-inf"))
        y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(n, t, EMBD)
        x = x + conv1d(w, h + "attn.c_proj", y)
        inner = conv1d(w, h + "mlp.c_fc", norm(w, h + "ln_2", x))
        x = x + conv1d(w, h + "mlp.c_proj", F.gelu(inner, approximate="tanh"))
    return norm(w, "ln_f", x) @ w["wte.weight"].T


def main():
    w = weights()
    os.makedirs(os.path.join(HERE, "gpt2"), exist_ok=True)
    save_file(w, os.path.join(HERE, "gpt2", "model.safetensors"))
    wide = {name: x.double().requires_grad_(".attn.bias" not in name) for name, x in w.items()}
    ids = torch.randint(0, VOCAB, (2, 8))
    target = torch.randint(0, VOCAB, (2, 8))
    logits = forward(wide, ids)
    loss = F.cross_entropy(logits.view(-1, VOCAB), target.view(-1))
    loss.backward()
    greedy = [3, 1, 4]
    with torch.no_grad():
        while len(greedy) < POSITIONS:
            greedy.append(int(forward(wide, torch.tensor([greedy]))[0, -1].argmax()))
    sections = [("ids", ids.flatten().tolist()), ("target", target.flatten().tolist()),
                ("logits", logits.flatten().tolist()), ("loss", [loss.item()]), ("greedy", greedy)]
    for name in ("wte.weight", "wpe.weight", "h.0.attn.c_attn.weight", "h.1.mlp.c_proj.bias", "h.1.ln_2.weight"):
        sections.append((name, wide[name].grad.flatten().tolist()))
    golden_file.write("gpt2", "make_gpt2.py", "GPT-2 of %d layers" % LAYER, sections)


main()
