/*
 * rpc_bounds_test.c - what is bounded: calls and bytes that a slow worker has not answered, containers inside one
 * another, threads of a pool, methods of one object at a time; times that travel with calls; circles of calls through
 * several workers.
 */
#include <stdatomic.h>

#include "tests/rpc/workers.h"

#include "rpc/rpc_agent.h"

/* ---- what the workers offer -------------------------------------------------------------------------------------- */

static yk_status give_back(yk_call *call)
{
    return yk_call_return(call, yk_call_argument(call, 0));
}

/* An object whose method does not return before the gate is open. */
static atomic_bool gate_open;
static atomic_int gate_runs;

static yk_status gate_create(yk_call *call)
{
    yk_call_set_object(call, &gate_runs);
    return YK_OK;
}

static yk_status gate_pass(yk_call *call)
{
    (void)call;
    for (double until = yk__now() + patience(20); !gate_open && yk__now() < until;)
        usleep(1000);
    gate_runs++;
    return YK_OK;
}

static yk_status gate_count(yk_call *call)
{
    return yk_call_return(call, yk_value_int(gate_runs));
}

static const yk_rpc_class gate = {
    .name = "gate",
    .create = gate_create,
    .methods = (const yk_rpc_method[]){{"pass", gate_pass}, {"count", gate_count}, {NULL, NULL}}};

/* Opens the gate after some seconds, or shuts it. */
static yk_status gate_set(yk_call *call)
{
    double seconds = yk_call_real(call, 0);
    if (seconds > 0)
        usleep((useconds_t)(1e6 * seconds));
    gate_open = seconds >= 0;
    return YK_OK;
}

/* The most calls of it that ran at once. */
static atomic_int inside, together;

static yk_status crowd(yk_call *call)
{
    int now = atomic_fetch_add(&inside, 1) + 1;
    for (int seen = together; seen < now && !atomic_compare_exchange_weak(&together, &seen, now);) {
    }
    usleep(30000);
    inside--;
    return yk_call_return(call, yk_value_int(together));
}

/* True if another call of the same object came before this one was over. */
static yk_status pair_meet(yk_call *call)
{
    atomic_int *here = yk_call_object(call);
    int mine = atomic_fetch_add(here, 1) + 1;
    for (double until = yk__now() + patience(10); mine == *here && mine == 1 && yk__now() < until;)
        usleep(1000);
    return yk_call_return(call, yk_value_bool(*here > 1));
}

static yk_status pair_create(yk_call *call)
{
    yk_call_set_object(call, calloc(1, sizeof(atomic_int)));
    return YK_OK;
}

static const yk_rpc_class pair = {.name = "pair",
                                  .create = pair_create,
                                  .destroy = free,
                                  .methods = (const yk_rpc_method[]){{"meet", pair_meet}, {NULL, NULL}},
                                  .concurrent = true};

/* Calls its caller so many times more: each of them waits for the one that it has called. */
static yk_status bounce(yk_call *call)
{
    int64_t left = yk_call_int(call, 0);
    if (left == 0)
        return yk_call_return(call, yk_value_int(0));
    yk_value *there = yk_rpc_sync(yk_call_caller(call), "bounce", yk_args(yk_value_int(left - 1)), NULL);
    return yk_call_return(call, there ? yk_value_int(yk_value_as_int(there) + 1) : NULL);
}

/* An object that calls the next of a circle. */
static yk_status knot_create(yk_call *call)
{
    yk_call_set_object(call, &inside);
    return YK_OK;
}

static yk_status knot_pull(yk_call *call)
{
    int64_t next = (yk_call_int(call, 0) + 1) % 3, end = yk_call_int(call, 1);
    if (next == end)
        return yk_call_return(call, yk_value_int(next));
    yk_value *refs[3];
    for (int i = 0; i < 3; i++)
        refs[i] = yk_call_argument(call, 2 + i);
    return yk_call_return(call,
                          yk_ref_call(yk_call_ref(call, 2 + next), "pull",
                                      yk_args(yk_value_int(next), yk_value_int(end), refs[0], refs[1], refs[2]), NULL));
}

static const yk_rpc_class knot = {
    .name = "knot", .create = knot_create, .methods = (const yk_rpc_method[]){{"pull", knot_pull}, {NULL, NULL}}};

/* Waits until nobody waits for it, and notes for how long it did. */
static _Atomic double waited = -1;

static yk_status wait_there(yk_call *call)
{
    double began = yk__now();
    while (!yk_call_cancelled(call) && yk__now() < began + patience(20))
        usleep(1000);
    waited = yk__now() - began;
    return YK_OK;
}

static yk_status wait_back(yk_call *call)
{
    return yk_call_return(call, yk_rpc_sync(yk_call_caller(call), "wait_there", NULL, NULL));
}

