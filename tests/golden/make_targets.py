#!/usr/bin/python3
"""Writes tests/golden/targets.golden: what torchvision.transforms.v2 makes of masks and boxes of an image.

    python3 tests/golden/make_targets.py
The row of the same name in tests/data/targets_test.c makes yoke's transform of the same draws, which are those of the
samples that it names.
"""
import torch
from torchvision import tv_tensors
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F

import golden_file
from make_transforms import pixels

HEIGHT, WIDTH = 6, 9
SIZE = (HEIGHT, WIDTH)
CORNERS = [[0, 0], [WIDTH - 1, 0], [WIDTH - 1, HEIGHT - 1], [0, HEIGHT - 1]]
EDGES = [[0.5, 1.25, 4.75, 5], [2, 0, 9, 6], [-1, -2, 3.5, 2.25], [7.5, 3, 12, 8], [3, 3, 3, 3], [8.25, 0.125, 8.7, 5.6]]


def masks():
    plane = pixels(HEIGHT * WIDTH)
    two = pixels(2 * HEIGHT * WIDTH).view(2, HEIGHT, WIDTH)
    yield plane.view(SIZE)
    yield two.to(torch.int64) * 1000 - 100000
    yield plane.view(1, HEIGHT, WIDTH).to(torch.int32) - 90
    yield plane.view(SIZE) > 99
    yield plane.view(SIZE).to(torch.float32) / 255
    yield two.to(torch.float64) / 255


def boxes():
    yield torch.tensor(EDGES, dtype=torch.float32)
    yield torch.tensor(EDGES, dtype=torch.float64)
    yield torch.tensor(EDGES, dtype=torch.float64).to(torch.int64)


def random_crop(size, padding, top, left, fill):
    """The two steps of v2.RandomCrop; top and left are of the padded image."""
    def both(x):
        padded = F.pad(x, [padding] * 4, fill=fill)
        return F.crop(padded, top, left, size, size)
    return both


def chain(x):
    x = F.resize(x, [13])
    x = F.horizontal_flip(x)
    x = F.rotate(x, 20, expand=True)
    return F.center_crop(x, [14])


CASES = [
    ("crop_2", random_crop(5, 2, 1, 7, 0)),
    ("crop_9", random_crop(5, 2, 4, 4, 1)),
    ("mirrored", F.horizontal_flip),
    ("upside_down", F.vertical_flip),
    ("smaller", lambda x: F.resize(x, [4])),
    ("larger", lambda x: F.resize(x, [13])),
    ("stretched", lambda x: F.resize(x, [11, 5])),
    ("same", lambda x: F.resize(x, [HEIGHT, WIDTH])),
    ("part_5", lambda x: F.resized_crop(x, 1, 0, 5, 6, [7, 7])),
    ("part_7", lambda x: F.resized_crop(x, 1, 4, 3, 3, [7, 7])),
    ("middle_4", lambda x: F.center_crop(x, [4])),
    ("middle_7", lambda x: F.center_crop(x, [7])),
    ("middle_10", lambda x: F.center_crop(x, [10])),
    ("turned", lambda x: F.rotate(x, 33, fill=1)),
    ("turned_back", lambda x: F.rotate(x, -21)),
    ("expanded", lambda x: F.rotate(x, -70, expand=True, fill=1)),
    ("half", lambda x: F.rotate(x, 180)),
    ("affine", lambda x: F.affine(x, -28, [0, 0], 1.3, [0, 11])),
    ("shifted_0", lambda x: F.affine(x, 17, [1, -1], 0.9, [8, -5], fill=1)),
    ("tilted_0", lambda x: F.perspective(x, CORNERS, [[2, 0], [6, 2], [7, 3], [1, 4]])),
    ("tilted_2", lambda x: F.perspective(x, CORNERS, [[3, 2], [8, 2], [6, 5], [2, 5]], fill=1)),
    ("chain", chain),
]
VALID = [[0, 0, 9, 6], [0, 0, 9, 6.5], [1, 1, 2, 2], [1, 1, 1.75, 5], [2, 2, 4.5, 4.5], [3, 3, 3, 5], [-0.5, 0, 4, 4],
         [5, 5, 4, 4], [0, 0, 2.5, 6], [0.1, 0.2, 2.6, 2.7]]

if __name__ == "__main__":
    sections = []
    for name, transform in CASES:
        numbers = []
        for mask in masks():
            made = transform(tv_tensors.Mask(mask))
            assert made.dtype == mask.dtype
            size = made.shape[-2:]
            numbers += list(made.shape) + made.flatten().tolist()
        sections.append((name + "_masks", numbers))
        numbers = []
        for edges in boxes():
            made = transform(tv_tensors.BoundingBoxes(edges, format="XYXY", canvas_size=SIZE))
            assert made.dtype == edges.dtype and made.canvas_size == size
            numbers += made.flatten().tolist()
        sections.append((name + "_boxes", numbers))
    for name, options in (("plain", {}), ("wide", dict(min_size=2.5)), ("large", dict(min_area=6.25))):
        for short, dtype in (("f32", torch.float32), ("f64", torch.float64), ("i64", torch.int64)):
            edges = torch.tensor(VALID, dtype=torch.float64).to(dtype)
            kept = F.sanitize_bounding_boxes(edges, "XYXY", SIZE, **options)[1]
            sections.append(("valid_%s_%s" % (name, short), kept.to(torch.int64).tolist()))
    golden_file.write("targets", "make_targets.py", "masks and boxes that were transformed with an image", sections)
