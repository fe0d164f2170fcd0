/*
 * rpc_ref_test.c - references passed on in calls and results: they keep their object, and end with their holders.
 */
#include <stdatomic.h>

#include "base/core.h"
#include "tests/rpc/workers.h"

/* ---- what the workers offer -------------------------------------------------------------------------------------- */

static atomic_int living;

static yk_status box_create(yk_call *call)
{
    if (yk_call_count(call) && yk_call_int(call, 0) < 0)
        return yk_set_error(YK_ERR_ARGUMENT, "a box holds 0 or above");
    int64_t *number = calloc(1, sizeof(*number));
    *number = yk_call_count(call) ? yk_call_int(call, 0) : 0;
    living++;
    yk_call_set_object(call, number);
    return YK_OK;
}

static void box_destroy(void *object)
{
    living--;
    free(object);
}

static yk_status box_add(yk_call *call)
{
    int64_t *number = yk_call_object(call);
    *number += yk_call_int(call, 0);
    return yk_call_return(call, yk_value_int(*number));
}

static yk_status box_wait(yk_call *call)
{
    while (!yk_call_cancelled(call))
        usleep(10000);
    return YK_OK;
}

static const yk_rpc_class box_class = {.name = "box",
                                       .create = box_create,
                                       .destroy = box_destroy,
                                       .methods =
                                           (const yk_rpc_method[]){{"add", box_add}, {"wait", box_wait}, {NULL, NULL}}};

static yk_status count_living(yk_call *call)
{
    return yk_call_return(call, yk_value_int(living));
}

static yk_ref *kept;

static yk_status keep(yk_call *call)
{
    yk_ref *ref = yk_call_ref(call, 0);
    if (!ref)
        return yk_last_error()->code;
    yk_ref_release(kept);
    kept = yk_ref_retain(ref);
    return YK_OK;
}

static yk_status let_go(yk_call *call)
{
    (void)call;
    yk_ref_release(kept);
    kept = NULL;
    return YK_OK;
}

/* Adds 1 by the reference that was kept. */
static yk_status add_to_kept(yk_call *call)
{
    return yk_call_return(call, yk_ref_call(kept, "add", yk_args(yk_value_int(1)), NULL));
}

/* The same by the one among the arguments, which is inside a list inside a dict. */
static yk_status add_to_given(yk_call *call)
{
    yk_value *list = yk_value_get(yk_call_argument(call, 0), "refs");
    yk_ref *ref = yk_value_as_ref(yk_value_at(list, 1));
    return yk_call_return(call, yk_ref_call(ref, "add", yk_args(yk_value_int(1)), NULL));
}

/* Makes a box at the given worker and gives back a reference to it, while its own goes. */
static yk_status make_box_at(yk_call *call)
{
    return yk_call_return(call, yk_value_ref(yk_rpc_remote(yk_call_string(call, 0), "box", NULL, NULL)));
}

static yk_status give_kept(yk_call *call)
{
    return yk_call_return(call, yk_value_ref(kept));
}

/* In the owner: the number in the box, read where it is. */
static yk_status look_into(yk_call *call)
{
    yk_ref *ref = yk_call_ref(call, 0);
    const int64_t *number = yk_ref_local(ref);
    return number && yk_ref_is_owner(ref) ? yk_call_return(call, yk_value_int(*number)) : yk_last_error()->code;
}

static yk_status seven(yk_call *call)
{
    return yk_call_return(call, yk_value_int(7));
}

static yk_status look_at_result(yk_call *call)
{
    return yk_call_return(call, yk_ref_local_value(yk_call_ref(call, 0)));
}

/* A class whose objects are made when "open" is called, or after 20 s. */
static atomic_bool opened;

static yk_status slow_create(yk_call *call)
{
    for (int i = 0; i < 2000 && !opened; i++)
        usleep(10000);
    return box_create(call);
}

static const yk_rpc_class slow_class = {.name = "slow_box",
                                        .create = slow_create,
                                        .destroy = box_destroy,
                                        .methods = (const yk_rpc_method[]){{"add", box_add}, {NULL, NULL}}};

static yk_status slow_open(yk_call *call)
{
    (void)call;
    opened = true;
    return YK_OK;
}