/* A text in so many lists, or a list in so many fewer: made from the outside, since what is put into a list may have
 * 200 at most. */
static yk_value *nested(int depth)
{
    yk_value *outer = yk_value_list(), *at = outer;
    for (int i = 1; i < depth; i++) {
        yk_value *next = yk_value_list();
        if (yk_value_append(at, next))
            return NULL;
        at = next;
    }
    return yk_value_append(at, yk_value_string("in the midst")) ? NULL : outer;
}

static yk_status nested_there(yk_call *call)
{
    return yk_call_return(call, nested((int)yk_call_int(call, 0)));
}

static atomic_int looked;

static yk_status look(yk_call *call)
{
    (void)call;
    looked++;
    return YK_OK;
}

static yk_status looks(yk_call *call)
{
    return yk_call_return(call, yk_value_int(looked));
}

/* The credit of a caller here is used up by less, so that the test is short. */
enum { LESS = 4 << 20 };
static yk_status take_less(yk_call *call)
{
    (void)call;
    yk__rpc.most_bytes = LESS;
    return YK_OK;
}

static yk_status offer(void)
{
    static const struct {
        const char *name;
        yk_rpc_fn fn;
    } all[] = {{"give_back", give_back},   {"gate_set", gate_set},  {"crowd", crowd},         {"bounce", bounce},
               {"wait_there", wait_there}, {"look", look},          {"wait_back", wait_back}, {"nested", nested_there},
               {"looks", looks},           {"take_less", take_less}};
    yk_status status = YK_OK;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]) && !status; i++)
        status = yk_rpc_register(all[i].name, all[i].fn);
    status = status ? status : yk_rpc_register_class(&gate);
    status = status ? status : yk_rpc_register_class(&pair);
    return status ? status : yk_rpc_register_class(&knot);
}

static int64_t number_of(yk_value *value)
{
    return value ? yk_value_as_int(value) : -1;
}

/* ---- credit ------------------------------------------------------------------------------------------------------ */

/* The bytes of calls to a worker that this process keeps: those that count against its credit, and those of messages
 * that are not sent. */
static size_t bytes_kept(void)
{
    size_t kept = 0;
    pthread_mutex_lock(&yk__rpc.lock);
    for (const yk__rpc_link *link = yk__rpc.links; link; link = link->next) {
        size_t queued = link->channel.out.size - link->channel.sent;
        for (const yk__rpc_parcel *p = link->sending; p; p = p->next)
            queued += p->size;
        kept += link->accepted ? 0 : link->call_bytes > queued ? link->call_bytes : queued;
    }
    pthread_mutex_unlock(&yk__rpc.lock);
    return kept;
}

/* Calls with 1 MB each to an object that does not get on: what is beyond the credit waits, fails in time, and is not
 * kept. Small calls to others pass. When the object gets on, a call that waits goes on, and those that failed have not
 * run. */
static yk_status call_slow_with_much(void)
{
    enum { BYTES = 1 << 20, ATTEMPTS = 40 };
    CHECK(yk_rpc_sync("worker1", "take_less", NULL, NULL));
    yk__rpc.most_bytes = LESS;
    char *bytes = calloc(1, BYTES);
    yk_value *args = yk_args(yk_value_bytes(bytes, BYTES));
    free(bytes);
    yk_ref *slow = yk_rpc_remote("worker1", "gate", NULL, NULL);
    yk_future *taken[ATTEMPTS];
    int count = 0;
    for (int i = 0; i < ATTEMPTS; i++) {
        yk_future *f = yk_ref_call_async(
            slow, "pass", args, YK_OPTIONS(yk_rpc_options, .timeout = count < LESS / BYTES - 1 ? patience(30) : 0.02));
        if (f)
            taken[count++] = f;
        else
            CHECK(failed_with(YK_ERR_TIMEOUT, "worker 'worker1' has ", "'pass' has not run"));
        CHECK(bytes_kept() <= LESS + BYTES);
    }
    CHECK(count == LESS / BYTES - 1); /* each is a little larger than its argument */
    CHECK(number_of(yk_rpc_sync("worker1", "give_back", yk_args(yk_value_int(5)), NULL)) == 5);
    CHECK(yk_rpc_async("worker1", "gate_set", yk_args(yk_value_real(0.1)), NULL));
    yk_future *waits = yk_ref_call_async(slow, "pass", args, YK_OPTIONS(yk_rpc_options, .timeout = patience(30)));
    CHECK(waits && yk_future_wait(waits, YK_NOT_GIVEN));
    for (int i = 0; i < count; i++)
        CHECK(yk_future_wait(taken[i], YK_NOT_GIVEN));
    CHECK(number_of(yk_ref_call(slow, "count", NULL, NULL)) == count + 1);
    CHECK(bytes_kept() == 0);
    return YK_OK;
}

