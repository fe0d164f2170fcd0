#!/usr/bin/env python3
"""The twins of programs of examples/ on torch.distributed: rl_cartpole (an agent and observers), rpc_rnn (a remote
embedding and a remote decoder), batched_updates (a server that answers all trainers after one update), rpc_pipeline (two
halves of a ResNet-18 and their trainer) on torch.distributed.rpc, diloco on gloo, ddp_remote_embedding (rows of a table by
calls, a network under DistributedDataParallel) on both. They begin with the weights and batches that bench/rpc_examples
wrote, compute what the examples do, and print their lines.

usage: peer_rpc_examples.py cartpole|rnn|batched|diloco|pipeline|embedding DIR [ROUNDS]      ROUNDS: of cartpole
"""
import math
import os
import socket
import sys
import threading

import torch
import torch.distributed as dist
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.nn import RemoteModule
from torch.distributed.optim import DistributedOptimizer
from torch.nn import functional as F


def saved(folder, name):
    return torch.load(os.path.join(folder, name + ".pt"))


def lenet(weights):
    net = nn.Sequential(nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
                        nn.Flatten(), nn.Linear(256, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))
    with torch.no_grad():
        for p, w in zip(net.parameters(), weights.values(), strict=True):
            p.copy_(w)
    return net


# ---- an agent and its observers ---------------------------------------------------------------------------------------

EPISODES, STEPS_MOST, DISCOUNT, OBSERVERS = 12, 500, 0.99, 3
MASK = (1 << 64) - 1


def uniform(episode, position):
    z = ((episode << 20) + position * 0x9E3779B97F4A7C15 + 1) & MASK
    z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ z >> 27) * 0x94D049BB133111EB) & MASK
    return ((z ^ z >> 31) >> 11) * 2.0 ** -53


def cart_push(cart, right):
    """The next state, and whether the pole still stands."""
    x, speed, angle, turn = cart
    mass, moment, seconds = 1.1, 0.1 * 0.5, 0.02
    cosine, sine = math.cos(angle), math.sin(angle)
    push = ((10 if right else -10) + moment * turn * turn * sine) / mass
    turning = (9.8 * sine - cosine * push) / (0.5 * (4.0 / 3 - 0.1 * cosine * cosine / mass))
    speeding = push - moment * turning * cosine / mass
    cart = [x + seconds * speed, speed + seconds * speeding, angle + seconds * turn, turn + seconds * turning]
    return cart, abs(cart[0]) <= 2.4 and abs(cart[2]) <= 12 * 2 * math.pi / 360


class Agent:
    def __init__(self, folder):
        self.policy = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2))
        self.policy.load_state_dict(saved(folder, "cartpole"))
        self.adam, self.lock, self.round = torch.optim.Adam(self.policy.parameters(), lr=0.01), threading.Lock(), 0
        self.begin()

    def begin(self):
        self.steps, self.running, self.asked, self.waiting = 0, EPISODES, 0, []
        self.states = torch.zeros(STEPS_MOST, EPISODES, 4)
        self.actions = torch.zeros(STEPS_MOST, EPISODES, dtype=torch.int64)
        self.alive = torch.zeros(STEPS_MOST, EPISODES, dtype=torch.bool)

    def choose(self):
        if self.asked < self.running or not self.waiting:
            return
        with torch.no_grad():
            chances = torch.softmax(self.policy(self.states[self.steps]), 1)[:, 0].tolist()
        actions = [int(uniform(self.round * EPISODES + e, self.steps) >= chances[e]) for e in range(EPISODES)]
        self.actions[self.steps] = torch.tensor(actions)
        self.steps, self.asked = self.steps + 1, 0
        waiting, self.waiting = self.waiting, []
        for future, first, count in waiting:
            future.set_result(actions[first:first + count])

    @staticmethod
    @rpc.functions.async_execution
    def act(there, first, states, alive):
        agent, future = there.local_value(), torch.futures.Future()
        with agent.lock:
            count = len(alive)
            agent.states[agent.steps, first:first + count] = states
            agent.alive[agent.steps, first:first + count] = torch.tensor(alive)
            agent.asked += count
            agent.waiting.append((future, first, count))
            agent.choose()
        return future

    def leave(self, count):
        with self.lock:
            self.running -= count
            self.choose()

    def improve(self, rewards):
        weights, returns = torch.zeros(self.steps, EPISODES), []
        for e in range(EPISODES):
            later = 0
            for t in reversed(range(rewards[e])):
                later = 1 + DISCOUNT * later
                returns.append((t, e, later))
        count = len(returns)
        mean = sum(r for _, _, r in returns) / count
        deviation = math.sqrt(sum(r * r for _, _, r in returns) / count - mean * mean) + 1e-6
        for t, e, r in returns:
            weights[t, e] = (r - mean) / deviation / count
        scores = torch.log_softmax(self.policy(self.states[:self.steps].view(-1, 4)), 1)
        loss = -(scores.gather(1, self.actions[:self.steps].view(-1, 1)) * weights.view(-1, 1)).sum()
        self.adam.zero_grad()
        loss.backward()
        self.adam.step()