static yk_status own_pid(yk_call *call)
{
    return yk_call_return(call, yk_value_int(getpid()));
}

static yk_status offer(void)
{
    static const struct {
        const char *name;
        yk_rpc_fn fn;
    } all[] = {{"count_living", count_living},
               {"keep", keep},
               {"let_go", let_go},
               {"add_to_kept", add_to_kept},
               {"add_to_given", add_to_given},
               {"make_box_at", make_box_at},
               {"give_kept", give_kept},
               {"look_into", look_into},
               {"seven", seven},
               {"look_at_result", look_at_result},
               {"slow_open", slow_open},
               {"own_pid", own_pid}};
    yk_status status = yk_rpc_register_class(&box_class);
    status = status ? status : yk_rpc_register_class(&slow_class);
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]) && !status; i++)
        status = yk_rpc_register(all[i].name, all[i].fn);
    return status;
}

/* ---- alive workers ----------------------------------------------------------------------------------------------- */

static int64_t number_of(yk_value *value)
{
    return value ? yk_value_as_int(value) : -1;
}

/* True if the worker has this many boxes soon, and keeps them. */
static bool has_boxes(const char *worker, int64_t count)
{
    for (int i = 0; i < 500; i++) {
        if (number_of(yk_rpc_sync(worker, "count_living", NULL, NULL)) == count)
            break;
        usleep(10000);
    }
    usleep(30000);
    return number_of(yk_rpc_sync(worker, "count_living", NULL, NULL)) == count;
}

static yk_status pass_on(void)
{
    yk_scope scope = yk_scope_begin();
    yk_ref *box = yk_rpc_remote("worker1", "box", yk_args(yk_value_int(10)), NULL);
    CHECK(yk_rpc_sync("worker2", "keep", yk_args(yk_value_ref(box)), NULL));
    CHECK(yk_ref_confirmed(box));
    CHECK(number_of(yk_rpc_sync("worker2", "add_to_kept", NULL, NULL)) == 11);
    yk_value *dict = yk_value_dict(), *list = yk_value_list();
    CHECK(!yk_value_append(list, yk_value_int(0)) && !yk_value_append(list, yk_value_ref(box)) &&
          !yk_value_set(dict, "refs", list));
    CHECK(number_of(yk_rpc_sync("worker2", "add_to_given", yk_args(dict), NULL)) == 12);
    CHECK(number_of(yk_rpc_sync("worker1", "add_to_given", yk_args(dict), NULL)) == 13); /* its owner */
    CHECK(number_of(yk_rpc_sync("worker0", "add_to_given", yk_args(dict), NULL)) == 14); /* this worker */
    CHECK(number_of(yk_rpc_sync("worker1", "look_into", yk_args(yk_value_ref(box)), NULL)) == 14);
    CHECK(!yk_rpc_sync("worker2", "look_into", yk_args(yk_value_ref(box)), NULL) &&
          failed_with(YK_ERR_STATE, "'box' is an object of worker 'worker1'", "this is worker 'worker2'"));
    yk_scope_end(scope); /* the maker's is gone, and worker2 keeps it */
    CHECK(has_boxes("worker1", 1));
    CHECK(number_of(yk_rpc_sync("worker2", "add_to_kept", NULL, NULL)) == 15);
    /* From worker2 to worker0 and from there to worker1, its owner, which keeps it. */
    scope = yk_scope_begin();
    yk_value *given = yk_rpc_sync("worker2", "give_kept", NULL, NULL);
    CHECK(given && yk_value_kind_of(given) == YK_VALUE_REFERENCE);
    CHECK(strcmp(yk_ref_owner_name(yk_value_as_ref(given)), "worker1") == 0);
    CHECK(yk_rpc_sync("worker2", "let_go", NULL, NULL) && yk_rpc_sync("worker1", "keep", yk_args(given), NULL));
    yk_scope_end(scope);
    CHECK(has_boxes("worker1", 1) && number_of(yk_rpc_sync("worker1", "add_to_kept", NULL, NULL)) == 16);
    CHECK(yk_rpc_sync("worker1", "let_go", NULL, NULL) && has_boxes("worker1", 0));
    return YK_OK;
}

