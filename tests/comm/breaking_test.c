/*
 * breaking_test.c - the memory of operations in a group that breaks: when an operation has failed, its buffers are the
 * caller's alone, although other ranks were at work on them.
 */
#include "tests/comm/ranks.h"

#include "comm/group.h"
#include "comm/native/native.h"
#include "comm/region.h"

static native *state_of(const rank_context *c)
{
    return c->group->group->state;
}

/* Waits, for a minute at most, until the counter is there. */
static void wait_until(atomic_int *counter, int value)
{
    double until = yk__now() + patience(60);
    while (atomic_load(counter) < value && yk__now() < until)
        usleep(100);
}

static void fill(float *p, int64_t n, float value)
{
    for (int64_t i = 0; i < n; i++)
        p[i] = value;
}

/* ---- one rank is inside, as its row says ------------------------------------------------------------------------- */
enum { COUNT = 50000 };

/* Waits until the others have begun the operation of this number: one that finds the group broken does not begin. */
static void wait_for_begin(const rank_context *c, native *g, uint64_t number)
{
    for (int r = 0; r < c->size; r++)
        for (double until = yk__now() + patience(60);
             r != c->rank && atomic_load(&g->rows[r].begun) < number && yk__now() < until;)
            usleep(100);
}

static void thread_inside(rank_context *c)
{
    native *g = state_of(c);
    yk_tensor *x = yk_ones(YK_SHAPE(COUNT), NULL);
    CHECK_OK(yk_barrier(c->group));
    if (c->rank == 1) {
        atomic_store(&g->rows[1].inside, 1);
        atomic_store(&c->signals[0], 1);
        wait_for_begin(c, g, 2);
        usleep(20000);
        yk_process_group_abort(c->group, "enough");
        usleep(200000);
        atomic_store(&c->signals[1], 1);
        yk__native_exit(g);
        return;
    }
    wait_until(&c->signals[0], 1);
    CHECK_FAILS(yk_all_reduce(x, YK_OP_SUM, c->group), YK_ERR_CONNECTION, "enough");
    CHECK(atomic_load(&c->signals[1]), "rank %d came back while rank 1 was inside", c->rank);
}

/* A process that stays inside, one that is stopped there, and one that is killed there. */
static void process_inside(rank_context *c)
{
    int signal = *(const int *)c->arg;
    native *g = state_of(c);
    yk_tensor *x = yk_comm_alloc(YK_SHAPE(COUNT), NULL);
    CHECK(x, "%s", yk_last_error()->message);
    float *p = yk_tensor_data(x);
    fill(p, yk_numel(x), 1);
    CHECK_OK(yk_all_reduce(x, YK_OP_SUM, c->group)); /* so that the region is mapped by all */
    fill(p, COUNT, (float)c->rank);
    CHECK_OK(yk_barrier(c->group));
    if (c->rank == 1) {
        char *theirs = yk__native_peer_memory(g, 1, 0, false); /* rank 0's, as it is mapped here */
        atomic_store(&g->rows[1].inside, 1);
        wait_for_begin(c, g, 3);
        yk_process_group_abort(c->group, "enough");
        if (signal)
            kill(getpid(), signal);
        wait_until(&c->signals[1], c->size - 1);
        ((float *)(void *)theirs)[COUNT - 1] = 99; /* late */
        atomic_store(&c->signals[2], 1);
        return;
    }
    uint64_t id = yk__region_find(p, COUNT * sizeof(float)).id;
    double begin = yk__now();
    yk__comm_op op = {.kind = YK__COMM_ALL_REDUCE, .dtype = YK_F32, .number = 3, .count = COUNT, .in = p, .out = p};
    yk_status status = yk__comm_native.collective[YK__COMM_ALL_REDUCE](g, &op);
    double seconds = yk__now() - begin;
    CHECK(status == YK_ERR_CONNECTION && strstr(yk_last_error()->message, "enough"), "%s", yk_last_error()->message);
    yk_clear_error();
    CHECK(seconds < patience(15), "%g s", seconds);
    uint64_t now = yk__region_find(p, COUNT * sizeof(float)).id;
    CHECK((now != id) == (signal != SIGKILL), "region %d is number %d now", (int)id, (int)now);
    for (int i = 0; i < COUNT; i++)
        CHECK(p[i] == (float)c->rank, "element %d is %g", i, (double)p[i]);
    atomic_fetch_add(&c->signals[1], 1);
    if (signal == SIGSTOP && c->rank == 0) {
        wait_until(&c->signals[1], c->size - 1);
        kill(c->pids[1], SIGCONT);
    }
    if (signal != SIGKILL) {
        wait_until(&c->signals[2], 1);
        CHECK(atomic_load(&c->signals[2]), "rank 1 did not go on");
    }
    CHECK(p[COUNT - 1] == (float)c->rank, "rank 1 wrote %g", (double)p[COUNT - 1]);
}

