/*
 * rpc_publish_test.c - published state dicts: every version that is fetched is one version as a whole, in the
 * publisher's memory on its host and in one copy on each other, and stays as it is; what wrong names, time-outs,
 * readers that hold too much and the end of a publisher or of a copy give.
 */
#include <pthread.h>
#include <signal.h>

#include "tests/rpc/workers.h"

#include "rpc/rpc_agent.h"

enum { LARGE = 70000, SMALL = 5 };

static yk_status nothing_to_offer(void)
{
    return YK_OK;
}

/* A state dict whose elements are all that number; its sizes depend on it a little where `grows` is set. */
static yk_state_dict *dict_of(int64_t number, bool grows)
{
    yk_state_dict *dict = yk_state_dict_create();
    yk_tensor_options *i64 = YK_OPTIONS(yk_tensor_options, .dtype = YK_I64);
    if (yk_state_dict_add(dict, "layer.weight", yk_full(YK_SHAPE(7, LARGE / 7), (double)number, NULL)) ||
        yk_state_dict_add(dict, "layer.bias",
                          yk_full(YK_SHAPE(SMALL + (grows ? number % 3 : 0)), (double)number, i64)) ||
        yk_state_dict_add(dict, "steps", yk_full(0, NULL, (double)number, i64)))
        return NULL;
    return dict;
}

static bool is_all(yk_tensor *x, double number)
{
    if (!x)
        return false;
    for (int64_t i = 0; i < yk_numel(x); i++)
        if (yk_tensor_dtype(x) == YK_F32 ? ((const float *)yk_tensor_data(x))[i] != (float)number
                                         : (double)((const int64_t *)yk_tensor_data(x))[i] != number)
            return false;
    return true;
}

/* True if all elements of the dict are the number of its version. */
static bool is_version(const yk_state_dict *dict, int64_t version)
{
    return dict && yk_state_dict_count(dict) == 3 && is_all(yk_state_dict_get(dict, "layer.weight"), (double)version) &&
           is_all(yk_state_dict_get(dict, "layer.bias"), (double)version) &&
           is_all(yk_state_dict_get(dict, "steps"), (double)version);
}

/* True if the tensor is in memory that workers share. */
static bool is_in_place(yk_tensor *x)
{
    uintptr_t at = (uintptr_t)yk_tensor_data(x), begin, end;
    char line[600];
    FILE *maps = has_proc() ? fopen("/proc/self/maps", "r") : NULL;
    bool found = !maps;
    while (maps && !found && fgets(line, sizeof(line), maps))
        found = sscanf(line, "%lx-%lx", &begin, &end) == 2 && at >= begin && at < end && strstr(line, "memfd:yoke-rpc");
    if (maps)
        fclose(maps);
    return found;
}

static yk_status publish_number(int64_t number, bool grows)
{
    int64_t version = 0;
    yk_scope scope = yk_scope_begin();
    yk_state_dict *dict = dict_of(number, grows);
    yk_status status = dict ? yk_publish("weights", dict, &version, NULL) : yk_last_error()->code;
    CHECK(!status && version == number);
    yk_scope_end(scope);
    return status;
}

static yk_fetch_options *at_least(int64_t version)
{
    static _Thread_local yk_fetch_options o;
    o = *YK_OPTIONS(yk_fetch_options, .at_least = version, .timeout = patience(30));
    return &o;
}

/* ---- one host ---------------------------------------------------------------------------------------------------- */

static yk_status answer_version(yk_call *call)
{
    return publish_number(yk_call_int(call, 0), false);
}

static yk_status offer_publish(void)
{
    return yk_rpc_register("publish", answer_version);
}

static yk_status publish_there(int64_t number)
{
    return yk_rpc_sync("worker1", "publish", yk_args(yk_value_int(number)), NULL) ? YK_OK : yk_last_error()->code;
}

