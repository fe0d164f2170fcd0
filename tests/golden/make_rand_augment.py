#!/usr/bin/python3
"""Writes tests/golden/rand_augment.golden: operations of torchvision's RandAugment, and its perspective, on one image.

    python3 tests/golden/make_rand_augment.py
tests/data/rand_augment_test.c makes the same image, and calls the same operation.
"""
import torch
from torchvision.transforms import RandAugment
from torchvision.transforms import functional as F
from torchvision.transforms.autoaugment import _apply_op
from torchvision.transforms.functional import InterpolationMode

import golden_file
from make_transforms import pixels

NEAREST, BILINEAR = InterpolationMode.NEAREST, InterpolationMode.BILINEAR
OPS = ["Identity", "ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Brightness", "Color", "Contrast",
       "Sharpness", "Posterize", "Solarize", "AutoContrast", "Equalize"]
# magnitude, bins, interpolation, fill
SETTINGS = [(9, 31, NEAREST, None), (7, 10, BILINEAR, None), (20, 31, BILINEAR, [90.0])]
CORNERS = [[[1, 0], [7, 1], [6, 5], [0, 4]], [[0, 0], [7, 0], [7, 5], [0, 5]], [[2, 2], [5, 0], [7, 3], [1, 5]]]


def image(channels, height, width):
    return (pixels(channels * height * width) // 2 + 40).view(channels, height, width)


if __name__ == "__main__":
    sections = []
    for number, (magnitude, bins, interpolation, fill) in enumerate(SETTINGS):
        for op in OPS if number == 0 else OPS[1:6] + OPS[9:12]:
            x = image(3, 6, 8) if op in ("Brightness", "Color", "Contrast") else image(1, 18, 30)
            values, signed = RandAugment()._augmentation_space(bins, x.shape[-2:])[op]
            m = float(values[magnitude].item()) if values.ndim > 0 else 0.0
            for sign in (1, -1) if signed else (1,):
                made = _apply_op(x, op, sign * m, interpolation, fill)
                sections.append(("%s_%d%s" % (op, number, "_negative" if sign < 0 else ""), made.flatten().tolist()))
    for bins in (2, 10, 31, 101):
        for begin, end in ((0, 0.3), (0, 30), (0, 0.9), (1, 0), (0, 150.0 / 331.0 * 224)):
            sections.append(("linspace_%d_%d" % (bins, round(end * 10)), torch.linspace(begin, end, bins).tolist()))
    for i, corners in enumerate(CORNERS):
        start = [[0, 0], [7, 0], [7, 5], [0, 5]]
        for dtype, short in ((torch.uint8, "u8"), (torch.float64, "f64")):
            x = image(3, 6, 8) if dtype == torch.uint8 else image(3, 6, 8).to(dtype) / 255
            for mode, name in ((NEAREST, "nearest"), (BILINEAR, "bilinear")):
                made = F.perspective(x, start, corners, mode, fill=[0.5] * 3)
                sections.append(("perspective_%d_%s_%s" % (i, name, short), made.flatten().tolist()))
    golden_file.write("rand_augment", "make_rand_augment.py", "images by operations of RandAugment", sections)
