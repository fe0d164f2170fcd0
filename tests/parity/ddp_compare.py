#!/usr/bin/env python3
"""yoke's DistributedDataParallel next to PyTorch's with Gloo, in float64, from the same weights and shards.

    python3 tests/parity/ddp_compare.py [--test build/tests/parity/ddp_parity_test]
    python3 tests/parity/ddp_compare.py --golden > tests/golden/ddp_golden.h

The first form runs ResNet-18 (2 ranks, 32 images each, 20 steps) in PyTorch, writes every rank's losses and the norms of
all parameters at the end to a file, and has the test follow them with yoke: exit code 1 where a number differs by more
than 1e-9 relative. The second writes what the test follows in every run: LeNet for 20 steps and ResNet-18 for 3 with
small batches. Weights and images come from Philox by the rule of make_parity.py. Needs torch and numpy.
"""
import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "..", "golden"))

WORLD = 2
RUNS = {
    "lenet": dict(model="lenet", batch=4, steps=20, channels=1, size=28, lr=0.01, wd=0.0),
    "resnet18": dict(model="resnet18", batch=4, steps=3, channels=3, size=32, lr=0.01, wd=1e-5),
    "full": dict(model="resnet18", batch=32, steps=20, channels=3, size=32, lr=0.01, wd=1e-5),
}


def rank_main(name):
    """One of the processes: prints its losses, and rank 0 the norms of the parameters, as JSON."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel
    import make_parity
    run = RUNS[name]
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    net = make_parity.RUNS[run["model"]]["make"]().double()
    make_parity.fill(net)
    if rank:  # rank 0's values must reach the others
        with torch.no_grad():
            for w in net.parameters():
                w.zero_()
    ddp = DistributedDataParallel(net)
    sgd = torch.optim.SGD(ddp.parameters(), lr=run["lr"], momentum=0.9, weight_decay=run["wd"])
    losses = []
    for step in range(run["steps"]):
        x, y = make_parity.batch(run, step * WORLD + rank)
        loss = nn.functional.cross_entropy(ddp(x), y)
        sgd.zero_grad()
        loss.backward()
        sgd.step()
        losses.append(loss.item())
    norms = {key: w.detach().norm().item() for key, w in net.named_parameters()}
    print(json.dumps(dict(losses=losses, norms=norms, version=torch.__version__)))
    dist.destroy_process_group()


def run_peers(name):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    peers = []
    for rank in range(WORLD):
        env = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(WORLD), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                   GLOO_SOCKET_IFNAME="lo")
        peers.append(subprocess.Popen([sys.executable, __file__, "--rank-of", name], env=env, stdout=subprocess.PIPE,
                                      text=True))
    results = []
    for peer in peers:
        out = peer.communicate()[0]
        if peer.returncode:
            sys.exit("ddp_compare: a PyTorch process ended with %d" % peer.returncode)
        results.append(json.loads(out.strip().splitlines()[-1]))
    return results


def golden():
    first = True
    for name in ("lenet", "resnet18"):
        results = run_peers(name)
        if first:
            print("/* Made by ddp_compare.py --golden with PyTorch %s and Gloo; do not edit. */" % results[0]["version"])
        first = False
        print("static const double ddp_%s_losses[][2] = {" % name)
        for pair in zip(*(r["losses"] for r in results)):
            print("    {%.17g, %.17g}," % pair)
        print("};\nstatic const double ddp_%s_norms[] = {" % name)
        for norm in results[0]["norms"].values():
            print("    %.17g," % norm)
        print("};")


def compare(test):
    results = run_peers("full")
    run = RUNS["full"]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as f:
        f.write("%s %d %d %d %.17g %.17g %d %d\n" % (run["model"], run["batch"], run["channels"], run["size"], run["lr"],
                                                     run["wd"], run["steps"], len(results[0]["norms"])))
        for pair in zip(*(r["losses"] for r in results)):
            f.write("%.17g %.17g\n" % pair)
        for norm in results[0]["norms"].values():
            f.write("%.17g\n" % norm)
        f.flush()
        print("PyTorch %s, DDP with Gloo: done; now yoke" % results[0]["version"], flush=True)
        return subprocess.run([test, f.name]).returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--test", default="build/tests/parity/ddp_parity_test")
    parser.add_argument("--golden", action="store_true")
    parser.add_argument("--rank-of", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank_of:
        rank_main(args.rank_of)
    elif args.golden:
        golden()
    else:
        sys.exit(compare(args.test))


if __name__ == "__main__":
    main()
