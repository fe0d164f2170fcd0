#!/usr/bin/env python3
"""all_reduce of torch.distributed with Gloo between two processes: the peer of `yoke bench allreduce`.

usage: peer_allreduce.py [--bytes LIST] [--ranks N] [--seconds X]     Starts its ranks itself. Prints one JSON object a
size, with yoke's keys. Buffers are rewritten before every operation, all sums are checked, one thread a process, and
the time is the median of the slowest rank. With --first it prints the milliseconds that one all-reduce on a fresh job
took in a rank, for a launcher (torchrun) to start.
"""
import argparse
import json
import os
import socket
import statistics
import time


def size_of(text):
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    return int(text[:-1]) * units[text[-1]] if text[-1] in units else int(text)


def measure(torch, dist, size, seconds, rank, ranks):
    n = size // 4
    base = torch.arange(n, dtype=torch.int64)
    x = torch.empty(n)
    times, repeats, begun = [], None, time.perf_counter()
    k = -3
    while repeats is None or k < repeats:
        pattern = ((base + 3 * (k + 3)) % 61).float()
        torch.add(pattern, rank, out=x)
        dist.barrier()
        start = time.perf_counter()
        dist.all_reduce(x)
        end = time.perf_counter()
        if not torch.equal(x, pattern * ranks + ranks * (ranks - 1) / 2):
            raise SystemExit(f"all_reduce of {size} bytes: a wrong sum")
        if k >= 0:
            times.append(end - start)
        if k == -1:
            each = (time.perf_counter() - begun) / 3
            fit = torch.tensor([min(2000, max(7 if size >= 4 << 20 else 51, int(seconds / each)))])
            dist.all_reduce(fit, dist.ReduceOp.MIN)
            repeats = int(fit)
        k += 1
    median = torch.tensor([statistics.median(times)], dtype=torch.float64)
    dist.all_reduce(median, dist.ReduceOp.MAX)
    return float(median)


def rank_main(rank, ranks, port, args):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    for size in map(size_of, args.bytes.split(",")):
        seconds = measure(torch, dist, size, args.seconds, rank, ranks)
        if rank == 0:
            rate = size / seconds / 1e9
            print(json.dumps({"subject": "allreduce", "ranks": ranks, "backend": "gloo", "torch": torch.__version__,
                              "bytes": size, "time_us_median": seconds * 1e6, "algbw_gbps": rate,
                              "busbw_gbps": rate * 2 * (ranks - 1) / ranks}), flush=True)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bytes", default="4,16K,46800000")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--first", action="store_true")
    args = parser.parse_args()
    if args.first:
        import torch
        import torch.distributed as dist

        begun = time.perf_counter()
        dist.init_process_group("gloo")
        dist.all_reduce(torch.ones(1))
        print(json.dumps({"first_ms": (time.perf_counter() - begun) * 1e3}), flush=True)
        dist.destroy_process_group()
        return
    import torch.multiprocessing as mp

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(rank_main, (args.ranks, port, args), args.ranks)


if __name__ == "__main__":
    main()
