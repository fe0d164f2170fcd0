/*
 * rpc.c - what calls between two workers of this host take: through shared memory, and over TCP on loopback
 * (authenticated), beside two bare futex wake-ups in the same run. Prints lines of name, value and unit, separated by
 * tabs; bench/rpc_compare sets them beside those of bench/peer_rpc.py.
 *
 * Usage: rpc [rounds [shared|tcp]]        default: 2000 calls for each latency, and both ways
 */
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <yoke/yoke.h>

#include "base/core.h"

enum { MOST = 100000, WINDOW = 64 };
static double times[MOST];
static int rounds = 2000;
static const char *way; /* "shared memory" or "TCP" */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void row(const char *name, double value, const char *unit)
{
    printf("%s\t%.4g\t%s\n", name, value, unit);
    fflush(stdout);
}

/* The median and the 99th percentile of the first n times, in microseconds. */
static void latency(const char *name, int n)
{
    char text[100];
    qsort(times, (size_t)n, sizeof(*times), by_size);
    snprintf(text, sizeof(text), "%s, median", name);
    row(text, times[n / 2] * 1e6, "us");
    snprintf(text, sizeof(text), "%s, 99th", name);
    row(text, times[n - 1 - n / 100] * 1e6, "us");
}

/* ---- two bare wake-ups ------------------------------------------------------------------------------------------- */

static void futex_wait(_Atomic uint32_t *word, uint32_t value)
{
    while (atomic_load(word) == value)
        syscall(SYS_futex, word, FUTEX_WAIT, value, NULL, NULL, 0);
}

