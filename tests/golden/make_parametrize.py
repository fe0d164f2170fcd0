#!/usr/bin/env python3
"""Writes parametrize.golden: torch.nn.utils.parametrizations' weight_norm and spectral_norm in training, in float64.

    python3 tests/golden/make_parametrize.py

A case is a module, an input of sines, and 4 steps of SGD (lr 0.05, momentum 0.9) on the sum of the output's squares times
(k % 5 + 1) / 8 for its element k. [NAME_names] are the state dict's; [NAME_state] its numbers before the first step; [NAME]
has for each step the loss and all numbers after it; [NAME_eval] is the output in eval mode after that, [NAME_removed] the
weight that remove_parametrizations leaves then.
"""
import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

import golden_file

torch.manual_seed(73)
torch.set_default_dtype(torch.float64)
STEPS = 4
CASES = {
    "linear": (lambda: weight_norm(nn.Linear(4, 3)), (5, 4)),
    "linear_all": (lambda: weight_norm(nn.Linear(4, 3), dim=None), (5, 4)),
    "conv": (lambda: weight_norm(nn.Conv2d(2, 4, 3, padding=1)), (2, 2, 5, 5)),
    "conv_dim": (lambda: weight_norm(nn.Conv1d(3, 4, 3), dim=1), (2, 3, 7)),
    "bias": (lambda: weight_norm(weight_norm(nn.Linear(4, 3)), "bias"), (5, 4)),
    "spectral": (lambda: spectral_norm(nn.Linear(4, 6)), (5, 4)),
    "spectral_conv": (lambda: spectral_norm(nn.Conv2d(2, 4, 3), n_power_iterations=2), (2, 2, 5, 5)),
    "spectral_transposed": (lambda: spectral_norm(nn.ConvTranspose2d(2, 4, 3)), (2, 2, 3, 3)),
    "spectral_vector": (lambda: spectral_norm(nn.Linear(4, 3), "bias", eps=1e-3), (5, 4)),
    "lstm": (lambda: weight_norm(nn.LSTM(3, 2), "weight_hh_l0"), (4, 2, 3)),
    "gru": (lambda: weight_norm(weight_norm(nn.GRU(3, 2, 2, bidirectional=True), "weight_ih_l1_reverse"),
                                "weight_hh_l0", dim=1), (4, 2, 3)),
}
WEIGHTS = {"bias": "bias", "spectral_vector": "bias", "lstm": "weight_hh_l0", "gru": "weight_hh_l0"}


def output(net, x):
    out = net(x)
    return out[0] if isinstance(out, tuple) else out


def numbers(net):
    return [v for x in net.state_dict().values() for v in x.reshape(-1).tolist()]


sections = []
for name, (make, shape) in CASES.items():
    net = make()
    weight = WEIGHTS.get(name, "weight")
    count = torch.Size(shape).numel()
    x = torch.tensor([(i * 0.7) for i in range(count)]).sin().reshape(shape)
    sections += [(name + "_names", list(net.state_dict())), (name + "_state", numbers(net))]
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    rows = []
    for step in range(STEPS):
        optimizer.zero_grad()
        out = output(net, x)
        pull = torch.tensor([(k % 5 + 1) / 8 for k in range(out.numel())]).reshape(out.shape)
        loss = (out.square() * pull).sum()
        loss.backward()
        optimizer.step()
        rows += [loss.item()] + numbers(net)
    net.eval()
    sections += [(name, rows), (name + "_eval", output(net, x).detach().flatten().tolist())]
    parametrize.remove_parametrizations(net, weight)
    sections.append((name + "_removed", getattr(net, weight).detach().flatten().tolist()))
golden_file.write("parametrize", "make_parametrize.py", "weight_norm and spectral_norm", sections)