static yk_status fetch_in_place(void)
{
    int64_t version = 0;
    CHECK(!publish_there(1));
    yk_state_dict *one = yk_fetch("weights", &version, NULL);
    CHECK(is_version(one, 1) && version == 1);
    yk_tensor *weight = yk_state_dict_get(one, "layer.weight");
    CHECK(strcmp(yk_state_dict_name(one, 0), "layer.weight") == 0 && yk_size(weight, 0) == 7);
    CHECK(yk_ndim(yk_state_dict_get(one, "steps")) == 0 && is_in_place(weight));
    CHECK(!publish_there(2) && is_version(one, 1)); /* what was fetched stays */
    yk_state_dict *two = yk_fetch("weights", &version, NULL);
    CHECK(is_version(two, 2) && version == 2);
    CHECK(yk_fill_(weight, 77)); /* what a reader writes is its own */
    yk_state_dict *again = yk_fetch("weights", NULL, at_least(2));
    CHECK(is_version(again, 2) && is_version(two, 2) && is_all(weight, 77));
    /* A version that is not there yet is waited for. */
    yk_future *later = yk_rpc_async("worker1", "publish", yk_args(yk_value_int(3)), NULL);
    yk_state_dict *three = yk_fetch("weights", &version, at_least(3));
    CHECK(is_version(three, 3) && version == 3 && yk_future_wait(later, YK_NOT_GIVEN));
    /* Tensors of every kind: not in C order, of no elements, of half precision; published here, fetched here. */
    yk_state_dict *mixed = yk_state_dict_create();
    yk_tensor *t = yk_transpose(yk_reshape(yk_arange(0, 12, 1, NULL), YK_SHAPE(3, 4)), 0, 1);
    CHECK(!yk_state_dict_add(mixed, "t", t) && !yk_state_dict_add(mixed, "none", yk_zeros(YK_SHAPE(3, 0), NULL)) &&
          !yk_state_dict_add(mixed, "half", yk_ones(YK_SHAPE(3), YK_OPTIONS(yk_tensor_options, .dtype = YK_BF16))));
    CHECK(!yk_publish("mixed", mixed, NULL, NULL));
    yk_state_dict *back = yk_fetch("mixed", &version, NULL);
    CHECK(back && version == 1 && yk_get(yk_state_dict_get(back, "t"), (int64_t[]){3, 1}) == 7);
    CHECK(yk_size(yk_state_dict_get(back, "none"), 0) == 3 && yk_numel(yk_state_dict_get(back, "none")) == 0);
    CHECK(yk_tensor_dtype(yk_state_dict_get(back, "half")) == YK_BF16 &&
          yk_get(yk_state_dict_get(back, "half"), (int64_t[]){2}) == 1);
    CHECK(yk_fill_(yk_state_dict_get(back, "t"), 5));
    CHECK(yk_get(yk_state_dict_get(yk_fetch("mixed", NULL, NULL), "t"), (int64_t[]){3, 1}) == 7);
    return YK_OK;
}

static void test_in_place(void **state)
{
    (void)state;
    act_with(offer_publish, fetch_in_place, 2);
}

static yk_status wrong_arguments(void)
{
    int64_t version = -5;
    yk_state_dict *dict = dict_of(1, false);
    yk_fetch_options *soon = YK_OPTIONS(yk_fetch_options, .timeout = 0.05);
    CHECK(!publish_there(1));
    CHECK(!yk_fetch("weight", &version, soon) && version == -5 &&
          failed_with(YK_ERR_TIMEOUT, "nobody has published 'weight' within 0.05 s", "did you mean 'weights'?"));
    CHECK(!yk_fetch("weights", NULL, YK_OPTIONS(yk_fetch_options, .timeout = 0.05, .at_least = 9)) &&
          failed_with(YK_ERR_TIMEOUT, "fetch: 'weights', version 9 of worker 'worker1'", ""));
    CHECK(!yk_fetch("weights", NULL, YK_OPTIONS(yk_fetch_options, .at_least = 0)) &&
          failed_with(YK_ERR_ARGUMENT, "at_least", "0"));
    CHECK(yk_publish("weights", dict, NULL, NULL) &&
          failed_with(YK_ERR_ARGUMENT, "'weights' is published by worker 'worker1'", "process"));
    CHECK(yk_publish(NULL, dict, NULL, NULL) && failed_with(YK_ERR_ARGUMENT, "name", "NULL"));
    CHECK(yk_publish("", dict, NULL, NULL) && failed_with(YK_ERR_ARGUMENT, "1 to 127 bytes", ""));
    CHECK(yk_publish("own", NULL, NULL, NULL) && failed_with(YK_ERR_ARGUMENT, "publish", "state dict"));
    CHECK(yk_publish("own", yk_state_dict_create(), NULL, NULL) && failed_with(YK_ERR_ARGUMENT, "empty", ""));
    CHECK(yk_publish("own", dict, NULL, YK_OPTIONS(yk_publish_options, .versions = 1)) &&
          failed_with(YK_ERR_ARGUMENT, "versions", "1"));
    CHECK(!yk_fetch(NULL, NULL, NULL) && failed_with(YK_ERR_ARGUMENT, "fetch", "NULL"));
    CHECK(!yk_publish("own", dict, NULL, NULL));
    CHECK(!yk_fetch("own", NULL, YK_OPTIONS(yk_fetch_options, .timeout = 0.05, .at_least = 2)) &&
          failed_with(YK_ERR_TIMEOUT, "version 2", "this worker itself has published version 1"));
    /* Readers that hold all versions but the current one: nothing is published, and what there is stays. */
    yk_publish_options *three = YK_OPTIONS(yk_publish_options, .versions = 3);
    yk_scope held = yk_scope_begin();
    for (int i = 1; i <= 3; i++)
        CHECK(!yk_publish("few", dict_of(i, false), &version, three) && version == i &&
              is_version(yk_fetch("few", NULL, NULL), i));
    CHECK(yk_publish("few", dict_of(4, false), NULL, three) &&
          failed_with(YK_ERR_STATE, "'few': readers hold 2 earlier versions", ".versions is 3"));
    CHECK(is_version(yk_fetch("few", &version, NULL), 3) && version == 3);
    yk_scope_end(held);
    CHECK(!yk_publish("few", dict_of(4, false), &version, three) && version == 4);
    return YK_OK;
}

