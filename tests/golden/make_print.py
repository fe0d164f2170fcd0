#!/usr/bin/env python3
"""Writes print_golden.h: tensors as PyTorch prints them. Run it with any PyTorch: make_print.py > print_golden.h

dtypes are written without "torch.", as yoke prints them, which also moves where lines break. Small inputs are kept as bytes; a large one is
first + i * step for its element i.
"""
import struct
import sys

import torch

NAN, INF = float("nan"), float("inf")
DTYPES = {torch.float32: "YK_F32", torch.float64: "YK_F64", torch.float16: "YK_F16", torch.bfloat16: "YK_BF16",
          torch.int64: "YK_I64", torch.int32: "YK_I32", torch.uint8: "YK_U8", torch.bool: "YK_BOOL"}

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


def quoted(string):
    lines = string.split("\n")
    return "\n     ".join('"' + line + ("\\n" if i + 1 < len(lines) else "") + '"' for i, line in enumerate(lines))


def raw(tensor):
    flat = tensor.reshape(-1)
    if tensor.dtype in (torch.float16, torch.bfloat16):
        return b"".join(struct.pack("<h", v) for v in flat.view(torch.int16).tolist())
    code = {torch.float32: "f", torch.float64: "d", torch.int64: "q", torch.int32: "i", torch.uint8: "B",
            torch.bool: "?"}[tensor.dtype]
    return struct.pack("<%d%s" % (flat.numel(), code), *flat.tolist())


print("/* print_golden.h - made by make_print.py with PyTorch %s. */" % torch.__version__.split("+")[0])
print("""typedef struct print_case {
    yk_dtype dtype;
    int ndim;
    int64_t shape[YK_MAX_DIMS];
    const char *bytes; /* of the elements; NULL: first + i * step */
    double first, step;
    const yk_print_options *options; /* NULL: the default profile */
    const char *expected;
} print_case;

static const print_case print_cases[] = {""")
SCI_MODES = {True: "YK_SCI_ON", False: "YK_SCI_OFF", None: "YK_SCI_AUTO"}


def in_c(options):
    fields = dict(options)
    if "profile" in fields:
        fields["profile"] = '"%s"' % fields["profile"]
    if "sci_mode" in fields:
        fields["sci_mode"] = SCI_MODES[fields["sci_mode"]]
    given = ", ".join(".%s = %s" % field for field in fields.items())
    return "YK_OPTIONS(yk_print_options, %s)" % given if given else "NULL"


for tensor, line, *options in cases:
    torch.set_printoptions(profile="default", sci_mode=None)
    torch.set_printoptions(**(options[0] if options else {}))
    shape = ", ".join(str(size) for size in tensor.shape) or "0"
    if line is None:
        source = '"%s", 0, 0' % "".join("\\x%02x" % byte for byte in raw(tensor))
    else:
        source = "NULL, %r, %r" % (float(line[0]), float(line[1]))
    print("    {%s, %d, {%s}, %s, %s,\n     %s}," % (DTYPES[tensor.dtype], tensor.dim(), shape, source,
                                                    in_c(options[0] if options else {}), quoted(str(tensor))))
print("};")
print(len(cases), "cases", file=sys.stderr)
