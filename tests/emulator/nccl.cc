/*
 * nccl.cc - stand-ins of the calls of NCCL that the backend makes; ranks are threads or processes of one host. Tests
 * only.
 *
 * Between every two ranks there is a channel of bytes in memory that all map; a collective is made of messages on
 * these, each after a header (which call, count, type, reduction, root). What a rank receives must be what its own call
 * says: else it hangs, as NCCL may, until it is aborted, and says why on stderr. A "kernel" is a host function of the
 * stream, which blocks until all ranks have come. As in NCCL a rank that ended is not noticed. Sums are made in an
 * order that differs from place to place, in the type itself, as a ring makes them.
 *
 * Refused is what the manual does not promise: a communicator that is not made yet, that was aborted or destroyed; one
 * that is destroyed before it was finalized, or within a group; a stream of another device; memory that is no device's,
 * or not aligned to its type. A non-blocking call returns before its work is on the stream: that happens at a later
 * look (ncclCommGetAsyncError), so who records an event without looking finds the wrong numbers.
 *
 * A sum that is recorded is refused where NCCL would register its tensors (NCCL_GRAPH_REGISTER, 1 by default): it waits
 * there for the other ranks of the host in a loop that no abort ends.
 *
 * ncclCommAbort and ncclCommDestroy return when NCCL's may at the latest: when what the rank has on streams is over (an
 * abort ends kernels that wait for other ranks, not what is queued before them), the graphs that have calls of the
 * communicator are destroyed (commDestroySync of NCCL's init.cc), and all ranks whose processes run have called one of
 * the two, since a rank's proxy serves the others until they let go.
 */
#if __has_include(<nccl.h>)
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#define CUDA_NO_HALF // its name would hide variables of ours
#include <nccl.h>

#include "device/convert.h"
#include "tests/emulator/libraries.h"

namespace
{

enum { MOST_RANKS = 8, CHANNEL = 64 << 10, MOST_POLLS = 3, BLOCK = 1000 };
/* Multiprocessors of a GPU; and those that a kernel takes if the communicator says nothing. */
enum { PROCESSORS = 132, USUAL_BLOCKS = 16 };

enum kind { ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, SEND, RECV };
const char *const kind_names[] = {"ncclAllReduce",     "ncclReduce", "ncclBroadcast", "ncclAllGather",
                                  "ncclReduceScatter", "ncclSend",   "ncclRecv"};

/* In front of every message. */
struct header {
    int32_t kind, type, op, root;
    uint64_t count;
};

/* Bytes from one rank to another, in their order. */
struct channel {
    std::atomic<uint64_t> written, read;
    char bytes[CHANNEL];
};
struct segment {
    struct {
        std::atomic<int> here, left; /* it has joined; it has called ncclCommAbort or ncclCommDestroy */
        int device, version;
        char host[64]; /* NCCL_HOSTID: ranks with another are another host's, and may be on one GPU */
        pid_t pid;
    } ranks[MOST_RANKS];
    channel channels[MOST_RANKS][MOST_RANKS]; /* from, to */
};

struct unique_id {
    uint32_t magic;
    int32_t pid, fd;
};
enum : uint32_t { MAGIC = 0x4E43434C };

struct job;
/* Shared with what is on its streams. */
struct communicator {
    int rank, size, device, fd = -1;
    segment *shared = nullptr;
    std::atomic<int> made{ncclInProgress}; /* the result of its initialisation */
    std::atomic<bool> aborted{false};
    std::atomic<int> running{0};  /* jobs on streams */
    std::atomic<int> captured{0}; /* jobs in graphs */
    bool blocking = true, finalized = false;
    bool registers = true; /* the tensors of recorded sums */
    int blocks = USUAL_BLOCKS;
    std::atomic<bool> messages{false};        /* it has sent or received */
    std::vector<std::shared_ptr<job>> issued; /* and not on their stream yet */
    uint32_t polls = 0;                       /* looks until they are */

