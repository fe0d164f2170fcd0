/*
 * rpc_test.c - calls between processes: functions, objects and their order, references, errors, ends.
 */
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <yoke/yoke.h>

#include "host/progress.h"
#include "tests/rpc/workers.h"
#include "tests/support/expect.h"
#include "tests/support/machine.h"

/* ---- functions and classes of the workers ------------------------------------------------------------------------ */

static yk_status add(yk_call *call)
{
    yk_tensor *a = yk_call_tensor(call, 0), *b = yk_call_tensor(call, 1);
    return yk_call_return(call, yk_value_tensor(yk_add(a, b)));
}

static yk_status give_back(yk_call *call)
{
    return yk_call_return(call, yk_call_argument(call, 0));
}

static yk_status who(yk_call *call)
{
    return yk_call_return(call, yk_value_string(yk_call_caller(call)));
}

static yk_status fail_always(yk_call *call)
{
    return yk_set_error(YK_ERR_NUMERIC, "%s is not a number I like", yk_call_string(call, 0));
}

static yk_status own_pid(yk_call *call)
{
    return yk_call_return(call, yk_value_int(getpid()));
}

static yk_status nap(yk_call *call)
{
    double seconds = yk_call_real(call, 0);
    for (double slept = 0; slept < seconds && !yk_call_cancelled(call); slept += 0.01)
        usleep(10000);
    return yk_call_return(call, yk_value_bool(yk_call_cancelled(call)));
}

static yk_status die(yk_call *call)
{
    (void)call;
    kill(getpid(), SIGKILL);
    return YK_OK;
}

/* Calls `who` of the worker that calls this: a handler that calls back. */
static yk_status ask_back(yk_call *call)
{
    return yk_call_return(call, yk_rpc_sync(yk_call_caller(call), "who", NULL, NULL));
}

static yk_status sleep_there(yk_call *call)
{
    return yk_call_return(call, yk_rpc_sync(yk_call_caller(call), "nap", yk_args(yk_value_real(30)), NULL));
}

/* A list to which numbers are appended; it notes whether two methods ran at once. */
typedef struct notes {
    int64_t items[4096];
    int count;
    atomic_int inside;
    bool together;
} notes;
static atomic_int living;

static yk_status notes_create(yk_call *call)
{
    if (yk_call_count(call) && yk_call_int(call, 0) < 0)
        return yk_set_error(YK_ERR_ARGUMENT, "notes begin at 0 or above");
    notes *n = calloc(1, sizeof(*n));
    living++;
    yk_call_set_object(call, n);
    return YK_OK;
}

static void notes_destroy(void *object)
{
    living--;
    free(object);
}

static yk_status notes_append(yk_call *call)
{
    notes *n = yk_call_object(call);
    n->together = n->together || atomic_fetch_add(&n->inside, 1) != 0;
    n->items[n->count++] = yk_call_int(call, 0);
    n->inside--;
    return YK_OK;
}

/* Returns the number of notes if they are 0, 1, 2, ... and were never appended by two calls at once, else -1. */
static yk_status notes_in_order(yk_call *call)
{
    const notes *n = yk_call_object(call);
    bool right = !n->together;
    for (int i = 0; i < n->count; i++)
        right = right && n->items[i] == i;
    return yk_call_return(call, yk_value_int(right ? n->count : -1));
}

static const yk_rpc_class notes_class = {
    .name = "notes",
    .create = notes_create,
    .destroy = notes_destroy,
    .methods = (const yk_rpc_method[]){{"append", notes_append}, {"in_order", notes_in_order}, {NULL, NULL}}};

static yk_status count_living(yk_call *call)
{
    return yk_call_return(call, yk_value_int(living));
}

/* Answers all who have come when the given number of them is there. */
typedef struct meeting {
    yk_call *calls[16];
    int count, wanted;
} meeting;

static yk_status meeting_create(yk_call *call)
{
    meeting *m = calloc(1, sizeof(*m));
    m->wanted = (int)yk_call_int(call, 0);
    yk_call_set_object(call, m);
    return YK_OK;
}

static yk_status meeting_come(yk_call *call)
{
    meeting *m = yk_call_object(call);
    yk_call_later(call);
    m->calls[m->count++] = call;
    if (m->count == m->wanted)
        for (int i = 0; i < m->count; i++)
            yk_call_answer(m->calls[i], yk_value_int(m->count));
    return YK_OK;
}

static const yk_rpc_class meeting_class = {.name = "meeting",
                                           .create = meeting_create,
                                           .destroy = free,
                                           .methods = (const yk_rpc_method[]){{"come", meeting_come}, {NULL, NULL}}};

/* An object that calls itself by a reference: a deadlock. */
static yk_ref *own_reference;

static yk_status mirror_create(yk_call *call)
{
    yk_call_set_object(call, &own_reference);
    return YK_OK;
}

static yk_status mirror_look(yk_call *call)
{
    return yk_call_return(call, yk_ref_call(own_reference, "look", NULL, NULL));
}

static const yk_rpc_class mirror_class = {
    .name = "mirror", .create = mirror_create, .methods = (const yk_rpc_method[]){{"look", mirror_look}, {NULL, NULL}}};

static yk_status info_there(yk_call *call)
{
    return yk_call_return(call, yk_rpc_debug_info());
}

static yk_status napper_create(yk_call *call)
{
    yk_call_set_object(call, &living); /* it has no state */
    return YK_OK;
}

static const yk_rpc_class napper_class = {
    .name = "napper", .create = napper_create, .methods = (const yk_rpc_method[]){{"nap", nap}, {NULL, NULL}}};

/* Functions that do not return before they are let go, whatever yk_call_cancelled says. */
static atomic_int let_go, hanging;

static yk_status hang(yk_call *call)
{
    (void)call;
    hanging++;
    while (!let_go)
        usleep(1000);
    hanging--;
    CHECK(!yk_rpc_sync("again", "add", NULL, NULL)); /* this thread has an error, whoever is a worker by now */
    return yk_last_error()->code;
}

static yk_value *hang_after(yk_future *done, void *ctx)
{
    (void)done, (void)ctx;
    yk_clear_error();
    hanging++;
    while (!let_go)
        usleep(1000);
    hanging--;
    return NULL;
}

static const yk_rpc_class stuck_class = {
    .name = "stuck",
    .create = notes_create,
    .destroy = notes_destroy,
    .methods = (const yk_rpc_method[]){{"hang", hang}, {"append", notes_append}, {NULL, NULL}}};

