/* file_test.c - reading entire files, and writing files that are the old ones or the new ones at any moment. */
#include "tests/support/expect.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/core.h"
#include "host/file.h"
#include "tests/support/machine.h"

/* Stands in for the C library's: as a file system that has no files without a name. */
static bool without_tmpfile;

int openat(int fd, const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    unsigned mode = va_arg(rest, unsigned);
    va_end(rest);
    if (without_tmpfile && (flags & O_TMPFILE) == O_TMPFILE) {
        errno = EOPNOTSUPP;
        return -1;
    }
    return (int)syscall(SYS_openat, fd, path, flags, mode);
}

static char folder[] = "/tmp/yoke-file-test-XXXXXX";

static const char *in_folder(const char *name)
{
    static char path[400];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int entries(void)
{
    int count = 0;
    DIR *directory = opendir(folder);
    for (struct dirent *entry; (entry = readdir(directory));)
        count += entry->d_name[0] != '.';
    closedir(directory);
    return count;
}

static int remove_folder(void **state)
{
    (void)state;
    DIR *directory = opendir(folder);
    for (struct dirent *entry; (entry = readdir(directory));) {
        if (entry->d_name[0] != '.')
            unlink(in_folder(entry->d_name));
    }
    closedir(directory);
    return rmdir(folder);
}

static void put(const char *path, const char *text)
{
    yk__file_writer *writer = yk__file_create(path);
    assert_non_null(writer);
    expect_ok(yk__file_write(writer, text, strlen(text)));
    expect_ok(yk__file_commit(writer));
}

static void expect_content(const char *path, const void *expected, size_t size)
{
    unsigned char *data;
    size_t got;
    expect_ok(yk__file_read(path, (size_t)1 << 30, &data, &got));
    assert_int_equal(got, size);
    assert_memory_equal(data, expected, size);
    free(data);
}

static void written_and_read_back(void **state)
{
    (void)state;
    const char *path = in_folder("plain");
    put(path, "hello");
    expect_content(path, "hello", 5);
    put(path, "");
    expect_content(path, "", 0);
    assert_int_equal(entries(), 1);
}

/* Sizes around that of the writer's buffer, in pieces around it, too. */
static void large_files(void **state)
{
    (void)state;
    enum { BUFFER = 1 << 18, SIZE = 3 * BUFFER + 17 };
    unsigned char *bytes = malloc(SIZE);
    for (size_t i = 0; i < SIZE; i++)
        bytes[i] = (unsigned char)(i * 2654435761u >> 13);
    static const size_t pieces[] = {1000, BUFFER - 1, BUFFER, BUFFER + 1, SIZE};
    for (size_t k = 0; k < sizeof(pieces) / sizeof(pieces[0]); k++) {
        const char *path = in_folder("large");
        yk__file_writer *writer = yk__file_create(path);
        assert_non_null(writer);
        for (size_t at = 0; at < SIZE; at += pieces[k])
            expect_ok(yk__file_write(writer, bytes + at, SIZE - at < pieces[k] ? SIZE - at : pieces[k]));
        expect_ok(yk__file_commit(writer));
        expect_content(path, bytes, SIZE);
    }
    free(bytes);
}

static void abort_keeps_the_old(void)
{
    const char *path = in_folder("kept");
    put(path, "old");
    int before = entries();
    yk__file_writer *writer = yk__file_create(path);
    assert_non_null(writer);
    expect_ok(yk__file_write(writer, "new", 3));
    expect_content(path, "old", 3);
    yk__file_abort(writer);
    assert_int_equal(entries(), before);
    expect_content(path, "old", 3);
    yk__file_abort(NULL);
}

static void abort_keeps_the_old_file(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        without_tmpfile = i;
        abort_keeps_the_old();
    }
    without_tmpfile = false;
}

