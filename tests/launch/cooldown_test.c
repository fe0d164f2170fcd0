/*
 * cooldown_test.c - how long a host waits whose nodes have failed: the waits double up to the longest, a host that has
 * been without a failure begins anew, the others do not wait, and another launcher goes on with the counts.
 */
#include "tests/support/expect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launch/agents.h"
#include "launch/cooldown.h"

static double wait_of(const yk__cooldown *c, const char *host, double now, uint32_t expected)
{
    uint32_t failures;
    double seconds = yk__cooldown_wait(c, host, now, &failures);
    assert_int_equal(failures, expected);
    return seconds;
}

static void waits_double(void **state)
{
    (void)state;
    yk__cooldown c = {.first = 10, .most = 600};
    static const double expected[] = {10, 20, 40, 80, 160, 320, 600, 600, 600};
    double now = 1000;
    assert_true(wait_of(&c, "a", now, 0) == 0);
    for (uint32_t i = 0; i < sizeof(expected) / sizeof(*expected); i++) {
        yk__cooldown_count(&c, "a", now, now);
        assert_float_equal(wait_of(&c, "a", now, i + 1), expected[i], 1e-9);
        assert_float_equal(wait_of(&c, "a", now + 4, i + 1), expected[i] - 4, 1e-9);
        assert_true(wait_of(&c, "a", now + expected[i], i + 1) == 0);
        assert_true(wait_of(&c, "b", now, 0) == 0);
        now += expected[i];
    }
    for (int i = 0; i < 1000; i++) /* no number of failures is too large */
        yk__cooldown_count(&c, "a", now, now);
    assert_float_equal(wait_of(&c, "a", now, 1009), 600, 1e-9);
    yk__cooldown_clear(&c);

    yk__cooldown off = {0};
    yk__cooldown_count(&off, "a", 0, 0);
    assert_true(wait_of(&off, "a", 0, 0) == 0);
    assert_int_equal(off.count, 0);
}

static void begins_anew(void **state)
{
    (void)state;
    yk__cooldown c = {.first = 10, .most = 100};
    yk__cooldown_count(&c, "a", 0, 0);
    yk__cooldown_count(&c, "a", 10, 50);
    assert_float_equal(wait_of(&c, "a", 50, 2), 20, 1e-9);
    yk__cooldown_count(&c, "a", 70, 169); /* it was there for 99 s */
    assert_float_equal(wait_of(&c, "a", 169, 3), 40, 1e-9);
    yk__cooldown_count(&c, "a", 210, 310);
    assert_float_equal(wait_of(&c, "a", 310, 1), 10, 1e-9);
    /* One of two nodes of a host has failed while the other was there. */
    yk__cooldown_count(&c, "a", 320, 400);
    yk__cooldown_count(&c, "a", 210, 450);
    assert_float_equal(wait_of(&c, "a", 450, 3), 40, 1e-9);
    yk__cooldown_clear(&c);
}

static bool take(yk__cooldown *c, const yk__wire *wire, size_t size, double now)
{
    yk__reader r = {wire->data, wire->data + size, false};
    return yk__cooldown_take(c, &r, now);
}

static void goes_to_another(void **state)
{
    (void)state;
    yk__cooldown keeper = {.first = 1.5, .most = 40}, other = {.first = 7, .most = 8};
    yk__wire wire = {0};
    yk__cooldown_count(&keeper, "a", 0, 0);
    yk__cooldown_count(&keeper, "b", 0, 0);
    yk__cooldown_count(&keeper, "b", 0, 0);
    yk__cooldown_put(&wire, &keeper);
    for (size_t size = 0; size < wire.size; size++) {
        assert_false(take(&other, &wire, size, 5000));
        assert_int_equal(other.count, 0);
    }
    assert_true(take(&other, &wire, wire.size, 5000)); /* of another clock */
    assert_float_equal(wait_of(&other, "a", 5001, 1), 0.5, 1e-9);
    assert_float_equal(wait_of(&other, "b", 5001, 2), 2, 1e-9);
    yk__wire_clear(&wire);

    /* A wait that is known does not begin again; a new one does, of a count that began anew, too. */
    yk__cooldown_count(&keeper, "b", 0, 100);
    yk__cooldown_put(&wire, &keeper);
    assert_true(take(&other, &wire, wire.size, 5100));
    assert_true(wait_of(&other, "a", 5100, 1) == 0);
    assert_float_equal(wait_of(&other, "b", 5100, 1), 1.5, 1e-9);
    yk__wire_clear(&wire);

    /* A keeper without cool-downs: nobody waits at its successor. */
    yk__cooldown off = {0};
    yk__cooldown_put(&wire, &off);
    assert_true(take(&other, &wire, wire.size, 5100));
    assert_true(wait_of(&other, "b", 5100, 0) == 0);
    yk__wire_clear(&wire);
    yk__cooldown_clear(&keeper);
    yk__cooldown_clear(&other);
}

static void changed_bytes(void **state)
{
    (void)state;
    yk__cooldown keeper = {.first = 1.5, .most = 40};
    yk__wire wire = {0};
    for (int i = 0; i < 5; i++)
        yk__cooldown_count(&keeper, "host", 0, 0);
    yk__cooldown_count(&keeper, "other", 0, 0);
    yk__cooldown_put(&wire, &keeper);
    srandom(20261129);
    for (int i = 0; i < 20000; i++) {
        yk__cooldown other = {0};
        size_t at = (size_t)random() % wire.size;
        unsigned char before = wire.data[at];
        wire.data[at] = (unsigned char)random();
        if (take(&other, &wire, wire.size, 0)) {
            uint32_t failures;
            for (int k = 0; k < other.count; k++) {
                double seconds = yk__cooldown_wait(&other, other.hosts[k].name, 0, &failures);
                assert_true(seconds >= 0 && seconds <= 1e6);
            }
        }
        wire.data[at] = before;
        yk__cooldown_clear(&other);
    }
    yk__wire_clear(&wire);
    yk__cooldown_clear(&keeper);
}

/* Hosts beyond the most that are listed: those that have not failed for the longest time are forgotten. */
static void many_hosts(void **state)
{
    (void)state;
    yk__cooldown c = {.first = 1e5, .most = 1e6};
    char name[32];
    for (int i = 0; i < 3000; i++) {
        snprintf(name, sizeof(name), "host%d", i);
        yk__cooldown_count(&c, name, i, i);
    }
    assert_int_equal(c.count, 1024);
    assert_true(wait_of(&c, "host2999", 3000, 1) > 0);
    assert_true(wait_of(&c, "host1976", 3000, 1) > 0);
    assert_true(wait_of(&c, "host1975", 3000, 0) == 0);
    yk__cooldown_clear(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(waits_double), cmocka_unit_test(begins_anew),
                                       cmocka_unit_test(goes_to_another), cmocka_unit_test(changed_bytes),
                                       cmocka_unit_test(many_hosts)};
    return cmocka_run_group_tests_name("cooldown", tests, NULL, NULL);
}
