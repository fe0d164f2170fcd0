/* process_test.c - what processes say of their rights, which decides whether they open one another's descriptors. */
#include "tests/support/expect.h"

#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/process.h"

enum { UNABLE = 77 }; /* the exit code of a child that the system does not let do what it is for */

/* Puts the calling process's word behind the parent's. Returns an exit code. */
typedef int (*change)(void);

static int nothing(void)
{
    return 0;
}

static int another_user_space(void)
{
    return unshare(CLONE_NEWUSER) ? UNABLE : 0;
}

/* As after the start of a program with capabilities; root may open such a one all the same. */
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
    /* No child is left behind, and none was seen. */
    assert_int_equal(waitpid(-1, NULL, WNOHANG | __WALL), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rights)};
    return cmocka_run_group_tests_name("other processes", tests, NULL, NULL);
}
