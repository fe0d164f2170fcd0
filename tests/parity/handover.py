#!/usr/bin/env python3
"""A ResNet-18 in float64 trained half in PyTorch and half in yoke, and the other way round, against the run that PyTorch
does alone: SGD with momentum and AdamW, StepLR, 20 steps, the state handed over as a .pt.

    python3 tests/parity/handover.py [--program build/tests/parity/handover_test] [--batch 8] [--steps 20]

Exit code 1 where a loss, a weight or an element of the optimizer's state differs by more than 1e-9 (see difference).
"""
import argparse
import os
import subprocess
import sys
import tempfile

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        out = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(out + (x if self.downsample is None else self.downsample(x)))


class ResNet18(nn.Module):
    """The network of He et al., 2016, with torchvision's names."""

    def __init__(self, classes):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        width = 64
        for i, outputs in enumerate((64, 128, 256, 512)):
            stride = 1 if i == 0 else 2
            setattr(self, f"layer{i + 1}", nn.Sequential(Block(width, outputs, stride), Block(outputs, outputs, 1)))
            width = outputs
        self.fc = nn.Linear(512, classes)

    def forward(self, x):
        x = nn.functional.max_pool2d(torch.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


optim = torch.optim
DECOUPLED = {} if torch.__version__.startswith("1.") else {"decoupled_weight_decay": True}
KINDS = {
    "sgd": lambda p: optim.SGD(p, lr=0.01, momentum=0.9, weight_decay=1e-4),
    "adamw": lambda p: optim.AdamW(p, lr=1e-3),
    "rmsprop": lambda p: optim.RMSprop(p, lr=1e-4, momentum=0.9, centered=True, eps=1e-3),
    "adagrad": lambda p: optim.Adagrad(p, lr=1e-3, lr_decay=0.1, initial_accumulator_value=0.1),
    "adadelta": lambda p: optim.Adadelta(p, lr=0.1),
    "adamax": lambda p: optim.Adamax(p, lr=1e-3),
    "nadam": lambda p: optim.NAdam(p, lr=1e-3, weight_decay=0.01, **DECOUPLED),
    "radam": lambda p: optim.RAdam(p, lr=1e-3),
}
torch.set_default_dtype(torch.float64)  # of NAdam's mu_product


def make(kind, state=None):
    torch.manual_seed(0)
    net = ResNet18(10).double()
    optimizer = KINDS[kind](net.parameters())
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 7, 0.5)
    if state is not None:
        net.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        schedule.load_state_dict(state["scheduler"])
    return net, optimizer, schedule


def train(run, x, y, first, last):
    net, optimizer, schedule = run
    losses = []
    for i in range(first, last):
        loss = nn.functional.cross_entropy(net(x[i]), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return losses


def state_of(run, kind, x, y, start):
    net, optimizer, schedule = run
    return {"kind": kind, "model": net.state_dict(), "optimizer": optimizer.state_dict(),
            "scheduler": schedule.state_dict(), "start": start, "x": x, "y": y}


def load(path):
    if int(torch.__version__.split(".")[0]) >= 2:
        return torch.load(path, weights_only=True)
    return torch.load(path)  # the restricted reader of 1.13 takes no floats


def difference(ours, theirs):
    """The largest difference of losses, weights and optimizer state, and where: relative to the largest element of the
    tensor, or, for losses and weights, to 1 where that is smaller (a bias begins at 0)."""
    worst = (0.0, "")
    pairs = [("losses", 1, torch.tensor(ours["losses"]).double(), torch.tensor(theirs["losses"]).double())]
    assert list(ours["model"]) == list(theirs["model"])
    pairs += [(k, 1, ours["model"][k], theirs["model"][k]) for k in theirs["model"]]
    assert list(ours["optimizer"]["state"]) == list(theirs["optimizer"]["state"])
    for i, state in theirs["optimizer"]["state"].items():
        pairs += [(f"{k} of {i}", 0, ours["optimizer"]["state"][i][k], state[k]) for k in state]
    for name, least, a, b in pairs:
        a, b = (torch.as_tensor(v, dtype=torch.float64) for v in (a, b))  # PyTorch 1.13 has some steps as integers
        assert a.shape == b.shape
        scale = max(b.abs().max().item(), least)
        worst = max(worst, ((a - b).abs().max().item() / (scale if scale > 0 else 1), name))
    group, other = ours["optimizer"]["param_groups"][0], theirs["optimizer"]["param_groups"][0]
    assert abs(group["lr"] - other["lr"]) <= 1e-12 * other["lr"], (group["lr"], other["lr"])
    return worst


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default="build/tests/parity/handover_test")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--kinds", default=",".join(KINDS), help="of optimizers, with commas")
    arguments = parser.parse_args()
    steps, half = arguments.steps, arguments.steps // 2
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(steps, arguments.batch, 3, 32, 32, generator=generator, dtype=torch.float64)
    y = torch.randint(0, 10, (steps, arguments.batch), generator=generator)
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        given, taken = os.path.join(folder, "given.pt"), os.path.join(folder, "taken.pt")

        def yoke(state, count):
            torch.save(state, given)
            subprocess.run([arguments.program, given, taken, str(count)], check=True)
            return load(taken)

        for kind in arguments.kinds.split(","):
            whole = make(kind)
            begun = state_of(make(kind), kind, x, y, 0)
            losses = train(whole, x, y, 0, half)
            middle = state_of(whole, kind, x, y, half)
            torch.save(middle, given)  # before the run goes on in the same memory
            middle = load(given)
            losses += train(whole, x, y, half, steps)
            theirs = dict(state_of(whole, kind, x, y, steps), losses=losses)

            first = yoke(begun, half)
            run = make(kind, first)
            ends = dict(state_of(run, kind, x, y, steps), losses=first["losses"] + train(run, x, y, half, steps))
            state_of_run = run[1].state_dict()
            ends["optimizer"] = state_of_run
            second = yoke(middle, steps - half)
            second["losses"] = losses[:half] + second["losses"]
            for name, ours in (("yoke, then PyTorch", ends), ("PyTorch, then yoke", second)):
                worst, where = difference(ours, theirs)
                good = worst <= 1e-9
                failed |= not good
                print(f"{kind}, {name}: largest difference {worst:.2g} ({where}){'' if good else '   TOO LARGE'}")
    sys.exit(1 if failed else 0)


main()