def observe(there, base, first, count):
    carts = [[0.1 * uniform(base + first + e, STEPS_MOST + i) - 0.05 for i in range(4)] for e in range(count)]
    alive = [True] * count
    for _ in range(STEPS_MOST):
        states = torch.tensor([c if a else [0.0] * 4 for c, a in zip(carts, alive)])
        actions = rpc.rpc_sync(there.owner(), Agent.act, args=(there, first, states, alive))
        for e in range(count):
            if alive[e]:
                carts[e], alive[e] = cart_push(carts[e], actions[e] == 1)
        if not any(alive):
            break
    there.rpc_sync().leave(count)


def cartpole(rank, folder, rounds):
    if rank:
        return
    agent, last = Agent(folder), []
    there = rpc.RRef(agent)
    for agent.round in range(rounds):
        agent.begin()
        cuts = [o * EPISODES // OBSERVERS for o in range(OBSERVERS + 1)]
        torch.futures.wait_all([rpc.rpc_async(f"worker{o + 1}", observe, args=(
            there, agent.round * EPISODES, cuts[o], cuts[o + 1] - cuts[o])) for o in range(OBSERVERS)])
        rewards = agent.alive[:agent.steps].sum(0).tolist()
        last = (last + rewards)[-100:]
        if agent.round % 10 == 0 or agent.round + 1 == rounds:
            print(f"round {agent.round}: mean reward of the last {len(last)} episodes {sum(last) / len(last):.2f}", flush=True)
        agent.improve(rewards)


# ---- a language model with a remote embedding and a remote decoder ----------------------------------------------------

WORDS, LENGTH, BATCH, STEPS = 32, 16, 8, 60
TEXT = "a stitch in time saves nine. the early bird catches the worm. "


def text_batch(step, shift):
    at = lambda i: ord(TEXT[i % len(TEXT)]) - 96 if TEXT[i % len(TEXT)].isalpha() else 0
    return torch.tensor([[at(7 * step + 13 * b + t + shift) for b in range(BATCH)] for t in range(LENGTH)])


def part_load(there, weights):
    there.local_value().load_state_dict(weights)


def rnn_loss(embedding, lstm, decoder, step):
    scores = decoder(lstm(embedding(text_batch(step, 0)))[0])
    return F.cross_entropy(scores.view(-1, WORDS), text_batch(step, 1).view(-1))


def rnn(rank, folder, _):
    if rank:
        return
    weights = saved(folder, "rnn")
    far = [RemoteModule("worker1/cpu", nn.Embedding, (WORDS, 16)), RemoteModule("worker1/cpu", nn.Linear, (32, WORDS))]
    for part, name in zip(far, ("embedding", "decoder")):
        rpc.rpc_sync("worker1", part_load, args=(part.get_module_rref(), weights[name]))
    lstm, alone = nn.LSTM(16, 32), (nn.Embedding(WORDS, 16), nn.LSTM(16, 32), nn.Linear(32, WORDS))
    lstm.load_state_dict(weights["lstm"])
    for part, name in zip(alone, ("embedding", "lstm", "decoder")):
        part.load_state_dict(weights[name])
    parameters = [p for part in far for p in part.remote_parameters()] + [rpc.RRef(p) for p in lstm.parameters()]
    sgd = DistributedOptimizer(torch.optim.SGD, parameters, lr=1, momentum=0.9)
    sgd_alone = torch.optim.SGD([p for part in alone for p in part.parameters()], lr=1, momentum=0.9)
    for step in range(STEPS):
        with dist_autograd.context() as context:
            loss = rnn_loss(far[0].forward, lstm, far[1].forward, step)
            dist_autograd.backward(context, [loss])
            sgd.step(context)
        loss_alone = rnn_loss(*alone, step)
        sgd_alone.zero_grad()
        loss_alone.backward()
        sgd_alone.step()
        if step % 10 == 0 or step == STEPS - 1:
            print(f"step {step}: loss {loss:.6f} in two processes, {loss_alone:.6f} in one", flush=True)


# ---- batched updates --------------------------------------------------------------------------------------------------

TRAINERS = 3


class Server:
    def __init__(self, folder):
        self.model, self.lock, self.waiting = lenet(saved(folder, "batched")["weights"]), threading.Lock(), {}
        self.adam = torch.optim.Adam(self.model.parameters(), lr=4e-3)

    def fetch(self):
        return self.model

    @staticmethod
    @rpc.functions.async_execution
    def update_and_fetch(there, trainer, gradients):
        server, future = there.local_value(), torch.futures.Future()
        with server.lock:
            server.waiting[trainer] = future, gradients
            if len(server.waiting) == TRAINERS:
                for i, p in enumerate(server.model.parameters()):
                    p.grad = sum(server.waiting[t][1][i] for t in range(TRAINERS)) * (1.0 / TRAINERS)
                server.adam.step()
                server.adam.zero_grad()
                waiting, server.waiting = server.waiting, {}
                for t in range(TRAINERS):
                    waiting[t][0].set_result(server.model)
        return future


server, server_lock = None, threading.Lock()


def server_get(folder):
    global server
    with server_lock:
        server = server or Server(folder)
        return server


def batched(rank, folder, _):
    if not rank:
        return
    there = rpc.remote("worker0", server_get, args=(folder,))
    model = there.rpc_sync().fetch()
    for step, (x, y) in enumerate(saved(folder, "batched")["batches"][rank - 1]):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        model = rpc.rpc_sync(there.owner(), Server.update_and_fetch,
                             args=(there, rank - 1, [p.grad for p in model.parameters()]))
        if step % 10 == 0:
            print(f"worker{rank}: update {step}, loss {loss:.4f}", flush=True)


# ---- DiLoCo -----------------------------------------------------------------------------------------------------------

INNER_STEPS = 10


def outer_step(outer, nesterov, inner):
    with torch.no_grad():
        for o, p in zip(outer.parameters(), inner.parameters()):
            o.grad = o - p
            dist.all_reduce(o.grad)
            o.grad /= dist.get_world_size()
        nesterov.step()
        for o, p in zip(outer.parameters(), inner.parameters()):
            p.copy_(o)


def diloco(rank, folder, _):
    data = saved(folder, "diloco")
    for way in ("ddp", "diloco"):
        net, outer = lenet(data["weights"]), lenet(data["weights"])
        model = net if way == "diloco" else nn.parallel.DistributedDataParallel(net)
        adam = torch.optim.AdamW(net.parameters(), lr=2e-3)
        nesterov = torch.optim.SGD(outer.parameters(), lr=0.7, momentum=0.9, nesterov=True)
        total = torch.zeros(())
        for step, (x, y) in enumerate(data["batches"][rank]):
            loss = F.cross_entropy(model(x), y)
            adam.zero_grad()
            loss.backward()
            adam.step()
            total += loss.item()
            if way == "diloco" and (step + 1) % INNER_STEPS == 0:
                outer_step(outer, nesterov, net)
        total /= step + 1
        dist.all_reduce(total)
        if way == "diloco":
            outer_step(outer, nesterov, net)
        print(f"rank {rank}, {way}: {step + 1} steps, loss {total / dist.get_world_size():.4f},", flush=True)


# ---- two halves of a ResNet-18 ----------------------------------------------------------------------------------------

PIPELINE_STEPS = 3


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)
        self.downsample = None if stride == 1 and inputs == outputs else nn.Sequential(
            nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class Half(nn.Module):
    """Its calls run one at a time, as those of an object do in the example."""

    def __init__(self, half, weights):
        super().__init__()
        layer = lambda inputs, outputs, stride: nn.Sequential(Block(inputs, outputs, stride), Block(outputs, outputs, 1))
        self.lock = threading.Lock()
        self.net = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1), layer(64, 64, 1),
            layer(64, 128, 2)) if half == 0 else nn.Sequential(
            layer(128, 256, 2), layer(256, 512, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))
        self.net.load_state_dict(weights)

    def forward(self, x):
        with self.lock:
            return self.net(x)

    def parameter_rrefs(self):
        return [rpc.RRef(p) for p in self.parameters()]


