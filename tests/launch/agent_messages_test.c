/*
 * agent_messages_test.c - messages of launchers about roles come back as they were, and those that are cut short or
 * changed on their way are refused or harmless.
 */
#include "tests/support/expect.h"

#include <stdlib.h>
#include <string.h>

#include "launch/agents.h"

static yk__role_rule rules[] = {{"ps", YK__ON_FAILURE_END, 0},
                                {"trainer", YK__ON_FAILURE_RESTART, 7},
                                {"helper", YK__ON_FAILURE_RESTART, -1},
                                {"idle", YK__ON_FAILURE_CONTINUE, 0}};
enum { ROLES = 4, NODES = 3 };
static int role_counts[ROLES * NODES] = {1, 0, 0, 2, 4, 4, 0, 1, 1, 0, 0, 3};
static int counts[NODES] = {3, 5, 8};

static yk__agent_facts facts_of_roles(void)
{
    return (yk__agent_facts){.nodes = NODES,
                             .least = 2,
                             .wanted = 2,
                             .timeout = 15,
                             .grace = 10,
                             .listed = NODES,
                             .counts = counts,
                             .host = "node2",
                             .pid = 4711,
                             .listeners = (char *)"10.0.0.2:4001,4002",
                             .roles = ROLES,
                             .rules = rules,
                             .role_counts = role_counts};
}

static bool read_facts(const unsigned char *data, size_t size, yk__agent_facts *facts)
{
    yk__reader r = {data, data + size, false};
    return yk__agent_read_facts(&r, facts);
}

static void facts_round_trip(void **state)
{
    (void)state;
    yk__agent_facts sent = facts_of_roles(), got;
    yk__wire wire = {0};
    yk__agent_put_facts(&wire, &sent);
    assert_true(read_facts(wire.data, wire.size, &got));
    assert_int_equal(got.roles, ROLES);
    assert_int_equal(got.least, 2);
    assert_memory_equal(got.counts, counts, sizeof(counts));
    assert_memory_equal(got.role_counts, role_counts, sizeof(role_counts));
    for (int r = 0; r < ROLES; r++) {
        assert_string_equal(got.rules[r].name, rules[r].name);
        assert_int_equal(got.rules[r].on_failure, rules[r].on_failure);
        assert_int_equal(got.rules[r].restarts, rules[r].restarts);
    }
    assert_string_equal(got.listeners, sent.listeners);
    yk__agent_facts_clear(&got);
    for (size_t size = 0; size < wire.size; size++)
        assert_false(read_facts(wire.data, size, &got));

    /* Roles whose processes are not those of the nodes, and more roles than there can be. */
    role_counts[4]++;
    yk__wire other = {0};
    yk__agent_put_facts(&other, &sent);
    assert_false(read_facts(other.data, other.size, &got));
    role_counts[4]--;
    yk__wire_clear(&other);

    /* A byte changed: refused, or facts that hold together. */
    srandom(20261128);
    for (int i = 0; i < 20000; i++) {
        size_t at = (size_t)random() % wire.size;
        unsigned char before = wire.data[at];
        wire.data[at] = (unsigned char)random();
        if (read_facts(wire.data, wire.size, &got)) {
            assert_in_range(got.roles, 0, YK__MOST_ROLES);
            for (int n = 0; n < got.listed && got.roles; n++) {
                int sum = 0;
                for (int r = 0; r < got.roles; r++)
                    sum += got.role_counts[r * got.listed + n];
                assert_int_equal(sum, got.counts[n]);
            }
            yk__agent_facts_clear(&got);
        }
        wire.data[at] = before;
    }
    yk__wire_clear(&wire);
}

