#!/usr/bin/env python3
"""Writes promotion_golden.h: PyTorch's dtype of a result of two. make_promotion.py > promotion_golden.h

Two tables: both tensors with dimensions, and the second without. Rows (the first) and columns are in yk_dtype's order.
"""
import torch

NAMES = ["F32", "F64", "F16", "BF16", "I64", "I32", "U8", "BOOL"]
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.bool]


def table(name, shape_a, shape_b):
    print("static const yk_dtype %s[YK__DTYPES][YK__DTYPES] = {" % name)
    for a in DTYPES:
        results = [torch.result_type(torch.zeros(shape_a, dtype=a), torch.zeros(shape_b, dtype=b)) for b in DTYPES]
        print("    {%s}," % ", ".join("YK_" + NAMES[DTYPES.index(result)] for result in results))
    print("};")


print("/* promotion_golden.h - made by make_promotion.py with PyTorch %s; rows and columns as in yk_dtype. */" % torch.__version__.split("+")[0])
table("promoted", (2,), (2,))
table("promoted_with_scalar", (2,), ())