def half_forward(there, x):
    """The second half gets the output of the first from where it is, not by way of the trainer."""
    return there.local_value()(x if torch.is_tensor(x) else x.to_here())


def pipeline(rank, folder, _):
    if rank:
        return
    data = saved(folder, "pipeline")
    here = [Half(h, data["halves"][h]) for h in range(2)]
    there = [rpc.remote(f"worker{h + 1}", Half, args=(h, data["halves"][h])) for h in range(2)]
    sgd = DistributedOptimizer(torch.optim.SGD, [p for half in there for p in half.rpc_sync().parameter_rrefs()], lr=0.005,
                               momentum=0.9)
    sgd_alone = torch.optim.SGD([p for half in here for p in half.parameters()], lr=0.005, momentum=0.9)
    for step in range(PIPELINE_STEPS):
        target, inputs = data["batches"][step]
        with dist_autograd.context() as context:
            middle = [rpc.remote("worker1", half_forward, args=(there[0], x)) for x in inputs]
            outputs = [rpc.rpc_async("worker2", half_forward, args=(there[1], y)) for y in middle]
            loss = F.cross_entropy(torch.cat(torch.futures.wait_all(outputs)), target)
            dist_autograd.backward(context, [loss])
            sgd.step(context)
        alone = F.cross_entropy(torch.cat([here[1](here[0](x)) for x in inputs]), target)
        sgd_alone.zero_grad()
        alone.backward()
        sgd_alone.step()
        print(f"step {step}: loss {loss:.6f} in three processes, {alone:.6f} in one", flush=True)


