#!/usr/bin/env python3
"""torch.load of a file in the page cache, one thread: prints {"load_gbs": ...} of the first load in the process, as a
program does it, and {"again_gbs": ...}, the median of more in memory that the allocator kept."""
import argparse
import json
import os
import statistics
import time

import torch

parser = argparse.ArgumentParser()
parser.add_argument("file")
parser.add_argument("--rounds", type=int, default=0)
arguments = parser.parse_args()
torch.set_num_threads(1)
size = os.path.getsize(arguments.file)
options = {"weights_only": True} if int(torch.__version__.split(".")[0]) >= 2 else {}
times = []
for i in range(arguments.rounds + 1):
    begun = time.perf_counter()
    state = torch.load(arguments.file, **options)
    times.append(time.perf_counter() - begun)
    del state
result = {"torch": torch.__version__, "load_gbs": size / 1e9 / times[0]}
if arguments.rounds:
    result["again_gbs"] = size / 1e9 / statistics.median(times[1:])
print(json.dumps(result))