    ~communicator()
    {
        if (shared)
            munmap(shared, sizeof(segment));
    }
};

struct operation {
    kind what;
    std::shared_ptr<communicator> comm;
    cudaStream_t stream;
    const void *in; /* NULL: none */
    void *out;
    uint64_t count;
    ncclDataType_t type;
    ncclRedOp_t op;
    int peer; /* or the root; -1 */
};
struct job {
    std::vector<operation> operations;
};

std::mutex &lock = *new std::mutex;

} // namespace

struct ncclComm {
    std::shared_ptr<communicator> c;
};

namespace
{

std::set<ncclComm *> &live = *new std::set<ncclComm *>;
thread_local int depth;
thread_local std::vector<operation> grouped;

ncclResult_t refuse(const char *call, const char *why, ncclResult_t code = ncclInvalidUsage)
{
    fprintf(stderr, "emulator: %s: %s\n", call, why);
    return code;
}

/* NULL where the handle cannot be used. */
std::shared_ptr<communicator> find(const char *call, ncclComm_t comm)
{
    std::lock_guard<std::mutex> hold(lock);
    if (!live.count(comm)) {
        refuse(call, "the communicator was aborted, or destroyed, or never made");
        return nullptr;
    }
    return comm->c;
}

/* ---- numbers ---- */
size_t size_of(ncclDataType_t type)
{
    switch (type) {
    case ncclFloat64:
    case ncclInt64: return 8;
    case ncclFloat32:
    case ncclInt32: return 4;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    default: return 1;
    }
}

template <typename T> T combine(ncclRedOp_t op, T x, T y)
{
    return op == ncclProd ? x * y : op == ncclMin ? (y < x ? y : x) : op == ncclMax ? (y > x ? y : x) : x + y;
}

/* *to = *to op *from, `count` times, in T; whole numbers wrap as U. */
template <typename T, typename U> void fold(char *to, const char *from, uint64_t count, ncclRedOp_t op)
{
    for (uint64_t i = 0; i < count; i++) {
        T x, y;
        memcpy(&x, to + i * sizeof(T), sizeof(T));
        memcpy(&y, from + i * sizeof(T), sizeof(T));
        bool order = op == ncclMin || op == ncclMax;
        T z = order ? combine<T>(op, x, y) : (T)combine<U>(op, (U)x, (U)y);
        memcpy(to + i * sizeof(T), &z, sizeof(T));
    }
}

float half(const char *at, ncclDataType_t type)
{
    uint16_t bits;
    memcpy(&bits, at, 2);
    return type == ncclFloat16 ? yk__from_f16(bits) : yk__from_bf16(bits);
}
void put_half(char *at, ncclDataType_t type, float x)
{
    uint16_t bits = type == ncclFloat16 ? yk__to_f16(x) : yk__to_bf16(x);
    memcpy(at, &bits, 2);
}

void fold_any(char *to, const char *from, uint64_t count, ncclDataType_t type, ncclRedOp_t op)
{
    switch (type) {
    case ncclFloat64: fold<double, double>(to, from, count, op); break;
    case ncclFloat32: fold<float, float>(to, from, count, op); break;
    case ncclInt64: fold<int64_t, uint64_t>(to, from, count, op); break;
    case ncclInt32: fold<int32_t, uint32_t>(to, from, count, op); break;
    case ncclUint8: fold<uint8_t, uint32_t>(to, from, count, op); break;
    default:
        for (uint64_t i = 0; i < count; i++)
            put_half(to + 2 * i, type, combine(op, half(to + 2 * i, type), half(from + 2 * i, type)));
    }
}

/* The multiplication of ncclAvg, which is a sum of inputs that were multiplied by 1 / n, rounded to their type. */
void multiply_by_part(char *at, uint64_t count, ncclDataType_t type, int n)
{
    for (uint64_t i = 0; i < count; i++) {
        float f;
        double d;
        if (type == ncclFloat64) {
            memcpy(&d, at + 8 * i, 8);
            d *= 1.0 / n;
            memcpy(at + 8 * i, &d, 8);
        } else if (type == ncclFloat32) {
            memcpy(&f, at + 4 * i, 4);
            f *= (float)(1.0 / n);
            memcpy(at + 4 * i, &f, 4);
        } else {
            char part[2];
            put_half(part, type, (float)(1.0 / n));
            put_half(at + 2 * i, type, half(at + 2 * i, type) * half(part, type));
        }
    }
}

/* ---- messages ---- */
struct transfer {
    int peer;
    bool out, started = false;
    header head;
    char *bytes;
    uint64_t size, done = 0;
};

/* Moves what can be moved now; true where something was. **wrong: another message came than was expected. */
bool advance(communicator &c, transfer &t, bool *wrong)
{
    channel &way = t.out ? c.shared->channels[c.rank][t.peer] : c.shared->channels[t.peer][c.rank];
    uint64_t written = way.written.load(), read = way.read.load();
    uint64_t able = t.out ? CHANNEL - (written - read) : written - read;
    uint64_t at = t.out ? written : read, moved = 0;
    auto move = [&](char *memory, uint64_t bytes) {
        for (uint64_t i = 0; i < bytes;) {
            uint64_t place = (at + i) % CHANNEL, piece = std::min<uint64_t>(bytes - i, CHANNEL - place);
            memcpy(t.out ? way.bytes + place : memory + i, t.out ? memory + i : way.bytes + place, piece);
            i += piece;
        }
        at += bytes;
        moved += bytes;
    };
    if (!t.started) {
        if (able < sizeof(header))
            return false;
        header head = t.head;
        move(reinterpret_cast<char *>(&head), sizeof(head));
        able -= sizeof(head);
        t.started = true;
        *wrong = memcmp(&head, &t.head, sizeof(head)) != 0;
        if (*wrong)
            fprintf(stderr,
                    "emulator: NCCL: rank %d called %s of %llu elements of type %d, and rank %d %s of %llu of type %d: "
                    "it hangs\n",
                    t.peer, kind_names[head.kind], (unsigned long long)head.count, (int)head.type, c.rank,
                    kind_names[t.head.kind], (unsigned long long)t.head.count, (int)t.head.type);
    }
    uint64_t bytes = std::min(able, t.size - t.done);
    if (bytes && !*wrong) {
        move(t.bytes + t.done, bytes);
        t.done += bytes;
    }
    (t.out ? way.written : way.read).store(at);
    return moved > 0;
}

/* Moves all messages, those of one channel in their order; false where the communicator was aborted. */
bool move_all(communicator &c, std::vector<transfer> &transfers)
{
    for (bool wrong = false;;) {
        bool any = false, left = false;
        std::set<int> taken; /* channels whose first message is not done */
        for (transfer &t : transfers) {
            int way = 2 * t.peer + t.out;
            if ((t.started && t.done == t.size) || taken.count(way))
                continue;
            if (!wrong)
                any |= advance(c, t, &wrong);
            if (!t.started || t.done < t.size) {
                left = true;
                taken.insert(way);
            }
        }
        if (c.aborted)
            return false;
        if (!left && !wrong)
            return true;
        if (!any)
            usleep(50);
    }
}

/* ---- operations ---- */
void *bytes_of(const operation &o, const void *address, uint64_t count, const char **why)
{
    return emulator::locate(address, (size_t)count * size_of(o.type), o.comm->device, why);
}

/* A received part, or this rank's own. */
void fold_in_some_order(std::vector<std::vector<char>> &parts, const operation &o, char *out)
{
    size_t size = size_of(o.type), n = parts.size();
    ncclRedOp_t op = o.op == ncclAvg ? ncclSum : o.op;
    for (size_t r = 0; r < n && o.op == ncclAvg; r++)
        multiply_by_part(parts[r].data(), o.count, o.type, (int)n);
    for (uint64_t at = 0, block = 0; at < o.count; at += BLOCK, block++) {
        uint64_t count = std::min<uint64_t>(BLOCK, o.count - at);
        std::vector<char> sum(parts[block % n].begin() + (ptrdiff_t)(at * size),
                              parts[block % n].begin() + (ptrdiff_t)((at + count) * size));
        for (size_t r = 1; r < n; r++)
            fold_any(sum.data(), parts[(block + r) % n].data() + at * size, count, o.type, op);
        memcpy(out + at * size, sum.data(), (size_t)count * size);
    }
}

/* One operation's messages, and the function that combines the received parts. */
struct plan {
    operation o;
    char *in = nullptr, *out = nullptr;
    std::vector<std::vector<char>> parts;
};

/* False where the memory of the operation is not of the kind that it must be. */
bool prepare(plan &p, std::vector<transfer> &transfers, std::vector<std::pair<char *, char *>> &own)
{
    operation &o = p.o;
    communicator &c = *o.comm;
    uint64_t bytes = o.count * size_of(o.type), n = (uint64_t)c.size;
    bool root = o.peer == c.rank;
    uint64_t in_count = o.count * (o.what == REDUCE_SCATTER ? n : 1),
             out_count = o.count * (o.what == ALL_GATHER ? n : 1);
    bool reads = o.what != RECV && (o.what != BROADCAST || root);
    bool writes = o.what != SEND && (o.what != REDUCE || root);
    const char *why = nullptr;
    if (reads)
        p.in = static_cast<char *>(bytes_of(o, o.in, in_count, &why));
    if (writes && !why)
        p.out = static_cast<char *>(bytes_of(o, o.out, out_count, &why));
    if (why) {
        emulator::library_fault(kind_names[o.what], why);
        return false;
    }
    header head = {o.what == RECV ? SEND : o.what, o.type,
                   o.what == ALL_REDUCE || o.what == REDUCE || o.what == REDUCE_SCATTER ? o.op : 0,
                   o.what == REDUCE || o.what == BROADCAST ? o.peer : -1, o.count};
    auto out = [&](int peer, char *from) { transfers.push_back({peer, true, false, head, from, bytes}); };
    auto in = [&](int peer, char *to) { transfers.push_back({peer, false, false, head, to, bytes}); };
    if (o.what == SEND || o.what == RECV) {
        if (o.peer == c.rank)
            own.push_back({o.what == SEND ? p.in : nullptr, o.what == RECV ? p.out : nullptr});
        else if (o.what == SEND)
            out(o.peer, p.in);
        else
            in(o.peer, p.out);
        return true;
    }
    bool all = o.what == ALL_REDUCE || o.what == ALL_GATHER || o.what == REDUCE_SCATTER;
    bool reduces = o.what == ALL_REDUCE || o.what == REDUCE || o.what == REDUCE_SCATTER;
    p.parts.resize(reduces && writes ? n : 0);
    for (int r = 0; r < c.size; r++) {
        char *part = p.in ? p.in + (o.what == REDUCE_SCATTER ? (uint64_t)r * bytes : 0) : nullptr;
        if (!p.parts.empty())
            p.parts[(size_t)r].resize(bytes);
        if (r == c.rank) {
            if (!p.parts.empty())
                memcpy(p.parts[(size_t)r].data(), part, bytes);
            else if (o.what == ALL_GATHER)
                memmove(p.out + (uint64_t)r * bytes, p.in, bytes);
            else if (o.what == BROADCAST && root && p.out != p.in)
                memmove(p.out, p.in, bytes);
            continue;
        }
        if (all || (o.what == BROADCAST ? root : r == o.peer))
            out(r, part);
        if (all || (o.what == BROADCAST ? r == o.peer : root))
            in(r, reduces ? p.parts[(size_t)r].data() : p.out + (o.what == ALL_GATHER ? (uint64_t)r * bytes : 0));
    }
    return true;
}

/* The "kernel". */
void run(job &j)
{
    communicator &c = *j.operations[0].comm;
    std::vector<plan> plans(j.operations.size());
    std::vector<transfer> transfers;
    std::vector<std::pair<char *, char *>> own;
    bool good = !c.aborted;
    for (size_t i = 0; i < plans.size() && good; i++) {
        plans[i].o = j.operations[i];
        good = prepare(plans[i], transfers, own);
    }
    if (good && move_all(c, transfers))
        for (plan &p : plans)
            if (!p.parts.empty())
                fold_in_some_order(p.parts, p.o, p.out);
}

/* As long as a stream or a graph has a job, run or not. */
struct holder {
    std::shared_ptr<communicator> c;
    std::atomic<int> *counted; /* of c */
    explicit holder(std::shared_ptr<communicator> of) : c(std::move(of)), counted(&c->running)
    {
        (*counted)++;
    }
    ~holder()
    {
        (*counted)--;
    }
    void in_graph()
    {
        c->captured++;
        c->running--;
        counted = &c->captured;
    }
};

ncclResult_t put_on_stream(const std::shared_ptr<job> &j)
{
    auto held = std::make_shared<holder>(j->operations[0].comm);
    bool captured = false;
    bool put = emulator::queue_blocking(
        "NCCL", j->operations[0].stream,
        [j, held] {
            holder launched(held->c); /* a graph's, as often as that is launched */
            run(*j);
        },
        &captured);
    if (captured && put)
        held->in_graph();
    for (const operation &o : j->operations)
        if (captured && held->c->registers && o.what <= REDUCE_SCATTER && o.op == ncclSum && o.what != BROADCAST &&
            o.what != ALL_GATHER)
            return refuse(kind_names[o.what],
                          "tensors of a recorded sum are registered (NCCL_GRAPH_REGISTER), which no abort ends");
    return put ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t end_group()
{
    std::vector<operation> all;
    all.swap(grouped);
    if (all.empty())
        return ncclSuccess;
    auto j = std::make_shared<job>();
    j->operations = all;
    communicator &c = *all[0].comm;
    for (const operation &o : all)
        if (o.comm != all[0].comm || o.stream != all[0].stream)
            return refuse("ncclGroupEnd", "the emulator takes one communicator and one stream for a group");
    if (c.blocking)
        return put_on_stream(j);
    c.issued.push_back(j);
    c.polls = emulator::draw_locked(MOST_POLLS);
    return ncclInProgress;
}

/* True if kernels of messages, which stay until the other end has come, may fill the device: one that is waited for
 * would not begin. */
bool messages_may_fill(const communicator &c)
{
    std::lock_guard<std::mutex> hold(lock);
    int blocks = 0;
    for (const ncclComm *comm : live)
        if (comm->c->messages && comm->c->device == c.device)
            blocks += comm->c->blocks;
    return blocks > PROCESSORS;
}

ncclResult_t issue(operation o, ncclComm_t comm)
{
    const char *call = kind_names[o.what], *why = nullptr;
    o.comm = find(call, comm);
    if (!o.comm)
        return ncclInvalidArgument;
    communicator &c = *o.comm;
    size_t size = size_of(o.type);
    if (c.made != ncclSuccess)
        return refuse(call, "the communicator is not made yet");
    if (c.finalized)
        return refuse(call, "the communicator was finalized");
    if (!c.issued.empty())
        return refuse(call, "what was called before is in progress");
    if (o.peer >= c.size)
        return refuse(call, "there is no such rank", ncclInvalidArgument);
    if (emulator::device_of_stream(o.stream) != c.device)
        return refuse(call, "the stream is not one of the communicator's device", ncclInvalidArgument);
    bool root = o.peer == c.rank;
    if ((o.what != RECV && (o.what != BROADCAST || root) && !bytes_of(o, o.in, 1, &why)) ||
        (o.what != SEND && (o.what != REDUCE || root) && !bytes_of(o, o.out, 1, &why)))
        return refuse(call, why, ncclInvalidArgument);
    if (reinterpret_cast<uintptr_t>(o.in) % size || reinterpret_cast<uintptr_t>(o.out) % size)
        return refuse(call, "memory that is not aligned to its type", ncclInvalidArgument);
    if (o.what >= SEND)
        c.messages = true;
    if (o.what >= SEND && messages_may_fill(c))
        return refuse(call, "messages of several communicators fill the GPU, and may wait for one another for ever");
    if (!o.count)
        return ncclSuccess;
    grouped.push_back(o);
    return depth ? ncclSuccess : end_group();
}

/* ---- communicators ---- */
int own_version()
{
    const char *other = getenv("YOKE_EMULATOR_NCCL_VERSION");
    return other ? atoi(other) : NCCL_VERSION_CODE;
}

void join(std::shared_ptr<communicator> c, unique_id id)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", id.pid, id.fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    void *memory = fd < 0 ? MAP_FAILED : mmap(nullptr, sizeof(segment), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    if (memory == MAP_FAILED) {
        c->made = ncclSystemError;
        return;
    }
    c->shared = static_cast<segment *>(memory);
    c->shared->ranks[c->rank].device = c->device;
    c->shared->ranks[c->rank].version = own_version();
    const char *host = getenv("NCCL_HOSTID");
    snprintf(c->shared->ranks[c->rank].host, sizeof(c->shared->ranks[c->rank].host), "%s", host ? host : "");
    c->shared->ranks[c->rank].pid = getpid();
    c->shared->ranks[c->rank].here = 1;
    for (int r = 0; r < c->size; r++)
        while (!c->shared->ranks[r].here && !c->aborted)
            usleep(100);
    bool shares = false, differs = false;
    for (int r = 0; r < c->size; r++) {
        shares |= r != c->rank && c->shared->ranks[r].here && c->shared->ranks[r].device == c->device &&
                  strcmp(c->shared->ranks[r].host, c->shared->ranks[c->rank].host) == 0;
        differs |= c->shared->ranks[r].here && c->shared->ranks[r].version != own_version();
    }
    if (shares || differs)
        refuse("ncclCommInitRankConfig", shares ? "two ranks are on one GPU" : "ranks have other versions of NCCL");
    c->made = c->aborted ? ncclInternalError : shares || differs ? ncclInvalidUsage : ncclSuccess;
}

