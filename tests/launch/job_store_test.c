/*
 * job_store_test.c - the store of the ranks, which a launcher serves: who has the job's secret comes in, whichever way
 * the secret ends; and the variable by which ranks find it.
 */
#include "tests/support/expect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <yoke/store.h>

#include "launch/job_store.h"
#include "net/store_table.h"
#include "tests/support/machine.h"

static int secret_file(const char *bytes, size_t size)
{
    int fd = memfd_create("secret", MFD_CLOEXEC);
    assert_true(fd >= 0 && write(fd, bytes, size) == (ssize_t)size);
    return fd;
}

/* The rank's side: it finds the store by its variable, and the secret by the descriptor. */
static bool rank_comes_in(int port, int secret)
{
    char text[YK__JOB_STORE_VARIABLE], host[YK__HOST_SIZE], prefix[40];
    yk__job_store_format(text, "127.0.0.1", port, 3, 12345);
    setenv("YOKE_STORE", text, 1);
    snprintf(text, sizeof(text), "%d", secret);
    setenv("YOKE_JOB_SECRET_FD", text, 1);
    int found = 0;
    assert_true(yk__job_store_find(12345, host, &found, prefix));
    assert_int_equal(found, port);
    assert_string_equal(prefix, "ranks.3");
    yk_scope scope = yk_scope_begin();
    yk_store *store = yk__tcp_store_of_service(
        YK__JOB_STORE_SERVICE,
        YK_OPTIONS(yk_tcp_store_options, .host = host, .port = found, .job_id = "job", .timeout = patience(10)), NULL);
    bool in = store && yk_store_set(store, "key", "value", 5) == YK_OK;
    if (!in)
        print_message("%s\n", yk_last_error()->message);
    yk_clear_error();
    yk_scope_end(scope);
    unsetenv("YOKE_STORE");
    unsetenv("YOKE_JOB_SECRET_FD");
    return in;
}

/* Random bytes may end like a line as well as a file that somebody wrote: both sides take that off, or neither does. */
static void ends_of_secrets(void **state)
{
    (void)state;
    static const char *const ends[] = {"", "\n", "\r\n", "\r", "\n\n", "\r\n\n", " "};
    for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++) {
        char bytes[64];
        int size = snprintf(bytes, sizeof(bytes), "abcdefghijklmnopqrstuvwxyz%s", ends[i]);
        int secret = secret_file(bytes, (size_t)size), other = secret_file("abcdefghijklmnopqrstuvwxyZ", 26);
        yk__job_store *store = yk__job_store_open("job", secret);
        assert_non_null(store);
        int port = yk__job_store_port(store);
        assert_true(yk__job_store_waits_for(store) >= 0);
        expect_ok(yk__job_store_serve(store));
        assert_int_equal(yk__job_store_waits_for(store), -1);
        assert_true(rank_comes_in(port, secret));
        if (i == 0)
            assert_false(rank_comes_in(port, other));
        yk__job_store_close(store);
        close(secret);
        close(other);
    }
}

static void bad_secrets(void **state)
{
    (void)state;
    yk__job_store *store = yk__job_store_open("job", secret_file("fifteen letters\n", 16));
    assert_non_null(store);
    assert_int_equal(yk__job_store_serve(store), YK_ERR_FORMAT);
    expect_error(YK_ERR_FORMAT, "the launcher's own: the job secret has fewer than 16 bytes");
    assert_int_equal(yk__job_store_waits_for(store), -1);
    yk__job_store_close(store);
    int closed = secret_file("abcdefghijklmnop", 16);
    store = yk__job_store_open("job", closed);
    assert_non_null(store);
    close(closed);
    assert_int_equal(yk__job_store_serve(store), YK_ERR_IO);
    expect_error(YK_ERR_IO, "Bad file descriptor");
    yk__job_store_close(store);
    yk__job_store_close(NULL);
    assert_int_equal(yk__job_store_waits_for(NULL), -1);
}

static void variable(void **state)
{
    (void)state;
    char text[YK__JOB_STORE_VARIABLE], host[YK__HOST_SIZE], prefix[40];
    int port;
    yk_clear_error();
    yk__job_store_format(text, "fd00::1", 29500, 0, 29501);
    assert_string_equal(text, "[fd00::1]:29500/0.29501");
    setenv("YOKE_STORE", text, 1);
    assert_true(yk__job_store_find(0, host, &port, prefix)); /* whichever port of rank 0 */
    assert_string_equal(host, "fd00::1");
    assert_int_equal(port, 29500);
    assert_string_equal(prefix, "ranks.0");
    assert_true(yk__job_store_find(29501, host, &port, prefix));
    assert_false(yk__job_store_find(29502, host, &port, prefix)); /* another launcher's, inside the job */
    static const char *const bad[] = {"",          "host",        "host:1",     "host:1/",        "host:1/2",
                                      "host:1/2.", "host:1/2.3x", "host:1/x.3", "host:99999/2.3", ":1/2.3"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        setenv("YOKE_STORE", bad[i], 1);
        assert_false(yk__job_store_find(0, host, &port, prefix));
        assert_null(yk_last_error());
    }
    unsetenv("YOKE_STORE");
    assert_false(yk__job_store_find(0, host, &port, prefix));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(ends_of_secrets), cmocka_unit_test(bad_secrets),
                                       cmocka_unit_test(variable)};
    return cmocka_run_group_tests_name("the store of the ranks", tests, NULL, NULL);
}
