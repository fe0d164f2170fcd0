#!/usr/bin/env python3
"""What PyTorch does on this GPU, for a comparison: started by `run`, with bench/peer_step.py beside it.

  peer.py parity MODEL --program GPU_CASES --folder DIR    the first step's loss and gradients, how far from float64
  peer.py step --model MODEL --batch-size N --mode MODE    the time of a training step
  peer.py rates                                            a large copy's, a large product's, and attention's
  peer.py version

Each result is a line of JSON.
"""
import argparse
import contextlib
import ctypes
import faulthandler
import json
import os
import signal
import statistics
import struct
import subprocess
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

faulthandler.enable()
faulthandler.register(signal.SIGQUIT, all_threads=True)  # `run` asks what takes too long where it is

here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [here, os.path.join(here, "..", "..", "bench")]
import peer_step  # noqa: E402: it lies beside this file in a bundle, and in bench/ in the sources

HEADS = 4  # as in gpu_parity.c
NAMES = {torch.float32: "F32", torch.float64: "F64", torch.bfloat16: "BF16", torch.float16: "F16", torch.int64: "I64"}
# What an error is counted as at least, relative to the numbers: below it one is as good as another.
FLOORS = {"fp32": 2.0**-22, "bf16": 2.0**-10}
MOST_RATIO = 2.0
FARTHEST = 1e300  # JSON has no infinity


