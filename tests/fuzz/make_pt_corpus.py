#!/usr/bin/env python3
"""Writes the seeds of fuzz_pt: small files of torch.save in both forms, and their pickles alone."""
import collections
import io
import os
import struct
import zipfile

import torch


def write_training(folder):
    """A run's optimizer, schedule and scaler: of two kinds, as pickles alone."""
    lr_scheduler = torch.optim.lr_scheduler
    for name, make, after in (
            ("adam", lambda p: torch.optim.AdamW(p, amsgrad=True), lambda o: lr_scheduler.MultiStepLR(o, [2, 5])),
            ("sgd", lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), lambda o: lr_scheduler.CosineAnnealingLR(o, 5))):
        x = torch.nn.Parameter(torch.ones(2))
        optimizer = make([x])
        linear = lr_scheduler.LinearLR(optimizer, 0.5, 1.0, 3)
        schedule = lr_scheduler.SequentialLR(optimizer, [linear, after(optimizer)], [3])
        x.sum().backward()
        optimizer.step()
        data = io.BytesIO()
        torch.save({"optimizer": optimizer.state_dict(), "scheduler": schedule.state_dict(),
                    "scaler": {"scale": 65536.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2000,
                               "_growth_tracker": 3}}, data)
        archive = zipfile.ZipFile(data)
        member = next(n for n in archive.namelist() if n.endswith("data.pkl"))
        with open(os.path.join(folder, f"training-{name}"), "wb") as file:
            file.write(b"\1" + archive.read(member))


def write_module(folder):
    """A module that is saved whole, as a pickle alone."""
    data = io.BytesIO()
    torch.save(torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.BatchNorm1d(1)), data)
    archive = zipfile.ZipFile(data)
    member = next(n for n in archive.namelist() if n.endswith("data.pkl"))
    with open(os.path.join(folder, "module"), "wb") as file:
        file.write(b"\1" + archive.read(member))


def write_names(folder):
    """Names that nest, as pickles alone: leaves below long keys, a text in many positions, dicts that share a dict."""
    key = b"X" + struct.pack("<I", 500) + b"k" * 500
    shared = b"".join(b"q" + bytes([i]) + b"0}(" + b"".join(b"X\1\0\0\0" + c + b"h" + bytes([i]) for c in (b"a", b"b")) + b"u"
                      for i in range(12))
    for name, program in (("tower", b"](" + b"K\7" * 600 + b"eq\0000" + b"".join(
            b"}" + key + b"h" + bytes([i]) + b"sq" + bytes([i + 1]) + b"0" for i in range(3)) + b"h\3."),
                          ("text", b"X\100\0\0\0" + b"t" * 64 + b"".join(
                              b"q" + bytes([i]) + b"h" + bytes([i]) + b"\x86" for i in range(8)) + b"."),
                          ("shared", b"}" + shared + b".")):
        with open(os.path.join(folder, f"names-{name}"), "wb") as file:
            file.write(b"\1\x80\2" + program)


def write_plain(folder):
    """Plain values that yoke has no kind for, as a pickle alone, and a file whose members are deflated."""
    w = torch.arange(6.0).reshape(2, 3)
    tagged = torch.ones(2)
    tagged.tag = "x"
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.no_weight_decay = True
    data = io.BytesIO()
    torch.save({"i8": w.char(), "c": w + 0j, "f8": w.to(torch.float8_e4m3fn), "sparse": w.to_sparse(), "conj": (w + 1j).conj(),
                "meta": torch.zeros(2, device="meta"), "many": torch.zeros([1] * 9), "tagged": tagged, "p": parameter,
                "b": bytearray(b"a"), "z": 1j, "int": 2**70, (0, 1): {None: 1, 0.5: 2, True: 3}}, data)
    archive = zipfile.ZipFile(data)
    name = next(n for n in archive.namelist() if n.endswith("data.pkl"))
    with open(os.path.join(folder, "plain"), "wb") as file:
        file.write(b"\1" + archive.read(name))
    with zipfile.ZipFile(os.path.join(folder, "deflated.pt"), "w", zipfile.ZIP_DEFLATED) as packed:
        for member in archive.namelist():
            packed.writestr(zipfile.ZipInfo(member), archive.read(member), zipfile.ZIP_DEFLATED)
    with open(os.path.join(folder, "deflated.pt"), "rb+") as file:
        content = file.read()
        file.seek(0)
        file.write(b"\0" + content + bytes(5))


def main():
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus", "fuzz_pt")
    os.makedirs(folder, exist_ok=True)
    write_training(folder)
    write_module(folder)
    write_names(folder)
    write_plain(folder)
    x = torch.arange(6.0).reshape(2, 3)
    state = {
        "model": collections.OrderedDict(weight=x, bias=x[0], mask=torch.tensor([True, False])),
        "optimizer": {"state": {0: {"step": torch.tensor(3.0)}}, "param_groups": [{"lr": 0.1, "betas": (0.9, 0.99)}]},
        "other": [None, True, -5, 2**40, 1.5, "text", b"\xff\x00", {1}, torch.Size([2]), torch.float16,
                  torch.device("cuda", 1), torch.nn.Parameter(x)],
    }
    for protocol in (2, 4):
        for form, zipped in (("zip", True), ("legacy", False)):
            data = io.BytesIO()
            torch.save(state, data, pickle_protocol=protocol, _use_new_zipfile_serialization=zipped)
            with open(os.path.join(folder, f"{form}-{protocol}.pt"), "wb") as file:
                file.write(b"\0" + data.getvalue())
            if zipped:
                archive = zipfile.ZipFile(data)
                name = next(n for n in archive.namelist() if n.endswith("data.pkl"))
                with open(os.path.join(folder, f"pickle-{protocol}"), "wb") as file:
                    file.write(b"\1" + archive.read(name))


main()
