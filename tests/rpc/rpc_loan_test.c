/*
 * rpc_loan_test.c - tensors that workers of one host pass in memory files: they are mapped and not copied, stay as they
 * were sent whatever either side writes, and come back.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <yoke/yoke.h>

#include "rpc/rpc_agent.h"
#include "rpc/value_wire.h"
#include "tests/support/expect.h"
#include "tests/support/machine.h"

/* In a worker: an assertion that fails is the worker's error, and so that of the test. */
#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            const yk_error *seen = yk_last_error();                                                                    \
            char why[700] = "no error on record";                                                                      \
            if (seen)                                                                                                  \
                snprintf(why, sizeof(why), "%.600s", seen->message);                                                   \
            yk_clear_error();                                                                                          \
            return yk_set_error(YK_ERR_CALLBACK, "rpc_loan_test.c:%d: %s (%s)", __LINE__, #condition, why);            \
        }                                                                                                              \
    } while (0)

enum { N = 100000, MOST = 400 };

/* ---- the worker that is called ----------------------------------------------------------------------------------- */

static yk_tensor *kept[MOST];

static bool is_mapped(const yk_tensor *x)
{
    return x->storage->foreign_release != NULL;
}

/* Keeps the tensor under a number; true if it is in memory of the caller. */
static yk_status keep(yk_call *call)
{
    yk_tensor *x = yk_call_tensor(call, 1);
    int64_t i = yk_call_int(call, 0);
    yk_tensor_release(kept[i]);
    kept[i] = yk_tensor_retain(x);
    return yk_call_return(call, yk_value_bool(x && is_mapped(x)));
}

static yk_status element(yk_call *call)
{
    return yk_call_return(call, yk_value_real(yk_get(kept[yk_call_int(call, 0)], (int64_t[]){yk_call_int(call, 1)})));
}

static yk_status spoil(yk_call *call)
{
    yk_tensor *x = kept[yk_call_int(call, 0)];
    memset(yk_tensor_data(x), 0xff, (size_t)yk_numel(x) * 4);
    return YK_OK;
}

static yk_status drop_all(yk_call *call)
{
    (void)call;
    for (int i = 0; i < MOST; i++) {
        yk_tensor_release(kept[i]);
        kept[i] = NULL;
    }
    return YK_OK;
}

static yk_status give(yk_call *call)
{
    return yk_call_return(call, yk_value_tensor(yk_full(YK_SHAPE(N), yk_call_real(call, 0), NULL)));
}

static yk_status give_kept(yk_call *call)
{
    return yk_call_return(call, yk_value_tensor(kept[yk_call_int(call, 0)]));
}

static yk_status end_soon(yk_call *call)
{
    (void)call;
    kill(getpid(), SIGKILL);
    return YK_OK;
}

/* ---- the worker that calls --------------------------------------------------------------------------------------- */

static double element_there(int number, int64_t at)
{
    yk_value *v = yk_rpc_sync("worker1", "element", yk_args(yk_value_int(number), yk_value_int(at)), NULL);
    return v ? yk_value_as_real(v) : -1e9;
}

/* Sends it to be kept; 1 where it was mapped there, 0 where it was copied, -1 and an error. */
static int keep_there(int number, yk_tensor *x)
{
    yk_value *v = yk_rpc_sync("worker1", "keep", yk_args(yk_value_int(number), yk_value_tensor(x)), NULL);
    return v ? yk_value_as_bool(v) : -1;
}

static yk_status call_there(const char *function, int number)
{
    return yk_rpc_sync("worker1", function, yk_args(yk_value_int(number)), NULL) ? YK_OK : yk_last_error()->code;
}

/* True when nothing is lent any more: what comes back is no answer, so nothing waits for it. */
static bool all_came_back(void)
{
    bool lent = true;
    for (int i = 0; i < 1000 && lent; i++) {
        usleep(i ? 10000 : 0);
        lent = false;
        pthread_mutex_lock(&yk__rpc.lock);
        for (const yk__rpc_link *link = yk__rpc.links; link; link = link->next)
            lent = lent || link->leases;
        pthread_mutex_unlock(&yk__rpc.lock);
    }
    return !lent;
}

static yk_tensor *on_host(yk_tensor *x)
{
    return yk_to(x, (yk_device){YK_CPU, 0});
}