static void plan_round_trip(void **state)
{
    (void)state;
    yk__agent_plan sent = {.node = 1,
                           .local = 5,
                           .first = 3,
                           .world = 16,
                           .port = 29501,
                           .restarts = 2,
                           .attempt = 3,
                           .nodes = 2,
                           .orders = 17,
                           .joins = true,
                           .roles = 2,
                           .role = {{2, 1, 4}, {3, 2, 12}}},
                   got;
    yk__wire wire = {0};
    char *table;
    yk__agent_put_plan(&wire, &sent, "-");
    yk__reader r = {wire.data, wire.data + wire.size, false};
    assert_true(yk__agent_read_plan(&r, &got, &table));
    free(table);
    assert_int_equal(got.roles, 2);
    assert_int_equal(got.attempt, 3);
    assert_int_equal(got.nodes, 2);
    assert_int_equal(got.orders, 17);
    assert_true(got.joins);
    assert_memory_equal(got.role, sent.role, 2 * sizeof(*sent.role));
    for (size_t size = 0; size < wire.size; size++) {
        r = (yk__reader){wire.data, wire.data + size, false};
        assert_false(yk__agent_read_plan(&r, &got, &table));
    }
    yk__wire_clear(&wire);

    /* Parts that are not the node's processes, or not within their role. */
    static const yk__role_part wrong[][2] = {{{2, 1, 4}, {2, 2, 12}},
                                             {{2, 3, 4}, {3, 2, 12}},
                                             {{-2, 0, 4}, {7, 0, 12}},
                                             {{2, -1, 4}, {3, 2, 12}},
                                             {{2, 1, 17}, {3, 2, 12}}};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        memcpy(sent.role, wrong[i], sizeof(wrong[i]));
        yk__agent_put_plan(&wire, &sent, "-");
        r = (yk__reader){wire.data, wire.data + wire.size, false};
        assert_false(yk__agent_read_plan(&r, &got, &table));
        yk__wire_clear(&wire);
    }
}

static void end_round_trip(void **state)
{
    (void)state;
    yk__outcome sent = {.kind = YK__RUN_FAILED, .code = 9, .host = "a", .rank = 3, .role = "trainer", .role_rank = 2},
                got;
    yk__wire wire = {0};
    yk__agent_put_end(&wire, &sent);
    yk__reader r = {wire.data, wire.data + wire.size, false};
    assert_true(yk__agent_read_end(&r, &got));
    assert_string_equal(got.role, "trainer");
    assert_int_equal(got.role_rank, 2);
    yk__outcome_clear(&got);
    yk__wire_clear(&wire);
}

static void departure_round_trip(void **state)
{
    (void)state;
    const yk__departure sent = {.rank = 7,
                                .local_rank = 3,
                                .pid = 4711,
                                .status = 9,
                                .incarnation = 2,
                                .lost = true,
                                .seconds = 1.5,
                                .role = "trainer",
                                .role_rank = 6,
                                .why = "no progress for 60 s"};
    yk__departure got;
    yk__wire wire = {0};
    yk__agent_put_departure(&wire, &sent);
    yk__reader r = {wire.data, wire.data + wire.size, false};
    assert_true(yk__agent_read_departure(&r, &got));
    assert_memory_equal(&got, &sent, sizeof(sent));
    for (size_t size = 0; size < wire.size; size++) {
        r = (yk__reader){wire.data, wire.data + size, false};
        assert_false(yk__agent_read_departure(&r, &got));
    }
    yk__wire_clear(&wire);
    /* Neither lost nor back; numbers below 0. */
    yk__departure wrong[] = {sent, sent, sent, sent, sent};
    wrong[0].lost = false, wrong[0].incarnation = 0;
    wrong[1].rank = -1;
    wrong[2].local_rank = -1;
    wrong[3].role_rank = -1;
    wrong[4].incarnation = -1;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        yk__agent_put_departure(&wire, &wrong[i]);
        r = (yk__reader){wire.data, wire.data + wire.size, false};
        assert_false(yk__agent_read_departure(&r, &got));
        yk__wire_clear(&wire);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(facts_round_trip), cmocka_unit_test(plan_round_trip),
                                       cmocka_unit_test(end_round_trip), cmocka_unit_test(departure_round_trip)};
    return cmocka_run_group_tests_name("messages of launchers", tests, NULL, NULL);
}
