#!/usr/bin/env python3
"""PyTorch's side of tests/cli/ckpt_folder.sh.

    go IN OUT           a LeNet, its SGD and its warm-up with StepLR go on for three steps from IN; all of it goes to OUT
    same A B WRAPPED    what two files hold for PyTorch is the same; writes the model as DataParallel names it
"""
import os
import sys

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench"))
from peer_step import LeNet  # noqa: E402


def load(path):
    if int(torch.__version__.split(".")[0]) >= 2:
        return torch.load(path, weights_only=True)
    return torch.load(path)  # the restricted reader of 1.13 takes no floats


def make(state):
    """What is made for an optimizer changes its rates, so the optimizer's own state is loaded last."""
    net = LeNet(1, 28, 10)
    net.load_state_dict(state["model"])
    optimizer = torch.optim.SGD(net.parameters(), lr=1)
    linear = torch.optim.lr_scheduler.LinearLR(optimizer, 0.5, 1.0, 2)
    stairs = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.1)
    schedule = torch.optim.lr_scheduler.SequentialLR(optimizer, [linear, stairs], [2])
    schedule.load_state_dict(state["scheduler"])
    optimizer.load_state_dict(state["optimizer"])
    return net, optimizer, schedule


def go_on(state):
    net, optimizer, schedule = make(state)
    assert schedule.last_epoch == state["step"] == 6
    group = optimizer.param_groups[0]
    assert group["momentum"] == 0.9 and abs(group["lr"] - 0.05 * 0.1**2) < 1e-12, group
    for p in net.parameters():
        assert optimizer.state[p]["momentum_buffer"].shape == p.shape
    x = torch.randn(8, 1, 28, 28, generator=torch.Generator().manual_seed(1))
    for _ in range(3):
        optimizer.zero_grad()
        net(x).square().sum().backward()
        optimizer.step()
        schedule.step()
    return dict(state, model=net.state_dict(), optimizer=optimizer.state_dict(), scheduler=schedule.state_dict(),
                step=9, best=float("-inf"), arguments={"sizes": (3, 4), 7: None})


def same(a, b):
    first, second = make(a), make(b)
    for x, y in zip(first[0].parameters(), second[0].parameters()):
        assert torch.equal(x, y)
        assert torch.equal(first[1].state[x]["momentum_buffer"], second[1].state[y]["momentum_buffer"])
    for key in ("lr", "initial_lr", "momentum", "dampening", "weight_decay", "nesterov"):
        assert first[1].param_groups[0][key] == second[1].param_groups[0][key], key
    assert first[2].last_epoch == second[2].last_epoch == 9
    for key in ("epoch", "step", "best", "arguments"):
        assert a[key] == b[key], key


def main():
    if sys.argv[1] == "go":
        torch.save(go_on(load(sys.argv[2])), sys.argv[3])
        return
    first, second, wrapped = sys.argv[2:]
    same(load(first), load(second))
    torch.save({"model": {f"module.{k}": v for k, v in load(first)["model"].items()}}, wrapped)


main()
