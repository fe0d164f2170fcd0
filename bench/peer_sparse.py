#!/usr/bin/env python3
"""Training steps on a sparse embedding of 1,000,000 rows: the peer of bench/sparse.c, with its rows.

usage: peer_sparse.py [steps]     Prints lines of name, value and unit, separated by tabs.
"""
import statistics
import sys
import time

import torch

ROWS, WIDTH, BATCH = 1000000, 64, 4096


def measure(name, sparse, make, steps):
    m = torch.nn.Embedding(ROWS, WIDTH, sparse=sparse)
    optimizer, times = make(m.parameters()), []
    for i in range(-3, steps):
        x = torch.randint(0, ROWS, (BATCH,))
        begin = time.perf_counter()
        optimizer.zero_grad()
        m(x).square().sum().backward()
        optimizer.step()
        if i >= 0:
            times.append(time.perf_counter() - begin)
    print(f"{name}, median\t{statistics.median(times) * 1e3:.4g}\tms\n{name}, least\t{min(times) * 1e3:.4g}\tms", flush=True)


steps = int(sys.argv[1]) if len(sys.argv) > 1 else 100
measure("SGD by rows", True, lambda p: torch.optim.SGD(p, lr=0.01), steps)
measure("SparseAdam", True, lambda p: torch.optim.SparseAdam(list(p), lr=0.01), steps)
measure("SGD, all elements", False, lambda p: torch.optim.SGD(p, lr=0.01), min(steps, 10))
