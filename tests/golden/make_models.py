#!/usr/bin/env python3
"""Writes models.golden: torchvision's models in float64, names and shapes of their state dicts and what they give.

    python3 tests/golden/make_models.py

The section [NAME] has a row "state NAME sizes" for each entry of the state dict; [NAME_out] is the result for one image
in evaluation. Values are not in the file: fill(), here and in tests/nn/vision_models_test.c, gives the same.
"""
import numpy
import torch
from torch import nn
from torchvision import models
from torchvision.models.resnet import BasicBlock, Bottleneck, ResNet
from torchvision.models.vgg import VGG, cfgs, make_layers

import golden_file
from module_cases import flat, sizes

torch.set_default_dtype(torch.float64)
sections, names = [], []


def spread(count, seed):
    """Numbers in [-0.5, 0.5) that depend on their position and the seed."""
    mask = numpy.uint64(0xffffffff)
    h = (numpy.arange(count, dtype=numpy.uint64) * numpy.uint64(2654435761) + numpy.uint64(seed * 40503)) & mask
    h ^= h >> numpy.uint64(15)
    h = (h * numpy.uint64(2246822519)) & mask
    h ^= h >> numpy.uint64(13)
    return h.astype(numpy.float64) / 2.0 ** 32 - 0.5


def fill(module):
    with torch.no_grad():
        for k, (name, x) in enumerate(module.state_dict().items()):
            if not x.is_floating_point():
                continue
            v = torch.from_numpy(spread(x.numel(), k + 1)).reshape(x.shape)
            if x.dim() >= 2:
                v = v * (2 * (6 / (x.numel() / x.shape[0])) ** 0.5)
            elif name.endswith("running_var") or name.endswith("weight"):
                v = (1 if name.endswith("running_var") else 0.5) + 0.5 * v
            else:
                v = 0.2 * v
            x.copy_(v)
    return module


def add(name, module, side):
    names.append(name)
    x = torch.from_numpy(spread(3 * side * side, 1000)).reshape(1, 3, side, side) * 2
    with torch.no_grad():
        out = fill(module).eval()(x)
    assert 1e-3 < out.abs().max() < 1e4, (name, out.abs().max())
    sections.append((name, [f"state {n} {sizes(x)}" for n, x in module.state_dict().items()]))
    sections.append((name + "_out", flat([out])))


class Narrow(ResNet):
    """Eighths of all channels."""
    def __setattr__(self, name, value):
        super().__setattr__(name, 8 if name == "inplanes" and value == 64 and not hasattr(self, "inplanes") else value)

    def _make_layer(self, block, planes, *rest, **options):
        return super()._make_layer(block, planes // 8, *rest, **options)


def resnet(block, layers, **options):
    m = Narrow(block, layers, **options)
    m.fc = nn.Linear(64 * block.expansion, 5)
    return m


def vgg(letter, batch_norm):
    m = VGG(make_layers([n if n == "M" else n // 8 for n in cfgs[letter]], batch_norm), 5, init_weights=False)
    m.classifier = nn.Sequential(nn.Linear(64 * 7 * 7, 6), nn.ReLU(), nn.Dropout(), nn.Linear(6, 6), nn.ReLU(),
                                 nn.Dropout(), nn.Linear(6, 5))
    return m


add("resnet18", resnet(BasicBlock, [2, 2, 2, 2]), 32)
add("resnet34", resnet(BasicBlock, [3, 4, 6, 3]), 32)
add("resnet50", resnet(Bottleneck, [3, 4, 6, 3], groups=2, width_per_group=16), 40)
add("resnet101", resnet(Bottleneck, [3, 4, 23, 3]), 32)
add("resnet152", resnet(Bottleneck, [3, 8, 36, 3]), 32)
for letter, layers in (("A", 11), ("B", 13), ("D", 16), ("E", 19)):
    add(f"vgg{layers}", vgg(letter, False), 32)
    add(f"vgg{layers}_bn", vgg(letter, True), 64 if layers == 11 else 32)
add("mobilenet_v2", models.mobilenet_v2(num_classes=5), 40)
add("efficientnet_b0", models.efficientnet_b0(num_classes=5), 40)
add("vit", models.VisionTransformer(image_size=24, patch_size=8, num_layers=2, num_heads=3, hidden_dim=12, mlp_dim=20,
                                    num_classes=5), 24)
golden_file.write("models", "make_models.py", "torchvision's models", [("cases", names)] + sections)