static yk_status offer_all(void)
{
    static const struct {
        const char *name;
        yk_rpc_fn fn;
    } all[] = {{"add", add},
               {"give_back", give_back},
               {"who", who},
               {"fail", fail_always},
               {"nap", nap},
               {"hang", hang},
               {"own_pid", own_pid},
               {"die", die},
               {"ask_back", ask_back},
               {"sleep_there", sleep_there},
               {"info_there", info_there},
               {"count_living", count_living}};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        yk_status status = yk_rpc_register(all[i].name, all[i].fn);
        if (status)
            return status;
    }
    yk_status status = yk_rpc_register_class(&notes_class);
    status = status ? status : yk_rpc_register_class(&napper_class);
    status = status ? status : yk_rpc_register_class(&stuck_class);
    status = status ? status : yk_rpc_register_class(&meeting_class);
    return status ? status : yk_rpc_register_class(&mirror_class);
}

static int64_t number_in(const yk_value *dict, const char *key)
{
    const yk_value *value = yk_value_get(dict, key);
    return value ? yk_value_as_int(value) : -1;
}

/* The item of a list of dicts that has this text under the key. */
static yk_value *item_of(yk_value *list, const char *key, const char *text)
{
    for (int64_t i = 0; i < yk_value_count(list); i++) {
        yk_value *one = yk_value_at(list, i);
        if (strstr(yk_value_as_string(yk_value_get(one, key)), text))
            return one;
    }
    return NULL;
}

/* ---- workers of a test ------------------------------------------------------------------------------------------- */

static void act(act_fn fn, int workers)
{
    act_with(offer_all, fn, workers);
}

/* ---- functions --------------------------------------------------------------------------------------------------- */

static yk_status call_functions(void)
{
    yk_tensor *x = yk_arange(0, 6, 1, NULL), *y = yk_ones(YK_SHAPE(6), NULL);
    for (int i = 0; i < 3; i++) {
        char worker[20];
        snprintf(worker, sizeof(worker), "worker%d", i); /* itself, too */
        yk_value *sum = yk_rpc_sync(worker, "add", yk_args(yk_value_tensor(x), yk_value_tensor(y)), NULL);
        CHECK(sum && yk_get(yk_value_as_tensor(sum), (int64_t[]){5}) == 6);
        yk_value *name = yk_rpc_sync(worker, "who", NULL, NULL);
        CHECK(name && strcmp(yk_value_as_string(name), "worker0") == 0);
        yk_value *asked = yk_rpc_sync(worker, "ask_back", NULL, NULL);
        CHECK(asked && strcmp(yk_value_as_string(asked), worker) == 0);
    }
    return YK_OK;
}

static void test_functions(void **state)
{
    (void)state;
    act(call_functions, 3);
}

/* Every kind of value comes back as it was sent. */
static yk_status call_values(void)
{
    yk_value *dict = yk_value_dict(), *list = yk_value_list(), *tuple = yk_value_tuple();
    CHECK(!yk_value_append(list, yk_value_none()) && !yk_value_append(list, yk_value_bool(true)) &&
          !yk_value_append(list, yk_value_bytes("a\0b", 3)) && !yk_value_append(tuple, yk_value_int(INT64_MIN)) &&
          !yk_value_append(tuple, yk_value_real(-0.1)));
    CHECK(!yk_value_set(dict, "list", list) && !yk_value_set(dict, "tuple", tuple) &&
          !yk_value_set_int(dict, -7, yk_value_string("grüß")) &&
          !yk_value_set(dict, "empty", yk_value_tensor(yk_zeros(YK_SHAPE(3, 0, 2), NULL))));
    static const yk_dtype dtypes[] = {YK_F32, YK_F64, YK_F16, YK_BF16, YK_I64, YK_I32, YK_U8, YK_BOOL};
    for (int i = 0; i < 8; i++) {
        yk_tensor *x = yk_cast(yk_transpose(yk_reshape(yk_arange(0, 6, 1, NULL), YK_SHAPE(2, 3)), 0, 1), dtypes[i]);
        CHECK(!yk_value_set(dict, yk_dtype_name(dtypes[i]), yk_value_tensor(x)));
    }
    /* Elements keep their order in memory, on which bits of what is computed from them may depend. */
    yk_tensor *columns = yk_transpose(yk_reshape(yk_arange(0, 24, 1, NULL), YK_SHAPE(2, 3, 4)), 0, 2);
    yk_value *there = yk_rpc_sync("worker1", "give_back", yk_args(yk_value_tensor(columns)), NULL);
    CHECK(there);
    columns = yk_value_as_tensor(there);
    CHECK(yk_size(columns, 0) == 4 && yk_size(columns, 1) == 3 && yk_size(columns, 2) == 2);
    CHECK(yk_stride(columns, 0) == 1 && yk_stride(columns, 1) == 4 && yk_stride(columns, 2) == 12);
    CHECK(yk_get(columns, (int64_t[]){3, 1, 1}) == 19);
    yk_value *back = yk_rpc_sync("worker1", "give_back", yk_args(dict), NULL);
    CHECK(back && yk_value_kind_of(back) == YK_VALUE_DICT && yk_value_count(back) == 12);
    yk_value *items = yk_value_get(back, "list");
    size_t size = 0;
    CHECK(yk_value_kind_of(yk_value_at(items, 0)) == YK_VALUE_NONE && yk_value_as_bool(yk_value_at(items, 1)) &&
          memcmp(yk_value_as_bytes(yk_value_at(items, 2), &size), "a\0b", 3) == 0 && size == 3);
    items = yk_value_get(back, "tuple");
    CHECK(yk_value_kind_of(items) == YK_VALUE_TUPLE && yk_value_as_int(yk_value_at(items, 0)) == INT64_MIN &&
          yk_value_as_real(yk_value_at(items, 1)) == -0.1);
    CHECK(strcmp(yk_value_as_string(yk_value_get_int(back, -7)), "grüß") == 0);
    CHECK(yk_numel(yk_value_as_tensor(yk_value_get(back, "empty"))) == 0);
    for (int i = 0; i < 8; i++) {
        yk_tensor *x = yk_value_as_tensor(yk_value_get(back, yk_dtype_name(dtypes[i])));
        CHECK(x && yk_tensor_dtype(x) == dtypes[i] && yk_size(x, 0) == 3 && yk_size(x, 1) == 2);
        CHECK(yk_get(x, (int64_t[]){0, 1}) == (dtypes[i] == YK_BOOL ? 1 : 3));
    }
    return YK_OK;
}

static void test_values(void **state)
{
    (void)state;
    act(call_values, 2);
}

