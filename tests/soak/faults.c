/*
 * faults.c - soak: groups of processes that run random collectives until one of them does something wrong at a random
 * moment. Every other rank must get an error of the right kind that names it, in bounded time, and nothing may be left
 * over. Every value that a collective gives before that is checked.
 *
 * usage: faults [COUNT [SEED]]: prints the seed of a round that fails, so that `faults 1 SEED` repeats it.
 */
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <yoke/comm.h>
#include <yoke/ops.h>

#include "base/core.h"

enum { MOST_RANKS = 5, TEXT = 1100, HANG_SECONDS = 30, OPERATIONS_AFTER = 1000 };

typedef enum fault { KILLED, STOPPED, EXITED, LEFT, GAVE_UP, OTHER_SIZE, OTHER_OPERATION, AWAY, FAULTS } fault;
static const struct {
    const char *name;
    yk_status code;
    double seconds; /* the others know within this, on a machine that is busy */
} kinds[FAULTS] = {
    [KILLED] = {"is killed", YK_ERR_CONNECTION, 5},
    [STOPPED] = {"is stopped", YK_ERR_STALLED, 8},
    [EXITED] = {"exits", YK_ERR_CONNECTION, 5},
    [LEFT] = {"leaves the group", YK_ERR_CONNECTION, 5},
    [GAVE_UP] = {"gives up", YK_ERR_CONNECTION, 5},
    [OTHER_SIZE] = {"brings another size", YK_ERR_MISMATCH, 5},
    [OTHER_OPERATION] = {"calls another operation", YK_ERR_MISMATCH, 5},
    [AWAY] = {"stays away", YK_ERR_STALLED, 8},
};

static const char *const layouts[] = {"one host", "a host each", "two hosts"};

typedef struct plan {
    uint64_t seed;
    int size, culprit, at, layout;
    fault fault;
} plan;

/* The outcome of a rank, in memory that the test shares. */
typedef struct outcome {
    pid_t pid;
    yk_status code;
    double fault_at, known_at; /* yk__now */
    char wrong[TEXT];          /* a finding; "" for none */
    char message[TEXT];
} outcome;

static uint64_t next_random(uint64_t *state) /* splitmix64 */
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static int below(uint64_t *state, int bound)
{
    return (int)(next_random(state) % (uint64_t)bound);
}

static plan plan_of(uint64_t seed)
{
    uint64_t state = seed;
    plan p = {.seed = seed, .size = 2 + below(&state, MOST_RANKS - 1)};
    p.culprit = below(&state, p.size);
    p.at = below(&state, 30);
    p.fault = (fault)below(&state, FAULTS);
    p.layout = below(&state, 3);
    return p;
}

/* True if all elements of x are `expected`. */
static bool holds(yk_tensor *x, double expected, const char *what, outcome *o)
{
    int64_t n = yk_numel(x);
    const float *data = yk_tensor_data(x);
    for (int64_t i = 0; i < n; i++) {
        if ((double)data[i] == expected)
            continue;
        snprintf(o->wrong, TEXT, "%s: element %lld of %lld is %g, not %g", what, (long long)i, (long long)n,
                 (double)data[i], expected);
        return false;
    }
    return true;
}

static const int sizes[] = {0, 1, 3, 1000, 4097, 70000, 600000};

