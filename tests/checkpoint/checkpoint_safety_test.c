/*
 * checkpoint_safety_test.c - nothing that happens while a checkpoint is saved costs the one before: kills at random
 * moments, a full disk, folders that cannot be written or are gone, broken files, two savers at once.
 */
#include "tests/checkpoint/folders.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include <yoke/checkpoint.h>

#include "base/core.h"
#include "checkpoint/formats/sealed_json.h"
#include "host/file.h"

enum { ELEMENTS = 40000 };

/* State whose every number is its step, so that a mixture of two saves would show. */
static yk_checkpoint_state make_state(void)
{
    yk_module *m = yk_linear_create(ELEMENTS, 2, NULL);
    assert_non_null(m);
    return (yk_checkpoint_state){.model = m};
}

static void set_step(yk_checkpoint_state *s, int64_t step)
{
    s->step = s->epoch = step;
    expect_ok(yk_init_constant(yk_module_get(s->model, "weight"), (double)step));
    expect_ok(yk_init_constant(yk_module_get(s->model, "bias"), (double)step));
}

static void expect_step(yk_checkpoint_state *s, int64_t step)
{
    assert_int_equal(s->step, step);
    assert_int_equal(s->epoch, step);
    static float values[2 * ELEMENTS];
    expect_ok(yk_tensor_read(yk_module_get(s->model, "weight"), values, sizeof(values)));
    for (int i = 0; i < 2 * ELEMENTS; i++) {
        if (values[i] != (float)step)
            fail_msg("element %d of step %lld is %g", i, (long long)step, (double)values[i]);
    }
}

/* Stands in for the C library's: how often the folder "root" was synced, and how often the old step 1 was there. */
static int root_syncs, root_syncs_with_old;
static bool root_sync_fails;

int fsync(int fd)
{
    struct stat synced, root;
    if (fstat(fd, &synced) == 0 && stat("root", &root) == 0 && synced.st_ino == root.st_ino &&
        synced.st_dev == root.st_dev) {
        root_syncs++;
        root_syncs_with_old += any_path("root/step-00000001.*.tmp/state.json");
        if (root_sync_fails) {
            errno = EIO;
            return -1;
        }
    }
    return (int)syscall(SYS_fsync, fd);
}

/* Likewise: called before a file is opened. */
static void (*before_open)(const char *path);

int open(const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    if (before_open)
        before_open(path);
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

static yk_checkpoint_manager *manage(int keep, bool async)
{
    yk_checkpoint_manager *m =
        yk_checkpoint_manager_create("root", YK_OPTIONS(yk_checkpoint_manager_options, .keep = keep, .async = async));
    if (!m)
        fail_msg("%s", yk_last_error()->message);
    return m;
}

/* Saves one step after another until it is killed; tells each that is done. */
static void save_until_killed(int64_t step, bool async, int out)
{
    yk_checkpoint_state s = make_state();
    yk_checkpoint_manager *m =
        yk_checkpoint_manager_create("root", YK_OPTIONS(yk_checkpoint_manager_options, .async = async));
    for (; m; step++) {
        set_step(&s, step);
        if (yk_checkpoint_manager_save(m, &s))
            break;
        int64_t safe = async ? step - 1 : step; /* an asynchronous save has waited for the one before */
        if (write(out, &safe, sizeof(safe)) != sizeof(safe))
            break;
    }
    _exit(1);
}

/* Notes what the child says until it is dead; it dies `microseconds` after its first save. */
static int64_t last_told(int in, pid_t child, int64_t microseconds)
{
    int64_t step, last = -1;
    while (read(in, &step, sizeof(step)) == sizeof(step)) {
        if (last < 0) {
            nanosleep(&(struct timespec){.tv_nsec = microseconds * 1000}, NULL);
            assert_int_equal(kill(child, SIGKILL), 0);
        }
        last = step;
    }
    return last;
}

static void kills_at_random_moments(void **state)
{
    (void)state;
    enum { KILLS = 120 };
    int64_t step = 1;
    int with_leftovers = 0, temporary;
    yk_checkpoint_state s = make_state();
    for (int i = 0; i < KILLS; i++) {
        int ends[2];
        assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            close(ends[0]);
            save_until_killed(step, i % 2, ends[1]);
        }
        close(ends[1]);
        int64_t told = last_told(ends[0], child, (int64_t)i * 7919 % 9973);
        close(ends[0]);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        count_entries("root", &temporary);
        with_leftovers += temporary > 0;
        yk_checkpoint_found found;
        expect_ok(yk_checkpoint_load_latest("root", &s, NULL, &found));
        if (s.step < told)
            fail_msg("kill %d: step %lld was saved, but the newest valid one is %lld", i, (long long)told,
                     (long long)s.step);
        assert_int_equal(found.broken, 0);
        expect_step(&s, s.step);
        step = s.step + 1;
    }
    print_message("%d kills, %d of them left a half-written folder, %lld steps\n", KILLS, with_leftovers,
                  (long long)step);
    assert_true(with_leftovers > 0);
    yk_checkpoint_manager *m = manage(3, false);
    set_step(&s, step);
    expect_ok(yk_checkpoint_manager_save(m, &s));
    assert_int_equal(count_entries("root", &temporary), 3);
    assert_int_equal(temporary, 0);
}