/* 40 MB there and back, and small calls that pass by meanwhile. */
static yk_status call_large(void)
{
    yk_tensor *x = yk_randn(YK_SHAPE(10, 1 << 20), NULL);
    yk_future *large = yk_rpc_async("worker1", "give_back", yk_args(yk_value_tensor(x)), NULL);
    CHECK(large);
    int passed = 0;
    while (!yk_future_done(large)) {
        CHECK(yk_rpc_sync("worker1", "who", NULL, NULL));
        passed++;
    }
    yk_value *back = yk_future_wait(large, YK_NOT_GIVEN);
    CHECK(back && yk_item(yk_sum(yk_ne(yk_to(x, (yk_device){YK_CPU, 0}), yk_value_as_tensor(back)))) == 0);
    CHECK(passed > 0);
    return YK_OK;
}

static void test_large_messages(void **state)
{
    (void)state;
    act(call_large, 2);
}

static yk_status call_many(void)
{
    enum { MANY = 1000 };
    static yk_future *futures[MANY];
    for (int i = 0; i < MANY; i++)
        CHECK((futures[i] = yk_rpc_async(i % 2 ? "worker1" : "worker0", "give_back", yk_args(yk_value_int(i)), NULL)));
    CHECK(yk_future_wait_any(futures, MANY, 10) >= 0);
    yk_scope inner = yk_scope_begin();
    yk_future *kept = yk_future_retain(yk_rpc_async("worker1", "who", NULL, NULL));
    yk_scope_end(inner);
    CHECK(yk_future_wait(kept, YK_NOT_GIVEN));
    yk_future_release(kept);
    for (int i = 0; i < MANY; i++) {
        yk_value *value = yk_future_wait(futures[i], YK_NOT_GIVEN);
        CHECK(value && yk_value_as_int(value) == i && value == yk_future_wait(futures[i], YK_NOT_GIVEN));
    }
    return YK_OK;
}

static void test_many_calls(void **state)
{
    (void)state;
    act(call_many, 2);
}

/* ---- objects ----------------------------------------------------------------------------------------------------- */

static yk_status call_objects(void)
{
    enum { ITEMS = 600 };
    yk_scope scope = yk_scope_begin();
    yk_ref *list = yk_rpc_remote("worker1", "notes", NULL, NULL);
    CHECK(list && strcmp(yk_ref_owner_name(list), "worker1") == 0 && !yk_ref_is_owner(list));
    /* Small and large calls in turn: none overtakes another. */
    yk_value *large = yk_value_tensor(yk_zeros(YK_SHAPE(1 << 18), NULL));
    for (int i = 0; i < ITEMS; i++) {
        yk_value *args = i % 50 == 7 ? yk_args(yk_value_int(i), large) : yk_args(yk_value_int(i));
        CHECK(yk_ref_call_async(list, "append", args, NULL));
    }
    yk_value *count = yk_ref_call(list, "in_order", NULL, NULL);
    CHECK(count && yk_value_as_int(count) == ITEMS);
    CHECK(!yk_ref_call(list, "apend", NULL, NULL) &&
          failed_with(YK_ERR_NOT_FOUND, "worker1", "did you mean 'append'?"));
    CHECK(!yk_ref_to_here(list, NULL) && failed_with(YK_ERR_ARGUMENT, "notes", "call its methods"));
    yk_value *there = yk_rpc_sync("worker1", "count_living", NULL, NULL);
    CHECK(there && yk_value_as_int(there) == 1);
    yk_scope_end(scope);
    for (int i = 0; i < 500; i++) { /* the reference's end is no call, so nothing waits for it */
        there = yk_rpc_sync("worker1", "count_living", NULL, NULL);
        if (yk_value_as_int(there) == 0)
            break;
        usleep(10000);
    }
    CHECK(yk_value_as_int(there) == 0);
    yk_ref *failing = yk_rpc_remote("worker1", "notes", yk_args(yk_value_int(-1)), NULL);
    CHECK(failing && !yk_ref_call(failing, "append", yk_args(yk_value_int(0)), NULL));
    CHECK(failed_with(YK_ERR_ARGUMENT, "could not be made", "notes begin at 0"));
    yk_ref *unknown = yk_rpc_remote("worker1", "nots", NULL, NULL);
    CHECK(!yk_ref_call(unknown, "append", yk_args(yk_value_int(0)), NULL) &&
          failed_with(YK_ERR_NOT_FOUND, "'nots.append': the object could not be made", "did you mean 'notes'"));
    yk_ref *own = yk_rpc_remote("worker0", "notes", NULL, NULL);
    CHECK(own && yk_ref_is_owner(own) && yk_ref_call(own, "append", yk_args(yk_value_int(0)), NULL));
    return YK_OK;
}

static void test_objects(void **state)
{
    (void)state;
    act(call_objects, 2);
}

static yk_status call_results(void)
{
    yk_ref *sum = yk_rpc_remote(
        "worker1", "add",
        yk_args(yk_value_tensor(yk_ones(YK_SHAPE(3), NULL)), yk_value_tensor(yk_ones(YK_SHAPE(3), NULL))), NULL);
    yk_value *here = yk_ref_to_here(sum, NULL);
    CHECK(here && yk_get(yk_value_as_tensor(here), (int64_t[]){2}) == 2);
    yk_ref *bad = yk_rpc_remote("worker1", "fail", yk_args(yk_value_string("7")), NULL);
    CHECK(bad && !yk_ref_to_here(bad, NULL) && failed_with(YK_ERR_NUMERIC, "worker1", "7 is not a number I like"));
    CHECK(!yk_ref_call(sum, "append", NULL, NULL) && failed_with(YK_ERR_ARGUMENT, "add", "no methods"));
    return YK_OK;
}

static void test_results_that_stay(void **state)
{
    (void)state;
    act(call_results, 2);
}

/* Three callers; the object answers them all when the last has come. */
static yk_status call_meeting(void)
{
    yk_ref *room = yk_rpc_remote("worker1", "meeting", yk_args(yk_value_int(3)), NULL);
    yk_future *come[3];
    for (int i = 0; i < 3; i++) {
        CHECK((come[i] = yk_ref_call_async(room, "come", NULL, NULL)));
        if (i < 2) {
            CHECK(!yk_future_wait(come[0], 0.05) && failed_with(YK_ERR_TIMEOUT, "come", "the call goes on"));
        }
    }
    for (int i = 0; i < 3; i++) {
        yk_value *value = yk_future_wait(come[i], YK_NOT_GIVEN);
        CHECK(value && yk_value_as_int(value) == 3);
    }
    return YK_OK;
}

