#!/usr/bin/env python3
"""Runs `yoke train` and PyTorch from the same weights over the same images and compares the losses, in float64.

    YOKE_DATA=DIR python3 tests/parity/compare.py [--yoke build/yoke]

ResNet-18 on CIFAR-10 (batch 32, lr 0.01, momentum 0.9, weight decay 1e-5, 20 steps) and LeNet on FashionMNIST (batch 4,
lr 0.001, momentum 0.9, 100 steps), files' order, no augmentation. The initial weights go to yoke as safetensors. Needs
torch, torchvision and safetensors. Exit code 1 where a loss differs by more than 1e-9 relative.
"""
import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench"))
from peer_step import LeNet  # noqa: E402


def cifar10(root, count):
    rows = np.fromfile(os.path.join(root, "cifar-10-batches-bin", "data_batch_1.bin"), np.uint8, count * 3073)
    rows = rows.reshape(-1, 3073)
    mean, std = [torch.tensor(v, dtype=torch.float64).view(1, 3, 1, 1)
                 for v in ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))]
    x = torch.from_numpy(rows[:, 1:].reshape(-1, 3, 32, 32).copy()).double() / 255
    return (x - mean) / std, torch.from_numpy(rows[:, 0].astype(np.int64))


def fashion_mnist(root, count):
    def idx(name, header):
        with gzip.open(os.path.join(root, "fashion-mnist", name)) as f:
            return np.frombuffer(f.read(), np.uint8, offset=header)
    x = idx("train-images-idx3-ubyte.gz", 16).reshape(-1, 1, 28, 28)[:count]
    y = idx("train-labels-idx1-ubyte.gz", 8)[:count].astype(np.int64)
    return (torch.from_numpy(x.copy()).double() / 255 - 0.5) / 0.5, torch.from_numpy(y)


def resnet18():
    import torchvision
    return torchvision.models.resnet18(num_classes=10)


def compare(yoke, model, make, data, read, batch, lr, wd, steps):
    torch.manual_seed(0)
    net = make().double()
    x, y = read(os.environ["YOKE_DATA"], batch * steps)
    with tempfile.TemporaryDirectory() as folder:
        weights, log = os.path.join(folder, "init.safetensors"), os.path.join(folder, "log.jsonl")
        save_file({k: v.contiguous() for k, v in net.state_dict().items()}, weights)
        subprocess.run([yoke, "train", "--model", model, "--data", data, "--dtype", "f64", "--batch-size", str(batch),
                        "--lr", str(lr), "--momentum", "0.9", "--weight-decay", str(wd), "--no-shuffle", "--no-augment",
                        "--num-classes", "10", "--init", weights, "--steps", str(steps), "--no-eval", "--log", log],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with open(log) as f:
            ours = [e["loss"] for e in map(json.loads, f) if e["event"] == "step"]
    sgd = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9, weight_decay=wd)
    worst = 0.0
    assert len(ours) == steps, f"{model}: {len(ours)} steps in the log, expected {steps}"
    for step, value in enumerate(ours):
        part = slice(step * batch, (step + 1) * batch)
        loss = nn.functional.cross_entropy(net(x[part]), y[part])
        sgd.zero_grad()
        loss.backward()
        sgd.step()
        worst = max(worst, abs(value - loss.item()) / abs(loss.item()))
    print(f"{model} on {data}: {steps} float64 steps, largest relative difference {worst:.2g}"
          f" (torch {torch.__version__})")
    return worst <= 1e-9


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--yoke", default="build/yoke")
    yoke = parser.parse_args().yoke
    good = compare(yoke, "lenet", lambda: LeNet(1, 28, 10), "fashion-mnist", fashion_mnist, 4, 0.001, 0, 100)
    good &= compare(yoke, "resnet18", resnet18, "cifar10", cifar10, 32, 0.01, 1e-5, 20)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
