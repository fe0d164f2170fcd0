#!/usr/bin/env python3
"""Writes sparse.golden: gradients of sparse embeddings, and steps by them, in float64, by PyTorch.

    python3 tests/golden/make_sparse.py

The table (7, 3) has (5 i % 11 - 4) / 8 as its element i. Step s looks up [indices s], with 2 as padding; the loss is the
sum of the result's squares times (k % 5 - 1) / 4 for its element k. [NAME] is the table after three steps of a case.
"""
import torch

import golden_file

torch.set_default_dtype(torch.float64)
INDICES = [[[1, 4, 4], [2, 0, 1]], [[6, 6, 6], [1, 2, 5]], [[2, 2, 3], [3, 0, 0]]]


def table():
    start = torch.tensor([(5 * i % 11 - 4) / 8 for i in range(21)]).reshape(7, 3)
    return torch.nn.Embedding(7, 3, padding_idx=2, sparse=True, _weight=start)


def loss(m, step):
    out = m(torch.tensor(INDICES[step]))
    pull = torch.tensor([(k % 5 - 1) / 4 for k in range(out.numel())]).reshape(out.shape)
    return (out.square() * pull).sum()


sections = [("indices", [float(i) for step in INDICES for row in step for i in row])]
m = table()
for step in range(2):
    loss(m, step).backward()
grad = m.weight.grad.coalesce()
sections += [("grad_indices", grad.indices().flatten().tolist()), ("grad_rows", grad.values().flatten().tolist())]
CASES = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "sgd_maximize": lambda p: torch.optim.SGD(p, lr=0.1, maximize=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
    "adagrad_options": lambda p: torch.optim.Adagrad(p, lr=0.2, lr_decay=0.1, initial_accumulator_value=0.3, eps=1e-3,
                                                     maximize=True),
    "sparse_adam": lambda p: torch.optim.SparseAdam(p, lr=0.01),
    "sparse_adam_options": lambda p: torch.optim.SparseAdam(p, lr=0.02, betas=(0.8, 0.95), eps=1e-3, maximize=True),
}
for name, make in CASES.items():
    m = table()
    optimizer = make(list(m.parameters()))
    for step in range(3):
        optimizer.zero_grad()
        loss(m, step).backward()
        optimizer.step()
    sections.append((name, m.weight.detach().flatten().tolist()))
    if name == "sparse_adam":
        state = optimizer.state[m.weight]
        sections += [("exp_avg", state["exp_avg"].flatten().tolist()),
                     ("exp_avg_sq", state["exp_avg_sq"].flatten().tolist())]
    if name == "adagrad":
        sections.append(("adagrad_sum", optimizer.state[m.weight]["sum"].flatten().tolist()))
golden_file.write("sparse", "make_sparse.py", "sparse embeddings", sections)