static void test_passing_on(void **state)
{
    (void)state;
    act_with(offer, pass_on, 3);
}

static yk_status get_results(void)
{
    yk_scope scope = yk_scope_begin();
    for (int i = 0; i < 3; i++) { /* made by worker2 at each, its own reference gone at once */
        char worker[20];
        snprintf(worker, sizeof(worker), "worker%d", i);
        yk_value *made = yk_rpc_sync("worker2", "make_box_at", yk_args(yk_value_string(worker)), NULL);
        CHECK(made && strcmp(yk_ref_owner_name(yk_value_as_ref(made)), worker) == 0);
        CHECK(number_of(yk_ref_call(yk_value_as_ref(made), "add", yk_args(yk_value_int(3)), NULL)) == 3);
        CHECK(has_boxes(worker, 1));
    }
    /* Results that stay, and values of this worker. */
    yk_ref *result = yk_rpc_remote("worker1", "seven", NULL, NULL);
    CHECK(number_of(yk_rpc_sync("worker1", "look_at_result", yk_args(yk_value_ref(result)), NULL)) == 7);
    CHECK(!yk_rpc_sync("worker1", "look_into", yk_args(yk_value_ref(result)), NULL) &&
          failed_with(YK_ERR_ARGUMENT, "'seven' is a result", "ref_local_value"));
    yk_ref *own = yk_ref_create(yk_value_string("mine"));
    CHECK(own && yk_ref_is_owner(own) && yk_ref_confirmed(own));
    CHECK(strcmp(yk_value_as_string(yk_ref_local_value(own)), "mine") == 0);
    CHECK(strcmp(yk_value_as_string(yk_ref_to_here(own, NULL)), "mine") == 0);
    CHECK(yk_rpc_sync("worker2", "keep", yk_args(yk_value_ref(own)), NULL));
    yk_value *back = yk_rpc_sync("worker2", "give_kept", NULL, NULL);
    CHECK(back && yk_ref_is_owner(yk_value_as_ref(back)));
    CHECK(strcmp(yk_value_as_string(yk_ref_local_value(yk_value_as_ref(back))), "mine") == 0);
    char path[] = "/tmp/yoke-ref-XXXXXX";
    close(mkstemp(path));
    CHECK(yk_pt_save(path, yk_args(yk_value_ref(own))) &&
          failed_with(YK_ERR_UNSUPPORTED, "'0' is a reference", "no file holds"));
    unlink(path);
    yk_ref *box = yk_rpc_remote("worker0", "box", NULL, NULL);
    CHECK(!yk_ref_local_value(box) && failed_with(YK_ERR_ARGUMENT, "'box' is an object of a class", "ref_local"));
    /* One whose making failed is not passed on. */
    yk_ref *bad = yk_rpc_remote("worker1", "box", yk_args(yk_value_int(-1)), NULL);
    CHECK(!yk_rpc_sync("worker2", "keep", yk_args(yk_value_ref(bad)), NULL) &&
          failed_with(YK_ERR_ARGUMENT, "the object 'box' could not be made", "holds 0 or above"));
    CHECK(!yk_ref_confirmed(bad));
    CHECK(!yk_value_as_ref(yk_value_int(3)) && failed_with(YK_ERR_ARGUMENT, "a reference is wanted", "int"));
    CHECK(!yk_value_ref(NULL) && failed_with(YK_ERR_ARGUMENT, "value_ref", "NULL"));
    CHECK(!yk_rpc_sync("worker2", "keep", yk_args(yk_value_int(3)), NULL) &&
          failed_with(YK_ERR_ARGUMENT, "argument 0 is of kind int", "reference is expected"));
    yk_scope_end(scope);
    CHECK(has_boxes("worker0", 0) && has_boxes("worker1", 0) && has_boxes("worker2", 0));
    return YK_OK;
}

static void test_results(void **state)
{
    (void)state;
    act_with(offer, get_results, 3);
}

/* A call takes no more than its time where it waits for the owner of a reference: for its object, and for its word that
 * a reference in the result is known there. */