/* Small calls are counted. One whose time is over before its turn does not run. */
static yk_status call_slow_often(void)
{
    yk_ref *slow = yk_rpc_remote("worker1", "gate", NULL, NULL);
    CHECK(slow && number_of(yk_ref_call(slow, "count", NULL, NULL)) == 0);
    yk_future *first = yk_ref_call_async(slow, "pass", NULL, NULL);
    CHECK(!yk_ref_call(slow, "pass", NULL, YK_OPTIONS(yk_rpc_options, .timeout = 0.05)) &&
          failed_with(YK_ERR_TIMEOUT, "gate.pass", "worker1"));
    yk_future *taken[YK__RPC_MOST_CALLS];
    int count = 0;
    for (int failed = 0; failed < 5;) {
        yk_future *f = yk_ref_call_async(
            slow, "pass", NULL,
            YK_OPTIONS(yk_rpc_options, .timeout = count < YK__RPC_MOST_CALLS - 1 ? patience(30) : 0.02));
        CHECK(f || failed_with(YK_ERR_TIMEOUT, "has 256 calls of this process to answer", "'pass' has not run"));
        CHECK(!f || count < YK__RPC_MOST_CALLS - 1);
        *(f ? &count : &failed) += 1;
        taken[f ? count - 1 : 0] = f ? f : taken[0];
    }
    CHECK(count == YK__RPC_MOST_CALLS - 1);
    yk_future_cancel(taken[count - 1]); /* its credit comes back */
    CHECK(yk_rpc_sync("worker1", "gate_set", yk_args(yk_value_real(0)), NULL));
    CHECK(yk_future_wait(first, YK_NOT_GIVEN));
    for (int i = 0; i < count - 1; i++)
        CHECK(yk_future_wait(taken[i], YK_NOT_GIVEN));
    CHECK(number_of(yk_ref_call(slow, "count", NULL, NULL)) == count); /* the first, and all but the cancelled one */
    return YK_OK;
}

static void test_credit(void **state)
{
    (void)state;
    act_with(offer, call_slow_with_much, 2);
    act_with(offer, call_slow_often, 2);
}

static void test_credit_over_tcp(void **state)
{
    setenv("YOKE_SHARED_MEMORY", "0", 1);
    test_credit(state);
    unsetenv("YOKE_SHARED_MEMORY");
}

/* ---- containers inside one another ------------------------------------------------------------------------------- */

/* The list of arguments is one of them. */
static yk_status send_nested(void)
{
    enum { MOST = 200 };
    for (int more = -1; more < 1; more++) {
        yk_value *there = yk_rpc_sync("worker1", "nested", yk_args(yk_value_int(MOST + more)), NULL);
        CHECK(there);
        for (int i = 0; i < MOST + more; i++)
            CHECK((there = yk_value_at(there, 0)));
        CHECK(strcmp(yk_value_as_string(there), "in the midst") == 0);
    }
    yk_value *deep = nested(MOST - 1);
    CHECK(deep && yk_rpc_sync("worker1", "give_back", yk_args(deep), NULL));
    for (int depth = MOST; depth < 1000; depth += 300) {
        deep = nested(depth + 1); /* a list of arguments, of which the first is nested */
        CHECK(deep && !yk_rpc_sync("worker1", "look", deep, NULL));
        CHECK(failed_with(YK_ERR_ARGUMENT, "rpc_sync: the arguments of 'look'",
                          "more than 200 containers inside one another"));
        CHECK(!yk_rpc_sync("worker1", "nested", yk_args(yk_value_int(depth + 1)), NULL));
        CHECK(failed_with(YK_ERR_ARGUMENT, "worker 'worker1'", "more than 200 containers inside one another"));
        yk_ref *kept = yk_rpc_remote("worker1", "nested", yk_args(yk_value_int(depth + 1)), NULL);
        CHECK(kept && !yk_ref_to_here(kept, NULL));
        CHECK(failed_with(YK_ERR_ARGUMENT, "worker 'worker1'", "more than 200 containers inside one another"));
    }
    CHECK(number_of(yk_rpc_sync("worker1", "looks", NULL, NULL)) == 0);
    CHECK(!yk_rpc_sync("worker1", "look", yk_args(deep), NULL) &&
          failed_with(YK_ERR_ARGUMENT, "value_append", "more than 200 containers inside one another"));
    CHECK(!yk_rpc_sync("worker0", "look", deep, NULL)); /* of this worker itself */
    CHECK(failed_with(YK_ERR_ARGUMENT, "'look'", "more than 200 containers inside one another") && looked == 0);
    return YK_OK;
}

