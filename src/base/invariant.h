/*
 * invariant.h - checks of structures that hold invariants, in sanitized builds. Layer: base.
 *
 * Each such structure has a function, `yk__X_check`, that returns what is wrong with it: which invariant does not hold,
 * and the values that say so; NULL where all hold. Tests call it on structures that they damaged. Sanitized builds call
 * it where the structure has changed, and assert with its text; others call nothing.
 */
#ifndef YOKE_BASE_INVARIANT_H
#define YOKE_BASE_INVARIANT_H

#include <assert.h>

#include <yoke/base.h>

/* The text, in memory of this thread that the next call uses again. */
const char *yk__broken(const char *format, ...) YK_PRINTF(1, 2);

#ifdef YK__SANITIZED
#define YK__ASSERT_SOUND(check)                                                                                        \
    do {                                                                                                               \
        const char *what_is_wrong = (check);                                                                           \
        if (what_is_wrong)                                                                                             \
            __assert_fail(what_is_wrong, __FILE__, __LINE__, __func__);                                                \
    } while (0)
#else
#define YK__ASSERT_SOUND(check) ((void)0)
#endif

#endif
