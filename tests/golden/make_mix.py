#!/usr/bin/python3
"""Writes tests/golden/mix.golden: what torchvision's MixUp and CutMix make of one batch, for given draws.

    python3 tests/golden/make_mix.py
tests/data/mix_test.c makes the same batch, and calls yoke's function with the same draws.
"""
import torch
from torchvision.transforms import v2

import golden_file

SHAPE, CLASSES = (5, 2, 4, 6), 4
SHARES = (0.3, 0.96875, 0.5004)
BOXES = ((1, 0, 4, 3), (0, 2, 6, 4), (5, 1, 6, 2))  # x1, y1, x2, y2

if __name__ == "__main__":
    sections = []
    numel = SHAPE[0] * SHAPE[1] * SHAPE[2] * SHAPE[3]
    labels = torch.tensor([2, 0, 0, 3, 1])
    for dtype, short in ((torch.float32, "f32"), (torch.float64, "f64")):
        x = (torch.arange(numel, dtype=torch.int64) * 7919 % 1009).to(dtype).div(1009).view(SHAPE)
        soft = torch.nn.functional.one_hot(labels, CLASSES).to(dtype)
        for i, share in enumerate(SHARES):
            params = dict(labels=labels, batch_size=SHAPE[0], lam=share)
            mix = v2.MixUp(num_classes=CLASSES)
            sections.append(("mixup_%d_%s" % (i, short), mix.transform(x, params).flatten().tolist()))
            sections.append(("mixup_%d_labels_%s" % (i, short), mix._mixup_label(soft, lam=share).flatten().tolist()))
        for i, (x1, y1, x2, y2) in enumerate(BOXES):
            share = 1.0 - (x2 - x1) * (y2 - y1) / (SHAPE[2] * SHAPE[3])
            params = dict(labels=labels, batch_size=SHAPE[0], box=(x1, y1, x2, y2), lam_adjusted=share)
            mix = v2.CutMix(num_classes=CLASSES)
            sections.append(("cutmix_%d_%s" % (i, short), mix.transform(x, params).flatten().tolist()))
            sections.append(("cutmix_%d_labels_%s" % (i, short), mix._mixup_label(soft, lam=share).flatten().tolist()))
    golden_file.write("mix", "make_mix.py", "batches mixed with themselves", sections)