static yk_status wait_for_owners(void)
{
    enum { TIME = 10 /* seconds, of which a call gets less than one */ };
    yk_scope scope = yk_scope_begin();
    const yk_rpc_options *in_time = YK_OPTIONS(yk_rpc_options, .timeout = 0.4);
    yk_ref *slow = yk_rpc_remote("worker2", "slow_box", NULL, NULL);
    double began = yk__now();
    CHECK(!yk_rpc_sync("worker1", "keep", yk_args(yk_value_ref(slow)), in_time) &&
          failed_with(YK_ERR_TIMEOUT, "the object 'slow_box' is not made yet", "worker 'worker2'"));
    CHECK(yk__now() - began < TIME);
    CHECK(yk_rpc_sync("worker2", "slow_open", NULL, NULL));
    CHECK(yk_rpc_sync("worker1", "keep", yk_args(yk_value_ref(slow)), NULL));
    yk_value *pid = yk_rpc_sync("worker2", "own_pid", NULL, NULL);
    CHECK(pid && !kill((pid_t)yk_value_as_int(pid), SIGSTOP));
    began = yk__now();
    yk_value *given = yk_rpc_sync("worker1", "give_kept", NULL, in_time);
    bool in_its_time = yk__now() - began < TIME;
    CHECK(!kill((pid_t)yk_value_as_int(pid), SIGCONT) && in_its_time);
    if (given)
        CHECK(!yk_ref_call(yk_value_as_ref(given), "add", yk_args(yk_value_int(1)), NULL) &&
              failed_with(YK_ERR_TIMEOUT, "the reference was not registered", "worker 'worker2'"));
    yk_clear_error(); /* a busy machine may have had no answer of worker1 in that time */
    CHECK(yk_rpc_sync("worker1", "let_go", NULL, NULL));
    yk_scope_end(scope);
    CHECK(has_boxes("worker2", 0));
    return YK_OK;
}

static void test_time_of_owners(void **state)
{
    (void)state;
    act_with(offer, wait_for_owners, 3);
}

/* Calls that are cancelled or refused before anybody looks at their references leave none behind. */
static yk_status cancel_many(void)
{
    enum { MANY = 60 };
    yk_scope scope = yk_scope_begin();
    yk_ref *box = yk_rpc_remote("worker1", "box", NULL, NULL), *busy = yk_rpc_remote("worker2", "box", NULL, NULL);
    yk_future *waiting = yk_ref_call_async(busy, "wait", NULL, NULL), *calls[MANY];
    yk_value *large = yk_value_tensor(yk_zeros(YK_SHAPE(1 << 16), NULL)); /* some are withdrawn before they are sent */
    for (int i = 0; i < MANY; i++)
        CHECK((calls[i] = yk_ref_call_async(busy, "add", yk_args(yk_value_ref(box), large), NULL)));
    for (int i = 0; i < MANY; i++)
        yk_future_cancel(calls[i]);
    CHECK(!yk_rpc_sync("worker2", "no_such_function", yk_args(yk_value_ref(box)), NULL));
    yk_clear_error();
    for (int i = 0; i < 10; i++) /* nobody looks at the answer */
        CHECK(yk_rpc_async("worker2", "make_box_at", yk_args(yk_value_string("worker1")), NULL));
    yk_future_cancel(waiting);
    CHECK(number_of(yk_ref_call(busy, "add", yk_args(yk_value_int(0)), NULL)) == 0);
    yk_scope_end(scope);
    CHECK(has_boxes("worker1", 0) && has_boxes("worker2", 0));
    return YK_OK;
}

static void test_messages_that_nobody_reads(void **state)
{
    (void)state;
    act_with(offer, cancel_many, 3);
}

/* ---- workers that die -------------------------------------------------------------------------------------------- */

