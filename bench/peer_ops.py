"""The rows of build/bench/operation_times in PyTorch, each made from the same text; bench/ops imports this.

A case is "conv2d x=8x64x56x56 w=64x64x3x3 padding=1 layout=inner": an operation, its operands' shapes, its parameters.
bench/operations/operation_build.c is the other side.
"""
import statistics
import time

import torch
from torch.nn import functional as F

import peer_functions
import peer_networks

DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f64": torch.float64, "i64": torch.int64, "i32": torch.int32,
          "u8": torch.uint8, "bool": torch.bool}
POSITIVE = ("log", "pow_scalar", "sqrt", "log1p", "pow", "multinomial", "kl_div") + peer_functions.POSITIVE
LAYERS = ("silu", "mish", "leaky_relu", "elu", "selu", "celu", "hardswish", "hardsigmoid", "logsigmoid", "softplus",
          "hardshrink", "softshrink", "tanhshrink", "softsign", "pairwise_distance", "cosine_similarity", "l1_loss",
          "smooth_l1_loss", "huber_loss", "binary_cross_entropy_with_logits")
FORMATS = {"nchw": torch.contiguous_format, "channels_last": torch.channels_last}


class Text:
    """The keys of a case."""

    def __init__(self, text):
        words = text.split(" ")
        self.text, self.operation, self.values = text, words[0], dict(word.split("=") for word in words[1:])

    def sizes(self, key):
        return [int(n) for n in self.values[key].split("x")] if key in self.values else None

    def int(self, key, otherwise=0):
        return int(self.values.get(key, otherwise))


def formats(text):
    """The memory formats in which a case is measured: both for maps and networks of convolutions."""
    case = Text(text)
    maps = len(case.sizes("x") or []) == 4 and case.operation != "contiguous"
    network = case.values.get("model", "mlp") not in ("mlp", "gpt2", "lstm", "gru")
    return list(FORMATS) if maps or network else ["nchw"]


def fastest_step(optimizer, parameters, **options):
    """Of PyTorch's implementations the fused one is the fastest on a CPU, where this version has it there (2.4 on)."""
    try:
        return optimizer(parameters, fused=True, **options).step
    except (TypeError, RuntimeError):
        return optimizer(parameters, **options).step