/* Does the number-th operation of a round: the same on all ranks, but for the culprit's fault. */
static bool operation(const plan *p, int number, int rank, outcome *o)
{
    uint64_t state = p->seed + (uint64_t)number * 0x100000001b3u;
    bool culprit = rank == p->culprit && number == p->at;
    int kind = below(&state, 7), count = sizes[below(&state, 7)], root = below(&state, p->size), n = p->size;
    bool shared = below(&state, 2), sync = below(&state, 2);
    if (culprit && p->fault == OTHER_SIZE)
        count += 1;
    if (culprit && p->fault == OTHER_OPERATION)
        kind = (kind + 1) % 6;
    if (p->at == number && p->fault == OTHER_SIZE && kind >= 5)
        kind = 0; /* a barrier and a shift have no size that both sides give */
    if (p->at == number && p->fault == OTHER_OPERATION && kind == 6)
        kind = 5;
    yk_tensor *x = shared ? yk_comm_alloc(YK_SHAPE(count), NULL) : yk_zeros(YK_SHAPE(count), NULL);
    yk_tensor *all = yk_full(YK_SHAPE(n, count), rank + 1, NULL);
    if (!x || !all || !yk_fill_(x, rank + 1))
        return false;
    double sum = n * (n + 1) / 2.0;
    switch (kind) {
    case 0:
        if (!sync)
            return !yk_work_wait(yk_all_reduce_async(x, YK_OP_SUM, NULL)) && holds(x, sum, "all_reduce", o);
        return !yk_all_reduce(x, YK_OP_SUM, NULL) && holds(x, sum, "all_reduce", o);
    case 1: return !yk_broadcast(x, root, NULL) && holds(x, root + 1, "broadcast", o);
    case 2:
        if (yk_all_gather(all, x, NULL))
            return false;
        for (int r = 0; r < n; r++)
            if (!holds(yk_select(all, 0, r), r + 1, "all_gather", o))
                return false;
        return true;
    case 3: return !yk_reduce_scatter(x, all, YK_OP_SUM, NULL) && holds(x, sum, "reduce_scatter", o);
    case 4: return !yk_reduce(x, root, YK_OP_MAX, NULL) && holds(x, rank == root ? n : rank + 1, "reduce", o);
    case 5: return !yk_barrier(NULL);
    default: { /* every rank to the next */
        yk_work *work = yk_isend(x, (rank + 1) % n, number, NULL);
        yk_tensor *from = yk_zeros(YK_SHAPE(count), NULL);
        return work && from && !yk_recv(from, (rank + n - 1) % n, number, NULL) && !yk_work_wait(work) &&
               holds(from, (rank + n - 1) % n + 1, "recv", o);
    }
    }
}

/* Does the fault of the plan; true if the rank goes on to the operation. */
static bool misbehave(const plan *p, outcome *o)
{
    o->fault_at = yk__now();
    switch (p->fault) {
    case KILLED: kill(getpid(), SIGKILL); return false;
    case STOPPED:
        kill(getpid(), SIGSTOP); /* the test lets it go on, or ends it */
        return false;
    case EXITED: _exit(0);
    case LEFT: yk_destroy_process_group(); return false;
    case GAVE_UP: yk_process_group_abort(NULL, "the loss is NaN"); return true;
    case AWAY:
        sleep(HANG_SECONDS); /* the test ends it */
        return false;
    default: return true;
    }
}

static void run_rank(const plan *p, int rank, const char *store_path, outcome *o)
{
    char host[20] = "soak";
    if (p->layout)
        snprintf(host, sizeof(host), "soak-%d", p->layout == 1 ? rank : rank % 2);
    setenv("YOKE_HOST_ID", host, 1);
    yk_scope scope = yk_scope_begin();
    yk_init_options init = *YK_OPTIONS(yk_init_options, .rank = rank, .world_size = p->size,
                                       .timeout = p->fault == STOPPED || p->fault == AWAY ? 0.7 : 20,
                                       .join_timeout = 20, .store = yk_file_store(store_path));
    if (yk_init_process_group(&init)) {
        snprintf(o->wrong, TEXT, "did not join: %s", yk_last_error()->message);
        return;
    }
    for (int number = 0; number < p->at + OPERATIONS_AFTER; number++) {
        if (number == p->at && rank == p->culprit && !misbehave(p, o))
            return;
        yk_scope step = yk_scope_begin();
        bool done = operation(p, number, rank, o);
        const yk_error *error = yk_last_error();
        if (!done) {
            o->known_at = yk__now();
            o->code = error ? error->code : YK_OK;
            snprintf(o->message, TEXT, "operation %d: %s", number, error ? error->message : "no error");
            yk_clear_error();
        }
        yk_scope_end(step);
        if (!done)
            break;
    }
    yk_destroy_process_group();
    yk_scope_end(scope);
}

/* True if the child ended by then; it is killed where it did not. */
static bool reap(pid_t pid, double deadline)
{
    int status;
    while (waitpid(pid, &status, WNOHANG) == 0) {
        if (yk__now() > deadline) {
            kill(pid, SIGKILL);
            waitpid(pid, &status, 0);
            return false;
        }
        usleep(500);
    }
    return true;
}