static void a_writer_that_died_leaves_the_old_file(void **state)
{
    (void)state;
    const char *path = in_folder("killed");
    put(path, "old");
    int before = entries();
    pid_t child = fork();
    if (child == 0) {
        yk__file_writer *writer = yk__file_create(path);
        char block[4096] = {1};
        for (int i = 0; writer && i < 1000; i++)
            (void)!yk__file_write(writer, block, sizeof(block));
        raise(SIGKILL);
    }
    int status;
    waitpid(child, &status, 0);
    assert_true(WIFSIGNALED(status));
    expect_content(path, "old", 3);
    /* Nor anything else, where the file system can do that, and /proc gives the file a name at the end. */
    int fd = !has_proc() ? -1 : open(folder, O_WRONLY | O_TMPFILE | O_CLOEXEC, 0600);
    if (fd >= 0)
        assert_int_equal(entries(), before);
    else
        print_message(
            "this file system has no O_TMPFILE, or there is no /proc: what a killed writer leaves was not looked at\n");
    if (fd >= 0)
        close(fd);
}

/* A link that stands where a file is to be leads to the file that is written, and stays; where it leads nowhere, that
 * file is made. A link of a temporary name is nobody's. */
static void links_are_written_through(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        without_tmpfile = i;
        put(in_folder("target"), "target");
        char guess[40];
        snprintf(guess, sizeof(guess), "linked.tmp.%ld", (long)getpid());
        (void)!unlink(in_folder("linked"));
        (void)!unlink(in_folder(guess));
        assert_int_equal(symlink("target", in_folder("linked")), 0);
        assert_int_equal(symlink("target", in_folder(guess)), 0);
        put(in_folder("linked"), "new");
        expect_content(in_folder("linked"), "new", 3);
        expect_content(in_folder("target"), "new", 3);
        struct stat info;
        assert_int_equal(lstat(in_folder("linked"), &info), 0);
        assert_true(S_ISLNK(info.st_mode));
        /* Over another folder, and another link that leads nowhere yet. */
        (void)!mkdir(in_folder("elsewhere"), 0700);
        assert_int_equal(symlink("elsewhere/second", in_folder("first")), 0);
        assert_int_equal(symlink("../third", in_folder("elsewhere/second")), 0);
        put(in_folder("first"), "far");
        expect_content(in_folder("third"), "far", 3);
        static const char *const made[] = {"first", "elsewhere/second", "third"};
        for (int m = 0; m < 3; m++) {
            assert_int_equal(lstat(in_folder(made[m]), &info), 0);
            assert_true((m < 2) == S_ISLNK(info.st_mode));
            assert_int_equal(unlink(in_folder(made[m])), 0);
        }
        assert_int_equal(rmdir(in_folder("elsewhere")), 0);
        assert_int_equal(symlink("loop", in_folder("loop")), 0);
        assert_null(yk__file_create(in_folder("loop")));
        expect_error(YK_ERR_IO, "symbolic links");
        assert_int_equal(unlink(in_folder("loop")), 0);
    }
    without_tmpfile = false;
}

enum { THREAD_BYTES = 700000, THREAD_ROUNDS = 40 };

static void *write_often(void *letter)
{
    char *bytes = malloc(THREAD_BYTES), path[400];
    snprintf(path, sizeof(path), "%s/shared", folder);
    memset(bytes, *(char *)letter, THREAD_BYTES);
    const char *failed = NULL;
    for (int i = 0; i < THREAD_ROUNDS && !failed; i++) {
        yk__file_writer *writer = yk__file_create(path);
        if (!writer || yk__file_write(writer, bytes, THREAD_BYTES) || yk__file_commit(writer))
            failed = "a writer failed";
    }
    free(bytes);
    return (void *)failed;
}

static void two_threads_write_one_path(void **state)
{
    (void)state;
    int before = entries();
    for (int i = 0; i < 2; i++) {
        without_tmpfile = i;
        pthread_t threads[2];
        char letters[] = "ab";
        for (int t = 0; t < 2; t++)
            assert_int_equal(pthread_create(&threads[t], NULL, write_often, &letters[t]), 0);
        for (int t = 0; t < 2; t++) {
            void *failed;
            assert_int_equal(pthread_join(threads[t], &failed), 0);
            assert_null(failed);
        }
        unsigned char *data;
        size_t size;
        expect_ok(yk__file_read(in_folder("shared"), 1 << 30, &data, &size));
        assert_int_equal(size, THREAD_BYTES);
        for (size_t k = 1; k < size; k++)
            assert_int_equal(data[k], data[0]);
        free(data);
        assert_int_equal(entries(), before + 1);
    }
    without_tmpfile = false;
}

