#!/usr/bin/env python3
"""--make DIR: an image folder of 200 JPEG files of 500 x 375. Without: how many of them a second torchvision reads,
resizes to 256, cuts the middle 224 out of and normalises on one thread, by the faster of its ways (PIL throughout;
decode_jpeg and v2 on bytes): {"images_per_second": ..., "way": ...}. --random: RandomResizedCrop and a flip instead."""
import argparse
import json
import os
import time

import torch
import torchvision
from PIL import Image
from torchvision.transforms import v2

parser = argparse.ArgumentParser()
parser.add_argument("folder")
parser.add_argument("--make", action="store_true")
parser.add_argument("--random", action="store_true")
parser.add_argument("--seconds", type=float, default=3)
arguments = parser.parse_args()
torch.set_num_threads(1)
classes = os.path.join(arguments.folder, "train", "a")

if arguments.make:
    # Large shapes, fine grain: a file of about 60 KB, as photographs have.
    os.makedirs(classes)
    os.makedirs(os.path.join(arguments.folder, "test", "a"))
    generator = torch.Generator().manual_seed(1)
    for i in range(200):
        coarse = torch.rand((1, 3, 24, 32), generator=generator) * 200
        image = torch.nn.functional.interpolate(coarse, size=(375, 500), mode="bicubic")[0]
        image += torch.randn((1, 375, 500), generator=generator) * 7 + 20
        pixels = image.clamp(0, 255).to(torch.uint8)
        torchvision.io.write_jpeg(pixels, os.path.join(classes, f"{i:03}.jpg"), quality=90)
    os.link(os.path.join(classes, "000.jpg"), os.path.join(arguments.folder, "test", "a", "000.jpg"))
    raise SystemExit

mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
files = sorted(os.path.join(classes, name) for name in os.listdir(classes))
if arguments.random:
    first = [v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip(0.5)]
else:
    first = [v2.Resize(256, antialias=True), v2.CenterCrop(224)]
last = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(mean, std)]
pil = v2.Compose(first + [v2.PILToTensor()] + last)
bytes_ = v2.Compose(first + last)
ways = {
    "PIL": lambda name: pil(Image.open(name).convert("RGB")),
    "decode_jpeg": lambda name: bytes_(torchvision.io.decode_jpeg(torchvision.io.read_file(name),
                                                                  mode=torchvision.io.ImageReadMode.RGB)),
}
best = (0, "")
for way, load in ways.items():
    torch.stack([load(name) for name in files[:50]])
    count, begun = 0, time.perf_counter()
    while time.perf_counter() - begun < arguments.seconds / len(ways):
        for first in range(0, len(files), 50):
            count += len(torch.stack([load(name) for name in files[first:first + 50]]))
    best = max(best, (count / (time.perf_counter() - begun), way))
print(json.dumps({"images_per_second": best[0], "way": best[1], "torchvision": torchvision.__version__}))
