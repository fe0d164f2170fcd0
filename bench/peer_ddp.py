#!/usr/bin/env python3
"""One data-parallel PyTorch training step with Gloo, timed: the peer of `yoke bench step` under `yoke run`.

Started once for each rank by a launcher that sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. Rank 0 prints one
JSON object as its last line, with the keys of peer_step.py; images_per_second counts all ranks.
"""
import json

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from peer_step import arguments, best_format


def slowest(seconds):
    value = torch.tensor(seconds, dtype=torch.float64)
    dist.all_reduce(value, dist.ReduceOp.MAX)
    return value.item()


def main():
    args = arguments(__doc__)
    dist.init_process_group("gloo")
    best, seconds = best_format(args, wrap=DistributedDataParallel, agree=slowest)
    world_size = dist.get_world_size()
    if dist.get_rank() == 0:
        print(json.dumps({
            "peer": "torch " + torch.__version__ + " DDP", "model": args.model, "batch_size": args.batch_size,
            "threads": args.threads, "format": best, "world_size": world_size,
            "step_ms_median": round(seconds * 1e3, 4),
            "images_per_second": round(args.batch_size * world_size / seconds, 1),
        }))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