static void test_inside(void **unused)
{
    (void)unused;
    run_ranks(THREADS, 3, thread_inside, NULL, patience(20), true);
    for (int i = 0; i < 3; i++)
        run_ranks(PROCESSES, 3, process_inside, (int[]){i == 0 ? 0 : i == 1 ? SIGSTOP : SIGKILL}, patience(20), true);
}

/* A rank that passes the first round of an operation when the others have given it up touches nothing. */
static void late_entrance(rank_context *c)
{
    native *g = state_of(c);
    CHECK_OK(yk_barrier(c->group));
    CHECK_OK(yk__native_enter(g));
    CHECK(atomic_load(&g->rows[c->rank].inside), "not inside");
    yk__native_exit(g);
    CHECK_OK(yk_barrier(c->group));
    if (c->rank == 1)
        yk_process_group_abort(c->group, "enough");
    double until = yk__now() + patience(10);
    while (!atomic_load(&g->head->broken) && yk__now() < until)
        usleep(100);
    CHECK_FAILS(yk__native_enter(g), YK_ERR_CONNECTION, "enough");
    CHECK(!atomic_load(&g->rows[c->rank].inside), "inside of a broken group");
}

static void test_entrance(void **unused)
{
    (void)unused;
    run_ranks(THREADS, 2, late_entrance, NULL, patience(20), true);
}

/* Rank 0 is slow to read what all published in the round in which an operation begins. The others are done with it, and
 * have further operations queued when the group breaks: these leave alone what rank 0 reads. */
static void slow_reader(rank_context *c)
{
    native *g = state_of(c);
    float value = (float)(c->rank + 1), sum = value;
    CHECK_OK(yk_barrier(c->group));
    yk__comm_op op = {.kind = YK__COMM_ALL_REDUCE, .dtype = YK_F32, .number = 2, .count = 1, .in = &sum, .out = &sum};
    if (c->rank != 0) {
        CHECK_OK(yk__native_collective(g, &op));
        CHECK(sum == 6, "the sum is %g", (double)sum);
        atomic_fetch_add(&c->signals[1], 1);
        wait_until(&c->signals[1], c->size - 1);
        yk_process_group_abort(c->group, "enough");
        for (sum = 99; op.number < 6; op.number++)
            CHECK_FAILS(yk__native_collective(g, &op), YK_ERR_CONNECTION, "enough");
        atomic_fetch_add(&c->signals[0], 1);
        return;
    }
    memcpy(yk__native_next_round(g)->bytes, &value, sizeof(value));
    CHECK_OK(yk__native_begin(g, &op, NULL, NULL));
    wait_until(&c->signals[0], c->size - 1);
    CHECK(atomic_load(&c->signals[0]) == c->size - 1, "the others wait");
    for (int r = 0; r < c->size; r++) {
        const yk__native_round *theirs = yk__native_round_of(g, r);
        memcpy(&value, theirs->bytes, sizeof(value));
        CHECK(value == (float)(r + 1), "rank %d's value is %g now", r, (double)value);
    }
}

static void test_slow_reader(void **unused)
{
    (void)unused;
    run_ranks(THREADS, 3, slow_reader, NULL, patience(20), true);
    run_ranks(PROCESSES, 3, slow_reader, NULL, patience(20), true);
}