ncclResult_t get_version(int *version)
{
    *version = own_version();
    return ncclSuccess;
}

/* Puts the settings of a file into the environment, in the first call that looks there; variables that are set stay. */
void read_settings()
{
    static bool read;
    char line[200];
    std::lock_guard<std::mutex> hold(lock);
    const char *path = getenv("NCCL_CONF_FILE");
    FILE *file = path && !read ? fopen(path, "re") : nullptr;
    read = true;
    while (file && fgets(line, sizeof(line), file)) {
        line[strcspn(line, "\n")] = 0;
        if (char *value = strchr(line, '=')) {
            *value = 0;
            setenv(line, value + 1, 0);
        }
    }
    if (file)
        fclose(file);
}

ncclResult_t get_unique_id(ncclUniqueId *id)
{
    read_settings();
    int fd = memfd_create("nccl of the emulator", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, sizeof(segment)))
        return ncclSystemError;
    unique_id made = {MAGIC, getpid(), fd};
    memset(id, 0, sizeof(*id));
    memcpy(id, &made, sizeof(made));
    return ncclSuccess;
}

ncclResult_t init_rank(ncclComm_t *comm, int size, ncclUniqueId id, int rank, ncclConfig_t *config)
{
    unique_id from;
    read_settings();
    memcpy(&from, &id, sizeof(from));
    if (from.magic != MAGIC || rank < 0 || rank >= size || size > MOST_RANKS || config->magic != 0xcafebeef)
        return refuse("ncclCommInitRankConfig", "no identity, rank or configuration", ncclInvalidArgument);
    auto c = std::make_shared<communicator>();
    c->rank = rank;
    c->size = size;
    c->device = emulator::present_device();
    const char *blocking = getenv("NCCL_COMM_BLOCKING"); /* the environment's word is the last, as NCCL has it */
    c->blocking = blocking ? atoi(blocking) == 1 : config->blocking != 0;
    c->blocks = config->maxCTAs == NCCL_CONFIG_UNDEF_INT ? USUAL_BLOCKS : config->maxCTAs;
    const char *registers = getenv("NCCL_GRAPH_REGISTER");
    c->registers = !registers || atoi(registers);
    c->fd = from.pid == getpid() && rank == 0 ? from.fd : -1;
    *comm = new ncclComm{c};
    {
        std::lock_guard<std::mutex> hold(lock);
        live.insert(*comm);
    }
    const char *fails = getenv("YOKE_EMULATOR_NCCL_FAILS"); /* the rank whose initialisation does */
    if (fails && atoi(fails) == rank) {
        c->made = ncclSystemError;
        return c->blocking ? ncclSystemError : ncclInProgress;
    }
    const char *hangs = getenv("YOKE_EMULATOR_NCCL_HANGS"); /* the rank that does not reach the others */
    if (hangs && atoi(hangs) == rank && !c->blocking)
        return ncclInProgress;
    std::thread joining(join, c, from);
    if (!c->blocking) {
        joining.detach();
        return ncclInProgress;
    }
    joining.join();
    return (ncclResult_t)c->made.load();
}

