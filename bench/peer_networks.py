"""The networks of bench/operations/network_operations.c in PyTorch, as its users write them: fused attention, nn.LSTM, transposed
convolutions. What is not here is one of peer_step.py's."""
import torch
from torch import nn
from torch.nn import functional as F

import peer_step

WIDTH, VOCABULARY = 768, 50257


def conv(inputs, outputs, kernel, stride=1, groups=1, bias=False):
    return nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=bias)


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride, inner, groups):
        super().__init__()
        self.body = nn.Sequential(conv(inputs, inner, 1), nn.BatchNorm2d(inner), nn.ReLU(inplace=True),
                                  conv(inner, inner, 3, stride, groups), nn.BatchNorm2d(inner), nn.ReLU(inplace=True),
                                  conv(inner, 4 * width, 1), nn.BatchNorm2d(4 * width))
        self.downsample = None
        if inputs != 4 * width:
            self.downsample = nn.Sequential(conv(inputs, 4 * width, 1, stride), nn.BatchNorm2d(4 * width))

    def forward(self, x):
        out = self.body(x)
        out += x if self.downsample is None else self.downsample(x)
        return F.relu(out, inplace=True)


def resnet50(groups=1):
    parts, inputs = [conv(3, 64, 7, 2), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)], 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        for i in range(blocks):
            width = 64 << stage
            parts.append(Bottleneck(inputs, width, 2 if stage and i == 0 else 1, width * (2 if groups > 1 else 1), groups))
            inputs = 256 << stage
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 10))


class Residual(nn.Module):
    def __init__(self, *body):
        super().__init__()
        self.body = nn.Sequential(*body)

    def forward(self, x):
        return x + self.body(x)


def inverted_residual(inputs, outputs, stride, expansion):
    hidden, parts = inputs * expansion, []
    if expansion > 1:
        parts += [conv(inputs, hidden, 1), nn.BatchNorm2d(hidden), nn.ReLU6(inplace=True)]
    parts += [conv(hidden, hidden, 3, stride, hidden), nn.BatchNorm2d(hidden), nn.ReLU6(inplace=True),
              conv(hidden, outputs, 1), nn.BatchNorm2d(outputs)]
    return Residual(*parts) if stride == 1 and inputs == outputs else nn.Sequential(*parts)


def mobilenet_v2():
    parts, inputs = [conv(3, 32, 3, 2), nn.BatchNorm2d(32), nn.ReLU6(inplace=True)], 32
    for expansion, outputs, blocks, stride in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2),
                                               (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)):
        for i in range(blocks):
            parts.append(inverted_residual(inputs, outputs, 1 if i else stride, expansion))
            inputs = outputs
    return nn.Sequential(*parts, conv(inputs, 1280, 1), nn.BatchNorm2d(1280), nn.ReLU6(inplace=True),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(1280, 10))


def mnist():
    return nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Dropout(0.25), nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Dropout(0.5),
                         nn.Linear(128, 10))


def alexnet():
    parts, inputs = [], 3
    for i, (width, kernel, stride) in enumerate(((64, 11, 4), (192, 5, 1), (384, 3, 1), (256, 3, 1), (256, 3, 1))):
        parts += [nn.Conv2d(inputs, width, kernel, stride, kernel // 2 if i else 2), nn.ReLU(inplace=True)]
        if i in (0, 1, 4):
            parts.append(nn.MaxPool2d(3, 2))
        inputs = width
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(6), nn.Flatten(), nn.Dropout(0.5), nn.Linear(256 * 36, 4096),
                         nn.ReLU(inplace=True), nn.Dropout(0.5), nn.Linear(4096, 4096), nn.ReLU(inplace=True),
                         nn.Linear(4096, 10))


class Dense(nn.Module):
    def __init__(self, inputs, growth):
        super().__init__()
        self.body = nn.Sequential(nn.BatchNorm2d(inputs), nn.ReLU(inplace=True), conv(inputs, 4 * growth, 1),
                                  nn.BatchNorm2d(4 * growth), nn.ReLU(inplace=True), conv(4 * growth, growth, 3))

    def forward(self, x):
        return torch.cat((x, self.body(x)), 1)


def densenet121():
    parts, inputs, growth = [conv(3, 64, 7, 2), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)], 64, 32
    for b, depth in enumerate((6, 12, 24, 16)):
        for _ in range(depth):
            parts.append(Dense(inputs, growth))
            inputs += growth
        parts += [nn.BatchNorm2d(inputs), nn.ReLU(inplace=True)]
        if b < 3:
            parts += [conv(inputs, inputs // 2, 1), nn.AvgPool2d(2, 2)]
            inputs //= 2
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 10))


