"""Writes NAME.golden for the other scripts here: sections of numbers, and of rows (tests/support/golden.h reads them)."""
import math
import os

import torch

DTYPES = {torch.float32: "float32", torch.float64: "float64", torch.float16: "float16", torch.bfloat16: "bfloat16",
          torch.int64: "int64", torch.int32: "int32", torch.uint8: "uint8", torch.bool: "bool"}


def number(value):
    """The shortest text that reads back as the same float64."""
    value = float(value)
    if math.isfinite(value) and value == int(value) and abs(value) < 1e15:
        return "-0" if value == 0 and math.copysign(1, value) < 0 else "%d" % value
    return repr(value)


def wrapped(numbers):
    line = ""
    for value in numbers:
        word = number(value)
        if line and len(line) + 1 + len(word) > 118:
            yield line
            line = ""
        line += (" " if line else "") + word
    if line:
        yield line


def write(name, script, what, sections):
    """Sections are pairs: a name, and a list of numbers, or of rows, which are texts."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), name + ".golden")
    with open(path, "w") as out:
        out.write("# %s.golden - %s. Written by %s with PyTorch %s.\n" % (
            name, what, script, torch.__version__.split("+")[0].split("a")[0]))
        for section, content in sections:
            out.write("\n[%s]\n" % section)
            for line in content if content and isinstance(content[0], str) else wrapped(content):
                out.write(line + "\n")
