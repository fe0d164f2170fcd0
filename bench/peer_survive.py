"""Workers of `torchrun --max-restarts 1`: one of them kills itself, and all are started again. Writes when it did so, and
when the first collective of the new ones was complete, in seconds, to the file that is named; bench/survive.c reads it.
"""
import os
import signal
import sys
import time

import torch
import torch.distributed as dist

path = sys.argv[1]
dist.init_process_group("gloo")
values = torch.ones(61706)  # LeNet's parameters
dist.all_reduce(values)
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    for step in range(10):
        dist.all_reduce(values)
    if dist.get_rank() == dist.get_world_size() - 1:
        with open(path, "w") as file:
            file.write(f"{time.clock_gettime(time.CLOCK_MONOTONIC)}\n")
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(values)
elif dist.get_rank() == 0:
    with open(path, "a") as file:
        file.write(f"{time.clock_gettime(time.CLOCK_MONOTONIC)}\n")
dist.destroy_process_group()