static void test_nested_values(void **state)
{
    (void)state;
    act_with(offer, send_nested, 2);
}

/* ---- threads and methods ----------------------------------------------------------------------------------------- */

/* No more functions at once than the pool has threads; those that wait for calls of their own do not count. */
static yk_status call_few_threads(int threads)
{
    enum { CALLS = 8 };
    yk_future *f[CALLS];
    for (int i = 0; i < CALLS; i++)
        CHECK((f[i] = yk_rpc_async("worker1", "crowd", NULL, NULL)));
    int64_t most = 0;
    for (int i = 0; i < CALLS; i++) {
        int64_t seen = number_of(yk_future_wait(f[i], YK_NOT_GIVEN));
        most = seen > most ? seen : most;
    }
    CHECK(most >= 1 && most <= threads);
    CHECK(threads == 1 || most == threads);
    CHECK(number_of(yk_rpc_sync("worker1", "bounce", yk_args(yk_value_int(20)), NULL)) == 20);
    return YK_OK;
}

static yk_status few_threads(int rank, void *arg)
{
    const int *threads = arg;
    yk_scope scope = yk_scope_begin();
    yk_status status = offer();
    status = status ? status : yk_rpc_init(NULL, YK_OPTIONS(yk_rpc_init_options, .threads = *threads));
    status = status || rank ? status : call_few_threads(*threads);
    status = status ? status : yk_rpc_shutdown(YK_RPC_GRACEFUL, patience(30));
    yk_scope_end(scope);
    return status;
}

static void test_threads(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 2; threads++)
        expect_ok(yk_spawn(few_threads, &threads, 2, NULL));
}

/* Methods of a concurrent class run at once. */
static yk_status call_concurrent(void)
{
    yk_ref *both = yk_rpc_remote("worker1", "pair", NULL, NULL);
    yk_future *first = yk_ref_call_async(both, "meet", NULL, NULL);
    yk_future *second = yk_ref_call_async(both, "meet", NULL, NULL);
    yk_value *met = yk_future_wait(first, YK_NOT_GIVEN), *likewise = yk_future_wait(second, YK_NOT_GIVEN);
    CHECK(met && yk_value_as_bool(met) && likewise && yk_value_as_bool(likewise));
    return YK_OK;
}

static void test_concurrent_methods(void **state)
{
    (void)state;
    act_with(offer, call_concurrent, 2);
}

/* Three objects of three workers that wait for one another: an error names all of them, and they go on. */
static yk_status call_in_a_circle(void)
{
    yk_ref *knots[3];
    for (int i = 0; i < 3; i++) {
        char worker[20];
        snprintf(worker, sizeof(worker), "worker%d", i);
        CHECK((knots[i] = yk_rpc_remote(worker, "knot", NULL, NULL)));
    }
    yk_value *refs[3] = {yk_value_ref(knots[0]), yk_value_ref(knots[1]), yk_value_ref(knots[2])};
    yk_value *none = yk_value_int(-1), *first = yk_value_int(0);
    for (int i = 0; i < 2; i++) {
        yk_value *end = yk_ref_call(knots[0], "pull", yk_args(first, first, refs[0], refs[1], refs[2]), NULL);
        CHECK(number_of(end) == 0); /* the last of them does not close the circle */
        CHECK(!yk_ref_call(knots[0], "pull", yk_args(first, none, refs[0], refs[1], refs[2]), NULL));
        CHECK(failed_with(YK_ERR_STATE, "the calls would wait for one another for ever",
                          "worker0.knot.pull waits for worker1.knot.pull waits for worker2.knot.pull waits for "
                          "worker0.knot.pull"));
    }
    return YK_OK;
}

static void test_a_circle(void **state)
{
    (void)state;
    act_with(offer, call_in_a_circle, 3);
}

/* ---- time -------------------------------------------------------------------------------------------------------- */

/* A call that a function makes has no more time than the call that runs it. */
static yk_status call_with_little_time(void)
{
    CHECK(!yk_rpc_sync("worker1", "wait_back", NULL, YK_OPTIONS(yk_rpc_options, .timeout = 0.3)));
    CHECK(failed_with(YK_ERR_TIMEOUT, "wait_back", "worker1"));
    for (double until = yk__now() + patience(30); waited < 0 && yk__now() < until;)
        usleep(1000);
    CHECK(waited >= 0 && waited < patience(10));
    return YK_OK;
}

static void test_time_travels(void **state)
{
    (void)state;
    act_with(offer, call_with_little_time, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_credit),
        cmocka_unit_test(test_credit_over_tcp),
        cmocka_unit_test(test_nested_values),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_concurrent_methods),
        cmocka_unit_test(test_a_circle),
        cmocka_unit_test(test_time_travels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
