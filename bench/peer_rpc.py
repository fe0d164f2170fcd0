#!/usr/bin/env python3
"""Calls of torch.distributed.rpc between two processes of this host: the peer of bench/rpc.c, with its rows.

usage: peer_rpc.py [rounds]     Starts its workers itself. Prints lines of name, value and unit, separated by tabs. Names
are those of bench/rpc, of which "shared memory" is what TensorPipe chooses by itself.
"""
import os
import resource
import socket
import statistics
import sys
import time

import torch
import torch.distributed.rpc as rpc
import torch.multiprocessing as mp


def nothing(*_):
    return None


def give_back(x):
    return x


NETWORK = {f"layer{i}.weight": torch.ones(195000 if i < 60 else 512) for i in range(122)}


def network():
    return NETWORK


def used():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def row(name, value, unit):
    print(f"shared memory: {name}\t{value:.4g}\t{unit}", flush=True)


def latency(name, times):
    times = sorted(times)
    row(f"{name}, median", statistics.median(times) * 1e6, "us")
    row(f"{name}, 99th", times[len(times) - 1 - len(times) // 100] * 1e6, "us")


def timed(n, warm, *call):
    times = []
    for i in range(-warm, n):
        begin = time.perf_counter()
        rpc.rpc_sync("worker1", *call)
        if i >= 0:
            times.append(time.perf_counter() - begin)
    return times


def measure(rounds):
    latency("empty call", timed(rounds, 50, nothing))
    calls, window, begin = 5000, [], time.perf_counter()
    for i in range(calls):
        if len(window) == 64:
            window.pop(0).wait()
        window.append(rpc.rpc_async("worker1", nothing))
    for future in window:
        future.wait()
    row("64 calls under way", calls / (time.perf_counter() - begin), "calls/s")
    latency("1 MB there and back", timed(200, 3, give_back, (torch.zeros(250000),)))
    latency("4 KiB passed, not touched", timed(rounds, 50, nothing, (torch.zeros(1024),)))
    latency("1 GiB passed, not touched", timed(5, 1, nothing, (torch.zeros(1 << 28),)))
    latency("47 MB fetched, not touched", timed(30, 3, network))
    before, begin = rpc.rpc_sync("worker1", used), time.perf_counter()
    time.sleep(2)
    row("a worker that waits", 100 * (rpc.rpc_sync("worker1", used) - before) / (time.perf_counter() - begin),
        "% of a core")


def work(rank, port, rounds):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=2)
    if rank == 0:
        measure(rounds)
    rpc.shutdown()


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(work, (port, rounds), nprocs=2)


if __name__ == "__main__":
    main()
