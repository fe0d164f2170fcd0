/*
 * store_test.c - the rules for every store, run for each kind: in process, file, TCP, and a prefix over TCP. `open`
 * gives another store object on the same keys, as another process or thread would make it.
 */
#include "tests/support/expect.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <yoke/store.h>

#include "base/core.h"
#include "tests/support/machine.h"

typedef struct kind {
    const char *name;
    bool processes; /* its keys can be shared with another process */
    yk_scope scope;
    yk_store *first;
    char path[64];
} kind;

static kind kinds[] = {{.name = "hash"},
                       {.name = "file", .processes = true},
                       {.name = "tcp", .processes = true},
                       {.name = "prefix", .processes = true}};

static const char secret[] = "for tests only";

static yk_store *tcp(int port, bool is_server)
{
    return yk_tcp_store(YK_OPTIONS(yk_tcp_store_options, .host = "127.0.0.1", .port = port, .is_server = is_server,
                                   .secret = secret, .secret_size = sizeof(secret), .job_id = "conformance",
                                   .timeout = patience(10)));
}

static yk_store *open_store(kind *k)
{
    yk_store *store = NULL;
    if (strcmp(k->name, "hash") == 0)
        return k->first ? k->first : yk_hash_store();
    if (strcmp(k->name, "file") == 0)
        return yk_file_store(k->path);
    store = tcp(k->first ? yk_store_port(k->first) : 0, !k->first);
    return strcmp(k->name, "prefix") == 0 ? yk_prefix_store("group/1", store) : store;
}

static int start(void **state)
{
    kind *k = *state;
    k->scope = yk_scope_begin();
    k->first = NULL;
    snprintf(k->path, sizeof(k->path), "/tmp/yoke-store-test.%ld", (long)getpid());
    unlink(k->path);
    k->first = open_store(k);
    return k->first ? 0 : -1;
}

static int stop(void **state)
{
    kind *k = *state;
    yk_scope_end(k->scope);
    unlink(k->path);
    return yk_last_error() ? -1 : 0;
}

static void expect_text(yk_store *store, const char *key, const char *expected)
{
    void *data;
    size_t size;
    expect_ok(yk_store_get(store, key, &data, &size, patience(5)));
    assert_int_equal(size, strlen(expected));
    assert_string_equal(data, expected);
    free(data);
}

static void set_text(yk_store *store, const char *key, const char *value)
{
    expect_ok(yk_store_set(store, key, value, strlen(value)));
}

