#!/usr/bin/env python3
"""The steps of bench/gpt2.c in PyTorch, eager or compiled, and the files that it and bench/peer_llmc.c begin with.

usage: peer_gpt2.py FOLDER --make              weights and tokens, drawn by one seed, in the three forms
       peer_gpt2.py FOLDER THREADS STEPS [--compile]
Prints a JSON object as its last line, with the keys of bench/gpt2.c; import_rss_mb: what `import torch` alone takes.
"""
import json
import math
import os
import resource
import statistics
import struct
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

BATCH, TOKENS = 4, 256
LAYERS, HEADS, WIDTH, VOCABULARY, POSITIONS = 12, 12, 768, 50257, 1024


def peak_rss_mb():
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


IMPORT_RSS_MB = peak_rss_mb()


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.c_attn, self.c_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.c_fc, self.c_out = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        n, t, _ = x.shape
        q, k, v = (part.view(n, t, HEADS, -1).transpose(1, 2) for part in self.c_attn(self.ln_1(x)).split(WIDTH, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(n, t, WIDTH))
        return x + self.c_out(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(POSITIONS, WIDTH)
        self.h = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f = nn.LayerNorm(WIDTH)
        generator = torch.Generator().manual_seed(1)
        for name, p in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(p)
            elif p.dim() == 2:
                shrunk = name.endswith(("c_proj.weight", "c_out.weight"))
                nn.init.normal_(p, 0, 0.02 / (math.sqrt(2 * LAYERS) if shrunk else 1), generator)

    def forward(self, x):
        y = self.wte(x) + self.wpe(torch.arange(x.shape[1]))
        for block in self.h:
            y = block(y)
        return F.linear(self.ln_f(y), self.wte.weight)


def tokens():
    """(BATCH, TOKENS) inputs, and of each the one that follows."""
    drawn = torch.randint(0, VOCABULARY, (BATCH, TOKENS + 1), generator=torch.Generator().manual_seed(2))
    return drawn[:, :-1].contiguous(), drawn[:, 1:].contiguous()


def published(net):
    """Names and tensors in the published form, whose products have weights (in, out)."""
    yield from (("wte.weight", net.wte.weight), ("wpe.weight", net.wpe.weight))
    for i, block in enumerate(net.h):
        for ours, theirs in (("ln_1", "ln_1"), ("c_attn", "attn.c_attn"), ("c_proj", "attn.c_proj"), ("ln_2", "ln_2"),
                             ("c_fc", "mlp.c_fc"), ("c_out", "mlp.c_proj")):
            m = getattr(block, ours)
            yield f"h.{i}.{theirs}.weight", m.weight.t() if m.weight.dim() == 2 else m.weight
            yield f"h.{i}.{theirs}.bias", m.bias
    yield from (("ln_f.weight", net.ln_f.weight), ("ln_f.bias", net.ln_f.bias))


def raw(tensor):
    return tensor.detach().contiguous().numpy().tobytes()


def make(folder):
    net = GPT2()
    header, at = {}, 0
    for name, p in published(net):
        header[name] = {"dtype": "F32", "shape": list(p.shape), "data_offsets": [at, at + 4 * p.numel()]}
        at += 4 * p.numel()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, p in published(net):
            f.write(raw(p))
    padded = (VOCABULARY + 127) // 128 * 128
    with open(os.path.join(folder, "gpt2_124M.bin"), "wb") as f:
        numbers = [20240326, 3, POSITIONS, VOCABULARY, LAYERS, HEADS, WIDTH, padded]
        f.write(struct.pack("<256i", *numbers, *[0] * (256 - len(numbers))))
        f.write(raw(F.pad(net.wte.weight, (0, 0, 0, padded - VOCABULARY))) + raw(net.wpe.weight))
        for name in ("ln_1", "c_attn", "c_proj", "ln_2", "c_fc", "c_out"):
            for part in ("weight", "bias"):
                for block in net.h:
                    f.write(raw(getattr(getattr(block, name), part)))
        f.write(raw(net.ln_f.weight) + raw(net.ln_f.bias))
    with open(os.path.join(folder, "tokens"), "wb") as f:
        for part in tokens():
            f.write(raw(part.int()))


def main():
    if sys.argv[2] == "--make":
        make(sys.argv[1])
        return
    torch.set_num_threads(int(sys.argv[2]))
    steps, compiled = int(sys.argv[3]), "--compile" in sys.argv[4:]
    net = GPT2()
    run = torch.compile(net) if compiled else net
    adamw = torch.optim.AdamW(net.parameters(), lr=1e-4, weight_decay=0, fused=True)
    x, y = tokens()
    y = y.view(-1)
    times, processor, losses = [], [], []
    # The first step is not counted; of a compiled network it is the one that compiles.
    for i in range(steps + 1):
        start, used = time.perf_counter(), time.process_time()
        adamw.zero_grad()
        loss = F.cross_entropy(run(x).view(-1, VOCABULARY), y)
        loss.backward()
        adamw.step()
        if i:
            times.append(time.perf_counter() - start)
            processor.append(time.process_time() - used)
        losses.append(loss.item())
    print(json.dumps({"step_ms": round(statistics.median(times) * 1e3, 1),
                      "processor_ms": round(statistics.median(processor) * 1e3, 1),
                      "peak_rss_mb": peak_rss_mb(), "import_rss_mb": IMPORT_RSS_MB,
                      "first_loss": round(losses[0], 5), "last_loss": round(losses[-1], 5)}))


if __name__ == "__main__":
    main()
