/*
 * rpc_future_test.c - futures that are made from others: functions that follow one, several together, and calls to a
 * list of workers.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "tests/rpc/workers.h"

/* ---- functions of the workers ------------------------------------------------------------------------------------ */

static yk_status twice(yk_call *call)
{
    return yk_call_return(call, yk_value_int(2 * yk_call_int(call, 0)));
}

static yk_status my_name(yk_call *call)
{
    return yk_call_return(call, yk_value_string(yk_rpc_name()));
}

/* Fails in the worker of the name that it is given, elsewhere gives that worker's own. */
static yk_status fail_in(yk_call *call)
{
    if (strcmp(yk_call_string(call, 0), yk_rpc_name()) == 0)
        return yk_set_error(YK_ERR_NUMERIC, "no luck today");
    return my_name(call);
}

static yk_status nap(yk_call *call)
{
    double seconds = yk_call_real(call, 0);
    for (double slept = 0; slept < seconds && !yk_call_cancelled(call); slept += 0.01)
        usleep(10000);
    return YK_OK;
}

static yk_status fail_soon(yk_call *call)
{
    if (strcmp(yk_rpc_name(), "worker1") == 0)
        return yk_set_error(YK_ERR_NUMERIC, "no luck today");
    return nap(call);
}

static atomic_int counted;
static yk_status count_here(yk_call *call)
{
    return yk_call_return(call, yk_value_int(++counted));
}

static yk_value *answer_it(yk_future *done, void *call)
{
    yk_call_answer(call, yk_future_wait(done, YK_NOT_GIVEN));
    return NULL;
}

/* Asks worker2 for twice the number, and answers when that has: no thread of this worker waits. */
static yk_status ask_further(yk_call *call)
{
    yk_future *f = yk_rpc_async("worker2", "twice", yk_args(yk_call_argument(call, 0)), NULL);
    if (f)
        yk_call_later(call);
    return yk_future_then(f, answer_it, call) ? YK_OK : yk_last_error()->code;
}

static yk_status cube(yk_call *call)
{
    yk_tensor *x = yk_call_tensor(call, 0);
    return yk_call_return(call, yk_value_tensor(yk_mul(x, yk_mul(x, x))));
}

static yk_status offer(void)
{
    yk_status status = yk_rpc_register("twice", twice);
    status = status ? status : yk_rpc_register("my_name", my_name);
    status = status ? status : yk_rpc_register("fail_in", fail_in);
    status = status ? status : yk_rpc_register("fail_soon", fail_soon);
    status = status ? status : yk_rpc_register("nap", nap);
    status = status ? status : yk_rpc_register("count_here", count_here);
    status = status ? status : yk_rpc_register("ask_further", ask_further);
    return status ? status : yk_rpc_register("cube", cube);
}

/* ---- functions that follow a future ------------------------------------------------------------------------------ */

static int64_t int_of(yk_future *f)
{
    yk_value *value = yk_future_wait(f, YK_NOT_GIVEN);
    return value ? yk_value_as_int(value) : -1;
}

static pthread_t acting;
static atomic_int runs, in_acting_thread;

static yk_value *add_to(yk_future *done, void *number)
{
    runs++;
    in_acting_thread += pthread_equal(pthread_self(), acting);
    return yk_value_int(int_of(done) + *(int *)number);
}

/* Calls and waits, as a function that another worker calls may. */
static yk_value *twice_there(yk_future *done, void *unused)
{
    (void)unused;
    return yk_rpc_sync("worker2", "twice", yk_args(yk_value_int(int_of(done))), NULL);
}

static yk_value *instead(yk_future *done, void *unused)
{
    (void)unused;
    if (yk_future_wait(done, YK_NOT_GIVEN))
        return yk_set_error(YK_ERR_STATE, "there was no error"), NULL;
    yk_clear_error();
    return yk_value_int(77);
}

static yk_value *complain(yk_future *done, void *unused)
{
    (void)unused;
    yk_set_error(YK_ERR_SHAPE, "%lld is too much", (long long)int_of(done));
    return yk_value_int(1);
}