static yk_status pass_copies(void)
{
    yk_tensor *x = on_host(yk_arange(0, N, 1, NULL));
    CHECK(keep_there(0, x) == 1);
    CHECK(element_there(0, N - 1) == N - 1);
    memset(yk_tensor_data(x), 0, N * 4); /* what was sent stays */
    CHECK(element_there(0, N - 1) == N - 1);
    CHECK(keep_there(1, x) == 1 && element_there(0, 5) == 5 && element_there(1, 5) == 0);
    CHECK(!call_there("spoil", 1) && element_there(0, 5) == 5 && yk_get(x, (int64_t[]){5}) == 0);
    CHECK(!call_there("drop_all", 0) && all_came_back());
    CHECK(keep_there(2, x) == 1 &&
          element_there(2, 5) == 0); /* a file that came back, and not what was written there */
    /* Not in C order, of several in one call, and small ones beside. */
    yk_tensor *t = yk_transpose(yk_reshape(on_host(yk_arange(0, N, 1, NULL)), YK_SHAPE(100, N / 100)), 0, 1);
    yk_value *list = yk_value_list();
    CHECK(!yk_value_append(list, yk_value_tensor(t)) &&
          !yk_value_append(list, yk_value_tensor(yk_ones(YK_SHAPE(3), NULL))) &&
          !yk_value_append(list, yk_value_tensor(x)));
    yk_value *back = yk_rpc_sync("worker1", "give_back", yk_args(list), NULL);
    CHECK(back && yk_value_count(back) == 3);
    yk_tensor *first = yk_value_as_tensor(yk_value_at(back, 0));
    CHECK(is_mapped(first) && yk_size(first, 0) == N / 100 && yk_get(first, (int64_t[]){3, 7}) == 7 * (N / 100) + 3);
    CHECK(yk_get(yk_value_as_tensor(yk_value_at(back, 1)), (int64_t[]){2}) == 1);
    CHECK(!is_mapped(yk_value_as_tensor(yk_value_at(back, 1))));
    return YK_OK;
}

static yk_status pass_results(void)
{
    yk_value *one = yk_rpc_sync("worker1", "give", yk_args(yk_value_real(1)), NULL);
    yk_value *two = one ? yk_rpc_sync("worker1", "give", yk_args(yk_value_real(2)), NULL) : NULL;
    CHECK(two && is_mapped(yk_value_as_tensor(one)));
    CHECK(yk_get(yk_value_as_tensor(one), (int64_t[]){N - 1}) == 1);
    CHECK(yk_get(yk_value_as_tensor(two), (int64_t[]){N - 1}) == 2);
    CHECK(yk_fill_(yk_value_as_tensor(one), 7) && yk_get(yk_value_as_tensor(one), (int64_t[]){0}) == 7);
    yk_scope scope = yk_scope_begin();
    for (int i = 0; i < 50; i++) {
        yk_value *v = yk_rpc_sync("worker1", "give", yk_args(yk_value_real(i)), NULL);
        CHECK(v && yk_get(yk_value_as_tensor(v), (int64_t[]){i}) == i);
    }
    yk_scope_end(scope);
    CHECK(yk_get(yk_value_as_tensor(two), (int64_t[]){0}) == 2);
    return YK_OK;
}

static yk_status pass_in_place(void)
{
    yk_tensor *x = yk_rpc_alloc(YK_SHAPE(N), NULL);
    CHECK(x && yk_get(x, (int64_t[]){N - 1}) == 0);
    float *data = yk_tensor_data(x);
    data[9] = 3;
    CHECK(keep_there(0, x) == 1 && element_there(0, 9) == 3);
    data[9] = 4; /* the same memory: nothing was copied */
    CHECK(element_there(0, 9) == 4);
    CHECK(!yk_rpc_make_writable(x) && yk_tensor_data(x) == data && data[9] == 4);
    data[9] = 5;
    CHECK(element_there(0, 9) == 4 && yk_get(x, (int64_t[]){9}) == 5);
    CHECK(keep_there(1, yk_narrow(x, 0, 9, 50000)) == 1 && element_there(1, 0) == 5 && element_there(0, 9) == 4);
    CHECK(!call_there("spoil", 1) && data[9] == 5); /* what the receiver writes is its own */
    CHECK(!call_there("drop_all", 0) && all_came_back());
    CHECK(!yk_rpc_make_writable(x) && keep_there(2, x) == 1 && element_there(2, 9) == 5);
    CHECK(!yk_rpc_make_writable(yk_ones(YK_SHAPE(2), NULL)));
    CHECK(yk_rpc_make_writable(NULL) == YK_ERR_ARGUMENT && yk_last_error());
    yk_clear_error();
    CHECK(!yk_rpc_alloc(YK_SHAPE(-2), NULL) && yk_last_error());
    yk_clear_error();
    /* A tensor that a worker holds outlives the one that was sent. */
    yk_scope scope = yk_scope_begin();
    yk_tensor *short_lived = yk_rpc_alloc(YK_SHAPE(N), NULL);
    CHECK(short_lived && yk_fill_(short_lived, 8) && keep_there(3, short_lived) == 1);
    yk_scope_end(scope);
    CHECK(element_there(3, 77) == 8);
    return YK_OK;
}

/* A worker that keeps very many: from some number on they are sent, and all are right. */
static yk_status pass_many(void)
{
    int mapped = 0;
    yk_tensor *x = on_host(yk_zeros(YK_SHAPE(1 << 14), NULL));
    for (int i = 0; i < MOST; i++) {
        yk_scope scope = yk_scope_begin();
        ((float *)yk_tensor_data(x))[3] = (float)i;
        int how = keep_there(i, x);
        CHECK(how >= 0);
        mapped += how;
        yk_scope_end(scope);
    }
    CHECK(mapped >= 100 && mapped < MOST);
    for (int i = 0; i < MOST; i++)
        CHECK(element_there(i, 3) == i);
    CHECK(!call_there("drop_all", 0) && all_came_back() && keep_there(0, x) == 1);
    return YK_OK;
}

