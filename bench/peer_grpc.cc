/*
 * peer_grpc.cc - calls of gRPC between two processes of this host: a peer of bench/rpc.c, with its rows. Those of
 * "shared memory" go over a Unix socket here, which is the shortest way that gRPC has within a host; those of "TCP"
 * over loopback, neither encrypted nor authenticated. Messages are bytes as they are, without protocol buffers, and a
 * large one stays in the pieces in which it was received: so gRPC copies as little as it can.
 *
 * Both sides use the interfaces that code made by protoc uses: the server a completion queue and one thread, which
 * answers at once; the caller a blocking call, or a completion queue where several calls are under way.
 *
 * Usage: peer_grpc [rounds]        bench/rpc_compare builds and starts it
 */
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/client_unary_call.h>
#include <grpcpp/impl/rpc_service_method.h>
#include <grpcpp/impl/service_type.h>
#include <grpcpp/support/async_unary_call.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

using grpc::ByteBuffer;
using grpc::internal::RpcMethod;

enum method { NOTHING, GIVE_BACK, NETWORK, USED, METHODS };
static const char *const names[METHODS] = {"/peer/nothing", "/peer/give_back", "/peer/network", "/peer/used"};
static const int WINDOW = 64;
static int rounds = 2000;

static double now()
{
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/* A message of memory that stays there, in pieces of these sizes. */
static ByteBuffer message(const char *data, const std::vector<size_t> &sizes)
{
    std::vector<grpc::Slice> slices;
    for (size_t size : sizes) {
        slices.emplace_back((void *)data, size, grpc::Slice::STATIC_SLICE);
        data += size;
    }
    return ByteBuffer(slices.data(), slices.size());
}

/* ---- the server -------------------------------------------------------------------------------------------------- */

struct service final : grpc::Service {
    service()
    {
        for (int i = 0; i < METHODS; i++) {
            AddMethod(new grpc::internal::RpcServiceMethod(names[i], RpcMethod::NORMAL_RPC, nullptr));
            MarkMethodAsync(i);
        }
    }
    using Service::RequestAsyncUnary;
};

/* A call that is awaited, or has been answered. */
struct served {
    int method;
    bool answered = false;
    grpc::ServerContext context;
    ByteBuffer request;
    grpc::ServerAsyncResponseWriter<ByteBuffer> writer{&context};

    served(service &all, int which, grpc::ServerCompletionQueue *queue) : method(which)
    {
        all.RequestAsyncUnary(which, &context, &request, &writer, queue, queue, this);
    }
};

/* The processor seconds of this process so far. */
static double seconds_used()
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

static ByteBuffer answer(const served &call, const ByteBuffer &network)
{
    if (call.method == GIVE_BACK)
        return call.request;
    if (call.method == NETWORK)
        return network;
    double seconds = call.method == USED ? seconds_used() : 0;
    grpc::Slice slice(&seconds, call.method == USED ? sizeof(seconds) : 0);
    return ByteBuffer(&slice, 1);
}

/* Serves the Unix socket and a port of loopback, whose number goes to the pipe (0: there is no server), without end. */
static void serve(const std::string &address, int pipe)
{
    std::vector<size_t> sizes;
    size_t all_bytes = 0;
    for (int i = 0; i < 122; i++) {
        sizes.push_back((i < 60 ? 195000 : 512) * sizeof(float));
        all_bytes += sizes.back();
    }
    std::vector<char> parameters(all_bytes, 1);
    ByteBuffer network = message(parameters.data(), sizes);
    int port = 0;
    service all;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.AddListeningPort(address, grpc::InsecureServerCredentials());
    builder.SetMaxReceiveMessageSize(-1);
    builder.RegisterService(&all);
    std::unique_ptr<grpc::ServerCompletionQueue> queue = builder.AddCompletionQueue();
    std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
    port = server ? port : 0;
    if (write(pipe, &port, sizeof(port)) != sizeof(port) || !port)
        _exit(1);
    for (int i = 0; i < METHODS; i++)
        for (int n = 0; n < WINDOW; n++)
            new served(all, i, queue.get());
    void *tag;
    bool good;
    while (queue->Next(&tag, &good)) {
        served *call = static_cast<served *>(tag);
        if (call->answered || !good) {
            delete call;
            continue;
        }
        new served(all, call->method, queue.get());
        call->answered = true;
        call->writer.Finish(answer(*call, network), grpc::Status::OK, call);
    }
}

/* ---- the caller -------------------------------------------------------------------------------------------------- */

static const char *way; /* "shared memory" or "TCP" */

static void row(const char *name, double value, const char *unit)
{
    printf("%s: %s\t%.4g\t%s\n", way, name, value, unit);
    fflush(stdout);
}

static void latency(const std::string &name, std::vector<double> times)
{
    std::sort(times.begin(), times.end());
    row((name + ", median").c_str(), times[times.size() / 2] * 1e6, "us");
    row((name + ", 99th").c_str(), times[times.size() - 1 - times.size() / 100] * 1e6, "us");
}

static void check(const grpc::Status &status)
{
    if (status.ok())
        return;
    fprintf(stderr, "peer_grpc: %s\n", status.error_message().c_str());
    exit(1);
}

/* A call that does not block. */
struct pending {
    grpc::ClientContext context;
    ByteBuffer reply;
    grpc::Status status;
    std::unique_ptr<grpc::ClientAsyncResponseReader<ByteBuffer>> reader;
};

struct caller {
    std::shared_ptr<grpc::Channel> channel;
    std::vector<RpcMethod> methods;
    grpc::CompletionQueue queue;

    explicit caller(const std::string &address)
    {
        grpc::ChannelArguments arguments;
        arguments.SetMaxReceiveMessageSize(-1);
        channel = grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
        for (const char *name : names)
            methods.emplace_back(name, nullptr, RpcMethod::NORMAL_RPC, channel);
    }

    ByteBuffer call(method which, const ByteBuffer &request)
    {
        grpc::ClientContext context;
        ByteBuffer reply;
        context.set_wait_for_ready(true);
        check(grpc::internal::BlockingUnaryCall(channel.get(), methods[which], &context, request, &reply));
        return reply;
    }

    void begin(method which, const ByteBuffer &request)
    {
        pending *p = new pending;
        p->reader.reset(grpc::internal::ClientAsyncResponseReaderHelper::Create<ByteBuffer>(
            channel.get(), &queue, methods[which], &p->context, request));
        p->reader->StartCall();
        p->reader->Finish(&p->reply, &p->status, p);
    }

    /* True if a call that has begun ended within the time. */
    bool end(gpr_timespec until)
    {
        void *tag;
        bool good;
        if (queue.AsyncNext(&tag, &good, until) != grpc::CompletionQueue::GOT_EVENT)
            return false;
        std::unique_ptr<pending> p(static_cast<pending *>(tag));
        check(p->status);
        return true;
    }

    std::vector<double> timed(int n, int warm, method which, const ByteBuffer &request)
    {
        std::vector<double> times;
        for (int i = -warm; i < n; i++) {
            double begin = now();
            call(which, request);
            if (i >= 0)
                times.push_back(now() - begin);
        }
        return times;
    }

    double seconds_of_worker(const ByteBuffer &empty)
    {
        grpc::Slice slice;
        double seconds = 0;
        check(call(USED, empty).DumpToSingleSlice(&slice));
        memcpy(&seconds, slice.begin(), std::min(slice.size(), sizeof(seconds)));
        return seconds;
    }
};

static void measure(const char *name, const std::string &address)
{
    static std::vector<char> memory(1 << 30);
    const int CALLS = 20000;
    bool shared = strcmp(name, "TCP") != 0;
    caller worker(address);
    ByteBuffer empty = message(memory.data(), {0});
    way = name;
    latency("empty call", worker.timed(rounds, 50, NOTHING, empty));
    double begin = now();
    for (int i = 0; i < CALLS + WINDOW; i++) {
        if (i >= WINDOW)
            worker.end(gpr_inf_future(GPR_CLOCK_MONOTONIC));
        if (i < CALLS)
            worker.begin(NOTHING, empty);
    }
    row("64 calls under way", CALLS / (now() - begin), "calls/s");
    latency("1 MB there and back", worker.timed(200, 3, GIVE_BACK, message(memory.data(), {1000000})));
    if (shared) {
        latency("4 KiB passed, not touched", worker.timed(rounds, 50, NOTHING, message(memory.data(), {4096})));
        latency("1 GiB passed, not touched", worker.timed(5, 1, NOTHING, message(memory.data(), {memory.size()})));
        latency("47 MB fetched, not touched", worker.timed(30, 3, NETWORK, empty));
    } else {
        std::vector<double> times;
        worker.begin(NOTHING, message(memory.data(), {1000000000}));
        while (!worker.end(gpr_inf_past(GPR_CLOCK_MONOTONIC)))
            times.push_back(worker.timed(1, 0, NOTHING, empty)[0]);
        if (!times.empty())
            latency("empty call beside 1 GB", times);
    }
    double before = worker.seconds_of_worker(empty);
    begin = now();
    sleep(2);
    row("a worker that waits", 100 * (worker.seconds_of_worker(empty) - before) / (now() - begin), "% of a core");
}

int main(int argc, char **argv)
{
    rounds = argc > 1 ? atoi(argv[1]) : rounds;
    int ends[2], port = 0;
    if (argc > 2 || rounds < 100 || pipe(ends)) {
        fprintf(stderr, "usage: peer_grpc [rounds (100 or more)]\n");
        return 2;
    }
    std::string address = "unix-abstract:peer_grpc." + std::to_string(getpid());
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        serve(address, ends[1]);
        _exit(1);
    }
    close(ends[1]);
    if (read(ends[0], &port, sizeof(port)) != sizeof(port) || !port) {
        fprintf(stderr, "peer_grpc: the server did not start\n");
        return 1;
    }
    measure("shared memory", address);
    measure("TCP", "127.0.0.1:" + std::to_string(port));
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    return 0;
}