static void the_last_k_stay(void **state)
{
    (void)state;
    yk_checkpoint_state s = make_state();
    yk_scope scope = yk_scope_begin();
    yk_checkpoint_manager *m = manage(2, false);
    assert_int_equal(mkdir("root/step-00000001.tmp", 0777), 0);
    write_file("root/step-00000001.tmp/model.safetensors", "half", 4);
    assert_int_equal(mkdir("root/step-00000007.0123456789abcdef.tmp", 0777), 0);
    write_file("root/step-00000007.0123456789abcdef.tmp/state.json", "half", 4);
    write_file("root/notes.txt", "mine", 4);
    for (int64_t step = 1; step <= 5; step++) {
        set_step(&s, step * 99999999);
        expect_ok(yk_checkpoint_manager_save(m, &s));
    }
    int temporary;
    assert_int_equal(count_entries("root", &temporary), 3); /* two and the notes */
    assert_int_equal(temporary, 0);
    yk_checkpoint_found found;
    expect_ok(yk_checkpoint_find_latest("root", &found));
    assert_int_equal(found.step, 499999995);
    assert_string_equal(found.path, "root/step-499999995");
    assert_string_equal(found.message, "");
    set_step(&s, 499999995); /* once more, in place of the old one */
    s.epoch = 4;
    expect_ok(yk_checkpoint_manager_save(m, &s));
    expect_ok(yk_checkpoint_load_latest("root", &s, NULL, NULL));
    assert_int_equal(s.epoch, 4);
    assert_null(yk_checkpoint_manager_create("root", NULL));
    expect_error(YK_ERR_STATE, "root: another process saves its checkpoints here");
    yk_scope_end(scope);
    assert_non_null(manage(3, false)); /* the lock went with the manager */
}

/* The old checkpoint of a step goes only when the new one's name is on the disk; where that fails it is back. */
static void the_old_one_stays_until_the_names_are_synced(void **state)
{
    (void)state;
    yk_checkpoint_state s = make_state();
    yk_checkpoint_manager *m = manage(2, false);
    int temporary;
    set_step(&s, 1);
    expect_ok(yk_checkpoint_manager_save(m, &s));
    root_syncs = root_syncs_with_old = 0;
    s.epoch = 5;
    expect_ok(yk_checkpoint_manager_save(m, &s));
    assert_int_equal(root_syncs, 1);
    assert_int_equal(root_syncs_with_old, 1);
    assert_int_equal(count_entries("root", &temporary), 1);
    root_sync_fails = true;
    s.epoch = 6;
    yk_status status = yk_checkpoint_manager_save(m, &s);
    root_sync_fails = false;
    assert_int_equal(status, YK_ERR_IO);
    expect_error(YK_ERR_IO, "root: Input/output error");
    assert_int_equal(count_entries("root", &temporary), 1);
    expect_ok(yk_checkpoint_load_latest("root", &s, NULL, NULL));
    assert_int_equal(s.epoch, 5);
}