class Subject:
    """An operation with its operands, for one direction and one memory format."""

    def __init__(self, text, direction, memory_format):
        self.case = Text(text)
        self.format = FORMATS[memory_format]
        self.inputs = []
        self.step = None
        self.index = None
        for key in ("x", "y", "w"):
            if self.case.sizes(key):
                self.inputs.append(self.random(key))
        self.module = None
        if self.case.operation in peer_functions.PREPARE:
            peer_functions.PREPARE[self.case.operation](self)
        else:
            getattr(self, "prepare_" + self.case.operation, lambda: None)()
        if "dtype" in self.case.values:
            self.inputs = [x.to(DTYPES[self.case.values["dtype"]]) for x in self.inputs]
        self.call = self.by_name() or peer_functions.table(self)
        self.direction = direction
        if direction == "forward" and self.module:
            self.module.requires_grad_(False)
        if direction in ("forward", "step"):
            return
        for i, x in enumerate(self.inputs):
            x.requires_grad_(direction != "grad_weight" if i == 0 else direction != "grad_input")
        self.wanted = [x for x in self.inputs if x.requires_grad]
        self.out = self.forward()
        self.gradient = None
        if self.out.dim() > 0:
            self.gradient = torch.randn_like(self.out)
            if self.case.values.get("grad") == "nchw":
                self.gradient = self.gradient.contiguous()

    def random(self, key):
        sizes = self.case.sizes(key)
        if self.case.operation in POSITIVE:
            return torch.rand(sizes) + 0.1
        if key == "y" and self.case.values.get("layout") == "transposed":
            return torch.randn(sizes[::-1]).t()
        x = torch.randn(sizes)
        if len(sizes) == 4 and self.case.operation != "contiguous":
            return x.contiguous(memory_format=self.format)
        if len(sizes) == 4 and "layout" in self.case.values:
            return x.contiguous(memory_format=torch.channels_last)
        return x

    # ---- operands beyond those with shapes in the text ----
    def prepare_conv2d(self):
        w = self.inputs[1]
        self.inputs[1] = (torch.rand_like(w) - 0.5) / (w[0].numel() ** 0.5)
        if self.case.int("bias"):
            self.inputs.append(torch.randn(w.shape[0]))

    def prepare_linear(self):
        if self.case.int("bias"):
            self.inputs.append(torch.randn(self.inputs[1].shape[0]))

    def prepare_attention(self):
        self.inputs += [torch.randn_like(self.inputs[0]), torch.randn_like(self.inputs[0])]

    def prepare_lstm_cell(self):
        batch, gates = self.inputs[0].shape[0], self.inputs[1].shape[0]
        self.inputs += [torch.randn(gates, gates // 4), torch.randn(gates), torch.randn(gates),
                        torch.randn(batch, gates // 4), torch.randn(batch, gates // 4)]

    def prepare_lstm(self):
        batch, gates = self.inputs[0].shape[1], self.inputs[1].shape[0]
        self.inputs += [torch.randn(gates, gates // 4), torch.randn(gates), torch.randn(gates)]
        self.zeros = torch.zeros(1, batch, gates // 4)

    def prepare_batch_norm(self):
        channels = self.inputs[0].shape[1]
        self.inputs += [torch.ones(channels), torch.zeros(channels)]
        self.statistics = (torch.zeros(channels), torch.ones(channels)) if self.case.int("eval") else (None, None)

    def prepare_layer_norm(self):
        self.inputs += [torch.ones(self.inputs[0].shape[-1]), torch.zeros(self.inputs[0].shape[-1])]

    def prepare_cross_entropy(self):
        self.index = torch.randint(0, self.inputs[0].shape[1], (self.inputs[0].shape[0],))

    def prepare_rows(self):
        x, dim = self.inputs[0], self.case.int("dim")
        rows = self.case.int("rows", self.inputs[1].shape[dim] if len(self.inputs) > 1 else 1)
        self.index = torch.randint(0, x.shape[dim], (rows,))

    prepare_embedding = prepare_index = prepare_index_put_ = prepare_index_select = prepare_index_add_ = prepare_rows

    def prepare_take(self):
        self.index = torch.randint(0, self.inputs[0].numel(), (self.case.int("rows"),))

    def prepare_grid_sample(self):
        self.inputs[1] = torch.sigmoid(self.inputs[1]) * 2 - 1

    def prepare_max_unpool2d(self):
        self.inputs[0], self.index = F.max_pool2d(self.inputs[0], 2, 2, return_indices=True)

    def prepare_channels(self):
        channels = self.inputs[0].shape[1]
        self.inputs += [torch.ones(channels), torch.zeros(channels)]

    prepare_group_norm = prepare_instance_norm = prepare_channels

    def prepare_rms_norm(self):
        self.inputs.append(torch.ones(self.inputs[0].shape[-1]))

    def prepare_positions(self):
        x = self.inputs[0]
        self.index = torch.randint(0, x.shape[self.case.int("dim")], x.shape)

    prepare_gather = prepare_scatter_ = prepare_scatter_add_ = prepare_positions

    def prepare_mask(self):
        self.index = torch.rand(self.inputs[0].shape) > 0.5

    prepare_index_mask = prepare_index_fill_mask_ = prepare_mask
    prepare_masked_select = prepare_masked_fill = prepare_masked_fill_ = prepare_nonzero = prepare_mask

    def prepare_index_put_mask_(self):
        self.prepare_mask()
        self.inputs.append(torch.randn(int(self.index.sum())))

    def prepare_one_hot(self):
        self.index = torch.randint(0, self.case.int("bins"), (self.case.int("rows"),))

    def parameters(self):
        made = [torch.randn(self.case.sizes("x")).requires_grad_() for _ in range(self.case.int("tensors"))]
        for p in made:
            p.grad = torch.randn_like(p)
        self.inputs = []
        return made

    def prepare_sgd(self):
        self.step = fastest_step(torch.optim.SGD, self.parameters(), lr=1e-3, momentum=0.9, weight_decay=1e-5)

    def prepare_adam(self):
        self.step = fastest_step(torch.optim.Adam, self.parameters())

    def prepare_clip_grad_norm(self):
        parameters = self.parameters()
        self.step = lambda: torch.nn.utils.clip_grad_norm_(parameters, 1)

    def prepare_step(self):
        case = self.case
        self.step = peer_networks.training_step(case.values["model"], case.int("batch"), case.int("size"), self.format)

    # ---- the operation ----
    def by_name(self):
        """A function of no arguments for what reduce_operations.c has; None for the others. Looked up once."""
        case, i = self.case, self.inputs
        x, y = (i + [None, None])[:2]
        dims, dim, n = case.sizes("dims"), case.int("dim"), case.int("n")
        keys = (slice(None),) * dim + (slice(None, None, case.int("step", 1)),)
        dtype, p = DTYPES.get(case.values.get("dtype"), torch.float32), float(case.values.get("p", "2"))

        def over_dims(function):
            return lambda: function(x, dims) if dims else function(x)

        return {
            "sum_dims": over_dims(torch.sum), "mean": over_dims(torch.mean), "var": over_dims(torch.var),
            "std": over_dims(torch.std),
            "norm": lambda: torch.linalg.vector_norm(x, p, dims),
            "argmax": lambda: torch.argmax(x, dim), "argmin": lambda: torch.argmin(x, dim),
            "cumprod": lambda: torch.cumprod(x, dim), "argsort": lambda: torch.argsort(x, dim),
            "sort": lambda: torch.sort(x, dim)[0], "median_dim": lambda: torch.median(x, dim)[0],
            "quantile": lambda: torch.quantile(x, float(case.values.get("q", "0.5")), dim),
            "cdist": lambda: torch.cdist(x, y, p),
            "one_hot": lambda: F.one_hot(self.index, case.int("bins")),
            "arange": lambda: torch.arange(n, dtype=dtype),
            "rand": lambda: torch.rand(n, dtype=dtype), "randn": lambda: torch.randn(n, dtype=dtype),
            "randint": lambda: torch.randint(0, 10, (n,), dtype=dtype), "randperm": lambda: torch.randperm(n),
            "zeros": lambda: torch.zeros(n, dtype=dtype), "full": lambda: torch.full((n,), 1.5, dtype=dtype),
            "multinomial": lambda: torch.multinomial(x, case.int("rows", 1), case.int("replacement") == 1),
            "flip": lambda: torch.flip(x, dims), "roll": lambda: torch.roll(x, case.int("shift", 1), dim),
            "tril": lambda: torch.tril(x), "clone": lambda: torch.clone(x),
            "repeat": lambda: x.repeat(case.sizes("repeats")), "stack": lambda: torch.stack(i, dim),
            "einsum": lambda: torch.einsum(case.values["equation"], x, y),
            "gelu_tanh": lambda: F.gelu(x, approximate="tanh"), "threshold": lambda: F.threshold(x, 0.1, 0),
            "rrelu": lambda: F.rrelu(x, training=True), "glu": lambda: F.glu(x, dim),
            "dropout2d": lambda: F.dropout2d(x), "alpha_dropout": lambda: F.alpha_dropout(x, training=True),
            "pad": lambda: F.pad(x, [case.int("border", 1)] * 4, case.values.get("mode", "constant")),
            "unfold": lambda: F.unfold(x, case.int("kernel", 3), 1, case.int("padding"), case.int("stride", 1)),
            "fold": lambda: F.fold(x, case.int("size"), case.int("kernel", 3), 1, case.int("padding"), case.int("stride", 1)),
            "grid_sample": lambda: F.grid_sample(x, y, case.values.get("mode", "bilinear"), align_corners=False),
            "affine_grid": lambda: F.affine_grid(x, case.sizes("size"), False),
            "pixel_shuffle": lambda: F.pixel_shuffle(x, 2),
            "channel_shuffle": lambda: F.channel_shuffle(x, case.int("groups", 2)),
            "max_unpool2d": lambda: F.max_unpool2d(x, self.index, 2),
            "group_norm": lambda: F.group_norm(x, case.int("groups", 32), *i[1:]),
            "instance_norm": lambda: F.instance_norm(x, None, None, *i[1:]),
            "rms_norm": lambda: F.rms_norm(x, x.shape[-1:], y, 1e-5),
            "local_response_norm": lambda: F.local_response_norm(x, 5),
            "bilinear": lambda: F.bilinear(x, y, i[2]),
            "kl_div": lambda: F.kl_div(x, y),
            **{name: (lambda name=name: getattr(F, name)(*i)) for name in LAYERS},
            "contiguous_part": lambda: x[keys].contiguous(), "add_part_": lambda: x[keys].add_(y),
            "copy_part_": lambda: x[keys].copy_(y), "fill_part_": lambda: x[keys].fill_(1.5),
        }.get(case.operation)

    def forward(self):
        if self.call:
            return self.call()
        case, i = self.case, self.inputs
        name, x = case.operation, i[0]
        if name == "conv2d":
            return F.conv2d(x, i[1], i[2] if len(i) > 2 else None, case.int("stride", 1), case.sizes("padding") or 0,
                            case.int("dilation", 1), case.int("groups", 1))
        if name == "linear":
            return F.linear(x, i[1], i[2] if len(i) > 2 else None)
        if name == "matmul":
            return x @ (i[1].transpose(-1, -2) if case.int("transposed") else i[1])
        if name == "attention":
            return torch.softmax((x * 0.125) @ i[1].transpose(-1, -2), -1) @ i[2]
        if name == "lstm_cell":
            return torch.lstm_cell(x, (i[5], i[6]), *i[1:5])[0]
        if name == "lstm":
            return torch.lstm(x, (self.zeros, self.zeros), i[1:], True, 1, 0.0, True, False, False)[0]
        if name == "batch_norm":
            out = F.batch_norm(x, *self.statistics, i[1], i[2], not self.case.int("eval"))
            return F.relu(out, inplace=True) if case.int("relu") else out
        if name == "layer_norm":
            return F.layer_norm(x, x.shape[-1:], i[1], i[2])
        if name == "clamp":
            return torch.clamp(x, 0, 6)
        if name == "gelu":
            return F.gelu(x)
        if name == "pow_scalar":
            return torch.pow(x, float(case.values["exponent"]))
        if name == "dropout":
            return F.dropout(x, 0.1, True)
        if name == "cat":
            return torch.cat(i, case.int("dim"))
        if name == "contiguous":
            digits = case.values.get("permute")
            return (x.permute([int(d) for d in digits]) if digits else x).contiguous()
        if name == "cast":
            return x.to(DTYPES.get(case.values["to"], torch.float32))
        if name == "topk":
            return torch.topk(x, case.int("k"), case.int("dim"))[0]
        if name == "gather":
            return torch.gather(x, case.int("dim"), self.index)
        if name in ("scatter_", "scatter_add_", "index_add_"):
            return getattr(x, name)(case.int("dim"), self.index, i[1])
        if name in ("index", "index_mask"):
            return x[self.index]
        if name in ("index_put_", "index_put_mask_"):
            return x.index_put_((self.index,), i[1], case.int("accumulate") == 1)
        if name == "index_select":
            return torch.index_select(x, case.int("dim"), self.index)
        if name in ("take", "masked_select"):
            return getattr(torch, name)(x, self.index)
        if name in ("masked_fill", "masked_fill_"):
            return getattr(x, name)(self.index, 0)
        if name == "nonzero":
            return torch.nonzero(self.index)
        if name in ("sum_dim", "softmax", "log_softmax", "logsumexp", "cumsum"):
            return getattr(torch, name.removesuffix("_dim"))(x, case.int("dim"))
        if name == "max_dim":
            return torch.max(x, case.int("dim"))[0]
        if name == "cross_entropy":
            return F.cross_entropy(x, self.index)
        if name == "mse_loss":
            return F.mse_loss(x, i[1])
        if name == "embedding":
            return F.embedding(self.index, x)
        return getattr(x, name)(*i[1:]) if name.endswith("_") else getattr(torch, name)(*i)

    def once(self):
        if self.direction == "step":
            self.step()
        elif self.case.operation == "index_fill_mask_":
            self.inputs[0][self.index] = 0
        elif self.direction == "forward":
            self.forward()
        elif self.direction == "both":
            torch.autograd.backward(self.forward(), self.gradient)
            self.drop()
        else:
            torch.autograd.backward(self.out, self.gradient, retain_graph=True)
            self.drop()

    def drop(self):
        for x in self.wanted:
            x.grad = None
        if self.module:
            self.module.zero_grad()


def measure(subject, seconds):
    """Microseconds of one run, measured as build/bench/operation_times does."""
    clock = time.process_time
    start = clock()
    subject.once()
    if clock() - start < 0.1:
        subject.once()
    start = clock()
    subject.once()
    once = max(clock() - start, 1e-7)
    runs = int(min(max(1e-3 / once, 1), 100000))
    times, begun = [once] if runs == 1 else [], clock()
    while len(times) < 3 or (len(times) < 1000 and clock() - begun < seconds):
        start = clock()
        for _ in range(runs):
            subject.once()
        times.append((clock() - start) / runs)
    return statistics.median(times) * 1e6
