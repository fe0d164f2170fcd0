/*
 * keyspace_test.c - the keyspace's check finds what breaks its invariants, and nothing in one that was used.
 */
#include "net/keyspace.h"

#include <stdio.h>
#include <stdlib.h>

#include "tests/support/expect.h"

static void ready(yk__waiter *waiter)
{
    *(int *)waiter->user += 1;
}

static void sound_when_used(void **state)
{
    (void)state;
    yk__keyspace space = {0};
    int called = 0;
    yk__bytes wanted[2] = {yk__text_bytes("key-7"), yk__text_bytes("late")};
    yk__waiter waiter = {.keys = wanted, .count = 2, .ready = ready, .user = &called};
    yk_status status = YK_OK;
    assert_null(yk__keyspace_check(&space));
    assert_false(yk__keyspace_wait(&space, &waiter, &status));
    assert_null(yk__keyspace_check(&space));
    for (int i = 0; i < 500; i++) { /* the table grows three times */
        char key[20];
        snprintf(key, sizeof(key), "key-%d", i);
        assert_int_equal(yk__keyspace_set(&space, yk__text_bytes(key), yk__text_bytes("value")), YK_OK);
        assert_null(yk__keyspace_check(&space));
    }
    assert_int_equal(called, 0);
    assert_true(yk__keyspace_delete(&space, yk__text_bytes("key-7")));
    assert_null(yk__keyspace_check(&space));
    assert_int_equal(yk__keyspace_set(&space, yk__text_bytes("late"), yk__text_bytes("")), YK_OK);
    assert_null(yk__keyspace_check(&space));
    yk__keyspace_cancel(&space, &waiter);
    assert_null(yk__keyspace_check(&space));
    yk__keyspace_clear(&space);
}

static void broken_is_found(void **state)
{
    (void)state;
    yk__keyspace space = {0};
    yk__bytes missing = yk__text_bytes("missing");
    int called = 0;
    yk__waiter waiter = {.keys = &missing, .count = 1, .ready = ready, .user = &called};
    yk_status status = YK_OK;
    assert_int_equal(yk__keyspace_set(&space, yk__text_bytes("a"), yk__text_bytes("1")), YK_OK);
    assert_false(yk__keyspace_wait(&space, &waiter, &status));
    assert_null(yk__keyspace_check(&space));
    space.keys++;
    assert_non_null(yk__keyspace_check(&space));
    space.keys--;
    yk__waiter *previous = waiter.previous;
    waiter.previous = &waiter;
    assert_non_null(yk__keyspace_check(&space));
    waiter.previous = previous;
    yk__bytes other = yk__text_bytes("another");
    waiter.keys = &other;
    assert_non_null(yk__keyspace_check(&space));
    waiter.keys = &missing;
    struct yk__entry *first = space.slots[0], *second = space.slots[1];
    space.slots[0] = second;
    space.slots[1] = first;
    bool moved = first || second;
    assert_int_equal(yk__keyspace_check(&space) != NULL, moved);
    space.slots[0] = first;
    space.slots[1] = second;
    space.slot_count--;
    assert_non_null(yk__keyspace_check(&space));
    space.slot_count++;
    assert_null(yk__keyspace_check(&space));
    yk__keyspace_cancel(&space, &waiter);
    yk__keyspace_clear(&space);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sound_when_used),
        cmocka_unit_test(broken_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
