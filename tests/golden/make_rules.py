"""Writes rules_golden.h: parameters after each step of torch.optim's RMSprop, Adagrad, Adadelta, Adamax, NAdam and RAdam,
in float64.

    python3 tests/golden/make_rules.py > tests/golden/rules_golden.h
"""
import torch

torch.set_default_dtype(torch.float64)  # NAdam's mu_product has the default dtype
STEPS, A, B = 8, 6, 4
torch.manual_seed(33)
START = torch.randn(A + B)
GRADS = torch.randn(STEPS, A + B)
O = torch.optim
CASES = {
    "rmsprop": lambda p: O.RMSprop(p),
    "rmsprop_decay": lambda p: O.RMSprop(p, lr=0.05, alpha=0.9, eps=1e-3, weight_decay=0.1),
    "rmsprop_momentum": lambda p: O.RMSprop(p, lr=0.02, momentum=0.9, maximize=True),
    "rmsprop_centered": lambda p: O.RMSprop(p, lr=0.02, alpha=0.95, centered=True, weight_decay=0.05),
    "rmsprop_all": lambda p: O.RMSprop(p, lr=0.02, momentum=0.8, centered=True, weight_decay=0.05),
    "adagrad": lambda p: O.Adagrad(p),
    "adagrad_all": lambda p: O.Adagrad(p, lr=0.1, lr_decay=0.1, weight_decay=0.05, initial_accumulator_value=0.25,
                                       eps=1e-4, maximize=True),
    "adadelta": lambda p: O.Adadelta(p),
    "adadelta_all": lambda p: O.Adadelta(p, lr=0.5, rho=0.8, eps=1e-3, weight_decay=0.1, maximize=True),
    "adamax": lambda p: O.Adamax(p),
    "adamax_all": lambda p: O.Adamax(p, lr=0.05, betas=(0.8, 0.9), eps=1e-3, weight_decay=0.1, maximize=True),
    "nadam": lambda p: O.NAdam(p),
    "nadam_all": lambda p: O.NAdam(p, lr=0.05, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.1, momentum_decay=0.5,
                                   maximize=True),
    "nadam_decoupled": lambda p: O.NAdam(p, lr=0.05, weight_decay=0.1, decoupled_weight_decay=True),
    "radam": lambda p: O.RAdam(p),
    "radam_all": lambda p: O.RAdam(p, lr=0.05, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.1, maximize=True),
    "radam_decoupled": lambda p: O.RAdam(p, lr=0.05, weight_decay=0.1, decoupled_weight_decay=True),
}


def numbers(name, values):
    print(f"static const double {name}[] = {{")
    values = list(values)
    for i in range(0, len(values), 5):
        print("    " + ", ".join(x.hex() for x in values[i:i + 5]) + ",")
    print("};")


print(f"/* Made by make_rules.py with PyTorch {torch.__version__.split('+')[0]}; do not edit. */")
print(f"enum {{ RULE_STEPS = {STEPS}, RULE_A = {A}, RULE_B = {B} }};")
numbers("rule_start", START.tolist())
numbers("rule_grads", GRADS.reshape(-1).tolist())
for name, make in CASES.items():
    a = START[:A].clone().reshape(3, 2).requires_grad_()
    b = START[A:].clone().requires_grad_()
    optimizer, track = make([a, b]), []
    for step in range(STEPS):
        a.grad = GRADS[step, :A].clone().reshape(3, 2)
        b.grad = None if step in (0, 3) else GRADS[step, A:].clone()
        optimizer.step()
        track += a.detach().reshape(-1).tolist() + b.detach().tolist()
    numbers(f"rule_{name}", track)
print("static const struct {\n    const char *name;\n    const double *values;\n} rule_tracks[] = {")
for name in CASES:
    print(f'    {{"{name}", rule_{name}}},')
print("};")
