#!/usr/bin/env python3
"""One PyTorch training step, timed: the peer of `yoke bench step`.

Prints one JSON object as its last line, with the same keys. Runs both memory formats unless told which, and reports
the better. The models are written out here, so torchvision is not needed.
"""
import argparse
import json
import resource
import statistics
import time

import torch
from torch import nn
from torch.nn import functional as F


def peak_rss_mb():
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)


IMPORT_RSS_MB = peak_rss_mb()  # what `import torch` takes before there is a network


class LeNet(nn.Module):
    def __init__(self, channels, size, classes):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 6, 5)
        self.pool = nn.MaxPool2d(2, 2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        side = ((size - 4) // 2 - 4) // 2
        self.fc1 = nn.Linear(16 * side * side, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, classes)

    def forward(self, x):
        x = self.pool(F.relu(self.conv1(x)))
        x = self.pool(F.relu(self.conv2(x)))
        x = torch.flatten(x, 1)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))


class Block(nn.Module):
    def __init__(self, inputs, planes, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, planes, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.downsample = None
        if stride != 1 or inputs != planes:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, planes, 1, stride, bias=False), nn.BatchNorm2d(planes))

    def forward(self, x):
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += identity
        return self.relu(out)


class ResNet18(nn.Module):
    def __init__(self, classes, cifar=False):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False) if cifar else nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.Identity() if cifar else nn.MaxPool2d(3, 2, 1)
        planes = 64
        for i, out in enumerate((64, 128, 256, 512)):
            stride = 1 if i == 0 else 2
            setattr(self, f"layer{i + 1}", nn.Sequential(Block(planes, out, stride), Block(out, out, 1)))
            planes = out
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(512, classes)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


def build(model, size, classes):
    if model == "lenet":
        return LeNet(1, size, classes), 1
    if model == "resnet18":
        return ResNet18(classes), 3
    if model == "resnet18-cifar":
        return ResNet18(classes, cifar=True), 3
    if model == "mlp":
        return nn.Sequential(nn.Flatten(), nn.Linear(size * size, 128), nn.ReLU(), nn.Linear(128, classes)), 1
    raise SystemExit(f"unknown model {model}")


def measure(args, memory_format, wrap=lambda net: net, agree=lambda seconds: seconds):
    """Median seconds of a step. With several ranks `wrap` makes the model one of them all, and `agree` makes a time
    that of the slowest."""
    torch.manual_seed(0)
    net, channels = build(args.model, args.image_size, args.num_classes)
    net = wrap(net.to(memory_format=memory_format))
    x = torch.randn(args.batch_size, channels, args.image_size, args.image_size).contiguous(memory_format=memory_format)
    y = torch.randint(0, args.num_classes, (args.batch_size,))
    sgd = torch.optim.SGD(net.parameters(), lr=0.001, momentum=0.9, weight_decay=1e-5)
    loss_fn = nn.CrossEntropyLoss()

    def step():
        sgd.zero_grad()
        loss_fn(net(x), y).backward()
        sgd.step()

    start = time.perf_counter()
    step()
    step()
    once = agree((time.perf_counter() - start) / 2)
    steps = args.steps or max(10, min(2000, int(args.seconds / once)))
    for _ in range(max(1, steps // 10)):
        step()
    times = []
    for _ in range(steps):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return agree(statistics.median(times))


def arguments(description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--image-size", type=int, default=0)
    parser.add_argument("--num-classes", type=int, default=10)
    parser.add_argument("--steps", type=int, default=0, help="default: as many as fit in --seconds")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--format", choices=["nchw", "channels_last", "both"], default="both")
    args = parser.parse_args()
    args.image_size = args.image_size or (28 if args.model in ("lenet", "mlp") else 32)
    torch.set_num_threads(args.threads)
    return args


def best_format(args, **how):
    """The faster of the formats that are asked for, and its seconds."""
    formats = {"nchw": torch.contiguous_format, "channels_last": torch.channels_last}
    if args.format != "both":
        formats = {args.format: formats[args.format]}
    results = {name: measure(args, memory_format, **how) for name, memory_format in formats.items()}
    best = min(results, key=results.get)
    return best, results[best]


def main():
    args = arguments(__doc__)
    best, seconds = best_format(args)
    print(json.dumps({
        "peer": "torch " + torch.__version__, "model": args.model, "batch_size": args.batch_size,
        "threads": args.threads, "format": best, "step_ms_median": round(seconds * 1e3, 4),
        "images_per_second": round(args.batch_size / seconds, 1),
        "peak_rss_mb": peak_rss_mb(), "import_rss_mb": IMPORT_RSS_MB,
    }))


if __name__ == "__main__":
    main()
