/* file_store_test.c - files that are damaged, cut, replaced or locked. */
#include "tests/support/expect.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <yoke/store.h>

#include "base/core.h"
#include "tests/support/machine.h"

static char path[64];
static yk_scope scope;

static int start(void **state)
{
    (void)state;
    snprintf(path, sizeof(path), "/tmp/yoke-file-store-test.%ld", (long)getpid());
    unlink(path);
    scope = yk_scope_begin();
    return 0;
}

static int stop(void **state)
{
    (void)state;
    yk_scope_end(scope);
    unlink(path);
    return 0;
}

static yk_store *open_filled(void)
{
    yk_store *store = yk_file_store(path);
    assert_non_null(store);
    expect_ok(yk_store_set(store, "a", "1", 1));
    expect_ok(yk_store_set(store, "b", "2", 1));
    return store;
}

static off_t file_size(void)
{
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    return info.st_size;
}

static void expect_text(yk_store *store, const char *key, const char *expected)
{
    char *data;
    expect_ok(yk_store_get(store, key, (void **)&data, NULL, 1));
    assert_string_equal(data, expected);
    free(data);
}

/* A process killed in the middle of a write leaves any part of a record. The next one goes on after the last complete
 * record. */
static void cut_records(void **state)
{
    (void)state;
    open_filled();
    off_t two = file_size();
    yk_store *first = yk_file_store(path);
    expect_ok(yk_store_set(first, "c", "3", 1));
    off_t three = file_size();
    for (off_t size = 0; size < three; size++) {
        unlink(path);
        yk_store *store = open_filled();
        expect_ok(yk_store_set(store, "c", "3", 1));
        assert_int_equal(truncate(path, size), 0);
        yk_store *next = yk_file_store(path);
        assert_non_null(next);
        int64_t count;
        expect_ok(yk_store_count(next, &count));
        assert_int_equal(count, size >= two ? 2 : size >= 16 + (two - 16) / 2 ? 1 : 0);
        expect_ok(yk_store_set(next, "d", "4", 1));
        yk_store *third = yk_file_store(path);
        assert_non_null(third);
        expect_text(third, "d", "4");
        expect_ok(yk_store_count(third, &count));
        assert_int_equal(count, 1 + (size >= two ? 2 : size >= 16 + (two - 16) / 2 ? 1 : 0));
        /* The store that had read three records, of which two are no more, or whose file has a new name. */
        assert_int_equal(yk_store_set(store, "e", "5", 1), size < two ? YK_ERR_STATE : YK_OK);
        if (size < two)
            expect_error(YK_ERR_STATE, "replaced or cut");
    }
}

static void changed_bytes(void **state)
{
    (void)state;
    open_filled();
    off_t size = file_size();
    for (off_t at = 0; at < size; at++) {
        unlink(path);
        open_filled();
        int fd = open(path, O_RDWR | O_CLOEXEC);
        unsigned char byte;
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        byte ^= 0x40;
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        close(fd);
        yk_store *store = yk_file_store(path);
        if (!store) {
            assert_non_null(strstr(yk_last_error()->message, path));
            assert_int_equal(yk_last_error()->code, YK_ERR_FORMAT);
            yk_clear_error();
            continue;
        }
        /* The file's own name may be anything. A length that now points beyond the end reads as a record that was cut:
         * what is before it holds. */
        int64_t count;
        expect_ok(yk_store_count(store, &count));
        assert_int_equal(count == 2, at >= 8 && at < 16);
    }
}

static void something_else(void **state)
{
    (void)state;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, "important notes\n", 16), 16);
    close(fd);
    assert_null(yk_file_store(path));
    expect_error(YK_ERR_FORMAT, "there is something else in this file");
    assert_int_equal(file_size(), 16);
    assert_null(yk_file_store("/tmp"));
    yk_clear_error();
    assert_null(yk_file_store("/nonexistent/store"));
    expect_error(YK_ERR_IO, "/nonexistent/store: No such file or directory");
    assert_null(yk_file_store("/dev/null"));
    expect_error(YK_ERR_IO, "/dev/null: not a regular file");
    assert_null(yk_file_store(""));
    expect_error(YK_ERR_ARGUMENT, "the path is empty");
}

static void replaced(void **state)
{
    (void)state;
    yk_store *old = open_filled();
    unlink(path);
    yk_store *fresh = open_filled();
    void *data;
    assert_int_equal(yk_store_get(old, "a", &data, NULL, 1), YK_ERR_STATE);
    expect_error(YK_ERR_STATE, "the file was replaced or cut");
    expect_text(fresh, "a", "1");
}

/* A process that is stopped while it holds the lock keeps nobody waiting longer than the time-out. */
static void locked(void **state)
{
    (void)state;
    yk_store *store = open_filled();
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failing test leaves no process */
        int fd = open(path, O_RDWR | O_CLOEXEC);
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        if (fcntl(fd, F_OFD_SETLKW, &lock) == 0 && write(ready[1], "x", 1) == 1)
            pause();
        _exit(1);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    expect_ok(yk_store_set_timeout(store, 0.2));
    double begin = yk__now();
    assert_int_equal(yk_store_set(store, "c", "3", 1), YK_ERR_TIMEOUT);
    double took = yk__now() - begin;
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(ready[0]);
    close(ready[1]);
    assert_true(took >= 0.2 && took < patience(10));
    expect_error(YK_ERR_TIMEOUT, "another process held its lock for 0.2 s");
    expect_ok(yk_store_set(store, "c", "3", 1)); /* the lock went with its holder */
    expect_text(store, "c", "3");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(cut_records, start, stop),
        cmocka_unit_test_setup_teardown(changed_bytes, start, stop),
        cmocka_unit_test_setup_teardown(something_else, start, stop),
        cmocka_unit_test_setup_teardown(replaced, start, stop),
        cmocka_unit_test_setup_teardown(locked, start, stop),
    };
    return cmocka_run_group_tests_name("file store and its file", tests, NULL, NULL);
}
