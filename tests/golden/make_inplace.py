#!/usr/bin/env python3
"""Writes inplace.golden: random programs of views and writes in place, and what PyTorch makes of each.

    python3 tests/golden/make_inplace.py

A program works on registers: 0 (3,4) and 1 (4) are leaves that require a gradient, 2 (3,4) is a plain tensor. Each step
may fail (a leaf changed in place, a view that may not be) and is then left out. In the end every register is weighted
and added up, registers that cannot be used any more left out, and backward is run; it fails where a saved tensor was
overwritten. Written down: which steps fail, which registers are refused, whether there is a backward and whether it
fails, the two gradients, and a weighted sum of each register. A row is a seed, the steps (operation, registers, two
integers, a number, 1 if it fails), the number of registers, a mask of those that are refused, 0, 1 or 2 for the backward
(nothing requires a gradient, it works, it fails), the gradients, the sums.
"""
import random
import warnings

import torch

import golden_file

warnings.filterwarnings("ignore")
torch.set_default_dtype(torch.float64)

CASES, STEPS, REGISTERS = 400, 9, 12
OPS = ["CLONE", "SCALE", "MUL", "ADD", "EXP", "SELECT", "NARROW", "TRANSPOSE", "FLATTEN", "UNBIND", "DETACH",
       "ADD_", "MUL_", "SCALE_", "RELU_", "COPY_", "FILL_", "NO_GRAD", "GRAD"]
WEIGHTS = [2, 2, 3, 3, 1, 6, 4, 2, 2, 1, 0.4, 6, 4, 3, 2, 4, 2, 0.5, 1.5]


def leaves():
    a = torch.tensor([[(7 * i + 3 * j) % 11 / 8 - 0.6 for j in range(4)] for i in range(3)], requires_grad=True)
    b = torch.tensor([0.5, -0.75, 1.25, -0.25], requires_grad=True)
    c = torch.tensor([[(5 * i + 2 * j) % 7 / 4 - 0.7 for j in range(4)] for i in range(3)])
    return [a, b, c]


def apply(op, r, a, b, p, q, number):
    x, y = r[a], r[b] if b >= 0 else None
    try:
        # PyTorch takes a view whose base has come into a graph since for a leaf, until its grad_fn is asked for.
        x.grad_fn
    except RuntimeError:
        pass
    if op == "CLONE":
        return x.clone()
    if op == "SCALE":
        return x * number
    if op == "MUL":
        return x * y
    if op == "ADD":
        return x + y
    if op == "EXP":
        return (x * 0.25).exp()
    if op == "SELECT":
        return x.select(p, q)
    if op == "NARROW":
        return x.narrow(p, q, x.shape[p] - q)
    if op == "TRANSPOSE":
        return x.transpose(0, 1)
    if op == "FLATTEN":
        return x.view(-1)
    if op == "UNBIND":
        return x.unbind(p)[q]
    if op == "DETACH":
        return x.detach()
    if op == "ADD_":
        x.add_(y, alpha=number)
    elif op == "MUL_":
        x.mul_(y)
    elif op == "SCALE_":
        x.mul_(number)
    elif op == "RELU_":
        x.relu_()
    elif op == "COPY_":
        x.copy_(y)
    elif op == "FILL_":
        x.fill_(number)
    return None


def fits(x, y):
    """y broadcasts to x."""
    try:
        return torch.broadcast_shapes(x.shape, y.shape) == x.shape
    except RuntimeError:
        return False


