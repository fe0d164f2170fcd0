#!/usr/bin/env python3
"""Writes tests/golden/print.golden: tensors as PyTorch prints them. Run it with any PyTorch.

dtypes are written without "torch.", as yoke prints them, which also moves where lines break. A row
is the dtype, the dimensions, the elements, the options of printing where there are any, and after "prints" the text, with
\\n for a line's end. Small inputs are kept as bytes, in hexadecimal digits; of a large one element i is first + i * step.
"""
import struct

import torch

import golden_file

NAN, INF = float("nan"), float("inf")
DTYPES = golden_file.DTYPES

cases = []


def small(values, dtype=torch.float32):
    cases.append((torch.tensor(values, dtype=dtype), None))


def large(shape, first, step, dtype=torch.float32):
    count = 1
    for size in shape:
        count *= size
    numbers = [first + i * step for i in range(count)]
    cases.append((torch.tensor(numbers, dtype=torch.float64).to(dtype).reshape(shape), (first, step)))


for value in (3.0, 3.5, -2.0, 0.0, -0.0, NAN, INF, -INF, 1e8, 1.1e8, 1e-4, 0.99e-4, 123456.789, 1e30):
    small(value)
small(3.141592653589793, torch.float64)
small(7, torch.int64)
small(-7, torch.int32)
small(200, torch.uint8)
small(True, torch.bool)
small(1.5, torch.float16)
small(1.5, torch.bfloat16)
small([1.0, 2.0, 3.0])
small([[1.0, 2.0], [3.0, 4.0]])
small([1.5, -2.25, 100.0])
small([1.0, 1000.0])
small([1.0, 1001.0])
small([0.5, 500.0])
small([0.5, 500.5])
small([1e-3, 2e-3, 0.0])
small([1e-5, 1.0])
small([99999999.0, 100000000.0])
small([123456792.0, 5e7])
small([NAN, 1.5, INF, -2.0, -INF])
small([NAN, 1.0, INF, -2.0, -INF, 100.0])
small([NAN, 1e-9, INF, -INF, 0.0])
small([0.0, 0.0, 0.0])
small([0.0, NAN])
small([-0.0, 12.0])
small([1e-310, 1e300], torch.float64)
small([1.0, 65504.0, -6e-8], torch.float16)
small([0.1, 0.2, 3.0], torch.bfloat16)
small([9223372036854775807, -9223372036854775808, 0])
small([2147483647, -2147483648], torch.int32)
small([0, 255, 17], torch.uint8)
small([[True, False], [False, False]], torch.bool)
small([True, True], torch.bool)
for shape in ((0,), (0, 3), (2, 0, 3)):
    for dtype in DTYPES:
        cases.append((torch.empty(shape, dtype=dtype), (0, 0)))
for count in (9, 10, 30):
    small([0.37 * i - 2 for i in range(count)])
    small([0.37 * i - 2 for i in range(count)], torch.float64)
    small([i * i * 31 - 400 for i in range(count)])
for count in range(5, 9):  # the dtype falls around the end of the line
    small([1000.25 + i for i in range(count)], torch.float64)
    small([[1000.25 + i for i in range(count)]] * 2, torch.float64)
small([[[1, 2, 3], [4, 5, 6]], [[7, 8, 9], [10, 11, -12]]])
small([[[[0.5 * i + j] * 2 for i in range(2)] for j in range(2)] for _ in range(2)])
small([[[[[1.0]]]]])
small([[[[[[[[1.0], [2.0]]]]]]]], torch.float64)
small([[1.0] * 25, [2.5] * 25])
large((1000,), 0, 1)
large((1001,), 0, 1)
large((1001,), 0.25, 1)
large((1001,), -5000, 10, torch.int64)
large((1200,), 0, 1 / 1024, torch.float64)
large((40, 40), 0, 0.5)
large((3, 500), 0, 0.5)
large((500, 3), 0, 1)
large((500, 6), 0, 1)
large((7, 7, 30), -4, 0.125)
large((10, 3, 50), 0, 1, torch.int32)
large((2, 3, 4, 5, 17), 0, 1e-3)
large((1, 2000), 0, 1, torch.uint8)
large((2000, 1), 0, 1)
large((2, 1, 1, 1100), 1, 1e5, torch.float64)


add_suffixes = torch._tensor_str._add_suffixes
torch._tensor_str._add_suffixes = lambda text, suffixes, *rest, **named: add_suffixes(
    text, [suffix.replace("dtype=torch.", "dtype=") for suffix in suffixes], *rest, **named)


# Each with options that make a difference.
for options in ({"profile": "short"}, {"profile": "full"}, {"precision": 1}, {"precision": 9, "linewidth": 120},
                {"threshold": 5, "edgeitems": 1}, {"edgeitems": 5, "threshold": 50}, {"linewidth": 16000},
                {"linewidth": 24}, {"sci_mode": True}, {"sci_mode": False}, {"profile": "short", "precision": 6},
                {"precision": 0}):
    first = len(cases)
    for values in (3.5, -0.125, NAN, [1.5, -2.25, 100.0], [1.0, 1001.0], [1.0, 2.0, -3.0], [1e-5, 1.0], [0.0, NAN],
                   [NAN, 1.5, INF, -2.0, -INF], [99999999.0, 1e8], [1e-9, 0.0, -1e9]):
        small(values)
        small(values, torch.float64)
    small([1.0, 65504.0, -6e-8], torch.float16)
    small([0.1, 0.2, 3.0], torch.bfloat16)
    small([[True, False], [False, False]], torch.bool)
    small([i * i * 31 - 400 for i in range(30)])
    small([0.37 * i - 2 for i in range(30)])
    small([[[1, 2, 3], [4, 5, 6]], [[7, 8, 9], [10, 11, -12]]], torch.int32)
    cases.append((torch.empty((2, 0, 3), dtype=torch.float64), (0, 0)))
    large((1001,), 0.25, 1)
    large((7, 7, 30), -4, 0.125)
    large((40, 40), 0, 0.5)
    large((3, 500), 0, 0.5, torch.int32)
    cases[first:] = [case + (options,) for case in cases[first:]]


def raw(tensor):
    flat = tensor.reshape(-1)
    if tensor.dtype in (torch.float16, torch.bfloat16):
        return b"".join(struct.pack("<h", v) for v in flat.view(torch.int16).tolist())
    code = {torch.float32: "f", torch.float64: "d", torch.int64: "q", torch.int32: "i", torch.uint8: "B",
            torch.bool: "?"}[tensor.dtype]
    return struct.pack("<%d%s" % (flat.numel(), code), *flat.tolist())


SCI_MODES = {True: "on", False: "off", None: "auto"}


def row(tensor, line, options):
    words = [DTYPES[tensor.dtype], tensor.dim(), *tensor.shape]
    words += ["bytes", raw(tensor).hex() or "-"] if line is None else ["from", *map(golden_file.number, line)]
    words += ["%s=%s" % (key, SCI_MODES[value] if key == "sci_mode" else value) for key, value in options.items()]
    return " ".join(map(str, words + ["prints", str(tensor).replace("\n", "\\n")]))


rows = []
for tensor, line, *options in cases:
    torch.set_printoptions(profile="default", sci_mode=None)
    torch.set_printoptions(**(options[0] if options else {}))
    rows.append(row(tensor, line, options[0] if options else {}))
golden_file.write("print", "make_print.py", "tensors as PyTorch prints them", [("cases", rows)])