YK_PRINTF(3, 4) static bool finding(const plan *p, int rank, const char *format, ...)
{
    char text[2 * TEXT];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    printf("# seed %llu (%d ranks, %s; rank %d %s at operation %d): rank %d %s\n", (unsigned long long)p->seed, p->size,
           layouts[p->layout], p->culprit, kinds[p->fault].name, p->at, rank, text);
    return false;
}

/* True if the rank was in a chain of waits: one that waits for a message can only name its sender, which may itself
 * wait for one that the culprit does not send. */
static bool waits_in_a_chain(const plan *p, const outcome *o)
{
    return (p->fault == STOPPED || p->fault == AWAY) && strstr(o->message, "recv #") && strstr(o->message, " waited ");
}

/* Runs one round; true if all went as it must, with the longest time until a rank knew. */
static bool run_round(const plan *p, outcome *outcomes, double *longest)
{
    char folder[] = "/tmp/yoke-soak-XXXXXX", path[64], lock[80], culprit[20];
    if (!mkdtemp(folder)) {
        perror("faults: mkdtemp");
        exit(2);
    }
    snprintf(path, sizeof(path), "%s/store", folder);
    snprintf(lock, sizeof(lock), "%s.lock", path);
    snprintf(culprit, sizeof(culprit), "rank %d", p->culprit);
    memset(outcomes, 0, MOST_RANKS * sizeof(*outcomes));
    for (int r = 0; r < p->size; r++) {
        pid_t pid = fork();
        if (pid < 0) {
            perror("faults: fork");
            exit(2);
        }
        if (pid == 0) {
            run_rank(p, r, path, &outcomes[r]);
            _exit(0);
        }
        outcomes[r].pid = pid;
    }
    bool good = true;
    double deadline = yk__now() + HANG_SECONDS;
    for (int r = 0; r < p->size; r++)
        if (r != p->culprit && !reap(outcomes[r].pid, deadline))
            good = finding(p, r, "hangs");
    outcome *of = &outcomes[p->culprit];
    if (p->fault == STOPPED || p->fault == AWAY)
        kill(of->pid, SIGKILL);
    if (!reap(of->pid, deadline))
        good = finding(p, p->culprit, "hangs");
    *longest = 0;
    for (int r = 0; r < p->size; r++) {
        const outcome *o = &outcomes[r];
        if (o->wrong[0])
            good = finding(p, r, "finds: %s", o->wrong);
        if (r == p->culprit || o->wrong[0])
            continue;
        double seconds = o->known_at - of->fault_at;
        *longest = seconds > *longest ? seconds : *longest;
        if (o->code != kinds[p->fault].code)
            good = finding(p, r, "gets %s: %s", yk_status_name(o->code), o->message);
        else if (!strstr(o->message, culprit) && !waits_in_a_chain(p, o))
            good = finding(p, r, "is not told of %s: %s", culprit, o->message);
        else if (seconds > kinds[p->fault].seconds)
            good = finding(p, r, "knows after %.3g s: %s", seconds, o->message);
    }
    unlink(path);
    unlink(lock);
    if (rmdir(folder))
        good = finding(p, 0, "left something in %s", folder);
    return good;
}

int main(int argc, char **argv)
{
    long count = argc > 1 ? atol(argv[1]) : 1000;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : (uint64_t)getpid() << 20;
    outcome *outcomes =
        mmap(NULL, MOST_RANKS * sizeof(*outcomes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (outcomes == MAP_FAILED || count < 1) {
        fprintf(stderr, "usage: faults [COUNT [SEED]]\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    double begin = yk__now(), worst[FAULTS] = {0};
    long bad = 0, rounds[FAULTS] = {0};
    for (long i = 0; i < count; i++) {
        plan p = plan_of(seed + (uint64_t)i);
        double longest;
        bad += !run_round(&p, outcomes, &longest);
        rounds[p.fault]++;
        worst[p.fault] = longest > worst[p.fault] ? longest : worst[p.fault];
    }
    for (int f = 0; f < FAULTS; f++)
        printf("# %4ld times a rank %-24s the others knew after %.3g s at most\n", rounds[f], kinds[f].name, worst[f]);
    printf("%s 1 - %ld random faults from seed %llu in %.0f s, %ld of them not as they must be\n1..1\n",
           bad ? "not ok" : "ok", count, (unsigned long long)seed, yk__now() - begin, bad);
    return bad ? 1 : 0;
}