static void test_answers_later(void **state)
{
    (void)state;
    act(call_meeting, 2);
}

/* An object whose method waits for its own method. */
static yk_status call_mirror(void)
{
    own_reference = yk_ref_retain(yk_rpc_remote("worker0", "mirror", NULL, NULL));
    double began = (double)time(NULL);
    CHECK(!yk_ref_call(own_reference, "look", NULL, NULL));
    CHECK(failed_with(YK_ERR_STATE, "wait for one another for ever",
                      "worker0.mirror.look waits for worker0.mirror.look"));
    CHECK((double)time(NULL) - began < 10);
    yk_ref_release(own_reference);
    return YK_OK;
}

static void test_a_cycle(void **state)
{
    (void)state;
    act(call_mirror, 1);
}

/* ---- errors, times and ends -------------------------------------------------------------------------------------- */

static yk_status call_wrongly(void)
{
    CHECK(!yk_rpc_sync("worker1", "fail", yk_args(yk_value_string("13")), NULL));
    CHECK(failed_with(YK_ERR_NUMERIC, "worker 'worker1'", "'fail': 13 is not a number I like"));
    CHECK(!yk_rpc_sync("worker1", "ad", NULL, NULL) && failed_with(YK_ERR_NOT_FOUND, "worker1", "did you mean 'add'?"));
    CHECK(!yk_rpc_sync("worker1", "notes", NULL, NULL) && failed_with(YK_ERR_ARGUMENT, "it is a class", "rpc_remote"));
    CHECK(!yk_rpc_sync("worker11", "add", NULL, NULL) &&
          failed_with(YK_ERR_NOT_FOUND, "no worker 'worker11'", "did you mean 'worker1'?"));
    CHECK(!yk_rpc_sync("worker1", "add", NULL, NULL) &&
          failed_with(YK_ERR_ARGUMENT, "argument 0 is not there", "0 were"));
    CHECK(!yk_rpc_sync("worker1", "add", yk_args(yk_value_int(3)), NULL) &&
          failed_with(YK_ERR_ARGUMENT, "argument 0 is of kind int", "tensor is expected"));
    CHECK(!yk_rpc_sync("worker1", "add", yk_value_int(3), NULL) &&
          failed_with(YK_ERR_ARGUMENT, "arguments of 'add' are of kind int", "yk_args"));
    CHECK(!yk_rpc_sync(NULL, "add", NULL, NULL) && failed_with(YK_ERR_ARGUMENT, "worker", "NULL"));
    CHECK(!yk_rpc_sync("worker1", "", NULL, NULL) && failed_with(YK_ERR_ARGUMENT, "function", "1 to 127"));
    CHECK(!yk_rpc_sync("worker1", "add", yk_args((yk_value *)NULL), NULL) && yk_last_error());
    yk_clear_error();
    CHECK(yk_rpc_init("again", NULL) && failed_with(YK_ERR_STATE, "worker0", "already"));
    CHECK(yk_rpc_register("add", fail_always) && failed_with(YK_ERR_ARGUMENT, "add", "another function"));
    CHECK(yk_rpc_register("two words", fail_always) && failed_with(YK_ERR_ARGUMENT, "space", "3"));
    return YK_OK;
}

static void test_errors(void **state)
{
    (void)state;
    act(call_wrongly, 2);
}

static yk_status call_in_time(void)
{
    yk_value *args = yk_args(yk_value_real(20));
    double began = (double)time(NULL);
    CHECK(!yk_rpc_sync("worker1", "nap", args, YK_OPTIONS(yk_rpc_options, .timeout = 0.3)));
    CHECK(failed_with(YK_ERR_TIMEOUT, "worker1", "may have run"));
    /* The time travels: the nap here, called back by the function there, ends with the first call. */
    CHECK(!yk_rpc_sync("worker1", "sleep_there", NULL, YK_OPTIONS(yk_rpc_options, .timeout = 0.3)));
    yk_clear_error();
    yk_future *nap_there = yk_rpc_async("worker1", "nap", args, NULL);
    yk_future_cancel(nap_there);
    CHECK(yk_future_done(nap_there) && !yk_future_wait(nap_there, YK_NOT_GIVEN) &&
          failed_with(YK_ERR_STATE, "nap", "cancelled"));
    CHECK((double)time(NULL) - began < 10);
    CHECK(!yk_rpc_sync("worker1", "nap", args, YK_OPTIONS(yk_rpc_options, .timeout = -1)) &&
          failed_with(YK_ERR_ARGUMENT, "timeout", "-1"));
    return YK_OK;
}

/* A call that nobody waits for is done when its time is over, also where nothing comes from anywhere. */
static yk_status end_unwaited(void)
{
    yk_value *pid = yk_rpc_sync("worker1", "own_pid", NULL, NULL);
    CHECK(pid);
    usleep(200000); /* nothing is under way */
    CHECK(!kill((pid_t)yk_value_as_int(pid), SIGSTOP));
    yk_future *f =
        yk_rpc_async("worker1", "nap", yk_args(yk_value_real(60)), YK_OPTIONS(yk_rpc_options, .timeout = 0.3));
    bool done = false;
    for (double until = yk__now() + 0.3 + patience(2); f && !done && yk__now() < until; usleep(1000))
        done = yk_future_done(f);
    CHECK(!kill((pid_t)yk_value_as_int(pid), SIGCONT) && done);
    CHECK(!yk_future_wait(f, 1) && failed_with(YK_ERR_TIMEOUT, "nap", "within the call's time"));
    return YK_OK;
}

static void test_a_call_that_nobody_waits_for(void **state)
{
    (void)state;
    act(end_unwaited, 2);
}

static void test_times(void **state)
{
    (void)state;
    act(call_in_time, 2);
}

static yk_status worker_join(const char *path, const char *name, int world_size)
{
    return join_with(offer_all, path, name, world_size);
}

