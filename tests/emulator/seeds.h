/*
 * seeds.h - a case of a test with several orders of the emulator's: each in a process of its own, because the emulator
 * reads its seed once.
 */
#ifndef YOKE_TESTS_EMULATOR_SEEDS_H
#define YOKE_TESTS_EMULATOR_SEEDS_H

#include <sys/wait.h>
#include <unistd.h>

#include <yoke/base.h>

#include "tests/support/expect.h"

enum { SEEDS = 8 };

/* Runs `fn` in a process of its own for each seed; gives how many of them it was right with. */
static int right_with(bool (*fn)(void))
{
    int right = 0;
    for (int seed = 0; seed < SEEDS; seed++) {
        fflush(NULL);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            char text[16];
            snprintf(text, sizeof(text), "%d", seed);
            setenv("YOKE_EMULATOR_SEED", text, 1);
            yk_scope scope = yk_scope_begin();
            bool good = fn() && !yk_last_error();
            if (yk_last_error())
                fprintf(stderr, "%s\n", yk_last_error()->message);
            yk_scope_end(scope);
            _exit(!good);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        right += WEXITSTATUS(status) == 0;
    }
    return right;
}

#endif