/* w1 has the boxes. w0 makes one, passes it to w2 and is killed: w2's reference is good. Then w2 is killed. */
static yk_status holders_die(int rank, const char *path)
{
    yk_scope scope = yk_scope_begin();
    char name[20];
    snprintf(name, sizeof(name), "w%d", rank);
    yk_status status = join_with(offer, path, name, 3);
    if (!status && rank == 0) {
        yk_ref *box = yk_rpc_remote("w1", "box", NULL, NULL);
        CHECK(yk_rpc_sync("w2", "keep", yk_args(yk_value_ref(box)), NULL));
        CHECK(!yk_store_set(yk_file_store(path), "test/passed", "1", 1));
        kill(getpid(), SIGKILL);
    }
    if (!status && rank == 2) {
        CHECK(!await_key(path, "test/passed") && !await_key(path, "test/buried"));
        CHECK(has_boxes("w1", 1) && number_of(yk_ref_call(kept, "add", yk_args(yk_value_int(2)), NULL)) == 2);
        CHECK(!yk_store_set(yk_file_store(path), "test/used", "1", 1));
        kill(getpid(), SIGKILL);
    }
    if (!status && rank == 1) {
        CHECK(!await_key(path, "test/used"));
        for (int i = 0; i < 3000 && living; i++)
            usleep(10000);
        CHECK(living == 0);
    }
    status = status ? status : yk_rpc_shutdown(YK_RPC_GRACEFUL, patience(20));
    yk_scope_end(scope);
    return status;
}

static void test_holders_that_die(void **state)
{
    (void)state;
    char path[] = "/tmp/yoke-rpc-XXXXXX";
    close(mkstemp(path));
    pid_t pids[3];
    fork_workers(holders_die, path, 3, pids);
    expect_end(pids[0], SIGKILL);
    yk_scope scope = yk_scope_begin();
    assert_int_equal(yk_store_set(yk_file_store(path), "test/buried", "1", 1), YK_OK);
    yk_scope_end(scope);
    expect_end(pids[1], 0);
    expect_end(pids[2], SIGKILL);
    unlink(path);
}

/* w1, the owner, is killed: w2's use of its reference is an error by name, and so is that of one that is passed on
 * afterwards. */
static yk_status owner_dies(int rank, const char *path)
{
    yk_scope scope = yk_scope_begin();
    char name[20];
    snprintf(name, sizeof(name), "w%d", rank);
    yk_status status = join_with(offer, path, name, 3);
    if (!status && rank == 0) {
        yk_ref *box = yk_rpc_remote("w1", "box", NULL, NULL);
        CHECK(yk_rpc_sync("w2", "keep", yk_args(yk_value_ref(box)), NULL));
        CHECK(!yk_store_set(yk_file_store(path), "test/passed", "1", 1) && !await_key(path, "test/buried"));
        CHECK(!yk_rpc_sync("w2", "add_to_kept", NULL, NULL) && failed_with(YK_ERR_CONNECTION, "w2", "worker 'w1'"));
        CHECK(!yk_ref_call(box, "add", yk_args(yk_value_int(1)), NULL) &&
              failed_with(YK_ERR_CONNECTION, "ended with its worker 'w1'", "not run"));
        CHECK(yk_rpc_sync("w2", "keep", yk_args(yk_value_ref(box)), NULL)); /* having it is no error */
        CHECK(!yk_rpc_sync("w2", "add_to_kept", NULL, NULL) && failed_with(YK_ERR_CONNECTION, "w2", "worker 'w1'"));
    }
    if (!status && rank == 1) {
        CHECK(!await_key(path, "test/passed"));
        kill(getpid(), SIGKILL);
    }
    status = status ? status : yk_rpc_shutdown(YK_RPC_GRACEFUL, patience(20));
    yk_scope_end(scope);
    return status;
}

static void test_an_owner_that_dies(void **state)
{
    (void)state;
    char path[] = "/tmp/yoke-rpc-XXXXXX";
    close(mkstemp(path));
    pid_t pids[3];
    fork_workers(owner_dies, path, 3, pids);
    expect_end(pids[1], SIGKILL);
    yk_scope scope = yk_scope_begin();
    assert_int_equal(yk_store_set(yk_file_store(path), "test/buried", "1", 1), YK_OK);
    yk_scope_end(scope);
    expect_end(pids[0], 0);
    expect_end(pids[2], 0);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_passing_on),       cmocka_unit_test(test_results),
        cmocka_unit_test(test_time_of_owners),   cmocka_unit_test(test_messages_that_nobody_reads),
        cmocka_unit_test(test_holders_that_die), cmocka_unit_test(test_an_owner_that_dies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
