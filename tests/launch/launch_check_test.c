/*
 * launch_check_test.c - the checks of a group of processes and of what a launcher knows of the other nodes: what is
 * damaged is named with its values.
 */
#include "launch/agents.h"
#include "tests/support/broken.h"

static void test_group(void **state)
{
    (void)state;
    worker workers[] = {{.rank = 4, .pid = 10, .running = true, .began = 1},
                        {.rank = 5, .pid = 11, .began = 1, .ended = 2, .asked = true, .killed = true},
                        {.rank = 6}};
    worker stranger = {.rank = 5, .pid = 11};
    group g = {.workers = workers, .count = 3, .failed = &workers[1]};
    expect_sound(yk__group_check(&g));
    workers[2].running = true;
    expect_broken(yk__group_check(&g), "rank 6 runs, and was never started");
    workers[2].running = false;
    workers[1].asked = false;
    expect_broken(yk__group_check(&g), "rank 5, pid 11, got SIGKILL, and is not marked");
    workers[1].asked = true;
    workers[1].ended = 0.5;
    expect_broken(yk__group_check(&g), "rank 5, pid 11, ended at 0.500000, before it began, at 1.000000");
    workers[1].ended = 2;
    workers[2].rank = 5;
    expect_broken(yk__group_check(&g), "rank 5 stands behind rank 5");
    workers[2].rank = 6;
    g.failed = &stranger;
    expect_broken(yk__group_check(&g), "process that failed is none of the group's 3");
    g.failed = NULL;
    g.interrupted = 99;
    expect_broken(yk__group_check(&g), "signal 99");
    g.interrupted = 0;
    g.left = 4;
    expect_broken(yk__group_check(&g), "4 of 3 processes are left");
    g.left = 0;
    expect_sound(yk__group_check(&g));
}

/* Three nodes of two ranks each, seen by node 0. */
static void test_nodes(void **state)
{
    (void)state;
    yk__agent_node one = {.id = 1, .number = 1, .first = 2, .local = 2},
                   two = {.id = 2, .number = 2, .first = 4, .local = 2}, *nodes[] = {&two, &one};
    yk__rendezvous n = {.server = (yk__store_server *)&one, /* there is one: this is node 0 */
                        .s = {.node_count = 3, .least = 3, .restarts = 2},
                        .nodes = nodes,
                        .joined = 2,
                        .own_local = 2,
                        .world = 6,
                        .slots = 6,
                        .orders = 3,
                        .attempt_order = 3};
    expect_sound(yk__rendezvous_check(&n));
    one.number = two.number = -1;
    expect_sound(yk__rendezvous_check(&n)); /* not given out yet */
    one.number = 1, two.number = 1;
    expect_broken(yk__rendezvous_check(&n), "nodes 0 and 1 of those that joined are both number 1");
    two.number = 3;
    expect_broken(yk__rendezvous_check(&n), "the number 3, of 3");
    two.number = 2;
    two.id = 1;
    expect_broken(yk__rendezvous_check(&n), "with the ids 0000000000000001 and 0000000000000001");
    two.id = 2;
    two.first = 5;
    expect_broken(yk__rendezvous_check(&n), "node 2 has ranks 5 to 6, of 6");
    two.first = 4;
    two.local = 1;
    expect_broken(yk__rendezvous_check(&n), "2 of 2 nodes have a number, and all together 5 ranks of 6");
    two.local = 2;
    one.number = -1;
    expect_broken(yk__rendezvous_check(&n), "1 of 2 nodes have a number");
    one.number = 1;
    one.reported = true;
    expect_broken(yk__rendezvous_check(&n), "node 1 was dealt with as lost, and its launcher is there");
    one.reported = false;
    n.joined = 3;
    expect_broken(yk__rendezvous_check(&n), "3 other nodes have joined, of 3 in all");
    n.joined = 2;
    n.orders = 2;
    expect_broken(yk__rendezvous_check(&n), "the attempt began with order 3, and the last one was 2");
    n.orders = 3;
    expect_sound(yk__rendezvous_check(&n));
}

static void test_end(void **state)
{
    (void)state;
    yk__agent_node one = {.id = 1, .number = 1, .first = 1, .local = 1}, *nodes[] = {&one};
    yk__rendezvous n = {.server = (yk__store_server *)&one,
                        .s = {.node_count = 2, .least = 2, .restarts = 1},
                        .nodes = nodes,
                        .joined = 1,
                        .own_local = 1,
                        .world = 2,
                        .slots = 2,
                        .stop = 15,
                        .have_end = true,
                        .again = true,
                        .link = {.done = true},
                        .end = {.kind = YK__RUN_FAILED}};
    expect_sound(yk__rendezvous_check(&n));
    n.have_end = false;
    expect_broken(yk__rendezvous_check(&n), "the attempt's end is of kind 1, and none was heard of");
    n.have_end = true;
    n.link.done = false;
    expect_broken(yk__rendezvous_check(&n), "another attempt follows, and this one is not over");
    n.link.done = true;
    n.restart = 1;
    expect_broken(yk__rendezvous_check(&n), "another attempt follows, after 1 of 1: left 0, lost 0");
    n.restart = 0;
    n.any_lost = true;
    expect_broken(yk__rendezvous_check(&n), "after 0 of 1: left 0, lost 1, asked to end 0, end of kind 1");
    n.s.least = 1; /* nodes come and go */
    expect_sound(yk__rendezvous_check(&n));
    n.end.kind = YK__RUN_MEMBERS;
    expect_broken(yk__rendezvous_check(&n), "lost 1, asked to end 0, end of kind 6");
    n.changing = true;
    n.restart = 1; /* that is not counted */
    expect_sound(yk__rendezvous_check(&n));
    n.any_asked = true;
    expect_broken(yk__rendezvous_check(&n), "asked to end 1");
    n.any_asked = n.changing = false;
    n.end.kind = YK__RUN_FAILED;
    n.restart = 0;
    n.s.least = 2;
    n.any_lost = false;
    n.stop = 0, n.stopping = true;
    expect_broken(yk__rendezvous_check(&n), "node 0 knows that this node heard the stop, and there is none");
    n.stopping = false;
    n.stop = 100;
    expect_broken(yk__rendezvous_check(&n), "signal 100");
    n.stop = 15;
    n.asked = true;
    expect_broken(yk__rendezvous_check(&n), "the launcher was asked to end, and the cause was not seen");
    n.asked = false;
    expect_sound(yk__rendezvous_check(&n));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_group), cmocka_unit_test(test_nodes),
                                       cmocka_unit_test(test_end)};
    return cmocka_run_group_tests_name("launch_check", tests, NULL, NULL);
}