# ---- DistributedDataParallel with a remote embedding ------------------------------------------------------------------

TABLE_WORDS, WIDTH, SEEN, CLASSES, TABLE_BATCH, TABLE_STEPS, TRAINERS_MOST = 300, 8, 3, 4, 64, 121, 16


class Rows:
    """Word w is row w // ranks of process w % ranks."""

    def __init__(self, table, rank, ranks):
        self.ranks, self.given = ranks, {}
        self.rows = nn.Parameter(table[rank::ranks].clone())
        self.adam = torch.optim.SparseAdam([self.rows], lr=0.05)

    def step(self):
        indices, gradients = zip(*(self.given[r] for r in range(self.ranks)))
        self.rows.grad = torch.sparse_coo_tensor(torch.cat(indices)[None], torch.cat(gradients) / self.ranks,
                                                 self.rows.shape)
        self.adam.step()
        self.given = {}


mine = None


def rows_serve(positions):
    return mine.rows.detach()[positions]


def rows_take(rank, positions, gradient):
    mine.given[rank] = positions, gradient


def words_of(step, rank):
    """The words of a batch, and the class of each second word."""
    at = (step * TRAINERS_MOST + rank) * TABLE_BATCH * SEEN + torch.arange(TABLE_BATCH * SEEN)
    mixed = at * (0x9E3779B97F4A7C15 - (1 << 64)) # modulo 2**64
    words = (mixed >> 33 & 0x7FFFFFFF) % TABLE_WORDS
    return words, words[1::SEEN] * 7 // 5 % CLASSES