static void futex_raise(_Atomic uint32_t *word)
{
    atomic_fetch_add(word, 1);
    syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void bare_wake_ups(void)
{
    _Atomic uint32_t *there = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (there == MAP_FAILED)
        exit(1);
    _Atomic uint32_t *back = there + 32;
    pid_t pid = fork();
    if (pid == 0) {
        for (int i = 0; i < rounds; i++) {
            futex_wait(there, (uint32_t)i);
            futex_raise(back);
        }
        _exit(0);
    }
    for (int i = 0; i < rounds; i++) {
        double begin = yk__now();
        futex_raise(there);
        futex_wait(back, (uint32_t)i);
        times[i] = yk__now() - begin;
    }
    waitpid(pid, NULL, 0);
    munmap(there, 4096);
    latency("two bare futex wake-ups", rounds);
}

/* ---- what is called ---------------------------------------------------------------------------------------------- */

static yk_status nothing(yk_call *call)
{
    (void)call;
    return YK_OK;
}

static yk_status give_back(yk_call *call)
{
    return yk_call_return(call, yk_call_argument(call, 0));
}

/* The processor seconds of this worker so far. */
static yk_status used(yk_call *call)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return yk_call_return(call, yk_value_real((double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
                                              (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6));
}

/* ---- what is measured -------------------------------------------------------------------------------------------- */

static const char *named(const char *name)
{
    static char text[120];
    snprintf(text, sizeof(text), "%s: %s", way, name);
    return text;
}

/* One call's time, with its values given back. */
static yk_status call_once(const char *function, yk_value *args, double *took)
{
    yk_scope scope = yk_scope_begin();
    double begin = yk__now();
    yk_status status = yk_rpc_sync("worker1", function, args, NULL) ? YK_OK : yk_last_error()->code;
    *took = yk__now() - begin;
    yk_scope_end(scope);
    return status;
}

static yk_status empty_calls(void)
{
    yk_status status = YK_OK;
    for (int i = -50; i < rounds && !status; i++)
        status = call_once("nothing", NULL, &times[i < 0 ? 0 : i]);
    latency(named("empty call"), rounds);
    return status;
}

static yk_status many_under_way(void)
{
    enum { CALLS = 100000 };
    yk_future *window[WINDOW] = {NULL};
    yk_scope scope = yk_scope_begin();
    yk_value *none = yk_value_list();
    double begin = yk__now();
    yk_status status = YK_OK;
    for (int i = 0; i < CALLS + WINDOW && !status; i++) {
        yk_scope inner = yk_scope_begin();
        yk_future **slot = &window[i % WINDOW];
        if (*slot && !yk_future_wait(*slot, YK_NOT_GIVEN))
            status = yk_last_error()->code;
        yk_future_release(*slot);
        *slot = i < CALLS ? yk_future_retain(yk_rpc_async("worker1", "nothing", none, NULL)) : NULL;
        yk_scope_end(inner);
    }
    row(named("64 calls under way"), CALLS / (yk__now() - begin), "calls/s");
    yk_scope_end(scope);
    return status;
}

static yk_status there_and_back(const char *name, int64_t bytes, int n)
{
    yk_status status = YK_OK;
    yk_value *args = yk_args(yk_value_tensor(yk_zeros(YK_SHAPE(bytes / 4), NULL)));
    for (int i = -3; i < n && !status; i++)
        status = call_once("give_back", args, &times[i < 0 ? 0 : i]);
    latency(named(name), n);
    return status;
}

/* A tensor that is in shared memory and is not touched: 4 KiB (which is copied) and 1 GiB. */
static yk_status pass_in_place(void)
{
    static const struct {
        const char *name;
        int64_t bytes;
    } sizes[] = {{"4 KiB passed, not touched", 4 << 10}, {"1 GiB passed, not touched", 1 << 30}};
    yk_status status = YK_OK;
    for (int s = 0; s < 2 && !status; s++) {
        yk_scope scope = yk_scope_begin();
        yk_value *args = yk_args(yk_value_tensor(yk_rpc_alloc(YK_SHAPE(sizes[s].bytes / 4), NULL)));
        for (int i = -50; i < rounds && !status; i++)
            status = call_once("nothing", args, &times[i < 0 ? 0 : i]);
        latency(named(sizes[s].name), rounds);
        yk_scope_end(scope);
    }
    return status;
}

/* Small calls while 1 GB is on its way. */
static yk_status beside_a_large_one(void)
{
    yk_value *args = yk_args(yk_value_tensor(yk_zeros(YK_SHAPE(250000000), NULL)));
    yk_future *large = yk_rpc_async("worker1", "nothing", args, NULL);
    yk_status status = large ? YK_OK : yk_last_error()->code;
    int n = 0;
    while (!status && n < MOST && !yk_future_done(large))
        status = call_once("nothing", NULL, &times[n++]);
    if (!status && n)
        latency(named("empty call beside 1 GB"), n);
    return !status && !yk_future_wait(large, YK_NOT_GIVEN) ? yk_last_error()->code : status;
}

/* The tensors of a ResNet-18, by and large: 60 of 195,000 floats, and 62 of 512; 47 MB. bench/peer_rpc.py has the same.
 */
static yk_state_dict *network(void)
{
    yk_state_dict *dict = yk_state_dict_create();
    for (int i = 0; i < 122; i++) {
        char name[40];
        snprintf(name, sizeof(name), "layer%d.weight", i);
        if (yk_state_dict_add(dict, name, yk_ones(YK_SHAPE(i < 60 ? 195000 : 512), NULL)))
            return NULL;
    }
    return dict;
}

/* In the reader: a fetch, not touched; the time of it. */
static yk_status fetch_once(yk_call *call)
{
    double begin = yk__now();
    yk_state_dict *dict = yk_fetch("network", NULL, NULL);
    return yk_call_return(call, dict ? yk_value_real(yk__now() - begin) : NULL);
}

/* The time of publishing beside one memcpy of the same bytes, into memory that was written before; and of a fetch. */
static yk_status publish_and_fetch(void)
{
    enum { N = 60, WARM = 5 };
    static double copies[N], fetches[N], publishes[N];
    yk_state_dict *dict = network();
    size_t bytes = 0;
    for (int64_t i = 0; i < yk_state_dict_count(dict); i++)
        bytes += (size_t)yk_numel(yk_state_dict_at(dict, i)) * 4;
    char *to = malloc(bytes);
    yk_status status = dict && to ? YK_OK : yk_last_error()->code;
    for (int n = -WARM; n < N && !status; n++) {
        yk_scope scope = yk_scope_begin();
        int at = n < 0 ? 0 : n;
        double begin = yk__now();
        char *place = to;
        for (int64_t i = 0; i < yk_state_dict_count(dict); i++) {
            yk_tensor *x = yk_state_dict_at(dict, i);
            memcpy(place, yk_tensor_data(x), (size_t)yk_numel(x) * 4);
            place += (size_t)yk_numel(x) * 4;
        }
        copies[at] = yk__now() - begin;
        begin = yk__now();
        status = yk_publish("network", dict, NULL, NULL);
        publishes[at] = yk__now() - begin;
        yk_value *took = status ? NULL : yk_rpc_sync("worker1", "fetch_once", NULL, NULL);
        status = took ? YK_OK : yk_last_error()->code;
        fetches[at] = status ? 0 : yk_value_as_real(took);
        yk_scope_end(scope);
    }
    free(to);
    memcpy(times, copies, sizeof(copies));
    latency(named("47 MB by memcpy"), N);
    memcpy(times, publishes, sizeof(publishes));
    latency(named("47 MB published"), N);
    memcpy(times, fetches, sizeof(fetches));
    latency(named("47 MB fetched, not touched"), N);
    return status;
}

static yk_status idle_worker(void)
{
    yk_value *before = yk_rpc_sync("worker1", "used", NULL, NULL);
    double begin = yk__now();
    sleep(2);
    yk_value *later = before ? yk_rpc_sync("worker1", "used", NULL, NULL) : NULL;
    if (!later)
        return yk_last_error()->code;
    row(named("a worker that waits"), 100 * (yk_value_as_real(later) - yk_value_as_real(before)) / (yk__now() - begin),
        "% of a core");
    return YK_OK;
}

static yk_status worker_run(int rank, void *arg)
{
    bool shared = *(bool *)arg;
    way = shared ? "shared memory" : "TCP";
    setenv("YOKE_SHARED_MEMORY", shared ? "1" : "0", 1);
    yk_scope scope = yk_scope_begin();
    yk_status status = yk_rpc_register("nothing", nothing);
    status = status ? status : yk_rpc_register("give_back", give_back);
    status = status ? status : yk_rpc_register("used", used);
    status = status ? status : yk_rpc_register("fetch_once", fetch_once);
    status = status ? status : yk_rpc_init(NULL, NULL);
    if (!status && rank == 0) {
        status = empty_calls();
        status = status ? status : many_under_way();
        status = status ? status : there_and_back("1 MB there and back", 1000000, 200);
        if (shared)
            status = status ? status : pass_in_place();
        if (shared)
            status = status ? status : publish_and_fetch();
        else
            status = status ? status : beside_a_large_one();
        status = status ? status : idle_worker();
    }
    status = status ? status : yk_rpc_shutdown(YK_RPC_GRACEFUL, 30);
    yk_scope_end(scope);
    return status;
}

int main(int argc, char **argv)
{
    rounds = argc > 1 ? atoi(argv[1]) : rounds;
    const char *only = argc > 2 ? argv[2] : "";
    if (argc > 3 || rounds < 100 || rounds > MOST ||
        (*only && strcmp(only, "shared") != 0 && strcmp(only, "tcp") != 0)) {
        fprintf(stderr, "usage: rpc [rounds (100 to %d) [shared|tcp]]\n", MOST);
        return 2;
    }
    bare_wake_ups();
    for (int i = 0; i < 2; i++) {
        bool shared = i == 0;
        if (*only && (strcmp(only, "shared") == 0) != shared)
            continue;
        if (yk_spawn(worker_run, &shared, 2, NULL))
            return yk_report_error(stderr);
    }
    return 0;
}