class TransformerBlock(nn.Module):
    """gpu_parity.c's block; its loss is the mean of the squares."""

    def __init__(self, width):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc, self.out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        n, l, d = x.shape
        q, k, v = (t.reshape(n, l, HEADS, d // HEADS).transpose(1, 2) for t in self.qkv(self.ln1(x)).split(d, 2))
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(n, l, d)
        x = x + self.proj(seen)
        return x + self.out(F.gelu(self.fc(self.ln2(x))))


def print_json(row):
    print(json.dumps(row), flush=True)


# ---- safetensors, by hand: the package may not be there ---------------------------------------------------------------
def save(path, tensors):
    header, at, parts = {}, 0, []
    for name, x in tensors.items():
        x = x.detach().cpu().contiguous()
        data = ctypes.string_at(x.data_ptr(), x.numel() * x.element_size())  # numpy may not be there
        header[name] = {"dtype": NAMES[x.dtype], "shape": list(x.shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
        parts.append(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(parts))


def load(path):
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(size))
        data = bytearray(file.read())
    kinds = {name: dtype for dtype, name in NAMES.items()}
    tensors = {}
    for name, about in header.items():
        if name == "__metadata__":
            continue
        dtype, (begin, end) = kinds[about["dtype"]], about["data_offsets"]
        tensors[name] = torch.frombuffer(data[begin:end], dtype=dtype).reshape(about["shape"])
    return tensors


# ---- how far from float64 ----------------------------------------------------------------------------------------------
def without_tf32():
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False


def problem(model, small):
    """The network in float32 and its input and target."""
    torch.manual_seed(3)
    if model == "block":
        width, shape = (16, (2, 5, 16)) if small else (256, (4, 128, 256))
        return TransformerBlock(width), torch.randn(shape), torch.zeros(1, dtype=torch.int64)
    size, batch = (28, 2) if model == "lenet" else (32 if small else 64, 2 if small else 16)
    net, channels = peer_step.build(model, size, 10)
    return net, torch.randn(batch, channels, size, size), torch.randint(0, 10, (batch,))


def gradients(net, x, y, precision):
    """The loss and the gradients by name."""
    net.zero_grad()
    lower = torch.autocast(x.device.type, torch.bfloat16) if precision == "bf16" else contextlib.nullcontext()
    with lower:
        out = net(x)
        loss = out.to(next(net.parameters()).dtype).square().mean() if isinstance(net, TransformerBlock) else (
            F.cross_entropy(out, y))
    loss.backward()
    found = {name: p.grad for name, p in net.named_parameters()}
    found["loss"] = loss
    return {name: t.detach().double().cpu() for name, t in found.items()}


def apart(found, exact):
    """||found - exact|| / ||exact|| of each tensor; FARTHEST where one is missing or not finite."""
    errors = {}
    for name, want in exact.items():
        got = found.get(name)
        if got is None or got.numel() != want.numel() or not torch.isfinite(got).all():
            errors[name] = FARTHEST
        else:
            errors[name] = ((got.reshape(want.shape) - want).norm() / max(want.norm().item(), 1e-300)).item()
    return errors


def parity(args):
    without_tf32()
    net, x, y = problem(args.model, args.small)
    start = os.path.join(args.folder, args.model + ".start.safetensors")
    save(start, {**{k: v for k, v in net.state_dict().items() if v.dtype.is_floating_point}, "input": x, "target": y})
    state = {k: v.clone() for k, v in net.state_dict().items()}
    exact = gradients(net.double(), x.double(), y, "f64")
    failed = 0
    for precision in args.precisions.split(","):
        net.float().load_state_dict(state)
        net.to(args.device)
        theirs = apart(gradients(net, x.to(args.device), y.to(args.device), precision), exact)
        net.cpu()
        path = os.path.join(args.folder, "%s.%s.safetensors" % (args.model, precision))
        command = args.program.split("\n") + ["parity", args.model, precision, args.yoke_device, start, path]
        try:
            said = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=args.seconds)
        except subprocess.TimeoutExpired as error:
            said = subprocess.CompletedProcess(command, -1, "", "it took more than %g s: %s" % (args.seconds, error.stderr))
        row = {"parity": args.model, "precision": precision, "tensors": len(exact), "torch": torch.__version__,
               "floor": FLOORS[precision], "allowed": MOST_RATIO}
        if said.returncode:
            row.update(passed=False, text="yoke failed: %s" % (said.stderr.strip()[-2500:] or said.returncode))
        else:
            ours = apart({k: v.double() for k, v in load(path).items()}, exact)
            ratios = {k: FARTHEST if ours[k] == FARTHEST else ours[k] / max(theirs[k], FLOORS[precision]) for k in exact}
            worst = max(ratios, key=ratios.get)
            row.update(worst=worst, yoke=ours[worst], pytorch=theirs[worst], ratio=ratios[worst],
                       passed=ratios[worst] <= MOST_RATIO, loss={"yoke": ours["loss"], "pytorch": theirs["loss"]},
                       median_ratio=statistics.median(ratios.values()),
                       farthest={k: [ratios[k], ours[k], theirs[k]] for k in sorted(ratios, key=ratios.get)[:-6:-1]},
                       text="%s: yoke %.3g from float64, PyTorch %.3g" % (worst, ours[worst], theirs[worst]))
        failed += not row["passed"]
        print_json(row)
    return 1 if failed else 0


# ---- a step's time -----------------------------------------------------------------------------------------------------
def wait(device):
    if device == "cuda":
        torch.cuda.synchronize()


class Training:
    """A step of peer_step.py's on a GPU, as PyTorch is told to make it fast: TF32 or AMP, channels last, cuDNN's trials,
    a fused optimizer, gradients dropped rather than zeroed; compiled, the loss in the graph, and recorded (max-autotune
    replays CUDA graphs)."""

    def __init__(self, args, layout, x, y):
        torch.manual_seed(0)
        net = peer_step.build(args.model, x.shape[2], 10)[0].to(args.device).to(memory_format=layout)
        self.args, self.x, self.y = args, x.contiguous(memory_format=layout), y
        self.net = net
        self.optimize("fused" if args.device == "cuda" else "foreach")
        loss_fn = nn.CrossEntropyLoss()

        def loss_of(x, y):
            return loss_fn(net(x), y)

        self.loss_of = loss_of
        if args.mode == "compiled":
            how = {"backend": args.compile_backend} if args.compile_backend else {"mode": args.compile_mode}
            self.loss_of = torch.compile(loss_of, **how)

    def optimize(self, how):
        self.optimizer = how
        self.sgd = torch.optim.SGD(self.net.parameters(), lr=0.001, momentum=0.9, weight_decay=1e-5, **{how: True})

    def step(self):
        self.sgd.zero_grad(set_to_none=True)
        with torch.autocast(self.args.device, torch.bfloat16, enabled=self.args.precision == "bf16"):
            loss = self.loss_of(self.x, self.y)
        loss.backward()
        try:
            self.sgd.step()
        except RuntimeError:  # it wants a gradient to lie as its parameter does, in dimensions of one element, too
            if self.optimizer != "fused":
                raise
            self.optimize("foreach")
            self.sgd.step()

    def round(self, steps):
        """The mean seconds of so many, which are done then."""
        start = time.perf_counter()
        for _ in range(steps):
            self.step()
        wait(self.args.device)
        return (time.perf_counter() - start) / steps

    def measure(self):
        """As `yoke bench step` does: by rounds, each of which ends with a wait; the peaks are those of steps."""
        cuda = self.args.device == "cuda"
        once = self.round(2)
        steps = max(10, min(100000, int(self.args.seconds / once)))
        each = max(1, min(int(0.02 / once), (steps + 4) // 5))
        if cuda:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        self.round(steps // 10 + 1)
        rounds = [self.round(each) for _ in range((steps + each - 1) // each)]
        host = []
        for _ in range(21):
            start = time.perf_counter()
            self.step()
            host.append(time.perf_counter() - start)
            wait(self.args.device)
        median = statistics.median(rounds)
        return {"step_ms_median": round(median * 1e3, 4), "step_ms_min": round(min(rounds) * 1e3, 4),
                "images_per_second": round(self.args.batch_size / median, 1),
                "host_us_median": round(statistics.median(host) * 1e6, 1),
                "peak_memory_mb": round(torch.cuda.max_memory_allocated() / 2**20, 1) if cuda else None,
                "peak_reserved_mb": round(torch.cuda.max_memory_reserved() / 2**20, 1) if cuda else None}

    def kernels(self, steps=3):
        """Where a step's time goes, by kernel."""
        from torch.profiler import ProfilerActivity, profile
        with profile(activities=[ProfilerActivity.CUDA]) as found:
            self.round(steps)
        rows = []
        for row in found.key_averages():
            us = getattr(row, "self_device_time_total", 0)
            if us and not getattr(row, "is_user_annotation", False):  # of regions, whose kernels have rows of their own
                rows.append({"name": row.key[:110], "launches": row.count / steps, "us": us / steps})
        return sorted(rows, key=lambda row: -row["us"])[:40]


def compiler_said(args):
    """Whether the compiled step replays CUDA graphs: the compiler leaves them out with a line in its log alone."""
    if args.mode != "compiled":
        return {}
    from torch._dynamo.utils import counters
    return {"compile_mode": args.compile_mode, "cudagraph_skips": counters["inductor"]["cudagraph_skips"]}


def step_time(args):
    cuda = args.device == "cuda"
    torch.backends.cudnn.benchmark = True
    if args.tf32:
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    else:
        without_tf32()
    size = args.image_size or (28 if args.model in ("lenet", "mlp") else 32)
    x = torch.randn(args.batch_size, 1 if args.model in ("lenet", "mlp") else 3, size, size, device=args.device)
    y = torch.randint(0, 10, (args.batch_size,), device=args.device)
    # A line for both orders of channels; to compile takes minutes, and then they are last.
    layouts = {"channels last": torch.channels_last, "channels first": torch.contiguous_format}
    if args.mode == "compiled":
        del layouts["channels first"]
    training = None
    for name, layout in layouts.items():
        training = None  # its memory is free before the next
        training = Training(args, layout, x, y)
        begun = time.perf_counter()
        training.round(3)
        first = time.perf_counter() - begun
        if args.wait:
            with open(args.wait + ".ready", "w"):
                pass
            while not os.path.exists(args.wait + ".go"):
                time.sleep(0.05)
        print_json({"peer": "PyTorch " + torch.__version__, "model": args.model, "batch_size": args.batch_size,
                    "mode": args.mode, "precision": args.precision, "tf32": args.tf32, "layout": name,
                    "first_seconds": round(first, 1), **training.measure(), "optimizer": training.optimizer, **compiler_said(args)})
        if cuda and (args.profile or args.mode == "compiled"):
            try:
                print_json({"batch_size": args.batch_size, "layout": name, "kernels": training.kernels()})
            except Exception as error:
                print("the profiler: %r" % error, file=sys.stderr)
    return 0


def rates(args):
    """The median of ten, by the GPU's clock: of several calls each, which the GPU has before it when it begins, so that
    it does not wait for Python."""
    def seconds(call, calls=1):
        times = []
        for _ in range(13):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            for _ in range(calls):
                call()
            end.record()
            wait("cuda")
            times.append(begin.elapsed_time(end) * 1e-3 / calls)
        return statistics.median(times[3:])

    x = torch.randn(1 << 28, device="cuda")
    y = torch.empty_like(x)
    copy = seconds(lambda: y.copy_(x))
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    product = seconds(lambda: a @ b)
    found = {"copy": 2 * x.numel() * 4 / copy * 1e-9, "product": 2 * 8192**3 / product * 1e-12}
    # gpu_bench.c's rows of attention. Backward is what a step takes beyond forward.
    q, k, v, given = (torch.randn(8, 12, 1024, 64, device="cuda", dtype=torch.bfloat16) for _ in range(4))
    leaves = [t.requires_grad_() for t in (q, k, v)]
    try:
        forward = seconds(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True), 50)
        both = seconds(lambda: torch.autograd.grad(F.scaled_dot_product_attention(q, k, v, is_causal=True), leaves, given), 50)
        found.update({"attention": forward * 1e6, "attention backward": (both - forward) * 1e6})
    except RuntimeError as error:  # the others are told all the same
        print("attention: %s" % error, file=sys.stderr)
    print_json(found)
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("version")
    verbs.add_parser("rates")
    a = verbs.add_parser("parity")
    a.add_argument("model")
    a.add_argument("--program", required=True, help="gpu_cases; its first arguments, if any, behind line ends")
    a.add_argument("--folder", required=True)
    a.add_argument("--precisions", default="fp32,bf16")
    a.add_argument("--yoke-device", default="cuda:0")
    a.add_argument("--seconds", type=float, default=60)
    a.add_argument("--small", action="store_true")
    b = verbs.add_parser("step")
    b.add_argument("--model", default="resnet18-cifar")
    b.add_argument("--batch-size", type=int, default=32)
    b.add_argument("--image-size", type=int, default=0)
    b.add_argument("--mode", choices=["eager", "compiled"], default="eager")
    b.add_argument("--compile-backend", default="", help="default: Inductor")
    b.add_argument("--compile-mode", default="max-autotune")
    b.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    b.add_argument("--tf32", action="store_true")
    b.add_argument("--wait", default="", help="make FILE.ready once the first steps are done, and measure when FILE.go is there")
    b.add_argument("--seconds", type=float, default=1.5)
    b.add_argument("--profile", action="store_true", help="its kernels, too, as those of compiled steps always")
    for one in (a, b):
        one.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    if args.verb == "version":
        name = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "no GPU"
        try:
            import triton
            compiler = triton.__version__
        except ImportError:
            compiler = None
        print_json({"torch": torch.__version__, "cuda": torch.version.cuda, "gpu": name, "triton": compiler,
                    "cudnn": torch.backends.cudnn.version()})
        return 0
    return {"parity": parity, "rates": rates, "step": step_time}[args.verb](args)


sys.exit(main())