/* One worker is killed: its caller's outstanding calls and later ones fail by name, its caller and a third go on. */
static yk_status worker_survives(int rank, const char *path)
{
    yk_scope scope = yk_scope_begin();
    char name[20];
    snprintf(name, sizeof(name), "w%d", rank);
    yk_status status = worker_join(path, name, 3);
    if (!status && rank == 0) {
        yk_ref *there = yk_rpc_remote("w1", "notes", NULL, NULL);
        CHECK(there && yk_ref_call(there, "append", yk_args(yk_value_int(0)), NULL));
        yk_future *napping = yk_rpc_async("w1", "nap", yk_args(yk_value_real(30)), NULL);
        CHECK(!yk_rpc_sync("w1", "die", NULL, NULL) && failed_with(YK_ERR_CONNECTION, "worker 'w1'", "may have run"));
        CHECK(!yk_future_wait(napping, 5) && failed_with(YK_ERR_CONNECTION, "worker 'w1'", "nap"));
        CHECK(!yk_ref_call(there, "append", NULL, NULL) &&
              failed_with(YK_ERR_CONNECTION, "ended with its worker 'w1'", "not run"));
        CHECK(!yk_rpc_sync("w1", "add", NULL, NULL) && failed_with(YK_ERR_CONNECTION, "w1", "has ended"));
        CHECK(yk_rpc_sync("w2", "who", NULL, NULL));
    }
    status = status ? status : yk_rpc_shutdown(YK_RPC_GRACEFUL, patience(20));
    yk_scope_end(scope);
    return status;
}

/* The child of a worker is none. */
static yk_status worker_forks(int rank, const char *path)
{
    yk_scope scope = yk_scope_begin();
    yk_status status = worker_join(path, rank ? "w1" : "w0", 2);
    if (!status && rank == 0) {
        CHECK(yk_rpc_sync("w1", "who", NULL, NULL));
        int ended = 0;
        pid_t child = fork();
        if (child == 0) {
            bool none = !yk_rpc_name() && !yk_rpc_sync("w1", "who", NULL, NULL);
            _exit(none && failed_with(YK_ERR_STATE, "rpc_sync", "was forked from a worker") ? 0 : 1);
        }
        CHECK(waitpid(child, &ended, 0) == child && WIFEXITED(ended) && WEXITSTATUS(ended) == 0);
        CHECK(yk_rpc_sync("w1", "who", NULL, NULL));
    }
    status = status ? status : yk_rpc_shutdown(YK_RPC_GRACEFUL, patience(20));
    yk_scope_end(scope);
    return status;
}

static void test_a_child_of_a_worker(void **state)
{
    (void)state;
    char path[] = "/tmp/yoke-rpc-XXXXXX";
    close(mkstemp(path));
    pid_t pids[2];
    fork_workers(worker_forks, path, 2, pids);
    expect_end(pids[0], 0);
    expect_end(pids[1], 0);
    unlink(path);
}

static void test_a_worker_that_dies(void **state)
{
    (void)state;
    char path[] = "/tmp/yoke-rpc-XXXXXX";
    close(mkstemp(path));
    pid_t pids[3];
    fork_workers(worker_survives, path, 3, pids);
    for (int rank = 0; rank < 3; rank++)
        expect_end(pids[rank], rank == 1 ? SIGKILL : 0);
    unlink(path);
}

/* ---- functions that do not return -------------------------------------------------------------------------------- */

/* w0 has a function and a method of each other one run that never end, with calls behind. */
static yk_status leave_hanging(const char *path)
{
    yk_future *f[4];
    for (int i = 0; i < 4; i += 2) {
        const yk_rpc_options *in_time = YK_OPTIONS(yk_rpc_options, .timeout = patience(2));
        const char *worker = i ? "w2" : "w1";
        yk_ref *stuck = yk_rpc_remote(worker, "stuck", NULL, NULL);
        f[i] = yk_rpc_async(worker, "hang", NULL, in_time);
        f[i + 1] = yk_ref_call_async(stuck, "hang", NULL, in_time);
        CHECK(yk_ref_call_async(stuck, "append", yk_args(yk_value_int(1)), in_time));
    }
    CHECK(!await_key(path, "test/w1/hangs") && !await_key(path, "test/w2/hangs"));
    for (int i = 0; i < 4; i++)
        CHECK(!yk_future_wait(f[i], YK_NOT_GIVEN) && failed_with(YK_ERR_TIMEOUT, "hang", "it may have run"));
    CHECK(!yk_store_set(yk_file_store(path), "test/over", "1", 1));
    return YK_OK;
}

/* Their workers end all the same, and say which they are; so does one at once. Another worker of the process works, and
 * what was left ends beside it. */
static yk_status end_in_spite(const char *name, const char *path, bool graceful)
{
    char key[40];
    const int wanted = graceful ? 3 : 2;
    yk_future *then = graceful ? yk_future_then(yk_rpc_async(name, "who", NULL, NULL), hang_after, NULL) : NULL;
    CHECK(!graceful || then);
    bool all = false;
    for (double until = yk__now() + patience(20); !all && yk__now() < until; usleep(2000)) {
        yk_value *list = yk_value_get(yk_rpc_debug_info(), "running_list");
        all = yk_value_count(list) == wanted && item_of(list, "call", "'hang' for 'w0'") &&
              item_of(list, "call", "'stuck.hang' for 'w0'");
    }
    CHECK(all);
    snprintf(key, sizeof(key), "test/%s/hangs", name);
    CHECK(!yk_store_set(yk_file_store(path), key, "1", 1) && !await_key(path, "test/over"));
    double began = yk__now();
    CHECK(yk_rpc_shutdown(graceful ? YK_RPC_GRACEFUL : YK_RPC_AT_ONCE, 0.5) == YK_ERR_TIMEOUT);
    CHECK(yk__now() - began < patience(20));
    CHECK(!graceful || strstr(yk_last_error()->message, "a function of yk_future_then has run for"));
    CHECK(strstr(yk_last_error()->message, "'stuck.hang' for 'w0' has run for ") &&
          failed_with(YK_ERR_TIMEOUT, "a function does not return: ", "'hang' for 'w0' has run for "));
    CHECK(hanging == wanted && living == 1);

    yk_scope scope = yk_scope_begin();
    CHECK(!yk_rpc_init("again", YK_OPTIONS(yk_rpc_init_options, .store = yk_hash_store())));
    for (int i = 0; i < 2; i++) {
        yk_value *one = yk_value_tensor(yk_ones(YK_SHAPE(2), NULL));
        yk_value *sum = yk_rpc_sync("again", "add", yk_args(one, one), NULL);
        CHECK(sum && yk_get(yk_value_as_tensor(sum), (int64_t[]){1}) == 2);
        let_go = 1;
        for (double until = yk__now() + patience(20); (hanging || living) && yk__now() < until;)
            usleep(1000);
        CHECK(!hanging && !living);
    }
    int64_t running = -1;
    for (double until = yk__now() + patience(20); running && yk__now() < until; usleep(1000))
        running = number_in(yk_rpc_debug_info(), "running_calls");
    CHECK(!running); /* what was left counts no more */
    yk_scope_end(scope);
    return yk_rpc_shutdown(YK_RPC_GRACEFUL, patience(20));
}