ncclResult_t get_async_error(ncclComm_t comm, ncclResult_t *result)
{
    auto c = find("ncclCommGetAsyncError", comm);
    if (!c)
        return ncclInvalidArgument;
    *result = (ncclResult_t)c->made.load();
    if (*result != ncclSuccess || (c->issued.empty() && !(c->finalized && c->running)))
        return ncclSuccess;
    *result = ncclInProgress;
    if (c->issued.empty() || c->polls-- > 0)
        return ncclSuccess;
    *result = put_on_stream(c->issued[0]);
    c->issued.clear();
    return ncclSuccess;
}

ncclResult_t finalize(ncclComm_t comm)
{
    auto c = find("ncclCommFinalize", comm);
    if (!c)
        return ncclInvalidArgument;
    if (depth)
        return refuse("ncclCommFinalize", "a group is open");
    if (c->made != ncclSuccess || c->finalized || !c->issued.empty())
        return refuse("ncclCommFinalize", "it is not made, or in progress, or was finalized");
    if (c->captured) /* NCCL waits for that */
        return refuse("ncclCommFinalize", "a graph that has calls of it is not destroyed yet");
    c->finalized = true;
    return c->blocking ? ncclSuccess : ncclInProgress;
}

void forget(ncclComm_t comm, communicator &c)
{
    std::lock_guard<std::mutex> hold(lock);
    live.erase(comm);
    if (c.fd >= 0)
        close(c.fd);
    c.fd = -1;
    c.issued.clear();
    delete comm;
}

