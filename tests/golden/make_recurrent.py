#!/usr/bin/env python3
"""Writes recurrent.golden: GRUs, RNNs, their cells and packed sequences of all kinds in float64, by PyTorch.

    python3 tests/golden/make_recurrent.py

The form of cases: module_cases.py. A packed case is a module with a network in "rnn"; its inputs are x, lengths and states,
its outputs the padded output, the lengths and the last states.
"""
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

import golden_file
from module_cases import case, flat

torch.set_default_dtype(torch.float64)
torch.manual_seed(34)
INPUT, HIDDEN, N, STEPS = 2, 3, 3, 4
sections, names = [], []


def add(name, module, inputs, call):
    names.append(name)
    sections.extend(case(name, module, inputs, call))


def sequence(name, make, shape, ends, given=True, **options):
    m = make(INPUT, HIDDEN, **options)
    inputs = [torch.randn(*shape, INPUT)] + ([torch.randn(*ends, HIDDEN)] if given else [])
    add(name, m, inputs, lambda m, *x: list(m(*x)))


for make, prefix in ((nn.GRU, "gru"), (nn.RNN, "rnn")):
    sequence(prefix + "_plain", make, (STEPS, N), (1, N), given=False)
    sequence(prefix + "_both", make, (STEPS, N), (4, N), num_layers=2, bidirectional=True)
    sequence(prefix + "_first", make, (N, STEPS), (2, N), num_layers=2, batch_first=True, bias=False)
    sequence(prefix + "_single", make, (STEPS,), (2,), bidirectional=True)
sequence("rnn_relu", nn.RNN, (STEPS, N), (2, N), num_layers=2, nonlinearity="relu")
add("gru_cell", nn.GRUCell(INPUT, HIDDEN), [torch.randn(N, INPUT), torch.randn(N, HIDDEN)], lambda m, x, h: [m(x, h)])
add("gru_cell_bare", nn.GRUCell(INPUT, HIDDEN, bias=False), [torch.randn(N, INPUT)], lambda m, x: [m(x)])
add("rnn_cell", nn.RNNCell(INPUT, HIDDEN), [torch.randn(N, INPUT), torch.randn(N, HIDDEN)], lambda m, x, h: [m(x, h)])
add("rnn_cell_relu", nn.RNNCell(INPUT, HIDDEN, nonlinearity="relu"), [torch.randn(N, INPUT)], lambda m, x: [m(x)])


class Packed(nn.Module):
    def __init__(self, rnn, is_sorted, total):
        super().__init__()
        self.rnn, self.sorted, self.total = rnn, is_sorted, total

    def forward(self, x, lengths, *states):
        first = self.rnn.batch_first
        packed = pack_padded_sequence(x, lengths, batch_first=first, enforce_sorted=self.sorted)
        states = (tuple(states) if len(states) == 2 else states[0]) if states else None
        out, ends = self.rnn(packed, states)
        padded, lengths = pad_packed_sequence(out, batch_first=first, padding_value=0.5, total_length=self.total)
        return [padded] + (list(ends) if isinstance(ends, tuple) else [ends])


def packed(name, rnn, lengths, given, total=None, is_sorted=False):
    count, first = len(lengths), rnn.batch_first
    shape = (count, max(lengths)) if first else (max(lengths), count)
    inputs = [torch.randn(*shape, INPUT), torch.tensor(lengths)]
    ends = rnn.num_layers * (2 if rnn.bidirectional else 1)
    if given:
        inputs += [torch.randn(ends, count, HIDDEN) for _ in range(2 if isinstance(rnn, nn.LSTM) else 1)]
    add(name, Packed(rnn, is_sorted, total), inputs, lambda m, *x: m(*x))


packed("packed_lstm", nn.LSTM(INPUT, HIDDEN, 2, bidirectional=True), [2, 5, 1, 5], True)
packed("packed_lstm_bare", nn.LSTM(INPUT, HIDDEN, batch_first=True, bidirectional=True), [3, 1, 2], False, total=6)
packed("packed_lstm_sorted", nn.LSTM(INPUT, HIDDEN), [4, 4, 1], True, is_sorted=True)
packed("packed_gru", nn.GRU(INPUT, HIDDEN, 2, bidirectional=True, batch_first=True), [1, 4, 2], True)
packed("packed_gru_equal", nn.GRU(INPUT, HIDDEN), [3, 3], False, is_sorted=True)
packed("packed_rnn", nn.RNN(INPUT, HIDDEN, 2, bidirectional=True, nonlinearity="relu", bias=False), [1, 3, 2, 3], False)

# Packing by itself: what PyTorch makes of lengths 2, 4, 1, with rows that tell where they come from.
x = torch.arange(12).reshape(4, 3).double()
p = pack_padded_sequence(x, torch.tensor([2, 4, 1]), enforce_sorted=False)
sections.append(("pack", flat([p.data, p.batch_sizes, p.sorted_indices, p.unsorted_indices])))
sections.append(("pad", flat([pad_sequence([x[:2], x[:4], x[:1]], padding_value=-1)])))
golden_file.write("recurrent", "make_recurrent.py", "GRUs, RNNs and packed sequences", [("cases", names)] + sections)
