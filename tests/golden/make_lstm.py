#!/usr/bin/env python3
"""Writes lstm_golden.h: nn.LSTM in float64, by PyTorch, in all its forms.

    python3 tests/golden/make_lstm.py > tests/golden/lstm_golden.h

The loss is sum(output * pull) + sum(h_n * pull_h) + sum(c_n * pull_c); everything that goes in gets a gradient. The
parameters stand one after the other in the order of the state dict, and so do their gradients.
"""
import torch
from torch import nn

torch.set_default_dtype(torch.float64)
torch.manual_seed(29)
INPUT, HIDDEN, N, STEPS = 2, 3, 3, 5
# name, given states, a batch, options
CASES = [
    ("plain", False, True, {}),
    ("states", True, True, {}),
    ("layers", True, True, {"num_layers": 2}),
    ("both", True, True, {"num_layers": 2, "bidirectional": True}),
    ("batch_first", True, True, {"bidirectional": True, "batch_first": True}),
    ("no_bias", False, True, {"num_layers": 2, "bias": False}),
    ("unbatched", True, False, {"num_layers": 2, "bidirectional": True}),
    ("one", False, False, {"batch_first": True}),
]
rows = []


def numbers(name, t):
    flat = [f"{v:.17g}" for v in t.detach().reshape(-1).tolist()]
    print(f"static const double {name}[] = {{")
    for i in range(0, len(flat), 5):
        print("    " + ", ".join(flat[i:i + 5]) + ",")
    print("};")


print(f"/* Written by make_lstm.py with PyTorch {torch.__version__}. */")
print("#ifndef YOKE_TESTS_LSTM_GOLDEN_H\n#define YOKE_TESTS_LSTM_GOLDEN_H\n")
for name, given, batch, options in CASES:
    m = nn.LSTM(INPUT, HIDDEN, **options)
    first = options.get("batch_first", False)
    shape = ((N, STEPS) if first else (STEPS, N)) if batch else (STEPS,)
    x = torch.randn(*shape, INPUT, requires_grad=True)
    ends = m.num_layers * (2 if m.bidirectional else 1)
    states = [torch.randn(ends, *((N,) if batch else ()), HIDDEN, requires_grad=True) for _ in range(2)]
    out, (h, c) = m(x, tuple(states) if given else None)
    pulls = [torch.randn_like(t) for t in (out, h, c)]
    sum((t * p).sum() for t, p in zip((out, h, c), pulls)).backward()
    flat = torch.cat([p.reshape(-1) for p in m.parameters()])
    grads = torch.cat([p.grad.reshape(-1) for p in m.parameters()])
    fields = [("parameters", flat), ("x", x), ("output", out), ("h_n", h), ("c_n", c), ("pull", pulls[0]),
              ("pull_h", pulls[1]), ("pull_c", pulls[2]), ("gparameters", grads), ("gx", x.grad)]
    if given:
        fields += [("h_0", states[0]), ("c_0", states[1]), ("gh_0", states[0].grad), ("gc_0", states[1].grad)]
    for field, t in fields:
        numbers(f"{name}_{field}", t)
    rows.append("    {" + ", ".join([f'"{name}"', f"{m.num_layers}"] + [
        str(bool(v)).lower() for v in (not m.bias, first, m.bidirectional, batch)]) + ",\n     {" + ", ".join(
            f"{name}_{field}" for field, _ in fields) + "}},")
print("""
enum { LSTM_INPUT = %d, LSTM_HIDDEN = %d, LSTM_N = %d, LSTM_STEPS = %d };
typedef enum lstm_field {
    PARAMETERS, IN, OUTPUT, H_N, C_N, PULL, PULL_H, PULL_C, GPARAMETERS, GX, H_0, C_0, GH_0, GC_0, FIELDS
} lstm_field;
typedef struct lstm_case {
    const char *name;
    int num_layers;
    bool no_bias, batch_first, bidirectional, batch;
    const double *values[FIELDS]; /* H_0 and those behind it are NULL where no states are given */
} lstm_case;
static const lstm_case lstm_cases[] = {""" % (INPUT, HIDDEN, N, STEPS))
print("\n".join(rows))
print("};\n\n#endif")
