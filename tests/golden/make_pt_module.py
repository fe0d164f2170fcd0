#!/usr/bin/env python3
"""Writes the files of tests/checkpoint/pt_module_test.c to tests/checkpoint/golden: modules saved whole, and their state
dicts. Prints the output of the LSTM, which stands in the test.

The committed ones are by PyTorch 2.15.
"""
import os

import torch
from torch import nn

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "checkpoint", "golden")


class Net(nn.Module):
    """With what is no tensor: a class, a function, a parameter that is none, and one layer under two names."""

    def __init__(self):
        super().__init__()
        self.norm_layer = nn.BatchNorm1d
        self.activation = torch.nn.functional.relu
        self.first = nn.Linear(3, 2)
        self.block = nn.Sequential(self.norm_layer(2), nn.Linear(2, 2, bias=False))
        self.register_buffer("passing", torch.ones(3), persistent=False)
        self.register_buffer("kept", torch.tensor([4, 5]))
        self.again = self.first
        self.register_parameter("none", None)


def put(name, value, zipped=True):
    torch.save(value, os.path.join(FOLDER, name + ".pt"), _use_new_zipfile_serialization=zipped)


def main():
    torch.manual_seed(0)
    net = Net()
    put("module", net)
    put("module_state", net.state_dict())
    put("parallel", {"epoch": 3, "model": nn.DataParallel(net)})
    put("legacy_module", nn.Linear(2, 1), zipped=False)
    lstm, x = nn.LSTM(2, 2, bidirectional=True), torch.tensor([[[0.5, -1.0]], [[2.0, 0.25]], [[-0.75, 1.5]]])
    put("lstm", lstm.state_dict())
    out = ", ".join(f"{v:.9g}f" for v in lstm(x)[0].detach().reshape(-1).tolist())
    print(out)


main()
