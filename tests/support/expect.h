/* expect.h - what every test uses: cmocka, and checks that name values. */
#ifndef YOKE_TESTS_EXPECT_H
#define YOKE_TESTS_EXPECT_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <yoke/base.h>

/* The call succeeded; if not, the record's message is shown. */
#define expect_ok(call)                                                                                                \
    do {                                                                                                               \
        int expect_status = (call);                                                                                    \
        const yk_error *expect_record = yk_last_error();                                                               \
        if (expect_status || expect_record)                                                                            \
            fail_msg("%s: status %d, %s", #call, expect_status, expect_record ? expect_record->message : "no record"); \
    } while (0)

/* The thread's record has this code and its message contains the text; clears it. */
#define expect_error(expected_code, text)                                                                              \
    do {                                                                                                               \
        const yk_error *expect_record = yk_last_error();                                                               \
        if (!expect_record)                                                                                            \
            fail_msg("no error was recorded, expected one with '%s'", text);                                           \
        if (expect_record->code != (expected_code) || !strstr(expect_record->message, text))                           \
            fail_msg("error is '%s' (%s), expected '%s' (%s)", expect_record->message,                                 \
                     yk_status_name(expect_record->code), text, yk_status_name(expected_code));                        \
        yk_clear_error();                                                                                              \
    } while (0)

/* |a - b| <= absolute + relative |b|; equal infinities and two NaNs pass. */
#define expect_near(a, b, relative, absolute)                                                                          \
    do {                                                                                                               \
        double expect_a = (a), expect_b = (b);                                                                         \
        bool expect_same = expect_a == expect_b || (isnan(expect_a) && isnan(expect_b));                               \
        if (!expect_same && !(fabs(expect_a - expect_b) <= (absolute) + (relative)*fabs(expect_b)))                    \
            fail_msg("%s is %.17g, expected %.17g", #a, expect_a, expect_b);                                           \
    } while (0)

#endif
