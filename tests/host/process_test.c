/*
 * process_test.c - the rights of processes, by which they open one another's descriptors or do not, and their ends.
 */
#include "tests/support/expect.h"

#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/process.h"
#include "tests/support/machine.h"

enum { UNABLE = 77 }; /* the exit code of a child that the system does not let do what it is for */

/* Appends the calling process's word to the parent's. Returns an exit code. */
typedef int (*change)(void);

static int nothing(void)
{
    return 0;
}

static int another_user_space(void)
{
    return unshare(CLONE_NEWUSER) ? UNABLE : 0;
}

/* Makes the process not dumpable, as the start of a program with capabilities does; root may open such a process all
 * the same. */
static int not_dumpable(void)
{
    if (getuid() == 0 && (setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534)))
        return UNABLE;
    return prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) ? UNABLE : 0;
}

/* The word of a child that has changed so. False where it cannot. */
static bool word_of_child(change make, char word[YK__RIGHTS_SIZE], pid_t *pid)
{
    char *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int status = -1;
    assert_true(shared != MAP_FAILED);
    *pid = fork();
    if (*pid == 0) {
        int code = make();
        if (!code)
            yk__process_rights(shared);
        _exit(code);
    }
    assert_true(*pid > 0);
    assert_int_equal(waitpid(*pid, &status, 0), *pid);
    memcpy(word, shared, YK__RIGHTS_SIZE);
    munmap(shared, 4096);
    assert_true(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == UNABLE));
    return WEXITSTATUS(status) == 0;
}

static void rights(void **state)
{
    (void)state;
    char own[YK__RIGHTS_SIZE], again[YK__RIGHTS_SIZE], other[YK__RIGHTS_SIZE], expected[YK__RIGHTS_SIZE];
    pid_t pid;
    yk__process_rights(own);
    yk__process_rights(again);
    assert_string_equal(own, again);
    assert_true(*own && !strpbrk(own, " /"));
    assert_true(word_of_child(nothing, other, &pid));
    if (strncmp(own, "process", 7) != 0) /* as where a debugger's or sandbox's rules keep this test closed */
        assert_string_equal(other, own);
    if (word_of_child(another_user_space, other, &pid))
        assert_string_not_equal(other, own);
    if (word_of_child(not_dumpable, other, &pid)) {
        snprintf(expected, sizeof(expected), "process%d", (int)pid);
        assert_string_equal(other, expected);
    }
    /* No child is left over, and none was seen. */
    assert_int_equal(waitpid(-1, NULL, WNOHANG | __WALL), -1);
}

/* A child that stays until it is killed, in a process group of its own, with a child there too; *grandchild is that. */
static pid_t start_family(pid_t *grandchild)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        setpgid(0, 0);
        pid_t other = fork();
        if (other > 0 && write(ends[1], &other, sizeof(other)) != sizeof(other))
            _exit(1);
        for (;;)
            pause();
    }
    assert_true(child > 0);
    assert_int_equal(read(ends[0], grandchild, sizeof(*grandchild)), sizeof(*grandchild));
    close(ends[0]);
    close(ends[1]);
    return child;
}

static bool ends_within(bool (*ended)(int), int number)
{
    for (int i = 0; i < 10000 && !ended(number); i++)
        usleep(1000);
    return ended(number);
}

/* Ends are seen whoever has to wait for a process, and no process is killed that is no descendant. */
static void ends_of_others(void **state)
{
    (void)state;
    if (!has_proc())
        skip();
    pid_t grandchild, child = start_family(&grandchild);
    assert_true(yk__process_descends(child));
    assert_true(yk__process_descends(grandchild));
    assert_false(yk__process_descends(getpid()));
    assert_false(yk__process_descends(getppid()));
    assert_false(yk__process_descends(1));
    assert_false(yk__process_descends(0));
    assert_false(yk__process_descends(-1));
    assert_false(yk__process_has_ended(child));
    assert_false(yk__process_has_ended(grandchild));
    assert_false(yk__process_group_has_ended(child));
    yk__process_kill(getppid()); /* it is none of ours: the test goes on */
    yk__process_kill(grandchild);
    assert_true(ends_within(yk__process_has_ended, grandchild)); /* though its parent never waits for it */
    assert_false(yk__process_group_has_ended(child));
    assert_int_equal(kill(child, SIGSTOP), 0);
    yk__process_kill(child);
    assert_true(ends_within(yk__process_has_ended, child));
    assert_true(ends_within(yk__process_group_has_ended, child)); /* its members are there to be waited for */
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_true(yk__process_has_ended(child));
    assert_true(ends_within(yk__process_group_has_ended, child));
    assert_false(yk__process_descends(child));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rights), cmocka_unit_test(ends_of_others)};
    return cmocka_run_group_tests_name("other processes", tests, NULL, NULL);
}