static yk_status worker_hangs(int rank, const char *path)
{
    yk_scope scope = yk_scope_begin();
    char name[20];
    snprintf(name, sizeof(name), "w%d", rank);
    yk_status status = worker_join(path, name, 3);
    status = status || rank ? status : leave_hanging(path);
    if (!status)
        status = rank ? end_in_spite(name, path, rank == 2) : yk_rpc_shutdown(YK_RPC_GRACEFUL, patience(20));
    yk_scope_end(scope);
    return status;
}

static void test_functions_that_do_not_return(void **state)
{
    (void)state;
    char path[] = "/tmp/yoke-rpc-XXXXXX";
    close(mkstemp(path));
    pid_t pids[3];
    fork_workers(worker_hangs, path, 3, pids);
    for (int rank = 0; rank < 3; rank++)
        expect_end(pids[rank], 0);
    unlink(path);
}

/* w1 dies, and comes back under its name as another process: old references fail by name, new calls succeed. */
static yk_status worker_comes_back(int rank, const char *path)
{
    yk_scope scope = yk_scope_begin();
    char name[20];
    snprintf(name, sizeof(name), "w%d", rank ? 1 : 0);
    if (rank == 2) { /* the second w1: the name is taken while the first lives */
        yk_store *store = yk_file_store(path);
        void *data;
        CHECK(!yk_store_get(store, "test/first", &data, NULL, 30));
        free(data);
        CHECK(worker_join(path, name, 2) && failed_with(YK_ERR_ARGUMENT, "a worker 'w1' already", "this is process"));
        CHECK(!yk_store_set(store, "test/refused", "1", 1) && !yk_store_get(store, "test/dead", &data, NULL, 30));
        free(data);
    }
    yk_status status = worker_join(path, name, 2);
    if (!status && rank == 0) {
        yk_store *store = yk_file_store(path);
        void *data;
        yk_ref *there = yk_rpc_remote("w1", "notes", NULL, NULL);
        CHECK(there && yk_ref_call(there, "append", yk_args(yk_value_int(0)), NULL));
        CHECK(!yk_store_set(store, "test/first", "1", 1) && !yk_store_get(store, "test/refused", &data, NULL, 30));
        free(data);
        CHECK(!yk_rpc_sync("w1", "die", NULL, NULL) && failed_with(YK_ERR_CONNECTION, "worker 'w1'", "may have run"));
        CHECK(!yk_store_set(store, "test/dead", "1", 1));
        yk_value *again = NULL;
        for (int i = 0; i < 1000 && !again; i++) {
            again = yk_rpc_sync("w1", "who", NULL, NULL);
            CHECK(again || failed_with(YK_ERR_CONNECTION, "w1", "has ended"));
            usleep(10000);
        }
        CHECK(again && strcmp(yk_value_as_string(again), "w0") == 0);
        CHECK(!yk_ref_call(there, "append", NULL, NULL) &&
              failed_with(YK_ERR_CONNECTION, "ended with its worker 'w1'", "not run"));
    }
    status = status ? status : yk_rpc_shutdown(YK_RPC_GRACEFUL, patience(20));
    yk_scope_end(scope);
    return status;
}

static void test_a_worker_that_comes_back(void **state)
{
    (void)state;
    char path[] = "/tmp/yoke-rpc-XXXXXX";
    close(mkstemp(path));
    pid_t pids[3];
    fork_workers(worker_comes_back, path, 3, pids);
    for (int rank = 0; rank < 3; rank++)
        expect_end(pids[rank], rank == 1 ? SIGKILL : 0);
    unlink(path);
}

/* Two processes that join under one name at once: one is the worker, and the other is told which that is. */
static yk_status worker_twin(int rank, const char *path)
{
    yk_scope scope = yk_scope_begin();
    char key[40], refusal[300];
    yk_status status = worker_join(path, "twin", 2);
    if (status) { /* its own number is the younger one, or not */
        snprintf(refusal, sizeof(refusal), "%.290s", yk_last_error()->message);
        CHECK(failed_with(YK_ERR_ARGUMENT, "there is a worker 'twin' already: process ", "this is process "));
        CHECK(!yk_rpc_name() && !yk_store_set(yk_file_store(path), "test/refused", refusal, strlen(refusal)));
        yk_scope_end(scope);
        return YK_OK;
    }
    void *refused = NULL;
    size_t size = 0;
    CHECK(!yk_store_get(yk_file_store(path), "test/refused", &refused, &size, 30));
    snprintf(refusal, sizeof(refusal), "%.*s", (int)size, (const char *)refused);
    free(refused);
    snprintf(key, sizeof(key), "process %d of host ", getpid());
    CHECK(strstr(refusal, key));
    yk_value *caller = yk_rpc_sync("twin", "who", NULL, NULL);
    CHECK(caller && strcmp(yk_value_as_string(caller), "twin") == 0 && rank < 2);
    status = yk_rpc_shutdown(YK_RPC_GRACEFUL, patience(20));
    yk_scope_end(scope);
    return status;
}

static void test_two_of_one_name(void **state)
{
    (void)state;
    char path[] = "/tmp/yoke-rpc-XXXXXX";
    close(mkstemp(path));
    pid_t pids[2];
    fork_workers(worker_twin, path, 2, pids);
    expect_end(pids[0], 0);
    expect_end(pids[1], 0);
    unlink(path);
}

/* Objects of a caller that is killed are destroyed. */
static yk_status worker_holds(int rank, const char *path)
{
    yk_scope scope = yk_scope_begin();
    yk_status status = worker_join(path, rank ? "w1" : "w0", 2);
    if (!status && rank == 1) {
        for (int i = 0; i < 10; i++) {
            yk_ref *there = yk_rpc_remote("w0", "notes", NULL, NULL);
            CHECK(there && yk_ref_call(there, "append", yk_args(yk_value_int(0)), NULL));
        }
        CHECK(yk_rpc_async("w0", "nap", yk_args(yk_value_real(30)), NULL)); /* ends when nobody waits */
        void *seen_there;
        CHECK(!yk_store_get(yk_file_store(path), "test/seen", &seen_there, NULL, 30));
        kill(getpid(), SIGKILL);
    }
    for (int i = 0, came = 0; !status; i++) {
        if (!came && living == 10) {
            CHECK(!yk_store_set(yk_file_store(path), "test/seen", "1", 1));
            came = 1;
        }
        if (came && living == 0)
            break;
        CHECK(i < 3000);
        usleep(10000);
    }
    status = status ? status : yk_rpc_shutdown(YK_RPC_GRACEFUL, patience(20));
    yk_scope_end(scope);
    return status;
}