static void broken_ones_are_passed_over(void **state)
{
    (void)state;
    yk_checkpoint_state s = make_state();
    yk_checkpoint_found found;
    assert_int_equal(yk_checkpoint_find_latest("root", &found), YK_ERR_NOT_FOUND);
    expect_error(YK_ERR_NOT_FOUND, "root: no checkpoint");
    yk_checkpoint_manager *m = manage(3, false);
    for (int64_t step = 10; step <= 30; step += 10) {
        set_step(&s, step);
        expect_ok(yk_checkpoint_manager_save(m, &s));
    }
    size_t size;
    unsigned char *data = read_whole("root/step-00000030/model.safetensors", &size);
    data[size - 1] ^= 1;
    write_file("root/step-00000030/model.safetensors", data, size);
    free(data);
    assert_int_equal(unlink("root/step-00000020/state.json"), 0);
    assert_int_equal(mkdir("root/step-00000040", 0777), 0); /* empty */
    expect_ok(yk_checkpoint_load_latest("root", &s, NULL, &found));
    expect_step(&s, 10);
    assert_int_equal(found.broken, 3);
    assert_non_null(strstr(found.message, "root/step-00000040/state.json: No such file"));

    /* Only complete checkpoints count as kept: nothing valid is removed in favour of a broken one. */
    set_step(&s, 11);
    expect_ok(yk_checkpoint_manager_save(m, &s));
    assert_int_equal(access("root/step-00000010/state.json", F_OK), 0);
    set_step(&s, 40); /* takes the place of the empty folder */
    expect_ok(yk_checkpoint_manager_save(m, &s));
    expect_ok(yk_checkpoint_find_latest("root", &found));
    assert_int_equal(found.step, 40);
    assert_int_equal(found.broken, 0);

    for (int64_t step = 10; step <= 40; step++) {
        char path[64];
        snprintf(path, sizeof(path), "root/step-%08lld/state.json", (long long)step);
        if (access(path, F_OK) == 0)
            assert_int_equal(truncate(path, 100), 0);
    }
    assert_int_equal(yk_checkpoint_load_latest("root", &s, NULL, &found), YK_ERR_NOT_FOUND);
    expect_error(YK_ERR_NOT_FOUND, "root: no valid checkpoint;");
    assert_true(found.broken > 2);
}

/* Every size at which the disk may be full: the error names the file, the old checkpoint stays, nothing else is left.
 */
