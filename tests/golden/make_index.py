#!/usr/bin/python3
"""Writes tests/golden/index_golden.h: x[items] in PyTorch for generated items, read, written, accumulated, with gradients.

Needs PyTorch (2.15 wrote the committed file). Run from anywhere:
    python3 tests/golden/make_index.py
A case is one line: the shape of x, the items, the shape of x[items], the shape of a value, and hashes of what comes out.
x holds 0, 1, 2, ... in float64; gradients that come in hold 1 + i % 7 for element i, values -1, -2, -3, ...: everything
is whole, so results are compared by the FNV-1a hash of their elements as integers. index_test.c reads it.
"""
import math
import os
import random

import torch

CASES = 2000


def fnv(tensor):
    h = 0xcbf29ce484222325
    for v in tensor.reshape(-1).tolist():
        assert v == int(v)
        h = ((h ^ (int(v) & 0xffffffffffffffff)) * 0x100000001b3) & 0xffffffffffffffff
    return "%016x" % h


def weights(shape):
    count = math.prod(shape)
    return (1 + torch.arange(count, dtype=torch.float64) % 7).reshape(shape)


def sizes(shape):
    return "x".join(str(s) for s in shape) or "-"


def index_tensor(rng, size, shape):
    values = [rng.randrange(-size, size) for _ in range(math.prod(shape))]
    return torch.tensor(values, dtype=torch.int64).reshape(shape), "t%s=%s" % (sizes(shape), ",".join(map(str, values)))


def items_for(rng, shape):
    """Items, and their text."""
    items, texts = [], []
    base = [rng.randrange(1, 4) for _ in range(rng.choice((0, 1, 1, 1, 2, 2, 3)))]
    dim, ellipsis, ndim = 0, False, len(shape)
    while True:
        kind = rng.choice("iisssstttttmne.")
        left = ndim - dim
        if kind == "." and rng.random() < 0.3 or (left == 0 and kind not in "ne"):
            break
        if kind == "n":
            items.append(None)
            texts.append("n")
        elif kind == "e" and not ellipsis:
            ellipsis = True
            items.append(Ellipsis)
            texts.append("e")
            dim = rng.randrange(dim, ndim + 1)  # the items that follow take the last dimensions
            rest = ndim - dim
            more, more_texts, used = exactly(rng, shape[dim:], base)
            assert used == rest
            return items + more, texts + more_texts
        elif left:
            dim += append_item(rng, kind, shape[dim:], base, items, texts)
        if len(items) > 6:
            break
    return items, texts


def exactly(rng, shape, base):
    items, texts, dim = [], [], 0
    while dim < len(shape):
        kind = rng.choice("iissstttmn")
        if kind == "n":
            items.append(None)
            texts.append("n")
            continue
        dim += append_item(rng, kind, shape[dim:], base, items, texts)
    return items, texts, dim


def append_item(rng, kind, shape, base, items, texts):
    """Of the kind, where it can be made; how many dimensions it takes."""
    one, text, used = item(rng, kind, shape, base)
    if one is None:
        return 0
    items.append(one)
    texts.append(text)
    return used


def item(rng, kind, shape, base):
    size = shape[0]
    if kind == "i" and size:
        i = rng.randrange(-size, size)
        return i, "i%d" % i, 1
    if kind == "t" and size:
        own = [1 if rng.random() < 0.2 else s for s in base]
        own = own[rng.choice((0, 0, 0, 1)):] if len(own) > 1 else own
        if rng.random() < 0.03:
            own = [0] if not base else own
        t, text = index_tensor(rng, size, own)
        return t, text, 1
    if kind == "m":
        k = rng.randrange(1, min(3, len(shape)) + 1)
        count = math.prod(shape[:k])
        # as many trues as the other index tensors broadcast with, or one
        trues = min(count, rng.choice((1, base[-1] if base else 2)))
        bits = [0] * count
        for i in rng.sample(range(count), trues):
            bits[i] = 1
        t = torch.tensor(bits, dtype=torch.bool).reshape(shape[:k])
        return t, "m%s=%s" % (sizes(shape[:k]), "".join(map(str, bits))), k
    start, stop = rng.choice((None, rng.randrange(-6, 6))), rng.choice((None, None, rng.randrange(-6, 7)))
    step = rng.choice((1, 1, 1, 2, 3))
    return slice(start, stop, step), "s%d:%s:%d" % (start or 0, "e" if stop is None else stop, step), 1


def value_shape(rng, shape):
    """A shape that broadcasts to `shape`."""
    own = [1 if rng.random() < 0.2 else s for s in shape]
    own = own[rng.randrange(0, len(own) + 1):] if rng.random() < 0.4 else own
    return ([1] if rng.random() < 0.1 else []) + own


def case(rng):
    while True:
        shape = [rng.choice((1, 2, 2, 3, 3, 4, 5)) for _ in range(rng.choice((1, 2, 2, 3, 3, 3, 4, 4, 5)))]
        if rng.random() < 0.03:
            shape[rng.randrange(len(shape))] = 0
        if rng.random() < 0.02:
            shape = []
        items, texts = items_for(rng, shape)
        count = math.prod(shape)
        x = torch.arange(count, dtype=torch.float64).reshape(shape).requires_grad_()
        key = tuple(items)
        try:
            out = x[key]
        except IndexError:
            continue  # index tensors that do not broadcast
        if out.dim() > 8 or out.numel() > 600:
            continue
        break
    fields = [sizes(shape), " ".join(texts) or "e", sizes(out.shape), fnv(out)]
    out.backward(weights(out.shape))
    fields.append(fnv(x.grad))
    # written
    own = value_shape(rng, list(out.shape))
    value = -1 - torch.arange(math.prod(own), dtype=torch.float64).reshape(own)
    value.requires_grad_()
    place = torch.arange(count).reshape(shape)[key]
    fields.append(sizes(own))
    x.grad = None
    if place.unique().numel() == place.numel():
        y = x * 1
        y[key] = value
        y.backward(weights(shape))
        fields += [fnv(y), fnv(x.grad), fnv(value.grad)]
    else:
        fields += ["-"] * 3
    # accumulated
    x.grad, value.grad = None, None
    flat = value.reshape(own[max(0, len(own) - out.dim()):]).expand(out.shape).reshape(-1)
    y = x.reshape(-1).scatter_add(0, place.reshape(-1), flat).reshape(shape)
    y.backward(weights(shape))
    fields += [fnv(y), fnv(value.grad)]
    return "|".join(fields)


def main():
    rng = random.Random("yoke index")
    seen = []
    while len(seen) < CASES:
        line = case(rng)
        if line not in seen:
            seen.append(line)
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "index_golden.h")
    with open(path, "w") as out:
        out.write("/*\n * index_golden.h - x[items] of PyTorch %s. Written by make_index.py, which says what the fields "
                  "are; not for\n * editing.\n */\n" % torch.__version__.split("a")[0])
        out.write("/* clang-format off */\nstatic const char *const index_cases[] = {\n")
        out.write("".join('"%s",\n' % line for line in seen))
        out.write("};\n/* clang-format on */\n")


main()