static void test_a_holder_that_dies(void **state)
{
    (void)state;
    char path[] = "/tmp/yoke-rpc-XXXXXX";
    close(mkstemp(path));
    pid_t pids[2];
    fork_workers(worker_holds, path, 2, pids);
    expect_end(pids[0], 0);
    expect_end(pids[1], SIGKILL);
    unlink(path);
}

/* Alone in this process, by a store of the test's. */
static void test_names_and_order_of_calls(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    assert_null(yk_rpc_sync("worker0", "add", NULL, NULL));
    expect_error(YK_ERR_STATE, "rpc_init comes first");
    assert_null(yk_rpc_name());
    assert_int_equal(yk_rpc_shutdown(YK_RPC_GRACEFUL, 1), YK_OK);
    assert_int_equal(yk_rpc_init("two words", NULL), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "space");
    assert_int_equal(yk_rpc_init("a/b", NULL), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "'a/b' has '/'");
    assert_int_equal(yk_rpc_register(NULL, add), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "NULL");
    assert_int_equal(yk_rpc_register("add", add), YK_OK);
    assert_int_equal(yk_rpc_register("add", add), YK_OK);
    assert_int_equal(yk_rpc_init("alone", YK_OPTIONS(yk_rpc_init_options, .store = yk_hash_store())), YK_OK);
    assert_string_equal(yk_rpc_name(), "alone");
    assert_int_equal(yk_rpc_wait_for("alone", 1), YK_OK);
    assert_int_equal(yk_rpc_wait_for("other", 0.1), YK_ERR_TIMEOUT);
    expect_error(YK_ERR_TIMEOUT, "no worker 'other' has joined");
    yk_tensor *one = yk_ones(YK_SHAPE(2), NULL);
    yk_value *sum = yk_rpc_sync("alone", "add", yk_args(yk_value_tensor(one), yk_value_tensor(one)), NULL);
    assert_non_null(sum);
    assert_true(yk_get(yk_value_as_tensor(sum), (int64_t[]){0}) == 2);
    assert_int_equal(yk_rpc_shutdown(YK_RPC_AT_ONCE, YK_NOT_GIVEN), YK_OK);
    assert_null(yk_rpc_sync("alone", "add", NULL, NULL));
    expect_error(YK_ERR_STATE, "nothing after rpc_shutdown");
    yk_scope_end(scope);
}

/* ---- debug info -------------------------------------------------------------------------------------------------- */
static void first_log(yk_log_level level, const char *text, void *user)
{
    (void)level;
    char *seen = user;
    if (!*seen)
        snprintf(seen, 600, "%s", text);
}

/* Both sides tell of an object that naps with two more calls behind; at the time-out the log does. */
static yk_status debug_info(void)
{
    static char logged[600];
    yk_ref *n = yk_rpc_remote("worker1", "napper", NULL, NULL);
    CHECK(n && yk_ref_call(n, "nap", yk_args(yk_value_real(0)), NULL));
    yk_future *f[3];
    for (int i = 0; i < 3; i++)
        CHECK((f[i] = yk_ref_call_async(n, "nap", yk_args(yk_value_real(30)),
                                        YK_OPTIONS(yk_rpc_options, .timeout = i ? patience(2) : 30))));
    yk_value *there = NULL, *object = NULL;
    for (double until = yk__now() + patience(20); yk__now() < until; usleep(5000)) {
        there = yk_rpc_sync("worker1", "info_there", NULL, NULL);
        CHECK(there);
        object = item_of(yk_value_get(there, "object_list"), "name", "napper");
        if (number_in(object, "waiting") == 2 && number_in(there, "running_calls") == 2) /* the nap has its thread */
            break;
    }
    CHECK(number_in(object, "waiting") == 2 && number_in(object, "running") == 1 &&
          number_in(object, "references") == 1);
    CHECK(strcmp(yk_value_as_string(yk_value_get(object, "state")), "made") == 0);
    CHECK(strcmp(yk_value_as_string(yk_value_get(there, "name")), "worker1") == 0);
    CHECK(number_in(there, "queued_calls") == 2 && number_in(there, "running_calls") == 2); /* the nap, and this one */
    CHECK(number_in(there, "objects") == 1 && number_in(there, "references_held_by_others") == 1);
    CHECK(number_in(item_of(yk_value_get(there, "workers"), "name", "worker0"), "serving") == 4);
    yk_value *here = yk_rpc_debug_info(), *other = item_of(yk_value_get(here, "workers"), "name", "worker1");
    CHECK(number_in(here, "outstanding_calls") == 3 && number_in(here, "running_calls") == 0);
    CHECK(yk_value_count(yk_value_get(here, "oldest_outstanding")) == 3 && number_in(other, "waited_for") == 3);
    CHECK(number_in(other, "pid") > 0 && !yk_value_as_bool(yk_value_get(other, "gone")));
    yk_value *oldest = yk_value_at(yk_value_get(here, "oldest_outstanding"), 0);
    CHECK(strstr(yk_value_as_string(yk_value_get(oldest, "call")), "napper.nap"));
    CHECK(yk_value_as_real(yk_value_get(oldest, "seconds")) > 0 && yk_value_as_bool(yk_value_get(oldest, "sent")));
    yk_log_set(YK_LOG_WARN, first_log, logged);
    CHECK(!yk_future_wait(f[1], YK_NOT_GIVEN) && failed_with(YK_ERR_TIMEOUT, "napper.nap", "it may have run"));
    yk_log_set(YK_LOG_OFF, NULL, NULL);
    CHECK(strstr(logged, "a call's time is over: worker 'worker0' waits for ") && strstr(logged, " to 'worker1'"));
    for (int i = 0; i < 3; i++)
        yk_future_cancel(f[i]);
    return YK_OK;
}

static void test_debug_info(void **state)
{
    (void)state;
    assert_null(yk_rpc_debug_info());
    expect_error(YK_ERR_STATE, "rpc_debug_info: this process is no worker");
    act(debug_info, 2);
}

/* ---- counters ---------------------------------------------------------------------------------------------------- */
static int64_t counter_of(const char *name)
{
    char found[52];
    int64_t value;
    for (int i = 0; i < YK__PAGE_COUNTERS; i++)
        if (yk__page_counter(yk__progress_page(), i, found, &value) && strcmp(found, name) == 0)
            return value;
    return -1;
}