static void test_wrong_arguments(void **state)
{
    (void)state;
    act_with(offer_publish, wrong_arguments, 2);
}

/* The last of all: it makes tensors, and the others fork. */
static void test_no_worker(void **state)
{
    (void)state;
    assert_int_equal(yk_publish("weights", NULL, NULL, NULL), YK_ERR_ARGUMENT);
    yk_clear_error();
    yk_scope scope = yk_scope_begin();
    assert_int_equal(yk_publish("weights", dict_of(1, false), NULL, NULL), YK_ERR_STATE);
    expect_error(YK_ERR_STATE, "publish: this process is no worker");
    assert_null(yk_fetch("weights", NULL, NULL));
    expect_error(YK_ERR_STATE, "fetch: this process is no worker");
    yk_scope_end(scope);
}

/* ---- under load -------------------------------------------------------------------------------------------------- */

/* YOKE_TEST_VERSIONS: how many, where more are wanted (make soak: 100,000). */
static int64_t version_count(void)
{
    const char *given = getenv("YOKE_TEST_VERSIONS");
    return given ? atoll(given) : 400;
}

/* Reads version after version until the last, with some earlier ones held meanwhile. */
static yk_status read_all(bool *mixed_sizes)
{
    enum { HELD = 3 };
    yk_state_dict *held[HELD] = {NULL};
    int64_t numbers[HELD] = {0}, last = version_count(), before = 0, version = 0;
    for (int64_t i = 0; before < last; i++) {
        yk_scope scope = yk_scope_begin();
        yk_state_dict *dict = yk_fetch("weights", &version, at_least(i % 4 == 3 && before < last ? before + 1 : 1));
        CHECK(dict && version >= before && is_version(dict, version));
        int at = (int)(i % HELD);
        CHECK(!held[at] || is_version(held[at], numbers[at]));
        yk_state_dict_release(held[at]);
        held[at] = yk_state_dict_retain(dict);
        numbers[at] = version;
        before = version;
        *mixed_sizes = *mixed_sizes || yk_numel(yk_state_dict_get(dict, "layer.bias")) > SMALL;
        yk_scope_end(scope);
    }
    for (int i = 0; i < HELD; i++) {
        CHECK(!held[i] || is_version(held[i], numbers[i]));
        yk_state_dict_release(held[i]);
    }
    return YK_OK;
}

static yk_status load_worker(int rank, void *arg)
{
    (void)arg;
    yk_scope scope = yk_scope_begin();
    char host[20];
    bool mixed = false;
    snprintf(host, sizeof(host), "host%d", rank / 2); /* two readers are on another host */
    setenv("YOKE_HOST_ID", host, 1);
    yk_status status = yk_rpc_init(NULL, NULL);
    for (int64_t i = 1; i <= version_count() && !status && rank == 0; i++)
        status = publish_number(i, true);
    if (!status && rank)
        status = read_all(&mixed);
    status = status ? status : yk_rpc_shutdown(YK_RPC_GRACEFUL, patience(60));
    yk_scope_end(scope);
    return status;
}