/* True if there is a process of this number that is no zombie. */
bool runs(pid_t pid)
{
    char path[32], text[400] = "";
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t size = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
    if (fd >= 0)
        close(fd);
    const char *state = size > 0 ? strrchr(text, ')') : nullptr;
    return state && state[1] && state[2] != 'Z' && state[2] != 'X';
}

/* Waits for the end of all ranks, as ncclCommAbort and ncclCommDestroy do. */
void wait_for_end(communicator &c)
{
    if (c.made != ncclSuccess)
        return;
    while (c.running || c.captured)
        usleep(200);
    c.shared->ranks[c.rank].left = 1;
    for (int r = 0; r < c.size; r++)
        while (!c.shared->ranks[r].left && runs(c.shared->ranks[r].pid))
            usleep(200);
}

ncclResult_t destroy(ncclComm_t comm)
{
    auto c = find("ncclCommDestroy", comm);
    if (!c)
        return ncclInvalidArgument;
    if (depth || (!c->blocking && !c->finalized) || c->running)
        return refuse("ncclCommDestroy", depth ? "a group is open" : "it was not finalized, or works still");
    forget(comm, *c);
    wait_for_end(*c);
    return ncclSuccess;
}

ncclResult_t abort_comm(ncclComm_t comm)
{
    auto c = find("ncclCommAbort", comm);
    if (!c)
        return ncclInvalidArgument;
    c->aborted = true;
    forget(comm, *c);
    wait_for_end(*c);
    return ncclSuccess;
}