static yk_value *nothing(yk_future *done, void *unused)
{
    (void)unused, (void)done;
    runs++;
    return NULL;
}

static yk_status act_then(void)
{
    int one = 1, ten = 10;
    acting = pthread_self();
    yk_future *first = yk_rpc_async("worker1", "twice", yk_args(yk_value_int(4)), NULL);
    yk_future *second = yk_future_then(first, add_to, &one);
    yk_future *third = yk_future_then(yk_future_then(second, twice_there, NULL), add_to, &ten);
    CHECK(int_of(third) == 28 && int_of(second) == 9 && int_of(first) == 8 && yk_future_done(third));
    CHECK(int_of(yk_future_then(first, add_to, &one)) == 9); /* of one that is done */
    CHECK(runs == 3 && in_acting_thread == 0);
    yk_value *none = yk_future_wait(yk_future_then(first, nothing, NULL), YK_NOT_GIVEN);
    CHECK(none && yk_value_kind_of(none) == YK_VALUE_NONE);

    /* Errors pass through, with their code and worker, unless the function clears them. */
    yk_value *where = yk_value_string("worker1");
    yk_future *failed = yk_rpc_async("worker1", "fail_in", yk_args(where), NULL);
    yk_future *after = yk_future_then(yk_future_then(failed, add_to, &one), twice_there, NULL);
    CHECK(!yk_future_wait(after, YK_NOT_GIVEN) && failed_with(YK_ERR_NUMERIC, "worker 'worker1'", "no luck today"));
    CHECK(int_of(yk_future_then(after, instead, NULL)) == 77);
    CHECK(!yk_future_wait(yk_future_then(first, complain, NULL), YK_NOT_GIVEN) &&
          failed_with(YK_ERR_SHAPE, "8 is too much", ""));

    /* It runs for one that was cancelled, and whose own future was, too. */
    runs = 0;
    yk_future *napping = yk_rpc_async("worker1", "nap", yk_args(yk_value_real(60)), NULL);
    yk_future *end = yk_future_then(napping, nothing, NULL), *cancelled = yk_future_then(napping, nothing, NULL);
    CHECK(!yk_future_wait(end, 0.05) && failed_with(YK_ERR_TIMEOUT, "the function after rpc_async", "nap"));
    yk_future_cancel(cancelled);
    CHECK(!yk_future_wait(cancelled, YK_NOT_GIVEN) && failed_with(YK_ERR_STATE, "nap", "was cancelled"));
    CHECK(!yk_future_done(napping) && !yk_future_done(end) && runs == 0);
    CHECK(yk_future_wait_any((yk_future *[]){napping, end, cancelled}, 3, 10) == 2);
    yk_future_cancel(napping);
    CHECK(yk_future_wait(end, YK_NOT_GIVEN));
    while (runs < 2)
        usleep(1000);
    CHECK(yk_future_wait_any((yk_future *[]){napping, end}, 2, 10) == 0);

    yk_value *further = yk_rpc_sync("worker1", "ask_further", yk_args(yk_value_int(21)), NULL);
    CHECK(further && yk_value_as_int(further) == 42);

    /* A function gets its time-out's error, and a limit of its own is that of the wait. */
    yk_future *late =
        yk_rpc_async("worker1", "nap", yk_args(yk_value_real(60)), YK_OPTIONS(yk_rpc_options, .timeout = 0.05));
    CHECK(!yk_future_wait(yk_future_then(late, add_to, &one), patience(10)) && failed_with(YK_ERR_TIMEOUT, "nap", ""));
    return YK_OK;
}

static void test_then(void **state)
{
    (void)state;
    act_with(offer, act_then, 3);
}

/* The result keeps its graph where a function computes with it, and its calls are of the same context. */
static yk_value *cube_again(yk_future *done, void *w)
{
    yk_tensor *x = yk_to(yk_value_as_tensor(yk_future_wait(done, YK_NOT_GIVEN)), yk_tensor_device(w));
    return yk_rpc_sync("worker1", "cube", yk_args(yk_value_tensor(yk_mul(x, w))), NULL);
}

