#!/usr/bin/env python3
"""Writes averages.golden: torch.optim.swa_utils' AveragedModel after each update, update_bn, and SWALR behind another
schedule, in float64.

    python3 tests/golden/make_averages.py

[names] lists the state dict. [states] are the model's numbers before each update, in the order of its own state dict;
[swa] and so on those of the averaged model's, n_averaged among them, after each. [samples] are 10 rows, of which [bn] are
the statistics that update_bn leaves, in batches of 4.
"""
import torch
from torch import nn
from torch.optim.lr_scheduler import ExponentialLR
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn, update_bn

import golden_file

torch.manual_seed(41)
UPDATES = 6


def model():
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).double()


def numbers(state):
    return [float(v) for x in state.values() for v in x.reshape(-1)]


CASES = {
    "swa": dict(),
    "swa_buffers": dict(use_buffers=True),
    "ema": dict(multi_avg_fn=get_ema_multi_avg_fn(0.9)),
    "ema_low": dict(multi_avg_fn=get_ema_multi_avg_fn(0.25)),
    "ema_buffers": dict(multi_avg_fn=get_ema_multi_avg_fn(), use_buffers=True),
}
net = model()
averaged = {name: AveragedModel(net, **options) for name, options in CASES.items()}
tracks, states = {name: [] for name in CASES}, []
for step in range(UPDATES):
    with torch.no_grad():
        for x in net.state_dict().values():
            x.copy_(torch.randint(0, 100, x.shape) if not x.is_floating_point() else torch.randn(x.shape, dtype=x.dtype))
    states += numbers(net.state_dict())
    for name, m in averaged.items():
        m.update_parameters(net)
        tracks[name] += numbers(m.state_dict())
sections = [("names", list(averaged["swa"].state_dict())), ("states", states)] + list(tracks.items())
samples = torch.randn(10, 3).double()
update_bn(samples.split(4), net)
bn = net[1]
sections += [("samples", samples.reshape(-1).tolist()),
             ("bn", bn.running_mean.tolist() + bn.running_var.tolist() + [float(bn.num_batches_tracked)])]

optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.4)
first, then, rates = ExponentialLR(optimizer, 0.9), SWALR(optimizer, 0.05, 5), []
for t in range(14):
    rates.append(optimizer.param_groups[0]["lr"])
    optimizer.step()
    (first if t < 6 else then).step()
sections.append(("rates", rates))
golden_file.write("averages", "make_averages.py", "averages of weights", sections)
