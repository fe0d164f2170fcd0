#!/usr/bin/env python3
"""Writes the seeds of fuzz_pt: small files of torch.save in both forms, and their pickles alone."""
import collections
import io
import os
import zipfile

import torch


def main():
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus", "fuzz_pt")
    os.makedirs(folder, exist_ok=True)
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