static yk_status act_then_gradients(void)
{
    yk_tensor *w = yk_full(YK_SHAPE(1), 3, YK_OPTIONS(yk_tensor_options, .dtype = YK_F64, .requires_grad = true));
    yk_dist_context *context = yk_dist_autograd_begin();
    yk_future *f = yk_rpc_async("worker1", "cube", yk_args(yk_value_tensor(w)), NULL);
    yk_value *y = yk_future_wait(yk_future_then(f, cube_again, w), YK_NOT_GIVEN); /* (w^3 w)^3 */
    yk_tensor *loss = y ? yk_value_as_tensor(y) : NULL;
    CHECK(loss && yk_item(loss) == 531441 && !yk_dist_backward(context, &loss, 1, NULL));
    yk_tensor *gradient = yk_dist_gradient(context, w);
    CHECK(gradient && yk_item(gradient) == 12.0 * 177147);
    return yk_dist_autograd_end(context);
}

static void test_then_gradients(void **state)
{
    (void)state;
    act_with(offer, act_then_gradients, 2);
}

/* ---- several together, and lists of workers ---------------------------------------------------------------------- */

static yk_status act_all(void)
{
    enum { MANY = 40 };
    yk_future *f[MANY];
    for (int i = 0; i < MANY; i++)
        f[i] = yk_rpc_async(i % 2 ? "worker1" : "worker2", "twice", yk_args(yk_value_int(i)), NULL);
    yk_future *all = yk_future_all(f, MANY);
    yk_value *list = yk_future_wait(all, YK_NOT_GIVEN);
    CHECK(list && yk_value_kind_of(list) == YK_VALUE_LIST && yk_value_count(list) == MANY);
    for (int i = 0; i < MANY; i++)
        CHECK(yk_value_as_int(yk_value_at(list, i)) == 2 * i);
    CHECK(yk_future_wait(all, YK_NOT_GIVEN) == list);

    /* Futures that are done, twice the same, and other such futures. */
    int one = 1;
    yk_future *parts[] = {f[3], f[3], yk_future_then(f[3], add_to, &one), yk_future_all(f, 2)};
    list = yk_future_wait(yk_future_all(parts, 4), YK_NOT_GIVEN);
    CHECK(list && yk_value_as_int(yk_value_at(list, 0)) == 6 && yk_value_as_int(yk_value_at(list, 1)) == 6 &&
          yk_value_as_int(yk_value_at(list, 2)) == 7 && yk_value_count(yk_value_at(list, 3)) == 2);
    yk_future *empty = yk_future_all(NULL, 0);
    CHECK(empty && yk_future_done(empty) && yk_value_count(yk_future_wait(empty, YK_NOT_GIVEN)) == 0);

    /* The first error is that of all, at once; the others go on. */
    yk_future *napping = yk_rpc_async("worker2", "nap", yk_args(yk_value_real(60)), NULL);
    yk_value *where = yk_value_string("worker1");
    all = yk_future_all((yk_future *[]){napping, yk_rpc_async("worker1", "fail_in", yk_args(where), NULL)}, 2);
    CHECK(!yk_future_wait(all, YK_NOT_GIVEN) && failed_with(YK_ERR_NUMERIC, "worker 'worker1'", "no luck today"));
    CHECK(!yk_future_done(napping));
    yk_future *waits = yk_future_all(&napping, 1);
    CHECK(!yk_future_wait(waits, 0.05) && failed_with(YK_ERR_TIMEOUT, "future_all of 1 futures", "the call goes on"));
    yk_future_cancel(waits);
    CHECK(!yk_future_wait(waits, YK_NOT_GIVEN) && failed_with(YK_ERR_STATE, "future_all", "cancelled"));
    CHECK(!yk_future_done(napping));
    yk_future_cancel(napping);
    return YK_OK;
}

