#!/usr/bin/env python3
"""LeNet on FashionMNIST with a parameter server and three trainers on torch.distributed.rpc, as PyTorch's tutorial of
batched updates has them, with batches of one: a trainer sends its gradients and gets the model. (In the tutorial of a
parameter server forward and backward run at the server; with several trainers its backward fails, as another one's step
has changed the weights in the meantime.) The peer of bench/param_server.c, with its lines.

usage: peer_param_server.py DIR [steps]     DIR: where FashionMNIST's files are, or - for images of random numbers
"""
import gzip
import os
import socket
import sys
import threading
import time

import torch
import torch.distributed.rpc as rpc
import torch.multiprocessing as mp
from torch import nn

TRAINERS, BATCH, WARM, RATE = 3, 64, 10, 0.05


def network():
    return nn.Sequential(nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Flatten(), nn.Linear(256, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))


class ParameterServer:
    def __init__(self):
        self.lock, self.model = threading.Lock(), network()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=RATE)

    def fetch(self):
        return self.model

    def update_and_fetch(self, gradients):
        with self.lock:
            for p, g in zip(self.model.parameters(), gradients):
                p.grad = g
            self.optimizer.step()
            return self.model


server = None


def server_get():
    global server
    server = server or ParameterServer()
    return server


def images(folder):
    if folder == "-":
        return torch.randn(60000, 1, 28, 28), torch.randint(0, 10, (60000,))
    with gzip.open(os.path.join(folder, "train-images-idx3-ubyte.gz")) as file:
        pixels = torch.frombuffer(bytearray(file.read()[16:]), dtype=torch.uint8).view(-1, 1, 28, 28)
    with gzip.open(os.path.join(folder, "train-labels-idx1-ubyte.gz")) as file:
        labels = torch.frombuffer(bytearray(file.read()[8:]), dtype=torch.uint8).long()
    return (pixels.float() / 255 - 0.2860) / 0.3530, labels


def train(trainer, folder, steps):
    x, y = images(folder)
    order = torch.randperm(len(x))[trainer::TRAINERS]
    there = rpc.remote("worker0", server_get)
    model, loss, begin = there.rpc_sync().fetch(), nn.CrossEntropyLoss(), 0
    for i in range(-WARM, steps):
        if i == 0:
            begin = time.perf_counter()
        at = order[(i + WARM) * BATCH % (len(order) - BATCH):][:BATCH]
        loss(model(x[at]), y[at]).backward()
        model = there.rpc_sync().update_and_fetch([p.grad for p in model.parameters()])
    print(f"torch.distributed.rpc\t{steps * BATCH / (time.perf_counter() - begin):.1f}", flush=True)


def work(rank, port, folder, steps):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=1 + TRAINERS)
    if rank:
        train(rank - 1, folder, steps)
    rpc.shutdown()


def main():
    folder, steps = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 100
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(work, (port, folder, steps), nprocs=1 + TRAINERS)


if __name__ == "__main__":
    main()