/* ---- a message is being read ------------------------------------------------------------------------------------- */
static void read_message(rank_context *c)
{
    native *g = state_of(c);
    CHECK_OK(yk_barrier(c->group));
    if (c->rank == 0) {
        yk_tensor *x = c->process ? yk_comm_alloc(YK_SHAPE(COUNT), NULL) : yk_ones(YK_SHAPE(COUNT), NULL);
        CHECK_FAILS(yk_send(x, 1, 0, c->group), YK_ERR_CONNECTION, "enough");
        if (c->process) /* rank 1 has its own mapping */
            atomic_store(&c->signals[0], 1);
        else
            CHECK(atomic_load(&c->signals[0]), "rank 0 came back while its message was read");
        return;
    }
    yk__native_slot *slot = &g->channels[0 * g->world_size + 1].slots[0];
    uint32_t state = SLOT_POSTED;
    double until = yk__now() + patience(10);
    while (!atomic_compare_exchange_strong(&slot->state, &state, SLOT_READING) && yk__now() < until) {
        state = SLOT_POSTED;
        usleep(100);
    }
    CHECK(atomic_load(&slot->state) == SLOT_READING, "no message came");
    yk_process_group_abort(c->group, "enough");
    if (c->process) {
        wait_until(&c->signals[0], 1);
        CHECK(atomic_load(&c->signals[0]), "the sender waits");
        CHECK(atomic_load(&slot->state) == SLOT_FREE, "a message that was taken back is in state %u", slot->state);
        return;
    }
    usleep(200000);
    atomic_store(&c->signals[0], 1);
    atomic_store(&slot->state, SLOT_TAKEN);
}

static void test_message(void **unused)
{
    (void)unused;
    run_ranks(THREADS, 2, read_message, NULL, patience(20), true);
    run_ranks(PROCESSES, 2, read_message, NULL, patience(20), true);
}

/* ---- the real thing, at random moments --------------------------------------------------------------------------- */
enum { LARGE = 2 << 20 /* elements */, ROUNDS = 24 };

typedef struct aborter {
    yk_process_group *group;
    int microseconds;
} aborter;

static void *abort_later(void *arg)
{
    const aborter *a = arg;
    usleep((useconds_t)a->microseconds);
    yk_process_group_abort(a->group, "enough");
    return NULL;
}

/* Operations one after another until the group breaks; then the buffer is filled with what must stay there. */
static void work_until_broken(rank_context *c, yk_process_group *g, int round)
{
    int64_t n = LARGE;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = c->process ? yk_comm_alloc(1, &n, NULL) : yk_empty(1, &n, NULL);
    yk_tensor *all = round % 3 == 2 ? yk_empty(2, (int64_t[]){c->size, n}, NULL) : NULL;
    CHECK(x, "%s", yk_last_error()->message);
    float *p = yk_tensor_data(x);
    fill(p, n, 1);
    yk_status status = YK_OK;
    while (!status) {
        switch (round % 3) {
        case 0: status = yk_all_reduce(x, YK_OP_MAX, g); break;
        case 1: status = yk_reduce(x, 0, YK_OP_MAX, g); break;
        default: status = yk_all_gather(all, x, g);
        }
    }
    fill(p, n, -5);
    CHECK(status == YK_ERR_CONNECTION && strstr(yk_last_error()->message, "enough"), "%s", yk_last_error()->message);
    yk_clear_error();
    if (round % 2 == 0) { /* else it is freed at once */
        usleep(10000);
        for (int64_t i = 0; i < n; i++)
            CHECK(p[i] == -5, "round %d: element %d is %g", round, (int)i, (double)p[i]);
    }
    yk_scope_end(scope);
}

static void breaking(rank_context *c)
{
    for (int round = 0; round < ROUNDS && !c->failure[0]; round++) {
        yk_scope scope = yk_scope_begin();
        char name[32];
        snprintf(name, sizeof(name), "round%d", round);
        yk_process_group *g = yk_process_group_create(
            c->store, c->rank, c->size,
            YK_OPTIONS(yk_process_group_options, .name = name, .timeout = patience(20), .join_timeout = patience(10)));
        CHECK(g, "round %d: %s", round, yk_last_error()->message);
        aborter a = {g, 2000 + round * 977 % 9000};
        pthread_t thread;
        bool aborts = c->rank == round % c->size;
        if (aborts)
            CHECK(pthread_create(&thread, NULL, abort_later, &a) == 0, "no thread");
        work_until_broken(c, g, round);
        if (aborts)
            pthread_join(thread, NULL);
        yk_scope_end(scope);
    }
}

