#!/usr/bin/env python3
"""Writes the files of tests/checkpoint/pt_left_out_test.c to tests/checkpoint/golden, by the torch of this Python (2.15)."""
import io
import os
import zipfile

import torch


FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "checkpoint", "golden")


def write(name, data):
    with open(os.path.join(FOLDER, name + ".pt"), "wb") as out:
        out.write(data)


def save(value, zipped=True):
    data = io.BytesIO()
    torch.save(value, data, _use_new_zipfile_serialization=zipped)
    return data.getvalue()


def main():
    w = torch.arange(6.0).reshape(2, 3)
    tagged = torch.ones(2)
    tagged.tag = "x"
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.no_weight_decay = True
    value = {
        "model": {
            "fc.weight": w, "fc.bias": w[0] + 0j, "i8": w.char(), "i16": w.short(), "f8": w.to(torch.float8_e4m3fn),
            "u16": w.to(torch.uint16), "sparse": w.to_sparse(), "csr": w.to_sparse_csr(),
            "meta": torch.zeros(2, device="meta"), "quantized": torch.quantize_per_tensor(w, 0.1, 0, torch.qint8),
            "conjugated": (w + 1j).conj(), "many": torch.zeros([1] * 9), "tagged": tagged, "parameter": parameter,
            "buffer": torch.nn.Buffer(torch.ones(2)),
        },
        "bytearray": bytearray(b"a\xff"), "none": bytearray(), "complex": 1 + 2j, "int": 2**70,
        "list": [1, 2j, "three"], "set": {1, 2**70},
        "keys": {(0, 1): 1, None: 2, 0.5: 3, b"a": 4, False: 5, "True": 6, True: 7, 7: 8, "a\0b": 9, "last": 10},
    }
    write("plain_zip", save(value))
    write("plain_legacy", save({k: v for k, v in value["model"].items() if k not in ("f8", "u16")}, False))
    with zipfile.ZipFile(io.BytesIO(save({"fc.weight": w, "zeros": torch.zeros(5000)}))) as archive:
        members = [(n, archive.read(n)) for n in archive.namelist()]
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    write("deflated", data.getvalue())


main()