static void test_all(void **state)
{
    (void)state;
    act_with(offer, act_all, 3);
}

static yk_status act_workers(void)
{
    const char *const workers[] = {"worker2", "worker0", "worker1"};
    yk_value *names = yk_rpc_sync_all(workers, 3, "my_name", NULL, NULL);
    CHECK(names && yk_value_count(names) == 3);
    for (int i = 0; i < 3; i++)
        CHECK(strcmp(yk_value_as_string(yk_value_at(names, i)), workers[i]) == 0);

    yk_tensor *x = yk_full(YK_SHAPE(70, 1000), 3, NULL); /* so large that workers of this host do not get it by value */
    yk_future *f = yk_rpc_async_all(workers, 3, "cube", yk_args(yk_value_tensor(x)), NULL);
    yk_value *cubes = yk_future_wait(f, YK_NOT_GIVEN);
    CHECK(cubes && yk_value_count(cubes) == 3);
    for (int i = 0; i < 3; i++)
        CHECK(yk_get(yk_value_as_tensor(yk_value_at(cubes, i)), (int64_t[]){69, 999}) == 27);

    /* One that fails is the error, by the name of its worker, whether or not the others are done. */
    yk_value *where = yk_args(yk_value_string("worker1"));
    CHECK(!yk_rpc_sync_all(workers, 3, "fail_in", where, NULL) &&
          failed_with(YK_ERR_NUMERIC, "rpc_sync_all: worker 'worker1'", "no luck today"));
    yk_future *soon = yk_rpc_async_all(workers, 3, "fail_soon", yk_args(yk_value_real(60)), NULL);
    CHECK(!yk_future_wait(soon, YK_NOT_GIVEN) && failed_with(YK_ERR_NUMERIC, "worker 'worker1'", "no luck today"));
    yk_future_cancel(soon); /* which ends the naps of the others */
    CHECK(
        !yk_rpc_sync_all(workers, 3, "nap", yk_args(yk_value_real(60)), YK_OPTIONS(yk_rpc_options, .timeout = 0.05)) &&
        failed_with(YK_ERR_TIMEOUT, "rpc_sync_all: worker '", "'nap' has not answered"));

    /* Nothing runs where one of them is not there. */
    CHECK(!yk_rpc_sync_all((const char *const[]){"worker0", "worker1", "walker2"}, 3, "count_here", NULL, NULL) &&
          failed_with(YK_ERR_NOT_FOUND, "walker2", "did you mean 'worker2'"));
    CHECK(!yk_rpc_sync_all(workers, 3, "count_heer", NULL, NULL) &&
          failed_with(YK_ERR_NOT_FOUND, "no function of this name", "did you mean 'count_here'"));
    CHECK(!yk_rpc_sync_all(workers, 3, "count_here", yk_value_int(3), NULL) &&
          failed_with(YK_ERR_ARGUMENT, "rpc_sync_all: the arguments of 'count_here' are of kind int", "yk_args"));
    yk_value *counts = yk_rpc_sync_all(workers, 3, "count_here", NULL, NULL);
    CHECK(counts && yk_value_as_int(yk_value_at(counts, 0)) == 1 && yk_value_as_int(yk_value_at(counts, 1)) == 1);

    /* Cancelled, all its calls are. */
    f = yk_rpc_async_all(workers, 3, "nap", yk_args(yk_value_real(60)), NULL);
    yk_future_cancel(f);
    CHECK(!yk_future_wait(f, YK_NOT_GIVEN) && failed_with(YK_ERR_STATE, "'nap' at 3 workers", "was cancelled"));
    return YK_OK; /* and the shutdown need not wait for them */
}

static void test_workers(void **state)
{
    (void)state;
    act_with(offer, act_workers, 3);
}

/* ---- the end of a worker, and what is refused -------------------------------------------------------------------- */