/* The caller's page and the called worker's count the same calls, and nothing is left under way. */
static yk_status worker_counts(int rank, const char *path)
{
    yk_scope scope = yk_scope_begin();
    double began = yk__now();
    yk_status status = worker_join(path, rank ? "w1" : "w0", 2);
    enum { CALLS = 20 };
    for (int i = 0; i < CALLS && rank == 0; i++) {
        yk_tensor *x = yk_ones(YK_SHAPE(100000), NULL);
        CHECK(yk_rpc_sync("w1", "add", yk_args(yk_value_tensor(x), yk_value_tensor(x)), NULL));
    }
    if (rank == 0) {
        CHECK(!yk_rpc_sync("w1", "no_such_function", NULL, NULL));
        CHECK(failed_with(yk_last_error()->code, "no_such_function", ""));
    }
    status = status ? status : yk_rpc_shutdown(YK_RPC_GRACEFUL, patience(20));
    int64_t arguments = (int64_t)CALLS * 2 * 100000 * 4, results = arguments / 2, slack = 10000;
    int64_t sent = rank == 0 ? arguments : results, received = rank == 0 ? results : arguments;
    CHECK(counter_of("rpc_calls_total") == (rank == 0 ? CALLS + 1 : 0));
    CHECK(counter_of("rpc_failed_calls_total") == (rank == 0));
    CHECK(counter_of("rpc_served_calls_total") == (rank == 0 ? 0 : CALLS + 1));
    CHECK(counter_of("rpc_outstanding_calls") == 0);
    int64_t took = counter_of("rpc_call_nanoseconds_total"), least = rank == 0 ? CALLS + 1 : 0;
    CHECK(took >= 1000 * least && took <= (int64_t)(1e9 * (yk__now() - began)));
    CHECK(counter_of("rpc_queued_calls") == 0);
    CHECK(counter_of("rpc_sent_bytes_total") >= sent && counter_of("rpc_sent_bytes_total") < sent + slack);
    CHECK(counter_of("rpc_received_bytes_total") >= received &&
          counter_of("rpc_received_bytes_total") < received + slack);
    yk_scope_end(scope);
    return status;
}

static void test_counters(void **state)
{
    (void)state;
    char path[] = "/tmp/yoke-rpc-XXXXXX";
    close(mkstemp(path));
    pid_t pids[2];
    fork_workers(worker_counts, path, 2, pids);
    expect_end(pids[0], 0);
    expect_end(pids[1], 0);
    unlink(path);
}

/* The same over the socket that passes through memory otherwise. */
static int over_tcp(void **state)
{
    (void)state;
    return setenv("YOKE_SHARED_MEMORY", "0", 1);
}

static int as_before(void **state)
{
    (void)state;
    return unsetenv("YOKE_SHARED_MEMORY");
}

#define OVER_TCP(test)                                                                                                 \
    {                                                                                                                  \
#test "_over_tcp", test, over_tcp, as_before, NULL                                                             \
    }

/* ---- messages that are too large --------------------------------------------------------------------------------- */

/* A text of so many bytes. */
static yk_status long_text(yk_call *call)
{
    int64_t size = yk_call_int(call, 0);
    char *text = calloc(1, (size_t)size + 1);
    memset(text, 'x', (size_t)size);
    yk_status status = yk_call_return(call, yk_value_string(text));
    free(text);
    return status;
}

/* One that is too large is an error of its call alone: the connection stays, and what is held by it. */
static yk_status limited(void)
{
    yk_ref *n = yk_rpc_remote("worker1", "notes", NULL, NULL);
    CHECK(n && yk_ref_call(n, "append", yk_args(yk_value_int(0)), NULL));
    yk_value *fits = yk_rpc_sync("worker1", "long_text", yk_args(yk_value_int(250000)), NULL);
    CHECK(fits && yk_rpc_sync("worker1", "give_back", yk_args(fits), NULL));
    yk_value *both = yk_args(fits, fits);
    CHECK(!yk_rpc_sync("worker1", "give_back", both, NULL) &&
          failed_with(YK_ERR_ARGUMENT, "the arguments of 'give_back' take 5000",
                      "worker 'worker1' takes messages of up to "
                      "300000 (max_message"));
    CHECK(!yk_rpc_sync("worker1", "long_text", yk_args(yk_value_int(310000)), NULL) &&
          failed_with(YK_ERR_ARGUMENT, "the result of 'long_text' takes 3100",
                      "worker 'worker0' takes messages of up to 300000"));
    yk_value *count = yk_ref_call(n, "in_order", NULL, NULL);
    CHECK(count && yk_value_as_int(count) == 1);
    return YK_OK;
}

static yk_status limited_worker(int rank, void *arg)
{
    (void)arg;
    yk_scope scope = yk_scope_begin();
    yk_status status = offer_all();
    status = status ? status : yk_rpc_register("long_text", long_text);
    status = status ? status : yk_rpc_init(NULL, YK_OPTIONS(yk_rpc_init_options, .max_message = 300000));
    status = status || rank ? status : limited();
    status = status ? status : yk_rpc_shutdown(YK_RPC_GRACEFUL, patience(30));
    yk_scope_end(scope);
    return status;
}

static void test_too_large(void **state)
{
    (void)state;
    expect_ok(yk_spawn(limited_worker, NULL, 2, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_functions),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_large_messages),
        cmocka_unit_test(test_many_calls),
        cmocka_unit_test(test_objects),
        cmocka_unit_test(test_results_that_stay),
        cmocka_unit_test(test_answers_later),
        cmocka_unit_test(test_a_cycle),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_times),
        cmocka_unit_test(test_a_call_that_nobody_waits_for),
        cmocka_unit_test(test_a_child_of_a_worker),
        cmocka_unit_test(test_a_worker_that_dies),
        cmocka_unit_test(test_functions_that_do_not_return),
        cmocka_unit_test(test_a_worker_that_comes_back),
        cmocka_unit_test(test_two_of_one_name),
        cmocka_unit_test(test_a_holder_that_dies),
        cmocka_unit_test(test_too_large),
        cmocka_unit_test(test_debug_info),
        cmocka_unit_test(test_counters),
        OVER_TCP(test_values),
        OVER_TCP(test_large_messages),
        OVER_TCP(test_many_calls),
        OVER_TCP(test_too_large),
        OVER_TCP(test_objects),
        OVER_TCP(test_times),
        OVER_TCP(test_a_worker_that_dies),
        OVER_TCP(test_functions_that_do_not_return),
        cmocka_unit_test(test_names_and_order_of_calls), /* last: no fork may follow where it uses a GPU */
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
