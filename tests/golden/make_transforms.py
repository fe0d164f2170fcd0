#!/usr/bin/python3
"""Writes tests/golden/transforms.golden: what torchvision's transforms make of one image, bytes and float64.

    python3 tests/golden/make_transforms.py
The row of the same name in tests/data/augment_test.c makes yoke's transform. Ranges have equal ends, so nothing is drawn
that matters.
"""
import torch
import torchvision.transforms as T
from torchvision.transforms import functional as F
from torchvision.transforms.functional import InterpolationMode

import golden_file

HEIGHT, WIDTH = 6, 8
LINEAR = InterpolationMode.BILINEAR


def pixels(count):
    state, made = 1, []
    for _ in range(count):
        state = (state * 1664525 + 1013904223) & 0xffffffff
        made.append(state >> 24)
    return torch.tensor(made, dtype=torch.uint8)


def image(dtype, channels=3):
    x = pixels(channels * HEIGHT * WIDTH).view(channels, HEIGHT, WIDTH)
    return x if dtype == torch.uint8 else x.to(dtype) / 255


CASES = [
    ("brighter", lambda x: F.adjust_brightness(x, 1.37)),
    ("darker", lambda x: F.adjust_brightness(x, 0.29)),
    ("contrast_more", lambda x: F.adjust_contrast(x, 1.8)),
    ("contrast_less", lambda x: F.adjust_contrast(x, 0.35)),
    ("saturation_more", lambda x: F.adjust_saturation(x, 2.2)),
    ("saturation_less", lambda x: F.adjust_saturation(x, 0.4)),
    ("hue_up", lambda x: F.adjust_hue(x, 0.31)),
    ("hue_down", lambda x: F.adjust_hue(x, -0.17)),
    ("grey_1", T.Grayscale(1)),
    ("grey_3", T.Grayscale(3)),
    ("random_grey", T.RandomGrayscale(1)),
    ("vertical_flip", T.RandomVerticalFlip(1)),
    ("rotated_nearest", T.RandomRotation((33, 33))),
    ("rotated_bilinear", T.RandomRotation((-21, -21), LINEAR)),
    ("rotated_filled", T.RandomRotation((52, 52), LINEAR, fill=0.4)),
    ("rotated_expanded", T.RandomRotation((40, 40), LINEAR, expand=True, fill=1)),
    ("rotated_expanded_nearest", T.RandomRotation((-75, -75), expand=True)),
    ("affine_nearest", lambda x: F.affine(x, 17, [0, 0], 0.9, [8, -5], fill=[0.0] * 3)),
    ("affine_bilinear", lambda x: F.affine(x, -28, [0, 0], 1.3, [0, 11], interpolation=LINEAR, fill=[1.0] * 3)),
    ("affine_shifted", lambda x: F.affine(x, 17, [2, -1], 0.9, [8, -5], interpolation=LINEAR, fill=[0.0] * 3)),
    ("blur_3", lambda x: F.gaussian_blur(x, 3, 0.7)),
    ("blur_7", lambda x: F.gaussian_blur(x, 7, 1.6)),
]

if __name__ == "__main__":
    sections = []
    for name, transform in CASES:
        for dtype, short in ((torch.uint8, "u8"), (torch.float64, "f64")):
            made = transform(image(dtype))
            assert made.dtype == dtype
            sections.append(("%s_%s" % (name, short), list(made.shape) + made.flatten().tolist()))
    golden_file.write("transforms", "make_transforms.py", "shapes and elements of transformed images", sections)