const char *error_string(ncclResult_t code)
{
    switch (code) {
    case ncclSuccess: return "no error";
    case ncclUnhandledCudaError: return "unhandled cuda error";
    case ncclSystemError: return "unhandled system error";
    case ncclInternalError: return "internal error";
    case ncclInvalidArgument: return "invalid argument";
    case ncclInvalidUsage: return "invalid usage";
    case ncclRemoteError: return "remote process exited or there was a network error";
    default: return "NCCL operation in progress";
    }
}

const char *last_error(ncclComm_t)
{
    return getenv("YOKE_EMULATOR_NCCL_FAILS") ? "Bootstrap : no socket interface found" : "";
}

ncclResult_t group_start()
{
    depth++;
    return ncclSuccess;
}

ncclResult_t group_end()
{
    if (!depth)
        return refuse("ncclGroupEnd", "no group is open");
    return --depth ? ncclSuccess : end_group();
}

ncclResult_t all_reduce(const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                        cudaStream_t stream)
{
    return issue({ALL_REDUCE, nullptr, stream, in, out, count, type, op, -1}, comm);
}
ncclResult_t reduce(const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                    ncclComm_t comm, cudaStream_t stream)
{
    return issue({REDUCE, nullptr, stream, in, out, count, type, op, root}, comm);
}
ncclResult_t broadcast(const void *in, void *out, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                       cudaStream_t stream)
{
    return issue({BROADCAST, nullptr, stream, in, out, count, type, ncclSum, root}, comm);
}
ncclResult_t all_gather(const void *in, void *out, size_t count, ncclDataType_t type, ncclComm_t comm,
                        cudaStream_t stream)
{
    return issue({ALL_GATHER, nullptr, stream, in, out, count, type, ncclSum, -1}, comm);
}
ncclResult_t reduce_scatter(const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                            ncclComm_t comm, cudaStream_t stream)
{
    return issue({REDUCE_SCATTER, nullptr, stream, in, out, count, type, op, -1}, comm);
}
ncclResult_t send(const void *in, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream)
{
    return issue({SEND, nullptr, stream, in, nullptr, count, type, ncclSum, peer}, comm);
}
ncclResult_t recv(void *out, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream)
{
    return issue({RECV, nullptr, stream, nullptr, out, count, type, ncclSum, peer}, comm);
}