static yk_value *note_state(yk_future *done, void *codes)
{
    atomic_int *at = codes;
    if (!yk_future_wait(done, YK_NOT_GIVEN))
        at[runs] = (int)yk_last_error()->code;
    runs++;
    return NULL;
}

static yk_value *rest(yk_future *done, void *unused)
{
    (void)done, (void)unused;
    usleep(100000);
    runs++;
    return yk_value_int(5);
}

static void join_alone(void)
{
    expect_ok(offer());
    expect_ok(yk_rpc_init("solo", YK_OPTIONS(yk_rpc_init_options, .store = yk_hash_store(), .timeout = 30)));
}

static void test_shutdown(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    join_alone(); /* functions run for calls that fail by the shutdown, and those that follow them */
    atomic_int codes[2] = {0, 0};
    runs = 0;
    yk_future *napping = yk_rpc_async("solo", "nap", yk_args(yk_value_real(60)), NULL);
    yk_future *first = yk_future_then(napping, note_state, codes), *second = yk_future_then(first, note_state, codes);
    yk_future *third = yk_future_all((yk_future *[]){first, second}, 2);
    assert_non_null(third);
    expect_ok(yk_rpc_shutdown(YK_RPC_AT_ONCE, YK_NOT_GIVEN));
    assert_int_equal(runs, 2);
    assert_int_equal(codes[0], YK_ERR_STATE);
    assert_int_equal(codes[1], YK_ERR_STATE);
    assert_true(yk_future_done(third));
    assert_null(yk_future_wait(third, YK_NOT_GIVEN));
    assert_true(failed_with(YK_ERR_STATE, "nap", "shut down"));

    assert_null(yk_future_then(first, nothing, NULL));
    assert_true(failed_with(YK_ERR_STATE, "future_then", "no worker"));

    join_alone(); /* a graceful one waits for them */
    runs = 0;
    yk_future *f = yk_future_then(yk_rpc_async("solo", "twice", yk_args(yk_value_int(1)), NULL), rest, NULL);
    expect_ok(yk_rpc_shutdown(YK_RPC_GRACEFUL, patience(30)));
    assert_int_equal(runs, 1);
    assert_int_equal(int_of(f), 5);
    yk_scope_end(scope);
}

static void test_refused(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    join_alone();
    yk_future *f = yk_rpc_async("solo", "twice", yk_args(yk_value_int(1)), NULL);
    assert_null(yk_future_then(f, NULL, NULL));
    assert_true(failed_with(YK_ERR_ARGUMENT, "future_then", "function is NULL"));
    assert_null(yk_future_all(&f, -1));
    assert_true(failed_with(YK_ERR_ARGUMENT, "future_all", "-1 futures"));
    assert_null(yk_future_all(NULL, 2));
    assert_true(failed_with(YK_ERR_ARGUMENT, "future_all", "array of them is NULL"));
    assert_null(yk_future_all((yk_future *[]){f, NULL}, 2));
    assert_true(failed_with(YK_ERR_ARGUMENT, "future_all", "NULL"));
    assert_null(yk_rpc_sync_all((const char *const[]){"solo"}, 0, "twice", NULL, NULL));
    assert_true(failed_with(YK_ERR_ARGUMENT, "rpc_sync_all", "0 workers"));
    assert_null(yk_rpc_async_all(NULL, 2, "twice", NULL, NULL));
    assert_true(failed_with(YK_ERR_ARGUMENT, "rpc_async_all", "array of their names is NULL"));
    assert_null(yk_rpc_async_all((const char *const[]){"solo", NULL}, 2, "twice", NULL, NULL));
    assert_true(failed_with(YK_ERR_ARGUMENT, "rpc_async_all", "name of the worker is NULL"));
    assert_int_equal(int_of(f), 2);
    expect_ok(yk_rpc_shutdown(YK_RPC_GRACEFUL, patience(30)));
    yk_scope_end(scope);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_then),    cmocka_unit_test(test_then_gradients), cmocka_unit_test(test_all),
        cmocka_unit_test(test_workers), cmocka_unit_test(test_shutdown),       cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
