/* broken.h - for tests of the checks of structures (base/invariant.h): what is damaged is named. */
#ifndef YOKE_TESTS_BROKEN_H
#define YOKE_TESTS_BROKEN_H

#include "tests/support/expect.h"

/* The check finds that something is wrong, and its text has these facts in it. */
#define expect_broken(check, facts)                                                                                    \
    do {                                                                                                               \
        const char *wrong = (check);                                                                                   \
        if (!wrong || !expect_says(wrong, facts))                                                                      \
            fail_msg("%s: \"%s\", expected \"%s\"", #check, wrong ? wrong : "nothing is wrong", facts);                \
    } while (0)
/* The check finds nothing. */
#define expect_sound(check)                                                                                            \
    do {                                                                                                               \
        const char *wrong = (check);                                                                                   \
        if (wrong)                                                                                                     \
            fail_msg("%s: %s", #check, wrong);                                                                         \
    } while (0)

#endif