def vgg16():
    parts, inputs = [], 3
    for width, depth in zip((64, 128, 256, 512, 512), (2, 2, 3, 3, 3)):
        for _ in range(depth):
            parts += [conv(inputs, width, 3, bias=True), nn.ReLU(inplace=True)]
            inputs = width
        parts.append(nn.MaxPool2d(2, 2))
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(7), nn.Flatten(), nn.Linear(512 * 49, 4096),
                         nn.ReLU(inplace=True), nn.Dropout(0.5), nn.Linear(4096, 4096), nn.ReLU(inplace=True),
                         nn.Dropout(0.5), nn.Linear(4096, 10))


def double_conv(inputs, outputs):
    return nn.Sequential(conv(inputs, outputs, 3), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True),
                         conv(outputs, outputs, 3), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))


class UNet(nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        widths = [64, 128, 256, 512]
        self.down = nn.ModuleList(double_conv(i, o) for i, o in zip([3] + widths, widths + [1024]))
        self.widen = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, 2, bias=False) for w in widths)
        self.up = nn.ModuleList(double_conv(2 * w, w) for w in widths)
        self.pool = nn.MaxPool2d(2, 2)
        self.head = nn.Conv2d(64, classes, 1)

    def forward(self, x):
        kept = []
        for down in self.down[:-1]:
            kept.append(down(x))
            x = self.pool(kept[-1])
        x = self.down[-1](x)
        for i in (3, 2, 1, 0):
            x = self.up[i](torch.cat([kept[i], self.widen[i](x)], 1))
        return self.head(x)


def srcnn():
    return nn.Sequential(conv(3, 64, 9, bias=True), nn.ReLU(inplace=True), conv(64, 32, 1, bias=True), nn.ReLU(inplace=True),
                         conv(32, 3, 5, bias=True))


class SelfAttention(nn.Module):
    def __init__(self, causal):
        super().__init__()
        self.qkv, self.out, self.causal = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH), causal

    def forward(self, x):
        n, t, _ = x.shape
        q, k, v = self.qkv(x).view(n, t, 3, 12, 64).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(n, t, WIDTH))


def layers(causal):
    parts = []
    for _ in range(12):
        parts += [Residual(nn.LayerNorm(WIDTH), SelfAttention(causal)),
                  Residual(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))]
    return nn.Sequential(*parts, nn.LayerNorm(WIDTH))


class ViT(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.embed = nn.Conv2d(3, WIDTH, 16, 16)
        self.first = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.position = nn.Parameter(torch.randn(1, (size // 16) ** 2 + 1, WIDTH) * 0.02)
        self.layers, self.head = layers(False), nn.Linear(WIDTH, 10)

    def forward(self, x):
        x = self.embed(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(x.shape[0], -1, -1), x], 1)
        return self.head(self.layers(x + self.position)[:, 0])


class GPT2(nn.Module):
    def __init__(self, tokens):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.position = nn.Parameter(torch.randn(1, tokens, WIDTH) * 0.02)
        self.layers = layers(True)

    def forward(self, x):
        y = self.layers(self.embed(x) + self.position)
        return F.linear(y.view(-1, WIDTH), self.embed.weight)


class LSTM(nn.Module):
    def __init__(self, layers=nn.LSTM):
        super().__init__()
        self.lstm, self.head = layers(128, 256, 2, batch_first=True), nn.Linear(256, 10)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


def training_step(model, batch, size, memory_format):
    """A function that does one step: drop the gradients, forward, cross-entropy, backward, optimizer."""
    own = {"resnet50": resnet50, "resnext50": lambda: resnet50(32), "mobilenet_v2": mobilenet_v2, "mnist": mnist,
           "alexnet": alexnet, "densenet121": densenet121, "vgg16": vgg16, "unet": UNet, "unet_binary": lambda: UNet(2),
           "srcnn": srcnn, "lstm": LSTM, "gru": lambda: LSTM(nn.GRU), "vit_b": lambda: ViT(size), "gpt2": lambda: GPT2(size)}
    classes = {"unet": 10, "unet_binary": 2, "srcnn": 3}  # of each pixel
    if model in own:
        net, channels = own[model](), 1 if model == "mnist" else 3
    else:
        net, channels = peer_step.build(model, size, 10)
    net = net.to(memory_format=memory_format)
    y = torch.randint(0, 10, (batch,))
    if model == "gpt2":
        x, y = torch.randint(0, VOCABULARY, (batch, size)), torch.randint(0, VOCABULARY, (batch * size,))
    elif model in ("lstm", "gru"):
        x = torch.randn(batch, size, 128)
    else:
        x = torch.randn(batch, channels, size, size).contiguous(memory_format=memory_format)
    if model in classes:
        y = torch.randint(0, classes[model], (batch, size, size))
    if model in ("vit_b", "gpt2"):
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-5)
    else:
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9, weight_decay=1e-5)

    def step():
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
    return step
