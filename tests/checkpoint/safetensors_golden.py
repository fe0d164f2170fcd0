#!/usr/bin/env python3
"""Writes safetensors_golden.h: a file made by the Python package, as bytes in C. Needs torch and safetensors."""
import pathlib

import safetensors
import torch
from safetensors.torch import save

tensors = {
    "b.bool": torch.tensor([True, False, True]),
    "a.u8": torch.tensor([[1, 2], [3, 255]], dtype=torch.uint8),
    "z.f32": torch.arange(6, dtype=torch.float32).reshape(2, 3) / 2,
    "a.f32": torch.tensor(-1.5),
    "f64": torch.tensor([1 / 3, -2.0], dtype=torch.float64),
    "f16": torch.tensor([1.0, -0.5, 65504], dtype=torch.float16),
    "bf16": torch.tensor([1.0, -3.0], dtype=torch.bfloat16),
    "i64": torch.tensor([[-1], [1 << 40]]),
    "i32": torch.tensor([7, -8], dtype=torch.int32),
    "empty": torch.zeros(0, 4),
    'na\u00efve "q"\\/\n': torch.ones(1),
}
data = save(tensors, {"format": "pt"})
lines = [", ".join(f"0x{b:02x}" for b in data[i:i + 18]) for i in range(0, len(data), 18)]
path = pathlib.Path(__file__).with_suffix(".h")
path.write_text(f"""/* A file written by the Python package safetensors {safetensors.__version__}: made by safetensors_golden.py. */
/* clang-format off */
static const unsigned char safetensors_golden[{len(data)}] = {{
    """ + ",\n    ".join(lines) + "\n};\n/* clang-format on */\n")