static void test_none_is_torn(void **state)
{
    (void)state;
    if (yk_spawn(load_worker, NULL, 4, NULL)) {
        yk_report_error(stderr);
        fail_msg("the workers failed");
    }
}

/* ---- several hosts, and ends ------------------------------------------------------------------------------------- */

/* Connections that workers of other hosts have made to this one. */
static int links_without_memory(void)
{
    int count = 0;
    pthread_mutex_lock(&yk__rpc.lock);
    for (const yk__rpc_link *link = yk__rpc.links; link; link = link->next)
        count += link->accepted && link->ready && !link->pair;
    pthread_mutex_unlock(&yk__rpc.lock);
    return count;
}

static yk_status set_key(const char *path, const char *key)
{
    return yk_store_set(yk_file_store(path), key, "1", 1);
}

/* w0 publishes on host a; w1, w2 and w3 read on host b, of which one has the copy; when that ends, another has. */
static yk_status copy_worker(int rank, const char *path)
{
    static const char *const names[] = {"w0", "w1", "w2", "w3"};
    setenv("YOKE_HOST_ID", rank ? "b" : "a", 1);
    yk_scope scope = yk_scope_begin();
    CHECK(!join_with(nothing_to_offer, path, names[rank], 4));
    int64_t version = 0;
    yk_state_dict *one = NULL;
    if (rank == 0) {
        CHECK(!publish_number(1, false) && !await_key(path, "3 has 1"));
        CHECK(links_without_memory() == 1); /* one worker of host b alone has asked */
        CHECK(!set_key(path, "0 has looked") && !await_key(path, "1 ends") && !publish_number(2, false));
    }
    if (rank == 1) {
        CHECK(is_version(yk_fetch("weights", &version, NULL), 1) && version == 1 && !set_key(path, "1 has 1"));
        CHECK(!await_key(path, "0 has looked") && !set_key(path, "1 ends"));
        kill(getpid(), SIGKILL);
    }
    if (rank > 1) {
        CHECK(!await_key(path, rank == 2 ? "1 has 1" : "2 has 1"));
        one = yk_fetch("weights", &version, NULL);
        CHECK(is_version(one, 1) && version == 1 && is_in_place(yk_state_dict_get(one, "layer.weight")));
        CHECK(!set_key(path, rank == 2 ? "2 has 1" : "3 has 1") && !await_key(path, "1 ends"));
        CHECK(is_version(yk_fetch("weights", &version, at_least(2)), 2) && version == 2);
        CHECK(is_version(one, 1));
    }
    CHECK(!yk_rpc_shutdown(YK_RPC_GRACEFUL, patience(30)));
    yk_scope_end(scope);
    return YK_OK;
}

static void run_workers(yk_status (*fn)(int, const char *), int count, int killed)
{
    char path[] = "/tmp/yoke-rpc-XXXXXX";
    close(mkstemp(path));
    pid_t pids[4];
    fork_workers(fn, path, count, pids);
    for (int i = 0; i < count; i++)
        expect_end(pids[i], i == killed ? SIGKILL : 0);
    unlink(path);
}

static void test_one_copy_for_a_host(void **state)
{
    (void)state;
    run_workers(copy_worker, 4, 1);
}

/* w0 publishes and dies; w1 has what it fetched, and hears of the end; w2 takes the name over. */
static yk_status end_worker(int rank, const char *path)
{
    static const char *const names[] = {"w0", "w1", "w2"};
    setenv("YOKE_HOST_ID", rank == 2 ? "b" : "a", 1);
    yk_scope scope = yk_scope_begin();
    CHECK(!join_with(nothing_to_offer, path, names[rank], 3));
    int64_t version = 0;
    yk_state_dict *one = NULL;
    if (rank == 0) {
        CHECK(!publish_number(1, false) && !await_key(path, "1 has 1") && !await_key(path, "2 has 1"));
        kill(getpid(), SIGKILL);
    }
    one = yk_fetch("weights", &version, NULL);
    CHECK(is_version(one, 1) && !set_key(path, rank == 1 ? "1 has 1" : "2 has 1"));
    CHECK(!yk_fetch("weights", &version, at_least(2))); /* it dies while this waits, or before */
    CHECK(failed_with(YK_ERR_CONNECTION, "fetch: 'weights': worker 'w0'", "which published it, is gone"));
    CHECK(!yk_fetch("weights", &version, at_least(2)));
    CHECK(failed_with(YK_ERR_CONNECTION, "worker 'w0'", "is gone"));
    CHECK(is_version(one, 1) && version == 1);
    if (rank == 2) {
        CHECK(!await_key(path, "1 saw the end"));
        CHECK(!publish_number(1, false));
        CHECK(!set_key(path, "2 publishes") && !await_key(path, "1 has 2's"));
        CHECK(!yk_rpc_shutdown(YK_RPC_GRACEFUL, patience(30)));
    } else {
        CHECK(!set_key(path, "1 saw the end") && !await_key(path, "2 publishes"));
        CHECK(is_version(yk_fetch("weights", &version, NULL), 1) && !set_key(path, "1 has 2's"));
        /* w2 comes to its shutdown: no later version will be there, and the current one is. */
        CHECK(!yk_fetch("weights", &version, at_least(2)) && failed_with(YK_ERR_STATE, "'weights'", "rpc_shutdown"));
        CHECK(is_version(yk_fetch("weights", &version, NULL), 1));
        CHECK(!yk_rpc_shutdown(YK_RPC_GRACEFUL, patience(30)));
    }
    yk_scope_end(scope);
    return YK_OK;
}

