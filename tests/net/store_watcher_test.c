/*
 * store_watcher_test.c - a key watched through a function, on each kind of store.
 */
#include "tests/support/expect.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <yoke/store.h>

#include "base/core.h"
#include "tests/support/machine.h"

enum { MOST = 16 };

typedef struct seen {
    pthread_mutex_t lock;
    int count;
    char texts[MOST][64]; /* "-": deleted, "!...": an error */
} seen;

static void note(void *arg, const char *key, const void *data, size_t size, const yk_error *error)
{
    seen *s = arg;
    pthread_mutex_lock(&s->lock);
    int at = s->count < MOST ? s->count++ : MOST - 1;
    if (strcmp(key, "colour") != 0)
        snprintf(s->texts[at], sizeof(s->texts[at]), "key %.30s", key);
    else if (error)
        snprintf(s->texts[at], sizeof(s->texts[at]), "!%d", (int)error->code);
    else if (!data)
        snprintf(s->texts[at], sizeof(s->texts[at]), "-");
    else
        snprintf(s->texts[at], sizeof(s->texts[at]), "%zu %.40s", size, (const char *)data);
    pthread_mutex_unlock(&s->lock);
}

/* The next call is this one. */
static void expect_seen(seen *s, int at, const char *text)
{
    for (double until = yk__now() + patience(10); yk__now() < until; usleep(1000)) {
        pthread_mutex_lock(&s->lock);
        bool there = s->count > at;
        pthread_mutex_unlock(&s->lock);
        if (there)
            break;
    }
    pthread_mutex_lock(&s->lock);
    if (s->count <= at || strcmp(s->texts[at], text) != 0)
        fail_msg("call %d of %d is '%s', expected '%s'", at, s->count, s->texts[at], text);
    pthread_mutex_unlock(&s->lock);
}

static void follow(yk_store *store)
{
    seen s = {.lock = PTHREAD_MUTEX_INITIALIZER}, late = s;
    yk_scope scope = yk_scope_begin();
    yk_store_watcher *watcher = yk_store_watcher_create(store, "colour", note, &s);
    assert_non_null(watcher);
    usleep(50000);
    expect_ok(yk_store_set(store, "colours", "x", 1)); /* another key */
    expect_ok(yk_store_set(store, "colour", "red", 3));
    expect_seen(&s, 0, "3 red");
    expect_ok(yk_store_set(store, "colour", "red", 3)); /* no change */
    usleep(20000);
    expect_ok(yk_store_set(store, "colour", "", 0));
    expect_seen(&s, 1, "0 ");
    expect_ok(yk_store_delete(store, "colour", NULL));
    expect_seen(&s, 2, "-");
    usleep(700000); /* more than a slice */
    expect_ok(yk_store_set(store, "colour", "blue", 4));
    expect_seen(&s, 3, "4 blue");
    yk_store_watcher *second = yk_store_watcher_create(store, "colour", note, &late);
    assert_non_null(second);
    expect_seen(&late, 0, "4 blue"); /* the value that is there already */
    yk_scope inner = yk_scope_begin();
    yk_store_watcher_retain(second);
    yk_store_watcher_release(second);
    yk_scope_end(inner);
    expect_ok(yk_store_set(store, "colour", "green", 5));
    expect_seen(&s, 4, "5 green");
    expect_seen(&late, 1, "5 green");
    double begin = yk__now();
    yk_scope_end(scope);
    assert_true(yk__now() - begin < patience(10));
    expect_ok(yk_store_set(store, "colour", "black", 5));
    usleep(50000);
    assert_int_equal(s.count, 5);
    assert_int_equal(late.count, 2);
}

static void test_hash(void **unused)
{
    (void)unused;
    yk_scope scope = yk_scope_begin();
    follow(yk_hash_store());
    yk_scope_end(scope);
}

static void test_file(void **unused)
{
    (void)unused;
    char folder[] = "/tmp/yoke-watcher-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/store", folder);
    yk_scope scope = yk_scope_begin();
    follow(yk_file_store(path));
    yk_scope_end(scope);
    unlink(path);
    rmdir(folder);
}

static void test_tcp(void **unused)
{
    (void)unused;
    yk_scope scope = yk_scope_begin();
    yk_store *server = yk_tcp_store(YK_OPTIONS(yk_tcp_store_options, .is_server = true));
    assert_non_null(server);
    follow(yk_tcp_store(YK_OPTIONS(yk_tcp_store_options, .host = "127.0.0.1", .port = yk_store_port(server))));
    follow(yk_prefix_store("under", server));
    yk_scope_end(scope);
}

/* The store's end is the last call, and the watcher can still be released. */
static void test_lost_store(void **unused)
{
    (void)unused;
    seen s = {.lock = PTHREAD_MUTEX_INITIALIZER};
    yk_scope scope = yk_scope_begin();
    yk_scope serving = yk_scope_begin();
    yk_store *server = yk_store_retain(yk_tcp_store(YK_OPTIONS(yk_tcp_store_options, .is_server = true)));
    yk_scope_end(serving);
    assert_non_null(server);
    yk_store *client =
        yk_tcp_store(YK_OPTIONS(yk_tcp_store_options, .host = "127.0.0.1", .port = yk_store_port(server)));
    assert_non_null(yk_store_watcher_create(client, "colour", note, &s));
    expect_ok(yk_store_set(client, "colour", "red", 3));
    expect_seen(&s, 0, "3 red");
    yk_store_release(server);
    char text[16];
    snprintf(text, sizeof(text), "!%d", (int)YK_ERR_CONNECTION);
    expect_seen(&s, 1, text);
    yk_scope_end(scope);
    assert_int_equal(s.count, 2);
}

static void test_arguments(void **unused)
{
    (void)unused;
    yk_scope scope = yk_scope_begin();
    yk_store *store = yk_hash_store();
    assert_null(yk_store_watcher_create(store, "colour", NULL, NULL));
    expect_error(YK_ERR_ARGUMENT, "there is no function to call");
    assert_null(yk_store_watcher_create(store, "", note, NULL));
    expect_error(YK_ERR_ARGUMENT, "store_watcher_create");
    assert_null(yk_store_watcher_create(NULL, "colour", note, NULL));
    expect_error(YK_ERR_ARGUMENT, "store_watcher_create");
    yk_store_watcher_release(NULL);
    yk_scope_end(scope);
    assert_null(yk_store_watcher_create(store, "colour", note, NULL));
    expect_error(YK_ERR_STATE, "store_watcher_create");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hash),       cmocka_unit_test(test_file),      cmocka_unit_test(test_tcp),
        cmocka_unit_test(test_lost_store), cmocka_unit_test(test_arguments),
    };
    return cmocka_run_group_tests_name("store watcher", tests, NULL, NULL);
}