static void values(void **state)
{
    kind *k = *state;
    yk_store *a = k->first, *b = open_store(k);
    set_text(a, "colour", "red");
    expect_text(b, "colour", "red");
    set_text(b, "colour", "blue");
    expect_text(a, "colour", "blue");
    set_text(a, "empty", "");
    expect_text(b, "empty", "");
    size_t size = 3 << 20;
    unsigned char *large = malloc(size), *back;
    for (size_t i = 0; i < size; i++)
        large[i] = (unsigned char)(i * 7 + i / 255);
    expect_ok(yk_store_set(a, "large", large, size));
    size_t got;
    expect_ok(yk_store_get(b, "large", (void **)&back, &got, patience(5)));
    assert_int_equal(got, size);
    assert_memory_equal(back, large, size);
    free(large);
    free(back);
    char longest[YK_STORE_MAX_KEY / 2];
    memset(longest, 'k', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = 0;
    set_text(a, longest, "x");
    expect_text(b, longest, "x");
}

static void numbers(void **state)
{
    kind *k = *state;
    yk_store *a = k->first, *b = open_store(k);
    int64_t sum;
    expect_ok(yk_store_add(a, "n", 5, &sum));
    assert_int_equal(sum, 5);
    expect_ok(yk_store_add(b, "n", -7, &sum));
    assert_int_equal(sum, -2);
    expect_text(a, "n", "-2");
    expect_ok(yk_store_add(a, "n", 0, NULL));
    set_text(a, "n", "9223372036854775806");
    expect_ok(yk_store_add(b, "n", 1, &sum));
    assert_true(sum == INT64_MAX);
    assert_int_equal(yk_store_add(b, "n", 1, &sum), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "beyond 64 bits");
    expect_text(a, "n", "9223372036854775807");
    set_text(a, "word", "seven");
    assert_int_equal(yk_store_add(b, "word", 1, &sum), YK_ERR_ARGUMENT);
    const yk_error *record = yk_last_error();
    assert_non_null(strstr(record->message, "word"));
    expect_error(YK_ERR_ARGUMENT, "holds 'seven', which is no 64-bit integer");
    expect_text(a, "word", "seven");
}

static void compare_and_set(void **state)
{
    kind *k = *state;
    yk_store *a = k->first, *b = open_store(k);
    void *data;
    size_t size;
    bool swapped = true;
    /* not there, and something is expected: stays away, and gives back what was expected */
    expect_ok(yk_store_compare_set(a, "leader", "me", 2, "you", 3, &data, &size, &swapped));
    assert_false(swapped);
    assert_int_equal(size, 2);
    assert_string_equal(data, "me");
    free(data);
    bool there = true;
    const char *keys[] = {"leader"};
    expect_ok(yk_store_check(b, keys, 1, &there));
    assert_false(there);
    /* not there, and nothing is expected */
    expect_ok(yk_store_compare_set(a, "leader", NULL, 0, "a", 1, &data, &size, &swapped));
    assert_true(swapped);
    assert_string_equal(data, "a");
    free(data);
    expect_ok(yk_store_compare_set(b, "leader", NULL, 0, "b", 1, &data, &size, &swapped));
    assert_false(swapped);
    assert_string_equal(data, "a");
    free(data);
    expect_ok(yk_store_compare_set(b, "leader", "a", 1, "b", 1, NULL, NULL, NULL));
    expect_text(a, "leader", "b");
}

static void deleting_and_counting(void **state)
{
    kind *k = *state;
    yk_store *a = k->first, *b = open_store(k);
    int64_t count = -1;
    expect_ok(yk_store_count(a, &count));
    assert_int_equal(count, 0);
    char key[32];
    for (int i = 0; i < 300; i++) {
        snprintf(key, sizeof(key), "rank/%d", i);
        set_text(i % 2 ? a : b, key, key);
    }
    expect_ok(yk_store_count(b, &count));
    assert_int_equal(count, 300);
    bool deleted = false;
    expect_ok(yk_store_delete(a, "rank/7", &deleted));
    assert_true(deleted);
    expect_ok(yk_store_delete(b, "rank/7", &deleted));
    assert_false(deleted);
    expect_ok(yk_store_count(b, &count));
    assert_int_equal(count, 299);
    yk_store *part = yk_prefix_store("rank", b);
    expect_ok(yk_store_count(part, &count));
    assert_int_equal(count, 299);
    expect_text(part, "8", "rank/8");
    set_text(part, "7", "again");
    expect_text(a, "rank/7", "again");
    expect_ok(yk_store_count(yk_prefix_store("ran", b), &count));
    assert_int_equal(count, 0);
}

static void time_outs(void **state)
{
    kind *k = *state;
    void *data = &data;
    double begin = yk__now();
    assert_int_equal(yk_store_get(k->first, "never", &data, NULL, 0.05), YK_ERR_TIMEOUT);
    assert_null(data);
    assert_true(yk__now() - begin >= 0.05);
    assert_true(yk__now() - begin < patience(5));
    assert_non_null(strstr(yk_last_error()->message, "within 0.05 s"));
    expect_error(YK_ERR_TIMEOUT, "never' was not set");
    set_text(k->first, "b", "1");
    const char *keys[] = {"a", "b", "c"};
    assert_int_equal(yk_store_wait(k->first, keys, 3, 0.05), YK_ERR_TIMEOUT);
    const char *message = yk_last_error()->message;
    assert_non_null(strstr(message, "a', '"));
    assert_non_null(strstr(message, "c'"));
    assert_null(strstr(message, "b'"));
    expect_error(YK_ERR_TIMEOUT, "wait: 2 of 3 keys were not set within 0.05 s");
    assert_int_equal(yk_store_watch(k->first, "b", "1", 1, &data, NULL, 0.05), YK_ERR_TIMEOUT);
    expect_error(YK_ERR_TIMEOUT, "b' did not change within 0.05 s");
    expect_ok(yk_store_set_timeout(k->first, 0.03));
    assert_int_equal(yk_store_get(k->first, "never", &data, NULL, YK_NOT_GIVEN), YK_ERR_TIMEOUT);
    expect_error(YK_ERR_TIMEOUT, "within 0.03 s");
    expect_ok(yk_store_set_timeout(k->first, patience(10)));
    expect_text(k->first, "b", "1"); /* it is still of use */
}

static void bad_arguments(void **state)
{
    kind *k = *state;
    void *data;
    char longer[YK_STORE_MAX_KEY + 2];
    memset(longer, 'k', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = 0;
    assert_int_equal(yk_store_set(k->first, "", "x", 1), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "set: the key is empty");
    assert_int_equal(yk_store_set(k->first, longer, "x", 1), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "1025 bytes, at most 1024");
    assert_int_equal(yk_store_set(k->first, "k", "x", YK_STORE_MAX_VALUE + 1), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "a value of 16777217 bytes");
    assert_int_equal(yk_store_set(k->first, "k", NULL, 1), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "1 bytes at NULL");
    assert_int_equal(yk_store_get(k->first, "k", &data, NULL, -1), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "timeout is -1");
    assert_int_equal(yk_store_set_timeout(k->first, 0), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "set_timeout: seconds is 0");
    assert_int_equal(yk_store_set(NULL, "k", "x", 1), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "set: the store is NULL");
    expect_ok(yk_store_wait(k->first, NULL, 0, 1)); /* nothing to wait for */
}

/* ---- threads --------------------------------------------------------------------------------------------------- */
enum { THREADS = 8, ROUNDS = 25 };

typedef struct worker {
    kind *kind;
    yk_store *shared; /* NULL: it opens its own */
    int rank;
    char message[1000]; /* "" when all went well */
} worker;

/* Joins as ranks do: each sets its key, all wait for all, each adds; then each waits for the last to say so. */
static yk_status join_rounds(yk_store *store, int rank, int ranks, int rounds)
{
    char names[THREADS][48], value[16];
    const char *keys[THREADS];
    yk_status status = YK_OK;
    for (int round = 0; round < rounds && !status; round++) {
        for (int i = 0; i < ranks; i++) {
            snprintf(names[i], sizeof(names[i]), "round/%d/rank/%d", round, i);
            keys[i] = names[i];
        }
        snprintf(value, sizeof(value), "%d", rank);
        status = yk_store_set(store, names[rank], value, strlen(value));
        if (!status)
            status = yk_store_wait(store, keys, (size_t)ranks, patience(10));
        char *other = NULL;
        int next = (rank + 1) % ranks;
        if (!status)
            status = yk_store_get(store, names[next], (void **)&other, NULL, patience(10));
        if (!status && atoi(other) != next)
            status = yk_set_error(YK_ERR_INTERNAL, "rank %d reads '%s' in place of %d", rank, other, next);
        free(other);
        int64_t sum = 0;
        snprintf(names[0], sizeof(names[0]), "round/%d/count", round);
        if (!status)
            status = yk_store_add(store, names[0], 1, &sum);
        snprintf(names[0], sizeof(names[0]), "round/%d/done", round);
        if (!status && sum == ranks)
            status = yk_store_set(store, names[0], "yes", 3);
        if (!status)
            status = yk_store_get(store, names[0], NULL, NULL, patience(10));
    }
    return status;
}

static void *run_rounds(void *arg)
{
    worker *w = arg;
    yk_scope scope = yk_scope_begin();
    yk_store *store = w->shared ? w->shared : open_store(w->kind);
    if (!store || join_rounds(store, w->rank, THREADS, ROUNDS))
        snprintf(w->message, sizeof(w->message), "%s", yk_last_error() ? yk_last_error()->message : "no record");
    yk_scope_end(scope);
    return NULL;
}

static void run_threads(kind *k, yk_store *shared)
{
    pthread_t threads[THREADS];
    worker workers[THREADS];
    memset(workers, 0, sizeof(workers));
    for (int i = 0; i < THREADS; i++) {
        workers[i].kind = k;
        workers[i].shared = shared;
        workers[i].rank = i;
        assert_int_equal(pthread_create(&threads[i], NULL, run_rounds, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++)
        assert_string_equal(workers[i].message, "");
    int64_t sum;
    char key[48];
    for (int round = 0; round < ROUNDS; round++) {
        snprintf(key, sizeof(key), "round/%d/count", round);
        expect_ok(yk_store_add(k->first, key, 0, &sum));
        assert_int_equal(sum, THREADS);
    }
}

static void threads_with_one_store(void **state)
{
    run_threads(*state, ((kind *)*state)->first);
}

static void threads_with_a_store_each(void **state)
{
    run_threads(*state, NULL);
}

/* ---- watching ---------------------------------------------------------------------------------------------------- */
static void *change_slowly(void *arg)
{
    worker *w = arg;
    yk_scope scope = yk_scope_begin();
    yk_store *store = open_store(w->kind);
    char text[16];
    void *seen;
    yk_status status = store ? YK_OK : YK_ERR_INTERNAL;
    for (int i = 1; i <= 20 && !status; i++) {
        snprintf(text, sizeof(text), "%d", i);
        status = yk_store_set(store, "epoch", text, strlen(text));
        if (!status && !(status = yk_store_get(store, i % 2 ? "seen/odd" : "seen/even", &seen, NULL, patience(10)))) {
            free(seen);
            status = yk_store_delete(store, i % 2 ? "seen/odd" : "seen/even", NULL);
        }
    }
    if (!status)
        status = yk_store_delete(store, "epoch", NULL);
    if (status)
        snprintf(w->message, sizeof(w->message), "%s", yk_last_error() ? yk_last_error()->message : "no record");
    yk_scope_end(scope);
    return NULL;
}

static void watching(void **state)
{
    kind *k = *state;
    worker w = {.kind = k};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, change_slowly, &w), 0);
    char *old = NULL, *now;
    size_t old_size = 0;
    for (int i = 1; i <= 20; i++) {
        expect_ok(yk_store_watch(k->first, "epoch", old, old_size, (void **)&now, &old_size, patience(10)));
        assert_non_null(now);
        assert_int_equal(atoi(now), i);
        expect_ok(yk_store_set(k->first, i % 2 ? "seen/odd" : "seen/even", "", 0));
        free(old);
        old = now;
    }
    expect_ok(yk_store_watch(k->first, "epoch", old, old_size, (void **)&now, NULL, patience(10)));
    assert_null(now); /* deleted */
    free(old);
    pthread_join(thread, NULL);
    assert_string_equal(w.message, "");
}

/* ---- processes ------------------------------------------------------------------------------------------------- */
enum { CHILDREN = 4 };

/* Forked children go on with the parent's object (odd ranks) or open their own. */
static void forked_processes(void **state)
{
    kind *k = *state;
    if (!k->processes) {
        /* The child of a fork has a hash store of its own, as the header says: a change does not come back. */
        set_text(k->first, "mine", "1");
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0)
            _exit(yk_store_set(k->first, "mine", "2", 1) ? 1 : 0);
        int status;
        waitpid(pid, &status, 0);
        assert_int_equal(status, 0);
        expect_text(k->first, "mine", "1");
        return;
    }
    set_text(k->first, "before", "fork"); /* so that there is a connection to inherit */
    pid_t pids[CHILDREN];
    for (int i = 0; i < CHILDREN; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0) {
            yk_scope scope = yk_scope_begin();
            yk_store *store = i % 2 ? k->first : open_store(k);
            int failed = !store || join_rounds(store, i, CHILDREN, 15);
            if (failed)
                yk_report_error(stderr);
            yk_scope_end(scope);
            _exit(failed);
        }
    }
    int bad = 0, status;
    for (int i = 0; i < CHILDREN; i++)
        bad += waitpid(pids[i], &status, 0) != pids[i] || status != 0;
    assert_int_equal(bad, 0);
    int64_t sum;
    expect_ok(yk_store_add(k->first, "round/14/count", 0, &sum));
    assert_int_equal(sum, CHILDREN);
}