/* Answers that are there, and what is held, outlive the worker that sent them. */
static yk_status outlive(void)
{
    yk_value *one = yk_rpc_sync("worker1", "give", yk_args(yk_value_real(1)), NULL);
    yk_future *two = yk_rpc_async("worker1", "give", yk_args(yk_value_real(2)), NULL);
    while (two && !yk_future_done(two))
        usleep(1000);
    CHECK(one && two && !yk_rpc_sync("worker1", "end_soon", NULL, NULL));
    yk_clear_error();
    yk_value *later = yk_future_wait(two, YK_NOT_GIVEN);
    CHECK(yk_get(yk_value_as_tensor(one), (int64_t[]){5}) == 1);
    CHECK(later && yk_get(yk_value_as_tensor(later), (int64_t[]){N - 1}) == 2);
    return YK_OK;
}

static yk_status give_back(yk_call *call)
{
    return yk_call_return(call, yk_call_argument(call, 0));
}

typedef yk_status (*act_fn)(void);

static yk_status offer_all(void)
{
    static const struct {
        const char *name;
        yk_rpc_fn fn;
    } all[] = {{"keep", keep}, {"element", element},     {"spoil", spoil},         {"drop_all", drop_all},
               {"give", give}, {"give_kept", give_kept}, {"give_back", give_back}, {"end_soon", end_soon}};
    yk_status status = YK_OK;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]) && !status; i++)
        status = yk_rpc_register(all[i].name, all[i].fn);
    return status;
}

static yk_status worker_run(int rank, void *arg)
{
    yk_scope scope = yk_scope_begin();
    yk_status status = offer_all();
    status = status ? status : yk_rpc_init(NULL, NULL);
    if (!status && rank == 0)
        status = (*(act_fn *)arg)();
    status = status ? status : yk_rpc_shutdown(YK_RPC_GRACEFUL, patience(30));
    yk_scope_end(scope);
    return status;
}

static void act(act_fn fn)
{
    if (yk_spawn(worker_run, &fn, 2, NULL)) {
        yk_report_error(stderr);
        fail_msg("the workers failed");
    }
}

static void test_copies(void **state)
{
    (void)state;
    act(pass_copies);
}

static void test_results(void **state)
{
    (void)state;
    act(pass_results);
}

static void test_in_place(void **state)
{
    (void)state;
    act(pass_in_place);
}

static void test_many(void **state)
{
    (void)state;
    act(pass_many);
}

/* Workers without a launcher, which would end the job with the one that is killed. */
static yk_status worker_alone(int rank, const char *path)
{
    yk_scope scope = yk_scope_begin();
    yk_store *store = yk_file_store(path);
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
    yk_status status = offer_all();
    status = status ? status
                    : yk_rpc_init(rank ? "worker1" : "worker0",
                                  YK_OPTIONS(yk_rpc_init_options, .store = store, .world_size = 2, .timeout = 30));
    if (!status && rank == 0)
        status = outlive();
    status = status ? status : yk_rpc_shutdown(YK_RPC_GRACEFUL, patience(20));
    yk_scope_end(scope);
    return status;
}

static void test_a_lender_that_dies(void **state)
{
    (void)state;
    char path[] = "/tmp/yoke-rpc-XXXXXX";
    close(mkstemp(path));
    pid_t pids[2];
    for (int rank = 0; rank < 2; rank++)
        if ((pids[rank] = fork()) == 0) {
            alarm(60);
            int failed = worker_alone(rank, path);
            if (failed)
                yk_report_error(stderr);
            _exit(failed != 0);
        }
    int first = 0, second = 0;
    assert_int_equal(waitpid(pids[0], &first, 0), pids[0]);
    assert_int_equal(waitpid(pids[1], &second, 0), pids[1]);
    assert_true(WIFEXITED(first) && WEXITSTATUS(first) == 0);
    assert_true(WIFSIGNALED(second) && WTERMSIG(second) == SIGKILL);
    unlink(path);
}

/* A tensor that names a file without a loan is an error, as is one of another alignment. */
static void test_malformed(void **state)
{
    (void)state;
    static const unsigned char bytes[][21] = {{32, 0, 1, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
                                              {32, 0, 1, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0}};
    for (int i = 0; i < 2; i++) {
        yk__reader r = {bytes[i], bytes[i] + sizeof(bytes[i]), false};
        assert_null(yk__value_decode(&r, NULL));
        expect_error(YK_ERR_FORMAT, "no yoke of this version sends");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_malformed), cmocka_unit_test(test_copies), cmocka_unit_test(test_results),
        cmocka_unit_test(test_in_place),  cmocka_unit_test(test_many),   cmocka_unit_test(test_a_lender_that_dies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
