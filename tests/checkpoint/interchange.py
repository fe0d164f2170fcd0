#!/usr/bin/env python3
"""PyTorch's side of tests/cli/ckpt.sh: writes training state, compares what came back, loads it where it belongs.

    write               zip.pt and legacy.pt
    [WHAT A B]...       same, values or weights: what B holds of A's state; prints "WHAT A B" for each that is right
"""
import collections
import sys
import traceback

import torch


def build():
    torch.manual_seed(0)
    body = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Flatten(), torch.nn.Linear(16, 5))
    body[3].bias.data = body[3].weight.data[0, :5]  # memory in common
    model = torch.nn.Sequential()
    model.add_module("module", body.to(memory_format=torch.channels_last))
    return model


def train(model, optimizer):
    x = torch.randn(8, 3, 4, 4, generator=torch.Generator().manual_seed(1))
    for _ in range(3):
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()


DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.bool]


def every_kind():
    """Each dtype: plain, empty, 0-dimensional, transposed, with gaps, repeated by a stride of 0, behind an offset, and
    two that share memory."""
    tensors = {}
    for dtype in DTYPES:
        name = str(dtype).split(".")[1]
        x = (torch.arange(24).reshape(4, 6) % 5).to(dtype)
        tensors.update({f"{name}.plain": x.clone(), f"{name}.empty": torch.zeros(3, 0, 2, dtype=dtype),
                        f"{name}.scalar": torch.tensor(1).to(dtype), f"{name}.transposed": x.clone().t(),
                        f"{name}.gaps": x.clone()[::2, 1::3], f"{name}.repeated": x.clone()[:1, :3].expand(5, 3),
                        f"{name}.offset": x.clone()[2:, 3:], f"{name}.shared": x, f"{name}.with": x[1]})
    return tensors


def write():
    model = build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [30, 80])
    train(model, optimizer)
    state = {
        "state_dict": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "schedule": {k: v for k, v in schedule.state_dict().items() if not callable(v)},
        "random": torch.get_rng_state(),
        "epoch": 3,
        "best": float("-inf"),
        "halves": [torch.tensor([1.0, float("nan")]).half(), torch.tensor(-0.0).bfloat16()],
        "empty": torch.zeros(2, 0),
        "every": every_kind(),
        "deep": {"a": {1: {"b": [(), (None, True)]}}},
        "forms": [torch.Size([2, 3]), torch.Size([]), torch.float16, torch.int8, torch.device("cuda", 1),
                  torch.device("cpu"), collections.Counter({30: 1, 80: 2}), {1, 2}, collections.OrderedDict(a=1)],
    }
    torch.save(state, "zip.pt")
    torch.save(state, "legacy.pt", _use_new_zipfile_serialization=False)


def same(a, b, where, strides):
    if isinstance(a, torch.Tensor):
        assert a.dtype == b.dtype and a.shape == b.shape, where
        assert not strides or a.stride() == b.stride(), (where, a.stride(), b.stride())
        assert torch.equal(torch.nan_to_num(a.double()), torch.nan_to_num(b.double())), where
        assert torch.equal(a.isnan(), b.isnan()), where
    elif isinstance(a, dict):
        assert type(a) is type(b) and list(a) == list(b), (where, type(b), list(a), list(b))
        for key in a:
            same(a[key], b[key], f"{where}.{key}", strides)
        assert getattr(a, "_metadata", None) == getattr(b, "_metadata", None), where
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b) and type(a) is type(b), (where, type(b))
        for i, (x, y) in enumerate(zip(a, b)):
            same(x, y, f"{where}.{i}", strides)
    else:
        assert type(a) is type(b) and a == b, (where, a, b)


def load(path):
    if int(torch.__version__.split(".")[0]) >= 2:
        return torch.load(path, weights_only=True)
    return torch.load(path)  # the restricted reader of 1.13 takes no floats


def check(what, *paths):
    theirs = torch.load(paths[0])
    if what == "weights":
        ours = torch.load(paths[1], weights_only=True)
        model = build().module
        model.load_state_dict(ours)
        same(dict(model.state_dict()), {k[len("module."):]: v for k, v in theirs["state_dict"].items()}, "weights", False)
        return
    ours = load(paths[1])
    same(theirs, ours, "", what == "same")
    model = build()
    model.load_state_dict(ours["state_dict"])
    optimizer = torch.optim.AdamW(model.parameters())
    optimizer.load_state_dict(ours["optimizer"])
    train(model, optimizer)
    every = load(paths[1])["every"]
    for name in (str(dtype).split(".")[1] for dtype in DTYPES):
        x, y = every[f"{name}.shared"], every[f"{name}.with"]
        assert (y.data_ptr() - x.data_ptr() == 6 * x.element_size()) == (what == "same"), f"{name}: memory in common"
    weights = load(paths[1])["state_dict"]
    shared = weights["module.3.weight"].data_ptr() == weights["module.3.bias"].data_ptr()
    assert shared == (what == "same"), "memory in common"


def main():
    arguments = sys.argv[1:]
    if arguments == ["write"]:
        write()
        return
    for i in range(0, len(arguments), 3):
        try:
            check(*arguments[i:i + 3])
            print(*arguments[i:i + 3])
        except Exception:
            traceback.print_exc()


main()
