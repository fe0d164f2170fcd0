#!/usr/bin/env python3
"""Writes promotion_golden.h: PyTorch's dtype of a result of two. make_promotion.py > promotion_golden.h

Three tables: two tensors with dimensions, one with dimensions and one without, and one of each the other way round.
"""
import torch

NAMES = ["F32", "F64", "F16", "BF16", "I64", "I32", "U8", "BOOL"]
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.bool]


def table(name, shape_a, shape_b):
    print("static const yk_dtype %s[YK__DTYPES][YK__DTYPES] = {" % name)
    for i, a in enumerate(DTYPES):
        row = []
        for j, b in enumerate(DTYPES):
            result = torch.result_type(torch.zeros(shape_a, dtype=a), torch.zeros(shape_b, dtype=b))
            row.append("[YK_%s] = YK_%s" % (NAMES[j], NAMES[DTYPES.index(result)]))
        print("    [YK_%s] = {%s},\n              " % (NAMES[i], (",\n               ").join(
            ", ".join(row[k:k + 4]) for k in (0, 4))), end="\n" if i + 1 < len(DTYPES) else "\n")
    print("};")


print("/* promotion_golden.h - made by make_promotion.py with PyTorch %s. */" % torch.__version__.split("+")[0])
table("promoted", (2,), (2,))
table("promoted_with_scalar", (2,), ())
