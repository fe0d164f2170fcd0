"""Writes cross_entropy_golden.h: losses and gradients of torch.nn.functional.cross_entropy in float64.

    python3 tests/golden/make_cross_entropy.py > tests/golden/cross_entropy_golden.h
"""
import torch

ROWS, CLASSES = 4, 3
LOGITS = [[(i * 5 + c * 7) % 13 / 4 - 1.5 for c in range(CLASSES)] for i in range(ROWS)]
TARGETS = [2, 0, 1, 2]
WEIGHTS = [0.5, 2.0, 1.25]

print("/* Made by make_cross_entropy.py with PyTorch; do not edit. */")
print(f"enum {{ GOLDEN_ROWS = {ROWS}, GOLDEN_CLASSES = {CLASSES} }};")
print("static const double golden_logits[GOLDEN_ROWS * GOLDEN_CLASSES] = {%s};"
      % ", ".join(str(x) for row in LOGITS for x in row))
print("static const double golden_targets[GOLDEN_ROWS] = {%s};" % ", ".join(map(str, TARGETS)))
print("static const double golden_weights[GOLDEN_CLASSES] = {%s};" % ", ".join(map(str, WEIGHTS)))
print("static const struct {\n    yk__cross_entropy p;\n    bool weighted;\n    double loss;\n"
      "    double gradient[GOLDEN_ROWS * GOLDEN_CLASSES];\n} golden_cross_entropy[] = {")
for mean in (True, False):
    for smoothing in (0.0, 0.1, 1.0):
        for weighted in (False, True):
            for ignore in (-100, 2):
                x = torch.tensor(LOGITS, dtype=torch.float64, requires_grad=True)
                weight = torch.tensor(WEIGHTS, dtype=torch.float64) if weighted else None
                loss = torch.nn.functional.cross_entropy(
                    x, torch.tensor(TARGETS), weight=weight, ignore_index=ignore, label_smoothing=smoothing,
                    reduction="mean" if mean else "sum")
                loss.backward()
                gradient = ", ".join(v.hex() for v in x.grad.flatten().tolist())
                print(f"    {{{{.ignore_index = {ignore}, .label_smoothing = {smoothing}, "
                      f".mean = {str(mean).lower()}}},\n     {str(weighted).lower()},\n     {loss.item().hex()},\n     {{{gradient}}}}},")
print("};")
