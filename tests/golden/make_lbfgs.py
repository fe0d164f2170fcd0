#!/usr/bin/env python3
"""Writes lbfgs.golden and lbfgs.pt: torch.optim's LBFGS and Muon, in float64.

    python3 tests/golden/make_lbfgs.py

LBFGS: parameters a (3, 2) and b (4) are one vector x of 10 numbers that begins as [start]; the loss is the sum over i of
(x[i + 1] - x[i]^2)^2 + (1 - x[i])^2 / 4 + x[i]^4 / 16, i up to 8. [NAME] has for each of 4 steps the first loss, n_iter,
func_evals and the 10 numbers after it. lbfgs.pt is optimizer.state_dict() after 2 steps of wolfe, with the parameters then.

Muon: parameters (6, 4) and (3, 5), in [muon_start] one after the other, have the gradients [muon_grads] of 5 steps; [NAME]
are the parameters after each, [NAME_buffer] the momentum buffers in the end.
"""
import os

import torch

import golden_file

torch.manual_seed(61)
torch.set_default_dtype(torch.float64)
STEPS = 4
START = (torch.rand(10) * 1.6 - 0.8).tolist()
CASES = {
    "plain": dict(lr=0.1),
    "defaults": dict(lr=0.3, max_iter=20),
    "wolfe": dict(max_iter=4, line_search_fn="strong_wolfe"),
    "wolfe_long": dict(lr=3, max_iter=6, line_search_fn="strong_wolfe"),
    "wolfe_short": dict(lr=1e-4, max_iter=3, line_search_fn="strong_wolfe"),
    "history": dict(lr=0.5, max_iter=6, history_size=3, line_search_fn="strong_wolfe"),
    "evaluations": dict(lr=0.1, max_iter=20, max_eval=5),
    "wolfe_evaluations": dict(lr=5, max_iter=20, max_eval=4, line_search_fn="strong_wolfe"),
    "tolerance": dict(lr=0.2, max_iter=50, tolerance_grad=1e-2),
    "change": dict(max_iter=50, tolerance_change=1e-2, line_search_fn="strong_wolfe"),
    "maximize": dict(max_iter=5, maximize=True, line_search_fn="strong_wolfe"),
}


def run(options, steps, save_after=None):
    a = torch.tensor(START[:6]).reshape(3, 2).requires_grad_()
    b = torch.tensor(START[6:]).requires_grad_()
    sign = -1 if options.get("maximize") else 1
    optimizer = torch.optim.LBFGS([a, b], **options)
    rows = []

    def closure():
        optimizer.zero_grad()
        x = torch.cat([a.flatten(), b])
        loss = sign * ((x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2 / 4 + x[:-1] ** 4 / 16).sum()
        loss.backward()
        return loss

    for step in range(steps):
        loss = optimizer.step(closure)
        state = optimizer.state[a]
        rows += [loss.item(), state["n_iter"], state["func_evals"]] + a.flatten().tolist() + b.tolist()
        if save_after == step + 1:
            here = os.path.dirname(os.path.abspath(__file__))
            torch.save({"optimizer": optimizer.state_dict(), "a": a.detach(), "b": b.detach()}, here + "/lbfgs.pt")
    return rows


sections = [("start", START)] + [(name, run(options, STEPS)) for name, options in CASES.items()]
run(CASES["wolfe"], 2, save_after=2)

SHAPES = [(6, 4), (3, 5)]
SIZES = [24, 15]
MUON = {
    "muon": dict(),
    "muon_plain": dict(lr=0.1, nesterov=False, momentum=0.8, weight_decay=0),
    "muon_rms": dict(lr=0.02, adjust_lr_fn="match_rms_adamw", ns_steps=3),
    "muon_unclamped": dict(lr=0.05, adjust_lr_fn="spectral_unclamped", ns_coefficients=(2, -1.5, 0.5), ns_steps=10),
    "muon_eps": dict(lr=0.05, eps=10.0, ns_steps=1),
}
start, grads = torch.randn(39), torch.randn(5, 39)
sections += [("muon_start", start.tolist()), ("muon_grads", grads.flatten().tolist())]
for name, options in MUON.items():
    params = [x.clone().reshape(shape).requires_grad_() for x, shape in zip(start.split(SIZES), SHAPES)]
    optimizer = torch.optim.Muon(params, **options)
    rows = []
    for step in range(5):
        for x, g in zip(params, grads[step].split(SIZES)):
            x.grad = g.reshape(x.shape).clone()
        optimizer.step()
        rows += [v for x in params for v in x.detach().flatten().tolist()]
    sections += [(name, rows), (name + "_buffer", [v for x in params for v in
                                                   optimizer.state[x]["momentum_buffer"].flatten().tolist()])]
golden_file.write("lbfgs", "make_lbfgs.py", "LBFGS and Muon", sections)
