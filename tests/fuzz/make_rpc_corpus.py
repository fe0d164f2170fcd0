#!/usr/bin/env python3
"""Writes the first inputs of fuzz_rpc: values of every kind, a ring, and one of every message.

usage: tests/fuzz/make_rpc_corpus.py tests/fuzz/corpus/fuzz_rpc
"""
import os
import struct
import sys

VALUE, RING, CALLER, WORKER = b"\0", b"\1", b"\2", b"\3"


def text8(text):
    return bytes([len(text)]) + text


def real(x):
    return b"\4" + struct.pack("<d", x)


def string(text):
    return b"\5" + struct.pack("<Q", len(text)) + text


def listed(*items, kind=7):
    return bytes([kind]) + struct.pack("<I", len(items)) + b"".join(items)


def tensor(*sizes, dtype=0, data=None):
    count = 4
    for size in sizes:
        count *= size
    return bytes([11, dtype, len(sizes)]) + struct.pack(f"<{len(sizes)}q", *sizes) + (b"\x3f" * count if data is None else data)


def lent(*sizes, file=0, offset=0):
    return bytes([32, 0, len(sizes)]) + struct.pack(f"<{len(sizes)}qHQ", *sizes, file, offset)


def message(kind, payload):
    return struct.pack("<IB", len(payload) + 1, kind) + payload


def call(number, kind, reference, name, args, sync=1, chain=(), shared=b"", lends=0):
    head = struct.pack("<QBQIB", number, kind, reference, 5000, sync) + text8(name) + text8(shared)
    waits = bytes([len(chain)]) + b"".join(struct.pack("<Q", i) + text8(label) for i, label in chain)
    return message(3 | lends, head + waits + args)


INT, NONE, BOOL = b"\3" + struct.pack("<q", -5), b"\1", b"\2\1"
REFERENCE = 77 << 40 | 1
DICT = b"\x0a" + struct.pack("<I", 2) + b"\1" + struct.pack("<I", 1) + b"k" + INT + b"\0" + struct.pack("<q", -1) + NONE


def frame(kind, payload):
    return struct.pack("<II", len(payload), kind) + payload + b"\0" * (-len(payload) % 8)


inputs = {
    "none": VALUE + NONE, "bool": VALUE + BOOL, "int": VALUE + INT, "real": VALUE + real(0.5), "string": VALUE + string("grüß".encode()),
    "bytes": VALUE + b"\6" + struct.pack("<Q", 3) + b"a\0b", "dict": VALUE + DICT,
    "nested": VALUE + listed(listed(listed(INT, kind=8), kind=9), DICT, tensor(2, 3), tensor(3, 0, dtype=4), tensor()),
    "deep": VALUE + b"\7\1\0\0\0" * 250 + NONE,
    "huge_tensor": VALUE + tensor(1 << 40, 1 << 40, data=b""), "huge_list": VALUE + b"\7\xff\xff\xff\xff",
    "not_lent": VALUE + lent(4),
    "ring": RING + struct.pack("<QQ", 8, 1) + frame(3, b"hello") + frame(7, b"") + frame(4, b"x" * 100),
    "ring_wrapped": RING + struct.pack("<QQ", (1 << 18) - 16, 1) + frame(3, b"hello" * 9) + frame(200, b"12345678"),
    "ring_position": RING + struct.pack("<QQ", 0, 3 << 40) + frame(3, b"hello"),
    "ring_size": RING + struct.pack("<QQ", 0, 1) + struct.pack("<II", 1 << 31, 1) + b"12345678",
    "function": CALLER + call(1, 1, 0, b"f", listed(INT)) + call(2, 1, 0, b"g", listed()),
    "object": CALLER + call(1, 2, REFERENCE, b"c", listed()) + call(2, 3, REFERENCE, b"m", listed(real(1)))
    + call(3, 3, REFERENCE, b"n", listed()) + call(4, 4, REFERENCE, b"to_here", listed())
    + message(5, struct.pack("<Q", 2)) + message(6, struct.pack("<Q", REFERENCE)),
    "result": CALLER + call(1, 2, REFERENCE, b"f", listed(tensor(4)), shared=b"s") + call(2, 4, REFERENCE, b"to_here", listed())
    + call(3, 2, REFERENCE + 1, b"f", listed(), shared=b"s"),
    "chain": CALLER + call(1, 1, 0, b"f", listed(NONE), chain=[(1, b"a.b.c"), (77 << 32 | 1, b"x\x1b[2J")]),
    "lent": CALLER + call(1, 1, 0, b"f", listed(lent(1000), lent(8, 4, offset=64), lent(2, file=1), lent(1 << 20)), lends=128)
    + message(34, struct.pack("<Q", 1)) + message(35, struct.pack("<Q", 5)),
    "parts": CALLER + b"".join(message(7, struct.pack("<QQB", 9, len(whole), 3) + whole[i:i + 20])
                               for whole in [call(1, 1, 0, b"f", listed(tensor(8)))[5:]] for i in range(0, len(whole), 20)),
    "part_of_part": CALLER + message(7, struct.pack("<QQB", 1, 10, 7) + b"x"),
    "part_large": CALLER + message(7, struct.pack("<QQB", 1, 1 << 60, 3) + b"x"),
    "share": CALLER + message(32, struct.pack("<IQQIQQ", 3, 4, 532480, 5, 6, 4096) + b"n" * 16),
    "replies": WORKER + message(4, struct.pack("<QB", 1, 1) + listed(tensor(3), DICT))
    + message(4, struct.pack("<QBIBI", 2, 0, 3, 1, 12) + text8(b"file.c") + b"why \x1b[2J not")
    + message(4, struct.pack("<QB", 99, 1) + NONE) + message(4, struct.pack("<QB", 1, 1) + NONE),
    "reply_lent": WORKER + message(132, struct.pack("<QB", 1, 1) + lent(16)),
    "reply_parts": WORKER + message(7, struct.pack("<QQB", 1, 10, 4) + struct.pack("<QB", 3, 1))
    + message(7, struct.pack("<QQB", 1, 10, 4) + NONE),
    "reply_short": WORKER + message(4, b"\1\0\0"),
}
folder = sys.argv[1]
os.makedirs(folder, exist_ok=True)
for name, data in inputs.items():
    with open(os.path.join(folder, name), "wb") as file:
        file.write(data)
