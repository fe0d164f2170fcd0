#!/usr/bin/python3
"""Writes tests/golden/modules.golden: layers with their text, state dict, and what they compute, from PyTorch.

    python3 tests/golden/make_modules.py
A layer, in float64, has numbers in its state, is called once in training and once in evaluation mode. A row is its
name, how many tensors its state dict has, and for each the name, a tensor, and where its numbers after the call in
training begin; then the input, and the two results. A tensor is a dtype, its dimensions, and where its numbers begin in
[values]. tests/nn/more_layers_test.c makes the layer of the same name.
"""
import random

import torch
from torch import nn

import golden_file

VALUES, ROWS, TEXTS = [], [], []


def put(tensor):
    at = len(VALUES)
    VALUES.extend(float(v) for v in tensor.detach().to(torch.float64).contiguous().reshape(-1))
    return at


def describe(tensor):
    return " ".join(map(str, (golden_file.DTYPES[tensor.dtype], tensor.dim(), *tensor.shape, put(tensor))))


def layer(name, module, *shape):
    rng = random.Random("yoke " + name)

    def draw(sizes, low):
        count = 1
        for size in sizes:
            count *= size
        return torch.tensor([round(rng.uniform(low, 1.5), 2) for _ in range(count)], dtype=torch.float64).reshape(sizes)

    module.double()
    with torch.no_grad():
        for key, tensor in module.state_dict().items():
            if tensor.is_floating_point():
                tensor.copy_(draw(tensor.shape, 0.25 if key.endswith("var") else -1.5))
    x = draw(shape, -1.5)
    before = {key: describe(tensor) for key, tensor in module.state_dict().items()}
    trained = module(x)
    after = {key: put(tensor) for key, tensor in module.state_dict().items()}
    module.eval()
    state = ["%s %s %d" % (key, before[key], after[key]) for key in before]
    ROWS.append(" ".join([name, str(len(state)), *state, describe(x), describe(trained), describe(module(x))]))
    TEXTS.append("%s %s" % (name, repr(module).replace("\n", "|")))


layer("conv1d", nn.Conv1d(2, 3, 3), 2, 2, 5)
layer("conv1d_all", nn.Conv1d(4, 6, 3, stride=2, padding=2, dilation=2, groups=2, bias=False,
                              padding_mode="circular"), 1, 4, 5)
layer("conv1d_same", nn.Conv1d(1, 2, 2, padding="same", padding_mode="replicate"), 1, 4)
layer("conv2d_reflect", nn.Conv2d(1, 2, (3, 2), padding=(2, 1), padding_mode="reflect"), 2, 1, 3, 4)
layer("conv2d_same", nn.Conv2d(1, 1, 2, padding="same"), 1, 1, 3, 2)
layer("conv3d", nn.Conv3d(1, 2, (2, 1, 2), stride=(1, 2, 1), padding=1), 1, 1, 2, 2, 3)
layer("conv_transpose1d", nn.ConvTranspose1d(2, 1, 2), 1, 2, 3)
layer("conv_transpose2d", nn.ConvTranspose2d(2, 4, (3, 2), stride=2, padding=(1, 0), output_padding=(1, 0), groups=2,
                                             dilation=(1, 2)), 2, 2, 2, 3)
layer("conv_transpose3d", nn.ConvTranspose3d(1, 2, 2, stride=2, bias=False), 1, 2, 1, 2)

layer("max_pool1d", nn.MaxPool1d(3, 2, 1, ceil_mode=True), 1, 2, 6)
layer("max_pool3d", nn.MaxPool3d((1, 2, 3), dilation=(1, 1, 2)), 1, 1, 2, 3, 6)
layer("avg_pool1d", nn.AvgPool1d(2), 2, 1, 5)
layer("avg_pool3d", nn.AvgPool3d((2, 1, 2), stride=1, padding=(1, 0, 0), count_include_pad=False), 1, 2, 2, 3)
layer("adaptive_avg_pool1d", nn.AdaptiveAvgPool1d(3), 1, 2, 4)
layer("adaptive_avg_pool2d", nn.AdaptiveAvgPool2d((2, None)), 1, 1, 4, 2)
layer("adaptive_avg_pool3d", nn.AdaptiveAvgPool3d((1, 2, 3)), 1, 1, 2, 3, 4)
layer("adaptive_max_pool1d", nn.AdaptiveMaxPool1d(3), 1, 2, 4)
layer("adaptive_max_pool2d", nn.AdaptiveMaxPool2d((2, None)), 1, 1, 4, 2)
layer("adaptive_max_pool3d", nn.AdaptiveMaxPool3d(2), 1, 2, 3, 4)

layer("batch_norm1d", nn.BatchNorm1d(3), 4, 3)
layer("batch_norm1d_lines", nn.BatchNorm1d(2, eps=0.01, momentum=0.3, bias=False), 2, 2, 3)
layer("batch_norm1d_untracked", nn.BatchNorm1d(2, affine=False, track_running_stats=False), 2, 2, 3)
layer("batch_norm2d", nn.BatchNorm2d(2, bias=False), 2, 2, 2, 2)
layer("batch_norm3d", nn.BatchNorm3d(2), 2, 2, 1, 2, 2)
layer("group_norm", nn.GroupNorm(2, 4), 2, 4, 3)
layer("group_norm_plain", nn.GroupNorm(3, 3, eps=0.1, affine=False), 1, 3, 2, 2)
layer("group_norm_weight", nn.GroupNorm(1, 4, bias=False), 2, 4)
layer("instance_norm1d", nn.InstanceNorm1d(3), 2, 3, 4)
layer("instance_norm1d_tracked", nn.InstanceNorm1d(2, affine=True, track_running_stats=True), 3, 2, 4)
layer("instance_norm2d", nn.InstanceNorm2d(2, affine=True, bias=False), 2, 3, 2)
layer("instance_norm3d", nn.InstanceNorm3d(2, momentum=0.4, track_running_stats=True), 2, 2, 2, 1, 2)
layer("rms_norm", nn.RMSNorm(4), 2, 4)
layer("rms_norm_pair", nn.RMSNorm((2, 3), eps=1e-6, elementwise_affine=False), 2, 2, 3)
layer("local_response_norm", nn.LocalResponseNorm(2, k=2.5), 2, 3, 2)

layer("upsample", nn.Upsample(scale_factor=2), 1, 1, 2, 3)
layer("upsample_bilinear", nn.Upsample(size=(3, 4), mode="bilinear", align_corners=True), 1, 2, 2, 2)
layer("upsample_factors", nn.Upsample(scale_factor=(2, 1.5), mode="bicubic"), 1, 1, 2, 4)
layer("pixel_shuffle", nn.PixelShuffle(2), 1, 4, 1, 2)
layer("pixel_unshuffle", nn.PixelUnshuffle(2), 1, 1, 2, 4)
PAIRS = {"kernel_size": (1, 2), "dilation": (1, 2), "padding": (0, 1), "stride": (1, 3)}
layer("unfold", nn.Unfold(2), 1, 2, 2, 3)
layer("unfold_pairs", nn.Unfold(**PAIRS), 1, 1, 2, 3)
layer("fold", nn.Fold(3, 2), 1, 4, 4)
layer("fold_pairs", nn.Fold((2, 3), **PAIRS), 1, 2, 2)

golden_file.write("modules", "make_modules.py", "layers: text, state, and what they compute in float64",
                  [("values", VALUES), ("cases", ROWS), ("texts", TEXTS)])