static void a_full_disk(void **state)
{
    (void)state;
    yk_checkpoint_state s = make_state();
    yk_checkpoint_manager *sync = manage(3, false);
    set_step(&s, 1);
    expect_ok(yk_checkpoint_manager_save(sync, &s));
    signal(SIGXFSZ, SIG_IGN);
    set_step(&s, 2);
    struct rlimit old, small;
    getrlimit(RLIMIT_FSIZE, &old);
    for (rlim_t limit = 0; limit < 2 * ELEMENTS * sizeof(float); limit += 50000) {
        small = (struct rlimit){limit, old.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        yk_status status = yk_checkpoint_manager_save(sync, &s);
        setrlimit(RLIMIT_FSIZE, &old);
        assert_int_equal(status, YK_ERR_IO);
        assert_non_null(strstr(yk_last_error()->message, "root/step-00000002."));
        expect_error(YK_ERR_IO, ".tmp/model.safetensors: File too large");
        int temporary;
        assert_int_equal(count_entries("root", &temporary), 1);
        yk_checkpoint_found found;
        expect_ok(yk_checkpoint_find_latest("root", &found));
        assert_int_equal(found.step, 1);
    }
    expect_ok(yk_checkpoint_manager_save(sync, &s));
    expect_ok(yk_checkpoint_load_latest("root", &s, NULL, NULL));
    expect_step(&s, 2);
    signal(SIGXFSZ, SIG_DFL);
}

/* An asynchronous save's error comes with the next call, once, and the manager goes on. */
static void asynchronous_errors(void **state)
{
    (void)state;
    yk_checkpoint_state s = make_state();
    yk_checkpoint_manager *m = manage(3, true);
    set_step(&s, 1);
    expect_ok(yk_checkpoint_manager_save(m, &s));
    expect_ok(yk_checkpoint_manager_wait(m));
    assert_int_equal(rename("root", "elsewhere"), 0); /* the folder is removed in between */
    set_step(&s, 2);
    expect_ok(yk_checkpoint_manager_save(m, &s));
    set_step(&s, 3);
    assert_int_equal(yk_checkpoint_manager_save(m, &s), YK_ERR_IO);
    expect_error(YK_ERR_IO, "root/step-00000002: No such file or directory");
    assert_int_equal(rename("elsewhere", "root"), 0);
    expect_ok(yk_checkpoint_manager_wait(m));
    yk_checkpoint_found found;
    expect_ok(yk_checkpoint_find_latest("root", &found));
    assert_int_equal(found.step, 1);
    expect_ok(yk_checkpoint_manager_save(m, &s));
    expect_ok(yk_checkpoint_manager_wait(m));
    expect_ok(yk_checkpoint_find_latest("root", &found));
    assert_int_equal(found.step, 3);
}

/* A folder that somebody keeps, with files named as ours are. */
static void make_kept(const char *dir, const char *file)
{
    char path[100];
    assert_int_equal(mkdir(dir, 0777), 0);
    snprintf(path, sizeof(path), "%s/%s", dir, file);
    write_file(path, "kept", 4);
}

/* Nothing that a link leads to is removed: a checkpoint moved elsewhere and linked, a link of a temporary name, and
 * links in the place of its files. A link where one checkpoint is saved stays, and what it leads to becomes that
 * checkpoint. */
static void links_are_not_followed(void **state)
{
    (void)state;
    yk_checkpoint_state s = make_state();
    yk_checkpoint_manager *m = manage(1, false);
    set_step(&s, 2);
    expect_ok(yk_checkpoint_manager_save(m, &s));
    assert_int_equal(rename("root/step-00000002", "moved"), 0);
    assert_int_equal(symlink("../moved", "root/step-00000002"), 0);
    make_kept("kept1", "model.safetensors");
    make_kept("kept2", "model-00001-of-00002.safetensors");
    assert_int_equal(symlink("../kept1", "root/step-00000003.tmp"), 0);
    assert_int_equal(symlink("../kept2", "root/step-00000003.0123456789abcdef.tmp"), 0);
    set_step(&s, 3);
    expect_ok(yk_checkpoint_manager_save(m, &s));
    int temporary;
    assert_int_equal(count_entries("root", &temporary), 1);
    expect_ok(yk_checkpoint_verify("moved"));
    assert_int_equal(access("kept1/model.safetensors", F_OK), 0);
    assert_int_equal(access("kept2/model-00001-of-00002.safetensors", F_OK), 0);

    assert_int_equal(symlink("moved", "latest"), 0);
    assert_int_equal(symlink("nowhere", "broken"), 0);
    expect_ok(yk_checkpoint_save("latest", &s));
    expect_ok(yk_checkpoint_save("broken", &s));
    static const char *const saved[] = {"latest", "broken", "moved", "nowhere"};
    for (int i = 0; i < 4; i++) {
        struct stat info;
        assert_int_equal(lstat(saved[i], &info), 0);
        assert_true(i < 2 ? S_ISLNK(info.st_mode) : S_ISDIR(info.st_mode));
        expect_ok(yk_checkpoint_verify(saved[i]));
        set_step(&s, 1);
        expect_ok(yk_checkpoint_load(saved[i], &s, NULL, NULL));
        expect_step(&s, 3);
    }

    /* A link of a file's name goes alone. */
    assert_int_equal(rename("root/step-00000003/model.safetensors", "model"), 0);
    assert_int_equal(symlink("../../model", "root/step-00000003/model.safetensors"), 0);
    set_step(&s, 4);
    expect_ok(yk_checkpoint_manager_save(m, &s));
    assert_int_equal(count_entries("root", &temporary), 1);
    assert_int_equal(access("model", F_OK), 0);
    /* Names that only look like ours are somebody's. */
    make_kept("root/step-00000001", "model--1-of-+2.safetensors");
    set_step(&s, 5);
    expect_ok(yk_checkpoint_manager_save(m, &s));
    assert_int_equal(access("root/step-00000001/model--1-of-+2.safetensors", F_OK), 0);
}

static void *save_often(void *state)
{
    for (int i = 0; i < 20; i++) {
        if (yk_checkpoint_save("one", state))
            return strdup(yk_last_error()->message);
    }
    return NULL;
}

/* Each writes a folder of its own; complete ones take each other's place. */
static void two_threads_save_one_checkpoint(void **state)
{
    (void)state;
    yk_checkpoint_state s[2] = {make_state(), make_state()};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        set_step(&s[i], i + 1);
        assert_int_equal(pthread_create(&threads[i], NULL, save_often, &s[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        void *failed;
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        if (failed)
            fail_msg("thread %d: %s", i, (char *)failed);
    }
    assert_false(any_path("one.*"));
    expect_ok(yk_checkpoint_load("one", &s[0], NULL, NULL));
    expect_step(&s[0], s[0].step);
}

/* The number of times that "one" and "other" are exchanged, each time before a file of tensors in "one" is opened. */
static int replacements;

static void replace_one(const char *path)
{
    if (replacements > 0 && strncmp(path, "one/", 4) == 0 && strstr(path, ".safetensors")) {
        replacements--;
        assert_int_equal(renameat2(AT_FDCWD, "one", AT_FDCWD, "other", RENAME_EXCHANGE), 0);
    }
}

/* A process that reads while another one takes a checkpoint's place gets one of the two, complete. */
static void a_checkpoint_is_replaced_while_it_is_read(void **state)
{
    (void)state;
    yk_checkpoint_state s = make_state(), read = make_state();
    for (int i = 1; i <= 2; i++) {
        set_step(&s, i);
        expect_ok(yk_checkpoint_save(i == 1 ? "one" : "other", &s));
    }
    before_open = replace_one;
    for (int times = 1; times <= 3; times++) {
        replacements = times;
        expect_ok(yk_checkpoint_load("one", &read, NULL, NULL));
        assert_int_equal(replacements, 0);
        expect_step(&read, read.step);
        replacements = times;
        expect_ok(yk_checkpoint_verify("one"));
        replacements = times;
        assert_non_null(yk_checkpoint_load_weights("one", (yk_device){0}));
    }
    replacements = 1000; /* as often as it is read: an error in the end */
    assert_int_equal(yk_checkpoint_load("one", &read, NULL, NULL), YK_ERR_FORMAT);
    expect_error(YK_ERR_FORMAT, "one/model.safetensors: checksum");
    replacements = 0;

    for (int i = 1; i <= 2; i++) {
        set_step(&s, i);
        const yk_shard shard = {.name = "weight", .part = yk_module_get(s.model, "weight")};
        expect_ok(yk_sharded_save(i == 1 ? "one" : "other", &shard, 1, NULL, NULL));
    }
    const yk_shard shard = {.name = "weight", .part = yk_module_get(read.model, "weight")};
    for (int times = 1; times <= 3; times++) {
        replacements = times;
        expect_ok(yk_sharded_load("one", &shard, 1, NULL));
        assert_int_equal(replacements, 0);
        replacements = times;
        expect_ok(yk_sharded_verify("one"));
        replacements = times;
        assert_non_null(yk_sharded_load_whole("one", (yk_device){0}));
    }
    before_open = NULL;
}

/* A run that keeps one checkpoint saves another, between a reader's look at the folder and its opening of the files. */
static void save_second_step(const char *path)
{
    if (strcmp(path, "root/step-00000001/model.safetensors") == 0 && access("second", F_OK) == 0) {
        assert_int_equal(rename("second", "root/step-00000002"), 0);
        assert_int_equal(rename("root/step-00000001", "removed"), 0);
    }
}

static void a_checkpoint_is_removed_while_it_is_read(void **state)
{
    (void)state;
    yk_checkpoint_state s = make_state(), read = make_state();
    yk_checkpoint_manager *m = manage(1, false);
    yk_checkpoint_found found;
    for (int loads = 0; loads < 2; loads++) {
        set_step(&s, 2);
        expect_ok(yk_checkpoint_save("second", &s));
        set_step(&s, 1);
        expect_ok(yk_checkpoint_manager_save(m, &s));
        before_open = save_second_step;
        expect_ok(loads ? yk_checkpoint_load_latest("root", &read, NULL, &found)
                        : yk_checkpoint_find_latest("root", &found));
        before_open = NULL;
        assert_int_equal(found.step, 2);
        assert_int_equal(found.broken, 0);
        assert_int_equal(rename("root/step-00000002", loads ? "a" : "b"), 0);
        assert_int_equal(rename("removed", loads ? "c" : "d"), 0);
    }
    expect_step(&read, 2);
}

/* The process may not write: root may write anywhere, so it becomes another user. */
static void a_folder_that_cannot_be_written(void **state)
{
    (void)state;
    yk_checkpoint_state s = make_state();
    yk_checkpoint_manager *m = manage(3, false);
    set_step(&s, 1);
    expect_ok(yk_checkpoint_manager_save(m, &s));
    set_step(&s, 2);
    assert_int_equal(chmod(".", 0755), 0);
    assert_int_equal(chmod("root", 0555), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (geteuid() == 0 && setresuid(65534, 65534, 65534))
            _exit(errno == EINVAL ? 77 : 10); /* a user namespace with one user: nobody else to become */
        if (yk_checkpoint_manager_save(m, &s) != YK_ERR_IO)
            _exit(11);
        if (!strstr(yk_last_error()->message, "root/step-00000002.") ||
            !strstr(yk_last_error()->message, ".tmp: Permission denied"))
            _exit(12);
        yk_clear_error();
        yk_scope scope = yk_scope_begin();
        if (yk_checkpoint_manager_create("root", NULL) || !strstr(yk_last_error()->message, "root: Permission denied"))
            _exit(13);
        yk_clear_error();
        yk_scope_end(scope);
        _exit(yk_checkpoint_load_latest("root", &s, NULL, NULL) || s.step != 1 ? 14 : 0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(chmod("root", 0755), 0);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        skip();
    assert_int_equal(WEXITSTATUS(status), 0);
    int temporary;
    assert_int_equal(count_entries("root", &temporary), 1);
}

/* The error is that of the folder, not of what was asked about it afterwards. */
static void no_descriptor_for_the_folder(void **state)
{
    (void)state;
    yk_checkpoint_state s = make_state();
    int next = dup(0);
    assert_true(next >= 0);
    assert_int_equal(close(next), 0);
    struct rlimit before, one_more;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    one_more = (struct rlimit){(rlim_t)next + 1, before.rlim_max}; /* for the folder around */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &one_more), 0);
    yk_status status = yk_checkpoint_save("new", &s);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(status, YK_ERR_IO);
    expect_error(YK_ERR_IO, "new: Too many open files");
    assert_false(any_path("new*"));
}

/* Files that are no checkpoint's are not removed, in whatever folder is named. */
static void files_of_others_stay(void **state)
{
    (void)state;
    yk_checkpoint_state s = make_state();
    assert_int_equal(mkdir("mine", 0777), 0);
    write_file("mine/notes.txt", "mine", 4);
    write_file("mine/model.safetensors", "half", 4);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(yk_checkpoint_save(i ? "mine/" : "mine", &s), YK_ERR_ARGUMENT);
        expect_error(YK_ERR_ARGUMENT, "mine: holds 'notes.txt', which is no file of a checkpoint");
        int temporary;
        assert_int_equal(count_entries("mine", &temporary), 2);
        assert_false(any_path("mine.*"));
    }
    assert_int_equal(rename("mine", "new.tmp"), 0); /* no name of ours */
    assert_int_equal(mkdir("new.0123456789abcdef.tmp", 0777), 0);
    write_file("new.0123456789abcdef.tmp/model.safetensors", "half", 4);
    expect_ok(yk_checkpoint_save("new", &s)); /* half-written files go */
    assert_int_not_equal(access("new.0123456789abcdef.tmp", F_OK), 0);
    assert_int_equal(access("new.tmp/model.safetensors", F_OK), 0);

    /* Nor is an old checkpoint removed that somebody has put a file into. */
    yk_checkpoint_manager *m = manage(1, false);
    set_step(&s, 1);
    expect_ok(yk_checkpoint_manager_save(m, &s));
    write_file("root/step-00000001/notes.txt", "mine", 4);
    for (int64_t step = 2; step <= 4; step++) {
        set_step(&s, step);
        expect_ok(yk_checkpoint_manager_save(m, &s));
    }
    int temporary;
    assert_int_equal(count_entries("root", &temporary), 2);
    assert_int_equal(temporary, 0);
    assert_int_equal(count_entries("root/step-00000001", &temporary), 3);
    expect_ok(yk_checkpoint_verify("root/step-00000001"));
}

/* Seals the state.json of step 3 again with another number. */
static void change_state(const char *key, json_int_t number)
{
    static const char path[] = "root/step-00000003/state.json";
    json_t *json = yk__sealed_read(path, 1 << 20, "yoke training checkpoint", "a state");
    assert_non_null(json);
    assert_int_equal(json_object_del(json, "checksum"), 0);
    assert_int_equal(json_object_set_new(json, key, json_integer(number)), 0);
    yk__file_writer *writer = yk__file_create(path);
    assert_non_null(writer);
    expect_ok(yk__sealed_write(writer, json));
    expect_ok(yk__file_commit(writer));
    json_decref(json);
}

/* A newer yoke's checkpoint is valid: going on from an older one would end in its place. */
static void newer_versions_are_not_passed_over(void **state)
{
    (void)state;
    yk_checkpoint_state s = make_state();
    yk_checkpoint_manager *m = manage(3, false);
    for (int64_t step = 2; step <= 3; step++) {
        set_step(&s, step);
        expect_ok(yk_checkpoint_manager_save(m, &s));
    }
    change_state("step", -3);
    assert_int_equal(yk_checkpoint_load_latest("root", &s, NULL, NULL), YK_ERR_FORMAT);
    expect_error(YK_ERR_FORMAT, "root/step-00000003/state.json: step is -3, expected an integer of at least 0");
    change_state("version", 2);
    yk_checkpoint_found found;
    assert_int_equal(yk_checkpoint_load_latest("root", &s, NULL, &found), YK_ERR_UNSUPPORTED);
    expect_error(YK_ERR_UNSUPPORTED, "root/step-00000003/state.json: version 2; this yoke reads version 1");
    assert_int_equal(found.broken, 0);
    assert_int_equal(yk_checkpoint_find_latest("root", &found), YK_ERR_UNSUPPORTED);
    expect_error(YK_ERR_UNSUPPORTED, "version 2");
}

/* A checkpoint is refused as a folder of checkpoints, or a run would begin anew inside its own checkpoint. */
static void a_checkpoint_is_no_folder_of_them(void **state)
{
    (void)state;
    yk_checkpoint_state s = make_state();
    set_step(&s, 3);
    expect_ok(yk_checkpoint_manager_save(manage(1, false), &s));
    static const char one[] = "root/step-00000003";
    assert_null(yk_checkpoint_manager_create(one, NULL));
    expect_error(YK_ERR_ARGUMENT, "root/step-00000003: is a checkpoint itself");
    assert_int_equal(yk_checkpoint_load_latest(one, &s, NULL, NULL), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "root/step-00000003: is a checkpoint itself");
    yk_checkpoint_found found;
    assert_int_equal(yk_checkpoint_find_latest(one, &found), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "root/step-00000003: is a checkpoint itself");
    expect_ok(yk_checkpoint_verify(one));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        data_test(kills_at_random_moments),
        data_test(the_last_k_stay),
        data_test(the_old_one_stays_until_the_names_are_synced),
        data_test(broken_ones_are_passed_over),
        data_test(a_full_disk),
        data_test(asynchronous_errors),
        data_test(a_folder_that_cannot_be_written),
        data_test(no_descriptor_for_the_folder),
        data_test(files_of_others_stay),
        data_test(links_are_not_followed),
        data_test(two_threads_save_one_checkpoint),
        data_test(a_checkpoint_is_replaced_while_it_is_read),
        data_test(a_checkpoint_is_removed_while_it_is_read),
        data_test(a_checkpoint_is_no_folder_of_them),
        data_test(newer_versions_are_not_passed_over),
    };
    /* No threads before fork: the thread sanitizer wants it so. */
    return yk_set_num_threads((yk_device){0}, 1) ? 1
                                                 : cmocka_run_group_tests_name("checkpoint_safety", tests, NULL, NULL);
}
