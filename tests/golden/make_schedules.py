"""Writes schedules_golden.h: learning rate and momentum before each step of schedules of torch.optim.lr_scheduler, with a
rate of 0.4 and a momentum of 0.5.

    python3 tests/golden/make_schedules.py > tests/golden/schedules_golden.h
"""
import warnings

import torch
from torch.optim import lr_scheduler as lrs
from torch.optim.swa_utils import SWALR

warnings.simplefilter("ignore")
STEPS = 30
PLAIN = dict(cycle_momentum=False)
CASES = {
    "linear": lambda o: lrs.LinearLR(o),
    "linear_down": lambda o: lrs.LinearLR(o, start_factor=0.9, end_factor=0.2, total_iters=11),
    "constant": lambda o: lrs.ConstantLR(o, factor=0.25, total_iters=7),
    "polynomial": lambda o: lrs.PolynomialLR(o, total_iters=12, power=1.5),
    "restarts": lambda o: lrs.CosineAnnealingWarmRestarts(o, 7),
    "restarts_longer": lambda o: lrs.CosineAnnealingWarmRestarts(o, 4, T_mult=2, eta_min=0.01),
    "one_cycle": lambda o: lrs.OneCycleLR(o, 0.8, total_steps=30),
    "one_cycle_three": lambda o: lrs.OneCycleLR(o, 0.8, total_steps=33, pct_start=0.4, three_phase=True, div_factor=10,
                                                final_div_factor=100, base_momentum=0.6, max_momentum=0.8),
    "one_cycle_linear": lambda o: lrs.OneCycleLR(o, 0.5, total_steps=40, anneal_strategy="linear", **PLAIN),
    "cyclic": lambda o: lrs.CyclicLR(o, 0.1, 0.7, step_size_up=4),
    "cyclic_2": lambda o: lrs.CyclicLR(o, 0.1, 0.7, step_size_up=3, step_size_down=5, mode="triangular2",
                                       base_momentum=0.7, max_momentum=0.85),
    "cyclic_exp": lambda o: lrs.CyclicLR(o, 0.1, 0.7, step_size_up=5, mode="exp_range", gamma=0.95, **PLAIN),
    "swa": lambda o: SWALR(o, swa_lr=0.05),
    "swa_linear": lambda o: SWALR(o, swa_lr=0.7, anneal_epochs=6, anneal_strategy="linear"),
    "swa_at_once": lambda o: SWALR(o, swa_lr=0.05, anneal_epochs=0),
    "sequential": lambda o: lrs.SequentialLR(
        o, [lrs.ConstantLR(o, 0.5, 3), lrs.ExponentialLR(o, 0.8), lrs.CosineAnnealingWarmRestarts(o, 5)], [6, 13]),
    "sequential_warmup": lambda o: lrs.SequentialLR(
        o, [lrs.LinearLR(o, 0.1, total_iters=6), lrs.PolynomialLR(o, 15, 2)], [6]),
    "chained": lambda o: lrs.ChainedScheduler([lrs.ConstantLR(o, 0.5, 8), lrs.ExponentialLR(o, 0.9)]),
}

print(f"/* Made by make_schedules.py with PyTorch {torch.__version__.split('+')[0]}; do not edit. */")
print(f"enum {{ SCHEDULE_STEPS = {STEPS} }};")
for name, make in CASES.items():
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.4, momentum=0.5)
    schedule = make(optimizer)
    print(f"static const double track_{name}[] = {{")
    for _ in range(STEPS):
        group = optimizer.param_groups[0]
        print(f"    {float(group['lr'])!r}, {float(group['momentum'])!r},")
        optimizer.step()
        schedule.step()
    print("};")
METRICS = [1.0, 0.9, 0.95, 0.9, 0.8999, 0.91, 0.92, 0.7, 0.72, 0.71, 0.73, 0.74, float("nan"), 0.75, 0.6, 0.65, 0.66, 0.67,
           0.68, 0.69, 0.7, 0.71, 0.72, 0.73, 0.74, 0.75, 0.76, 0.77, 0.78, 0.79]
PLATEAUS = {
    "plateau": lambda o: lrs.ReduceLROnPlateau(o, patience=2),
    "plateau_max": lambda o: lrs.ReduceLROnPlateau(o, "max", 0.5, 3, 0.01, "abs", cooldown=2, min_lr=0.03),
    "plateau_abs": lambda o: lrs.ReduceLROnPlateau(o, "min", 0.3, 1, 0.05, "abs", cooldown=1, eps=0.002),
    "plateau_rel": lambda o: lrs.ReduceLROnPlateau(o, "max", 0.6, 0, 0.05),
}
print("static const double plateau_metrics[] = {" + ", ".join(repr(m).replace("nan", "NAN") for m in METRICS) + "};")
for name, make in PLATEAUS.items():
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.4)
    schedule = make(optimizer)
    print(f"static const double track_{name}[] = {{ /* rate, best, num_bad_epochs, cooldown_counter */")
    for metric in METRICS:
        schedule.step(metric)
        print(f"    {optimizer.param_groups[0]['lr']!r}, {float(schedule.best)!r}, {float(schedule.num_bad_epochs)!r}, "
              f"{float(schedule.cooldown_counter)!r},")
    print("};")
print("static const struct {\n    const char *name;\n    const double *values;\n} schedule_tracks[] = {")
for name in CASES:
    print(f'    {{"{name}", track_{name}}},')
print("};")
