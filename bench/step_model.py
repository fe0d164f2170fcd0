#!/usr/bin/env python3
"""What a recorded training step should cost on an H200: a model, no measurement.

The emulator (tests/emulator) replays the step of `yoke bench step --record` at two small batches and counts what each
kernel and each call of a library moves; what grows with the batch is extended to the batches that are asked for, in a
straight line. A kernel's time is the longer one of its bytes at the memory's rate and its floating-point operations at
the library's, and a fixed part for being a node of a graph. What this leaves out: caches between kernels, kernels with
too few blocks or loads under way, libraries that reach less than they could, and what runs side by side.

    make build/yoke build/emulator/yoke-cuda.so && bench/step_model.py --precision bf16 --batches 512,1024
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
BANDWIDTH = 4.3e12  # bytes a second, of 4.8 that the memory has
RATES = {"bf16": 700e12, "tf32": 350e12, "f32": 50e12}  # floating-point operations a second of products
NODE = 2e-6  # seconds
SUMS_OF_PARTS, ENOUGH_BLOCKS, ENTRY = ("batch_sums_kernel", "gradient_sums_kernel"), 528, 16  # of batch_norm.cu


def symbols(plugin):
    """Names of the kernels, by their address in the plug-in."""
    lines = subprocess.run(["nm", "-C", plugin], check=True, capture_output=True, text=True).stdout.splitlines()
    found = {}
    for line in lines:
        parts = line.split(" ", 2)
        if len(parts) == 3 and parts[0]:
            found[int(parts[0], 16)] = parts[2].split("(")[0].split("<")[0].removeprefix("void ")
    return found


def count(o, batch, names):
    """The rows of one replayed step, in the order of recording."""
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "traffic")
        environment = dict(os.environ, YOKE_BACKEND_PATH=os.path.join(o.build, "emulator"), YOKE_EMULATOR_PRODUCTS="0",
                           YOKE_EMULATOR_TRAFFIC=file, YOKE_EMULATOR_PROCESSORS="132", YOKE_EMULATOR_MEMORY="4096",
                           YOKE_CUDA_TF32="1" if o.precision == "tf32" else "0")
        command = [os.path.join(o.build, "yoke"), "bench", "step", "--device", "cuda", "--record", "--model", o.model,
                   "--batch-size", str(batch), "--steps", "1",
                   "--precision", "bf16" if o.precision == "bf16" else "fp32"]
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
        while not os.path.exists(file) and process.poll() is None:
            time.sleep(0.1)
        process.kill()  # one replay is enough
        process.wait()
        if not os.path.exists(file):
            sys.exit(f"step_model: no step was replayed: {' '.join(command)}")
        with open(file) as lines:
            rows = [json.loads(line) for line in lines]
    for row in rows:
        row["kernel"] = names.get(row["kernel"], "?") if row["kernel"] else row["name"]
        row["bytes"] = row["sectors_read"] + row["sectors_written"]
    return rows


def part_bytes(row, channels, channels_first, growth=1):
    """What batch_norm's kernels write of sums of parts, of which there are only as many as fill a GPU."""
    groups = channels if channels_first else -(-channels // 256)
    parts = min(row["blocks"] / groups * growth, max(row["blocks"] / groups, -(-ENOUGH_BLOCKS // groups)))
    return channels * parts * ENTRY


def extend(first, second, batches, to, channels_first):
    """Rows for another batch: each number in a straight line through those of two, but for sums of parts."""
    if [r["kernel"] for r in first] != [r["kernel"] for r in second]:
        sys.exit("step_model: the steps of both batches are not the same kernels: take larger ones (--small)")
    def line(x, y):
        return x + (y - x) * (to - batches[0]) / (batches[1] - batches[0])

    rows = []
    for i, (a, b) in enumerate(zip(first, second)):
        row = dict(b, multiply_adds=line(a["multiply_adds"], b["multiply_adds"]), bytes=line(a["bytes"], b["bytes"]))
        if b["kernel"] in SUMS_OF_PARTS:
            channels = second[i + 1]["blocks"]  # the next kernel has a block for each
            old, new = (part_bytes(r, channels, channels_first) for r in (a, b))
            row["bytes"] = line(a["bytes"] - old, b["bytes"] - new) + part_bytes(b, channels, channels_first, to / batches[1])
        elif i and second[i - 1]["kernel"] in SUMS_OF_PARTS:
            row["bytes"] = part_bytes(second[i - 1], b["blocks"], channels_first, to / batches[1])
        rows.append(row)
    return rows


def seconds(row, precision):
    return max(row["bytes"] / BANDWIDTH, 2 * row["multiply_adds"] / RATES[precision]) + NODE


def report(rows, o, batch):
    groups = {}
    for row in rows:
        key = (row["name"], row["kernel"], row["detail"].split(":")[0] if ":" in row["detail"] else "")
        group = groups.setdefault(key, {"count": 0, "bytes": 0, "flops": 0, "time": 0, "blocks": []})
        group["count"] += 1
        group["bytes"] += row["bytes"]
        group["flops"] += 2 * row["multiply_adds"]
        group["time"] += seconds(row, o.precision)
        group["blocks"].append(row["blocks"])
    total = sum(g["time"] for g in groups.values())
    nodes, moved = len(rows), sum(g["bytes"] for g in groups.values())
    print(f"\n{o.model}, {o.precision}, batch {batch}: {total * 1e3:.3f} ms, {batch / total:,.0f} images/s; {nodes} nodes "
          f"({nodes * NODE * 1e3:.3f} ms), {moved / 1e6:,.1f} MB; a model, not measured")
    print(f"{'us':>9} {'nodes':>5} {'MB':>10} {'GFLOP':>9} {'blocks':>11}  operation, kernel")
    for (name, kernel, detail), g in sorted(groups.items(), key=lambda each: -each[1]["time"])[:o.rows]:
        blocks = f"{min(g['blocks'])}-{max(g['blocks'])}" if max(g["blocks"]) else ""
        text = ", ".join(dict.fromkeys(part for part in (name, kernel, detail) if part))
        print(f"{g['time'] * 1e6:9.1f} {g['count']:5} {g['bytes'] / 1e6:10.1f} {g['flops'] / 1e9:9.1f} {blocks:>11}  {text}")
    return {"batch": batch, "ms": total * 1e3, "nodes": nodes, "MB": moved / 1e6}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", default="resnet18-cifar")
    p.add_argument("--precision", choices=sorted(RATES), default="bf16")
    p.add_argument("--batches", default="4,32,512,1024")
    p.add_argument("--small", default="2,4", help="the two batches that are emulated")
    p.add_argument("--build", default=os.path.join(FOLDER, "build"))
    p.add_argument("--rows", type=int, default=100)
    p.add_argument("--each", action="store_true", help="print every node of the larger small batch, too")
    p.add_argument("--json", metavar="FILE", help="write the totals there")
    p.add_argument("--keep-rows", metavar="FILE", help="write what was counted there")
    p.add_argument("--rows-from", metavar="FILE", help="take that, and emulate nothing")
    o = p.parse_args()
    names = symbols(os.path.join(o.build, "emulator", "yoke-cuda.so"))
    small = [int(n) for n in o.small.split(",")]
    if o.rows_from:
        with open(o.rows_from) as file:
            counted = json.load(file)
    else:
        counted = [count(o, n, names) for n in small]
    if o.keep_rows:
        with open(o.keep_rows, "w") as file:
            json.dump(counted, file)
    for i, row in enumerate(counted[1] if o.each else []):
        print(f"{i:4} {row['bytes'] / 1e3:10.1f} kB (asked for: {(row['read'] + row['written']) / 1e3:.1f}) "
              f"{row['blocks']:5} x {row['threads']:4}  {row['name']}, {row['kernel']} {row['detail']}")
    totals = [report(extend(*counted, small, int(n), o.precision == "f32"), o, int(n)) for n in o.batches.split(",")]
    if o.json:
        with open(o.json, "w") as file:
            json.dump(totals, file, indent=1)


if __name__ == "__main__":
    main()
