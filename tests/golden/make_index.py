#!/usr/bin/python3
"""Writes tests/golden/index.golden: x[items] in PyTorch for generated items, read, written, accumulated, with gradients.

Needs PyTorch (2.15 wrote the committed file). Run from anywhere:
    python3 tests/golden/make_index.py
A case is a row: the shape of x, the items, the shape of a value, the shape of x[items] and its elements, | between them.
x holds 0, 1, 2, ... in float64, so x[items] says which element of x every index means. The other results follow from
that and are no part of the file: index_test.c computes them by these definitions, which derived() holds PyTorch to.
Gradients that come in hold 1 + i % 7 for element i, values -1, -2, -3, ...
"""
import math
import random

import torch

import golden_file

CASES = 2000


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
    out.backward(weights(out.shape))
    own = value_shape(rng, list(out.shape))
    value = -1 - torch.arange(math.prod(own), dtype=torch.float64).reshape(own)
    value.requires_grad_()
    derived(x, key, out, value)
    numbers = " ".join("%d" % v for v in out.reshape(-1).tolist()) or "none"
    return "|".join([sizes(shape), " ".join(texts) or "e", sizes(own), sizes(out.shape), numbers])


def derived(x, key, out, value):
    """What index_test.c derives from x[items] is what PyTorch computes."""
    shape, own = x.shape, list(value.shape)
    place = out.detach().long().reshape(-1)
    read = torch.zeros(x.numel(), dtype=torch.float64).index_add(0, place, weights(out.shape).reshape(-1))
    assert torch.equal(x.grad.reshape(-1), read)
    flat = value.reshape(own[max(0, len(own) - out.dim()):]).expand(out.shape).reshape(-1)
    plain, weight = x.detach().reshape(-1), weights(shape).reshape(-1)
    if place.unique().numel() == place.numel():  # else whichever value was written last
        x.grad = None
        y = x * 1
        y[key] = value
        y.backward(weights(shape))
        put, kept = plain.clone(), weight.clone()
        put[place], kept[place] = flat.detach(), 0
        assert torch.equal(y.detach().reshape(-1), put) and torch.equal(x.grad.reshape(-1), kept)
        got = value.grad.clone()
        value.grad = None
        flat.backward(weight[place], retain_graph=True)
        assert torch.equal(got, value.grad)
        value.grad = None
    x.grad = None
    y = x.reshape(-1).scatter_add(0, place, flat)
    y.backward(weight)
    assert torch.equal(y.detach(), plain.index_add(0, place, flat.detach())) and torch.equal(x.grad.reshape(-1), weight)


def main():
    rng = random.Random("yoke index")
    seen = []
    while len(seen) < CASES:
        line = case(rng)
        if line not in seen:
            seen.append(line)
    golden_file.write("index", "make_index.py", "x[items]", [("cases", seen)])


main()