static void test_breaking(void **unused)
{
    (void)unused;
    run_ranks(THREADS, 3, breaking, NULL, patience(20), false);
    if (FORKS_THREADS)
        run_ranks(PROCESSES, 3, breaking, NULL, patience(20), false);
}

/* Rank 1 is stopped somewhere in a large operation, and goes on when the others have given it up. */
static void stopped_somewhere(rank_context *c)
{
    int64_t n = 8 << 20;
    yk_tensor *x = yk_comm_alloc(1, &n, NULL);
    CHECK(x, "%s", yk_last_error()->message);
    float *p = yk_tensor_data(x);
    fill(p, yk_numel(x), 1);
    CHECK_MET(c);
    if (c->rank == 1 && fork() == 0) {
        usleep((useconds_t)(20000 + *(const int *)c->arg * 7919 % 80000));
        kill(getppid(), SIGSTOP);
        _exit(0);
    }
    yk_status status = YK_OK;
    while (!status)
        status = yk_all_reduce(x, YK_OP_MAX, c->group);
    CHECK(status == YK_ERR_STALLED, "%s", yk_last_error()->message);
    yk_clear_error();
    if (c->rank == 1) {
        atomic_store(&c->signals[1], 1);
        return;
    }
    fill(p, n, -5);
    double until = yk__now() + patience(60);
    while (!atomic_load(&c->signals[1]) && yk__now() < until) { /* time may have run out before it was stopped */
        kill(c->pids[1], SIGCONT);
        usleep(1000);
    }
    CHECK(atomic_load(&c->signals[1]), "rank 1 did not go on");
    for (int64_t i = 0; i < n; i++)
        CHECK(p[i] == -5, "element %d of %d is %g", (int)i, (int)n, (double)p[i]);
}

static void test_stopped(void **unused)
{
    (void)unused;
    const char *many = getenv("YOKE_STOPS"); /* make soak */
    for (int i = 0, count = many ? atoi(many) : 4; i < count; i++)
        run_ranks(PROCESSES, 2, stopped_somewhere, &i, 0.3, true);
}

/* A rank that computes, and waits for nobody, learns that another has ended. */
static void computing(rank_context *c)
{
    CHECK_OK(yk__group_look(c->group));
    CHECK_MET(c);
    if (c->rank == 1)
        kill(getpid(), SIGKILL);
    double until = yk__now() + patience(20);
    yk_status status = YK_OK;
    while (!status && yk__now() < until) {
        usleep(1000);
        status = yk__group_look(c->group);
    }
    CHECK(status == YK_ERR_CONNECTION && strstr(yk_last_error()->message, "rank 1 (host ") &&
              strstr(yk_last_error()->message, " ended after "),
          "%d: %s", (int)status, yk_last_error()->message);
    yk_clear_error();
    CHECK(!yk__group_is_whole(c->group), "the group is whole");
}

static void test_computing(void **unused)
{
    (void)unused;
    run_ranks(PROCESSES, 3, computing, NULL, patience(20), true);
}

/* A backend may lack a collective: an error that names it on all ranks, and the group is not broken. */
static void lacking(rank_context *c)
{
    yk__group *g = yk__group_of("test", c->group);
    const yk__comm_backend *whole = g->backend;
    yk__comm_backend part = *whole;
    part.collective[YK__COMM_ALL_REDUCE] = NULL;
    g->backend = &part;
    yk_tensor *x = yk_ones(1, (int64_t[]){4}, NULL);
    CHECK_FAILS(yk_all_reduce(x, YK_OP_SUM, c->group), YK_ERR_UNSUPPORTED, "native", "all_reduce");
    CHECK_OK(yk_barrier(c->group));
    g->backend = whole;
    CHECK_OK(yk_barrier(c->group));
}

static void test_lacking(void **state)
{
    (void)state;
    run_ranks(PROCESSES, 2, lacking, NULL, patience(20), true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_inside),  cmocka_unit_test(test_entrance),  cmocka_unit_test(test_slow_reader),
        cmocka_unit_test(test_message), cmocka_unit_test(test_breaking),  cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_lacking), cmocka_unit_test(test_computing),
    };
    return cmocka_run_group_tests_name("comm breaking", tests, NULL, NULL);
}