def overlap(x, y):
    """Whether they share elements, without being the same ones in the same places."""
    if x.untyped_storage().data_ptr() != y.untyped_storage().data_ptr():
        return False
    if (x.storage_offset(), x.shape, x.stride()) == (y.storage_offset(), y.shape, y.stride()):
        return False
    places = torch.arange(x.untyped_storage().nbytes() // 8)
    seen = [set(places.as_strided(t.shape, t.stride(), t.storage_offset()).reshape(-1).tolist()) for t in (x, y)]
    return bool(seen[0] & seen[1])


def draw(rng, r, recording):
    """A step whose shapes are right: (op, a, b, p, q, number), or None."""
    op = rng.choices(OPS, WEIGHTS)[0]
    number = rng.choice([-1.5, -0.5, 0.25, 0.75, 2.0])
    if op in ("NO_GRAD", "GRAD"):
        return (op, -1, -1, 0, 0, number) if (op == "GRAD") != recording else None
    live = [i for i, t in enumerate(r) if t is not None]
    # What was made last is what most of what follows is about.
    a = rng.choice(live[-3:] if rng.random() < 0.6 else live)
    b, p, q = -1, 0, 0
    x = r[a]
    if op in ("MUL", "ADD", "ADD_", "MUL_", "COPY_"):
        partners = [i for i in live if (i != a or op in ("MUL", "ADD")) and fits(x, r[i])]
        if not partners:
            return None
        b = rng.choice(partners)
    if op in ("SELECT", "NARROW", "UNBIND"):
        if x.dim() == 0:
            return None
        p = rng.randrange(x.dim())
        q = rng.randrange(x.shape[p])
    if op == "TRANSPOSE" and x.dim() != 2:
        return None
    if op == "FLATTEN" and not x.is_contiguous():
        return None
    return op, a, b, p, q, number


def run(seed):
    rng = random.Random(seed)
    r, steps, failed, recording = leaves(), [], [], True
    writes, overwrote = 0, False
    torch.set_grad_enabled(True)
    while len(steps) < STEPS:
        if writes == 0 and len(steps) == STEPS - 1:
            return None
        step = draw(rng, r, recording)
        if step is None or len(r) == REGISTERS:
            continue
        op = step[0]
        if op in ("NO_GRAD", "GRAD"):
            recording = op == "GRAD"
            torch.set_grad_enabled(recording)
            steps.append(step)
            failed.append(0)
            continue
        made, had_history = None, op in ("FILL_", "COPY_") and r[step[1]].requires_grad
        try:
            made = apply(op, r, *step[1:])
            failed.append(0)
            writes += op.endswith("_")
            if op in ("ADD_", "MUL_", "COPY_") and overlap(r[step[1]], r[step[2]]):
                return None  # what PyTorch reads there depends on the order in which it writes
            overwrote = overwrote or had_history
        except RuntimeError:
            failed.append(1)
        steps.append(step)
        if not op.endswith("_"):
            r.append(made)
    torch.set_grad_enabled(True)
    total, refused, sums = None, [], []
    for i, t in enumerate(r):
        ok = t is not None
        if ok:
            d = t.detach().reshape(-1)
            sums.append(float((d * (torch.arange(d.numel()) + 1)).sum()))
            try:
                term = (t * (0.1 * (i + 1))).sum()
                total = term if total is None else total + term
            except RuntimeError:
                ok = False
        else:
            sums.append(0.0)
        refused.append(0 if ok else 1)
    backward = 0
    if total.requires_grad:
        try:
            total.backward()
            backward = 1
        except RuntimeError as e:
            assert "modified by an inplace operation" in str(e), e
            backward = 2
            # PyTorch walks what was overwritten with zeros, and may find a saved tensor changed there; yoke leaves out
            # what gets no gradient.
            if overwrote:
                return None
    grads = []
    for leaf in r[:2]:
        grads += (leaf.grad if backward == 1 and leaf.grad is not None else torch.zeros_like(leaf)).reshape(-1).tolist()
    return steps, failed, refused, backward, grads, sums


def main():
    rows, seed, counts = [], 0, {"failed": 0, "refused": 0, "backward": [0, 0, 0]}
    while len(rows) < CASES:
        seed += 1
        result = run(seed)
        if result is None or not all(abs(v) < 1e6 for v in result[4] + result[5]):
            continue
        steps, failed, refused, backward, grads, sums = result
        counts["failed"] += sum(failed)
        counts["refused"] += sum(refused) > 0
        counts["backward"][backward] += 1
        words = [seed]
        for (op, a, b, p, q, number), bad in zip(steps, failed):
            words += [op.lower(), a, b, p, q, golden_file.number(number), int(bad)]
        words += [len(sums), sum(bad << i for i, bad in enumerate(refused)), backward]
        rows.append(" ".join(map(str, words + [golden_file.number(v) for v in grads + sums])))
    print(f"{CASES} programs, {counts['failed']} refused steps, {counts['refused']} programs with registers that cannot be "
          f"used, {counts['backward'][1]} with gradients, {counts['backward'][2]} whose backward fails")
    golden_file.write("inplace", "make_inplace.py", "programs of steps in place", [("programs", rows)])


main()
