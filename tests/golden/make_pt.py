#!/usr/bin/env python3
"""Writes the files of tests/checkpoint/pt_test.c to tests/checkpoint/golden, by the torch of this Python, whose version is
in their names.

The committed ones are by PyTorch 1.13.1 and 2.15.
"""
import collections
import io
import os

import torch

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "checkpoint", "golden")


def state():
    base = torch.arange(8.0)
    grid = torch.arange(6.0).reshape(2, 3)
    model = collections.OrderedDict()
    model["f32"] = torch.tensor([[0, 0.5, 1], [1.5, 2, -2.5]])
    model["f64"] = torch.tensor([1 / 3, -2], dtype=torch.float64)
    model["f16"] = torch.tensor([1, -0.5, 65504], dtype=torch.float16)
    model["bf16"] = torch.tensor([1, -3], dtype=torch.bfloat16)
    model["i64"] = torch.tensor([[-1], [2**40]])
    model["i32"] = torch.tensor([7, -8], dtype=torch.int32)
    model["u8"] = torch.tensor([[1, 2], [3, 255]], dtype=torch.uint8)
    model["bool"] = torch.tensor([True, False, True])
    model["empty"] = torch.zeros(0, 4)
    model["scalar"] = torch.tensor(-1.5)
    model["turned"] = grid.t()
    model["every.second"] = base[1::2]
    model["repeated"] = torch.tensor([4.0]).expand(3)
    model["first"] = base[:3]
    model["parameter"] = torch.nn.Parameter(torch.tensor([9.0, 10.0]))
    model._metadata = collections.OrderedDict([("", {"version": 1})])
    return {
        "model": model,
        "optimizer": {
            "state": {0: {"step": torch.tensor(3.0), "exp_avg": torch.tensor([0.25, 0.75])}},
            "param_groups": [{"lr": 0.1, "betas": (0.9, 0.999), "foreach": None, "amsgrad": False, "params": [0, 300]}],
        },
        "epoch": 70000,
        "big": -(2**40),
        "name": "na\u00efve",
        "raw": b"\x00\xff",
        "none": b"",
        "size": torch.Size([2, 3]),
        "dtype": torch.bfloat16,
        "device": torch.device("cpu"),
        "set": {7},
    }


def main():
    major = torch.__version__.split(".")[0]
    for form, zipped in (("zip", True), ("legacy", False)):
        data = io.BytesIO()
        torch.save(state(), data, _use_new_zipfile_serialization=zipped)
        with open(os.path.join(FOLDER, f"{form}_{major}.pt"), "wb") as out:
            out.write(data.getvalue())


main()
