#!/usr/bin/env python3
"""Writes images_golden.h beside this file: what torchvision's transforms on PIL images, and PyTorch's arithmetic, make
of pixels that the test makes too. Needs torch, torchvision, Pillow and numpy; any recent version gives the same.

Usage: tests/golden/make_images.py
"""
import os
import zlib

import numpy as np
import torch
from PIL import Image
from torchvision import transforms


def pixels(channels, height, width):
    """Bytes of a linear congruential generator: see golden_pixels in tests/data/transform_test.c."""
    state, out = 1, np.empty(channels * height * width, np.uint8)
    for i in range(out.size):
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        out[i] = state >> 24
    return out.reshape(channels, height, width)


def apply(transform, image):
    channels = image.shape[0]
    pil = Image.fromarray(image.transpose(1, 2, 0) if channels == 3 else image[0])
    out = np.asarray(transform(pil))
    return np.ascontiguousarray(out.transpose(2, 0, 1) if channels == 3 else out[None])


RESIZE = [  # channels, height, width, size (height, width for resize_to)
    (3, 13, 17, 8), (3, 17, 13, 8), (1, 5, 8, 20), (3, 33, 47, (16, 16)), (1, 64, 48, 7), (3, 9, 31, 9),
    (3, 200, 301, 64), (3, 301, 200, 224), (1, 28, 28, (1, 1)), (3, 1, 7, 3), (1, 40, 40, (41, 39)), (3, 500, 375, 32),
]
CENTER = [(1, 5, 6, 3), (1, 6, 7, 3), (3, 7, 7, 4), (1, 9, 8, 5), (1, 3, 4, 6), (1, 4, 5, 7), (1, 3, 9, 4), (1, 10, 3, 5),
          (1, 8, 11, 1), (1, 4, 4, 4)]
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)


def main():
    lines = ["/* Made by tests/golden/make_images.py; not to be edited. CRC-32 as zlib's. */",
             "static const struct resize_case {",
             "    int64_t channels, height, width, size, to_height, to_width, out_height, out_width;",
             "    uint32_t crc;", "    unsigned char first[8]; /* of the result */", "} resize_cases[] = {"]
    for channels, height, width, size in RESIZE:
        out = apply(transforms.Resize(size), pixels(channels, height, width))
        one, two = (0, size) if isinstance(size, tuple) else (size, (0, 0))
        first = ", ".join(str(v) for v in list(out.reshape(-1)[:8]))
        lines.append(f"    {{{channels}, {height}, {width}, {one}, {two[0]}, {two[1]}, {out.shape[1]}, {out.shape[2]}, "
                     f"0x{zlib.crc32(out.tobytes()):08x}u, {{{first}}}}},")
    lines += ["};", "static const struct center_case {", "    int64_t channels, height, width, size;", "    uint32_t crc;",
              "} center_cases[] = {"]
    for channels, height, width, size in CENTER:
        out = apply(transforms.CenterCrop(size), pixels(channels, height, width))
        lines.append(f"    {{{channels}, {height}, {width}, {size}, 0x{zlib.crc32(out.tobytes()):08x}u}},")
    lines.append("};")
    ramp = torch.arange(256, dtype=torch.uint8).repeat(3, 1).reshape(3, 16, 16)
    single = transforms.functional.normalize(
        transforms.functional.to_tensor(ramp.numpy().transpose(1, 2, 0)), MEAN, STD)
    double = (ramp.double() / 255 - torch.tensor(MEAN, dtype=torch.float64)[:, None, None]) / torch.tensor(
        STD, dtype=torch.float64)[:, None, None]
    assert torch.equal(double, transforms.functional.normalize(ramp.double() / 255, MEAN, STD))
    lines += ["/* Bytes 0 to 255 in each channel, to_tensor and normalize by CIFAR-10's numbers: of the float and double",
              " * results in little-endian memory. */",
              f"static const uint32_t normalized_crc_f32 = 0x{zlib.crc32(single.contiguous().numpy().tobytes()):08x}u;",
              f"static const uint32_t normalized_crc_f64 = 0x{zlib.crc32(double.contiguous().numpy().tobytes()):08x}u;"]
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "images_golden.h"), "w") as file:
        file.write("\n".join(lines) + "\n")


main()
