"""Writes norms_golden.h: torch.nn.utils.get_total_norm and clip_grad_norm_ by several norms, in float64.

    python3 tests/golden/make_norms.py > tests/golden/norms_golden.h
"""
import torch

torch.manual_seed(4)
GRADS = [3 * torch.randn(2, 3, dtype=torch.float64), 5 * torch.randn(4, dtype=torch.float64)]


def numbers(values):
    return ", ".join(v.hex() for v in values)


print(f"/* Made by make_norms.py with PyTorch {torch.__version__.split('+')[0]}; do not edit. */")
print("enum { NORM_A = 6, NORM_B = 4 };")
print(f"static const double norm_grads[] = {{{numbers(torch.cat([g.reshape(-1) for g in GRADS]).tolist())}}};")
print("static const struct {\n    double type, max_norm, total, after[NORM_A + NORM_B];\n} golden_norms[] = {")
for kind in (1.0, 2.0, float("inf"), 3.0, 0.5):
    for limit in (0.75, 1000.0):
        params = [torch.zeros_like(g, requires_grad=True) for g in GRADS]
        for p, g in zip(params, GRADS):
            p.grad = g.clone()
        total = torch.nn.utils.get_total_norm([p.grad for p in params], kind).item()
        assert total == torch.nn.utils.clip_grad_norm_(params, limit, kind).item()
        after = torch.cat([p.grad.reshape(-1) for p in params]).tolist()
        print(f"    {{{'INFINITY' if kind == float('inf') else kind}, {limit}, {total.hex()}, {{{numbers(after)}}}}},")
print("};")