/* A full disk, played by a limit on the size of files: `limit` bytes can be written, then every write fails. */
static int write_on_full_disk(const char *path, size_t limit, size_t size, bool insist)
{
    pid_t child = fork();
    if (child == 0) {
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){limit, limit});
        yk__file_writer *writer = yk__file_create(path);
        char block[1000] = {1};
        yk_status failed = YK_OK;
        for (size_t done = 0; writer && done < size && (!failed || insist); done += sizeof(block)) {
            yk_status status = yk__file_write(writer, block, sizeof(block));
            if (failed && !status)
                _exit(3); /* a write after a failed one must fail, too */
            failed = failed ? failed : status;
        }
        yk_status status = failed && !insist ? failed : yk__file_commit(writer);
        if (failed && !insist)
            yk__file_abort(writer);
        bool named = yk_last_error() && strstr(yk_last_error()->message, path) &&
                     strstr(yk_last_error()->message, "File too large (errno 27)");
        _exit(status == YK_ERR_IO && named ? 0 : 2);
    }
    int status;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void a_full_disk_keeps_the_old_file(void **state)
{
    (void)state;
    const char *path = in_folder("full");
    put(path, "old");
    int before = entries();
    assert_int_equal(write_on_full_disk(path, 300000, 1000000, false), 0); /* fails in a write */
    assert_int_equal(write_on_full_disk(path, 300000, 1000000, true), 0);  /* the caller does not look at it */
    assert_int_equal(write_on_full_disk(path, 2000, 100000, false), 0);    /* fails in commit */
    expect_content(path, "old", 3);
    assert_int_equal(entries(), before);
}

static void the_mode_of_the_old_file_stays(void **state)
{
    (void)state;
    const char *path = in_folder("private");
    put(path, "old");
    assert_int_equal(chmod(path, 0600), 0);
    put(path, "new");
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 07777, 0600);
    expect_content(path, "new", 3);
}

static void what_cannot_be_written(void **state)
{
    (void)state;
    assert_null(yk__file_create(in_folder("no/such/folder")));
    expect_error(YK_ERR_IO, "No such file or directory");
    assert_null(yk__file_create(folder));
    expect_error(YK_ERR_IO, "not a regular file");
    /* Renamed over, a device would be gone for the whole machine. */
    assert_null(yk__file_create("/dev/null"));
    expect_error(YK_ERR_IO, "/dev/null: not a regular file");
}

static void what_cannot_be_read(void **state)
{
    (void)state;
    unsigned char *data = (unsigned char *)"";
    size_t size = 5;
    assert_int_equal(yk__file_read(in_folder("absent"), 10, &data, &size), YK_ERR_IO);
    assert_null(data);
    assert_int_equal(size, 0);
    expect_error(YK_ERR_IO, "absent: No such file or directory (errno 2)");
    assert_int_equal(yk__file_read(folder, 10, &data, &size), YK_ERR_IO);
    expect_error(YK_ERR_IO, "not a regular file");
    put(in_folder("eleven"), "12345678901");
    assert_int_equal(yk__file_read(in_folder("eleven"), 10, &data, &size), YK_ERR_FORMAT);
    expect_error(YK_ERR_FORMAT, "eleven: 11 bytes, more than the 10");
    expect_ok(yk__file_read(in_folder("eleven"), 11, &data, &size));
    assert_int_equal(data[11], 0); /* a text can be read as a string */
    free(data);
}

static void a_relative_path(void **state)
{
    (void)state;
    char before[4096];
    assert_non_null(getcwd(before, sizeof(before)));
    assert_int_equal(chdir(folder), 0);
    put("relative", "here");
    assert_int_equal(chdir(before), 0);
    expect_content(in_folder("relative"), "here", 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written_and_read_back),
        cmocka_unit_test(large_files),
        cmocka_unit_test(abort_keeps_the_old_file),
        cmocka_unit_test(a_full_disk_keeps_the_old_file),
        cmocka_unit_test(the_mode_of_the_old_file_stays),
        cmocka_unit_test(what_cannot_be_written),
        cmocka_unit_test(what_cannot_be_read),
        cmocka_unit_test(a_relative_path),
        cmocka_unit_test(a_writer_that_died_leaves_the_old_file),
        cmocka_unit_test(links_are_written_through),
        cmocka_unit_test(two_threads_write_one_path),
    };
    return cmocka_run_group_tests_name("host/file", tests, make_folder, remove_folder);
}
