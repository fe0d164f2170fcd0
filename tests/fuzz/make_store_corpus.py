#!/usr/bin/env python3
"""Writes the first inputs of fuzz_store: one of every request as a member sends it, and a stranger's hello.

usage: tests/fuzz/make_store_corpus.py tests/fuzz/corpus/fuzz_store
"""
import os
import struct
import sys


def key(text):
    return struct.pack("<H", len(text)) + text


def value(data):
    return struct.pack("<I", len(data)) + data


def frame(kind, payload=b""):
    return struct.pack("<IB", len(payload) + 1, kind) + payload


def keys(*names):
    return struct.pack("<I", len(names)) + b"".join(key(name) for name in names)


MEMBER = b"\xff"  # a member, pieces of 128 bytes
requests = {
    "set": frame(1, key(b"k") + value(b"v")),
    "get": frame(1, key(b"a") + value(b"")) + frame(2, key(b"a")),
    "add": frame(3, key(b"n") + struct.pack("<q", 5)) * 2,
    "wait": frame(4, keys(b"k", b"n")) + frame(10),
    "check": frame(5, keys(b"k", b"n", b"a")),
    "compare_set": frame(6, key(b"k") + value(b"") + value(b"x")) + frame(6, key(b"k") + value(b"x") + value(b"y")),
    "delete": frame(1, key(b"k") + value(b"v")) + frame(7, key(b"k")),
    "watch": frame(8, key(b"k") + b"\x01" + value(b"v")) + frame(10),
    "count": frame(9, key(b"")),
    "cancel": frame(2, key(b"k")) + frame(10) + frame(10),
    "gather": frame(11, b"\x01" + key(b"k") + value(b"v") + key(b"stop") + keys(b"k", b"n")) + frame(10),
    "gather_stopped": frame(1, key(b"stop") + value(b"why"))
    + frame(11, b"\x01" + key(b"k") + value(b"v") + key(b"stop") + keys(b"k")) + frame(11, b"\x00" + key(b"s") + keys(b"k", b"s")),
    "await": frame(12, key(b"l/1")) + frame(13, key(b"l") + value(b"one")) + frame(12, key(b"k")) + frame(10),
    "push": frame(13, key(b"l") + value(b"one")) + frame(13, key(b"l") + value(b"two")) + frame(2, key(b"l/2")),
    "push_text": frame(1, key(b"k") + value(b"text")) + frame(13, key(b"k") + value(b"one")),
    "lease": frame(14, key(b"k") + value(b"ended") + value(b"silent") + value(b"damaged") + struct.pack("<I", 600))
    + frame(15) + frame(1, key(b"a") + value(b"v")),
    "lease_damaged": frame(14, key(b"l") + value(b"e") + value(b"s") + value(b"") + struct.pack("<I", 0))
    + frame(16, b"the 9 bytes of frame 3 \x1b[2J were changed"),
    "renew": frame(15) * 3 + frame(15, b"x"),
}
folder = sys.argv[1]
os.makedirs(folder, exist_ok=True)
for name, data in requests.items():
    with open(os.path.join(folder, name), "wb") as file:
        file.write(MEMBER + data)
body = struct.pack("<HB", 2, 0) + b"n" * 32
with open(os.path.join(folder, "hello"), "wb") as file:
    file.write(b"\xfe" + b"yoke" + struct.pack("<I", len(body)) + body + frame(1, b"p" * 80))
