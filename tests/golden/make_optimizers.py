"""Writes optimizers_golden.h: parameters after some steps of torch.optim.SGD, Adam and AdamW in float64.

    python3 tests/golden/make_optimizers.py > tests/golden/optimizers_golden.h
"""
import torch

STEPS, SIZE = 7, 5
START = [0.5, -1.25, 2.0, 0.0, -0.03125]


def grad(step):
    """Gradients that the test makes again: exact in binary."""
    return torch.tensor([((step * 7 + i * 5) % 11 - 5) / 8 for i in range(SIZE)], dtype=torch.float64)


def run(make):
    p = torch.nn.Parameter(torch.tensor(START, dtype=torch.float64))
    optimizer = make([p])
    for step in range(STEPS):
        p.grad = grad(step)
        optimizer.step()
    return [x.hex() for x in p.detach().tolist()]


SGD = [dict(lr=0.1), dict(lr=0.1, weight_decay=0.05), dict(lr=0.1, momentum=0.9),
       dict(lr=0.1, momentum=0.9, weight_decay=0.05, dampening=0.25),
       dict(lr=0.1, momentum=0.9, weight_decay=0.05, nesterov=True),
       dict(lr=0.1, momentum=0.5, maximize=True, weight_decay=0.05)]
ADAM = [dict(lr=0.01), dict(lr=0.01, weight_decay=0.1), dict(lr=0.02, betas=(0.8, 0.95), eps=1e-3, amsgrad=True),
        dict(lr=0.01, weight_decay=0.1, maximize=True)]

print("/* Made by make_optimizers.py with PyTorch; do not edit. */")
print(f"enum {{ GOLDEN_STEPS = {STEPS}, GOLDEN_SIZE = {SIZE} }};")
print("static const double golden_start[GOLDEN_SIZE] = {%s};" % ", ".join(str(x) for x in START))
print("static const struct {\n    yk__sgd p;\n    double after[GOLDEN_SIZE];\n} golden_sgd[] = {")
for o in SGD:
    fields = ", ".join(f".{k} = {str(v).lower()}" for k, v in o.items())
    print(f"    {{{{{fields}}},\n     {{{', '.join(run(lambda p: torch.optim.SGD(p, **o)))}}}}},")
print("};\nstatic const struct {\n    yk__adam p;\n    double after[GOLDEN_SIZE];\n} golden_adam[] = {")
for decoupled in (False, True):
    for o in ADAM:
        filled = dict(betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01 if decoupled else 0.0) | o
        fields = dict(decoupled=decoupled, beta1=filled["betas"][0], beta2=filled["betas"][1]) | filled
        del fields["betas"]
        text = ", ".join(f".{k} = {str(v).lower()}" for k, v in fields.items())
        make = torch.optim.AdamW if decoupled else torch.optim.Adam
        print(f"    {{{{{text}}},\n     {{{', '.join(run(lambda p: make(p, **filled)))}}}}},")
print("};")