template <typename F> void *address(F *function)
{
    return reinterpret_cast<void *>(function);
}

const emulator::function functions[] = {{"ncclGetVersion", address(get_version)},
                                        {"ncclGetUniqueId", address(get_unique_id)},
                                        {"ncclCommInitRankConfig", address(init_rank)},
                                        {"ncclCommFinalize", address(finalize)},
                                        {"ncclCommDestroy", address(destroy)},
                                        {"ncclCommAbort", address(abort_comm)},
                                        {"ncclCommGetAsyncError", address(get_async_error)},
                                        {"ncclGetErrorString", address(error_string)},
                                        {"ncclGetLastError", address(last_error)},
                                        {"ncclGroupStart", address(group_start)},
                                        {"ncclGroupEnd", address(group_end)},
                                        {"ncclAllReduce", address(all_reduce)},
                                        {"ncclReduce", address(reduce)},
                                        {"ncclBroadcast", address(broadcast)},
                                        {"ncclAllGather", address(all_gather)},
                                        {"ncclReduceScatter", address(reduce_scatter)},
                                        {"ncclSend", address(send)},
                                        {"ncclRecv", address(recv)},
                                        {nullptr, nullptr}};

} // namespace

const emulator::library emulator::nccl_library = {"nccl", functions};

/* Two processes that use the first GPU use the same one. */
extern "C" cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    emulator::count_call(__func__);
    memset(properties, 0, sizeof(*properties));
    snprintf(properties->name, sizeof(properties->name), "emulated GPU %d", device);
    snprintf(properties->uuid.bytes, sizeof(properties->uuid.bytes), "emulated %d", device);
    return cudaSuccess;
}
#endif