static void names_and_ports(void **state)
{
    kind *k = *state;
    const char *name = yk_store_name(k->first);
    bool by_tcp = strcmp(k->name, "tcp") == 0 || strcmp(k->name, "prefix") == 0;
    assert_int_equal(yk_store_port(k->first) > 0, by_tcp);
    char expected[100];
    snprintf(expected, sizeof(expected), "tcp://127.0.0.1:%d%s", yk_store_port(k->first),
             strcmp(k->name, "prefix") == 0 ? "/group/1" : "");
    if (strcmp(k->name, "file") == 0)
        snprintf(expected, sizeof(expected), "file://%s", k->path);
    assert_string_equal(name, by_tcp || strcmp(k->name, "file") == 0 ? expected : "hash");
}

#define TEST(kind, at, function)                                                                                       \
    {                                                                                                                  \
        kind ": " #function, function, start, stop, &kinds[at]                                                         \
    }
#define ALL(kind, at)                                                                                                  \
    TEST(kind, at, values), TEST(kind, at, numbers), TEST(kind, at, compare_and_set),                                  \
        TEST(kind, at, deleting_and_counting), TEST(kind, at, time_outs), TEST(kind, at, bad_arguments),               \
        TEST(kind, at, threads_with_one_store), TEST(kind, at, threads_with_a_store_each), TEST(kind, at, watching),   \
        TEST(kind, at, forked_processes), TEST(kind, at, names_and_ports)

int main(void)
{
    const struct CMUnitTest tests[] = {ALL("hash", 0), ALL("file", 1), ALL("tcp", 2), ALL("prefix", 3)};
    return cmocka_run_group_tests_name("stores", tests, NULL, NULL);
}