def embedding_loss(net, vectors, classes):
    return F.cross_entropy(net(vectors.view(TABLE_BATCH, SEEN * WIDTH)), classes)


def embedding(rank, folder, _):
    ranks, data, nets = dist.get_world_size(), saved(folder, "embedding"), []
    for _ in range(2):
        nets.append(nn.Sequential(nn.Linear(SEEN * WIDTH, 32), nn.ReLU(), nn.Linear(32, CLASSES)))
        nets[-1].load_state_dict(data["network"])
    model = nn.parallel.DistributedDataParallel(nets[0])
    adam = torch.optim.Adam(nets[0].parameters(), lr=0.01)
    table = nn.Parameter(data["table"].clone())
    both = torch.optim.SparseAdam([table], lr=0.05), torch.optim.Adam(nets[1].parameters(), lr=0.01)
    for step in range(TABLE_STEPS):
        words, classes = words_of(step, rank)
        wanted, where = torch.zeros(TABLE_WORDS, dtype=torch.bool), torch.empty(TABLE_WORDS, dtype=torch.int64)
        wanted[words] = True
        positions = [wanted[owner::ranks].nonzero().view(-1) for owner in range(ranks)]
        where[torch.cat([p * ranks + owner for owner, p in enumerate(positions)])] = torch.arange(int(wanted.sum()))
        rows = torch.cat(torch.futures.wait_all([rpc.rpc_async(f"worker{owner}", rows_serve, args=(p,))
                                                 for owner, p in enumerate(positions)])).requires_grad_()
        loss = embedding_loss(model, F.embedding(where[words], rows), classes)
        adam.zero_grad()
        loss.backward()
        adam.step()
        parts = rows.grad.split([len(p) for p in positions])
        torch.futures.wait_all([rpc.rpc_async(f"worker{owner}", rows_take, args=(rank, p, part.clone()))
                                for owner, (p, part) in enumerate(zip(positions, parts))])
        dist.barrier()
        mine.step()
        dist.barrier()
        mean = loss.detach()
        dist.all_reduce(mean)
        alone = 0
        for r in range(ranks):
            words, classes = words_of(step, r)
            alone = alone + embedding_loss(nets[1], F.embedding(words, table, sparse=True), classes) / ranks
        for optimizer in both:
            optimizer.zero_grad()
        alone.backward()
        for optimizer in both:
            optimizer.step()
        if rank == 0 and step % 20 == 0:
            print(f"step {step}: loss {mean / ranks:.4f} in {ranks} processes, {alone:.4f} in one", flush=True)


# ---- all --------------------------------------------------------------------------------------------------------------

PROGRAMS = {"cartpole": (cartpole, 1 + OBSERVERS), "rnn": (rnn, 2), "batched": (batched, 1 + TRAINERS), "diloco": (diloco, 2),
            "pipeline": (pipeline, 3), "embedding": (embedding, 2)}


def work(rank, ports, name, folder, rounds):
    global mine
    program, size = PROGRAMS[name]
    torch.set_num_threads(1)
    grouped, calling = name in ("diloco", "embedding"), name != "diloco"
    if grouped:
        dist.init_process_group("gloo", f"tcp://127.0.0.1:{ports[0]}", rank=rank, world_size=size)
    if name == "embedding":
        mine = Rows(saved(folder, "embedding")["table"], rank, size)
    if calling:
        options = rpc.TensorPipeRpcBackendOptions(rpc_timeout=600, init_method=f"tcp://127.0.0.1:{ports[1]}")
        rpc.init_rpc(f"worker{rank}", rank=rank, world_size=size, rpc_backend_options=options)
    program(rank, folder, rounds)
    if calling:
        rpc.shutdown()
    if grouped:
        dist.destroy_process_group()


def main():
    name, folder, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 20
    with socket.socket() as one, socket.socket() as other:
        for free in one, other:
            free.bind(("127.0.0.1", 0))
        ports = [free.getsockname()[1] for free in (one, other)]
    mp.start_processes(work, (ports, name, folder, rounds), nprocs=PROGRAMS[name][1], start_method="fork")


if __name__ == "__main__":
    main()