static void test_a_publisher_that_ends(void **state)
{
    (void)state;
    run_workers(end_worker, 3, 0);
}

/* w1 holds a version, and is stopped: w0 publishes on, as often as there is room for. It goes on, and has what it held,
 * and the youngest. It is killed, and what it held is free. */
static yk_status held_worker(int rank, const char *path)
{
    static const char *const names[] = {"w0", "w1"};
    enum { VERSIONS = 12 };
    yk_scope scope = yk_scope_begin();
    CHECK(!join_with(nothing_to_offer, path, names[rank], 2));
    int64_t version = 0;
    if (rank == 1) {
        yk_state_dict *one = yk_fetch("weights", &version, NULL);
        CHECK(is_version(one, 1) && !set_key(path, "1 has 1") && !await_key(path, "1 goes on"));
        CHECK(is_version(one, 1) && is_version(yk_fetch("weights", &version, NULL), VERSIONS));
        CHECK(version == VERSIONS && is_version(yk_fetch("few", &version, NULL), 1));
        yk_state_dict_retain(yk_fetch("few", &version, NULL));
        CHECK(!set_key(path, "1 has few") && !await_key(path, "never"));
    }
    yk__rpc_member reader;
    yk_publish_options *two = YK_OPTIONS(yk_publish_options, .versions = 2);
    CHECK(!publish_number(1, false) && !await_key(path, "1 has 1"));
    CHECK(!yk__rpc_member_find("test", "w1", 0, &reader) && kill(reader.pid, SIGSTOP) == 0);
    yk_status status = YK_OK;
    double began = yk__now();
    for (int i = 2; i <= VERSIONS && !status; i++)
        status = publish_number(i, false);
    bool waited = yk__now() - began > patience(10);
    CHECK(kill(reader.pid, SIGCONT) == 0 && !status && !waited);
    CHECK(!yk_publish("few", dict_of(1, false), NULL, two) && !set_key(path, "1 goes on"));
    CHECK(!await_key(path, "1 has few") && !yk_publish("few", dict_of(2, false), NULL, two));
    CHECK(yk_publish("few", dict_of(3, false), NULL, two) &&
          failed_with(YK_ERR_STATE, "'few': readers hold 1 earlier version", ".versions is 2"));
    CHECK(kill(reader.pid, SIGKILL) == 0);
    for (double until = yk__now() + patience(20); yk__now() < until; usleep(1000)) {
        status = yk_publish("few", dict_of(3, false), &version, two);
        CHECK(!status || failed_with(YK_ERR_STATE, "readers hold 1", ""));
        if (!status)
            break;
    }
    CHECK(!status && version == 3 && is_version(yk_fetch("few", NULL, NULL), 3));
    CHECK(!yk_rpc_shutdown(YK_RPC_GRACEFUL, patience(30)));
    yk_scope_end(scope);
    return YK_OK;
}

static void test_a_reader_that_holds(void **state)
{
    (void)state;
    run_workers(held_worker, 2, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_place),
        cmocka_unit_test(test_wrong_arguments),
        cmocka_unit_test(test_none_is_torn),
        cmocka_unit_test(test_one_copy_for_a_host),
        cmocka_unit_test(test_a_publisher_that_ends),
        cmocka_unit_test(test_a_reader_that_holds),
        cmocka_unit_test(test_no_worker),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
