#!/usr/bin/env python3
"""Writes second.golden: gradients of gradients in float64, by PyTorch: the gradient penalty of WGAN-GP with a linear
and a convolutional critic, and MAML with two inner steps.

    python3 tests/golden/make_second.py
"""
import torch
from torch import nn
from torch.nn import functional as F

from golden_file import write

torch.set_default_dtype(torch.float64)
torch.manual_seed(33)
sections = []


def numbers(name, t):
    sections.append((name, t.detach().reshape(-1).tolist()))


def params(name, tensors, grads):
    for i, (p, g) in enumerate(zip(tensors, grads)):
        numbers(f"{name}_p{i}", p)
        numbers(f"{name}_g{i}", g)


def penalty(name, critic, real, fake, mix):
    between = (mix * real + (1 - mix) * fake).requires_grad_(True)
    score = critic(between)
    g, = torch.autograd.grad(score, between, torch.ones_like(score), create_graph=True)
    term = ((g.flatten(1).norm(2, dim=1) - 1) ** 2).mean()
    loss = critic(fake).mean() - critic(real).mean() + 10 * term
    loss.backward()
    for what, t in [("real", real), ("fake", fake), ("mix", mix), ("input_grad", g), ("loss", loss)]:
        numbers(f"{name}_{what}", t)
    params(name, list(critic.parameters()), [torch.zeros_like(p) if p.grad is None else p.grad
                                             for p in critic.parameters()])


# WGAN-GP, a critic of linear layers (N, 4) -> 6 -> 5 -> 1 with leaky ReLU as max(0.2 x, x), and tanh.
class Linear(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(4, 6), nn.Linear(6, 5), nn.Linear(5, 1)

    def forward(self, x):
        return self.c(torch.tanh(self.b(F.leaky_relu(self.a(x), 0.2))))


penalty("wgan", Linear(), torch.randn(3, 4), torch.randn(3, 4), torch.rand(3, 1))


# The same with a strided convolution, layer normalisation and a second convolution, (N, 2, 6, 6) -> (N, 1).
class Conv(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(2, 3, 3, stride=2, padding=1)
        self.norm = nn.LayerNorm([3, 3, 3])
        self.b = nn.Conv2d(3, 2, 2)
        self.c = nn.Linear(8, 1)

    def forward(self, x):
        x = F.leaky_relu(self.norm(self.a(x)), 0.2)
        return self.c(torch.sigmoid(self.b(x)).flatten(1))


penalty("conv", Conv(), torch.randn(2, 2, 6, 6), torch.randn(2, 2, 6, 6), torch.rand(2, 1, 1, 1))

# MAML: two tasks, two inner steps of gradient descent each, on regression with two linear layers and tanh.
weights = [torch.randn(5, 2), torch.randn(5), torch.randn(1, 5), torch.randn(1)]
weights = [(0.5 * w).requires_grad_(True) for w in weights]


def model(x, w):
    return F.linear(torch.tanh(F.linear(x, w[0], w[1])), w[2], w[3])


total = 0
for task in range(2):
    data = [torch.randn(4, 2), torch.randn(4, 1), torch.randn(4, 2), torch.randn(4, 1)]
    for what, t in zip(["x", "y", "query_x", "query_y"], data):
        numbers(f"maml_{what}{task}", t)
    fast = weights
    for _ in range(2):
        inner = F.mse_loss(model(data[0], fast), data[1])
        grads = torch.autograd.grad(inner, fast, create_graph=True)
        fast = [w - 0.1 * g for w, g in zip(fast, grads)]
    total = total + F.mse_loss(model(data[2], fast), data[3])
total.backward()
numbers("maml_loss", total)
params("maml", weights, [w.grad for w in weights])

write("second", "make_second.py", "gradients of gradients: WGAN-GP and MAML", sections)
