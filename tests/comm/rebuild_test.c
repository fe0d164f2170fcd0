/*
 * rebuild_test.c - a process group that gets other members in place: fewer after one has ended, the same in another
 * order, one more; over shared memory and over TCP; and what cannot be.
 */
#include "tests/comm/ranks.h"

#include <yoke/ops.h>

enum { RANKS = 4 };

/* The sum of the members' numbers, which are those of before. */
static void check_sum(rank_context *c, yk_process_group *group, double expected)
{
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = yk_full(YK_SHAPE(1000), 1 << c->rank, NULL);
    CHECK_OK(yk_all_reduce(x, YK_OP_SUM, group));
    double sum = yk_item(yk_sum(x));
    yk_scope_end(scope);
    CHECK(sum == 1000 * expected, "%g, expected %g", sum / 1000, expected);
}

static void survivors(rank_context *c)
{
    CHECK_MET(c);
    yk_work *outstanding = NULL;
    if (c->rank == 2) {
        usleep(300000); /* the others are in their operations */
        raise(SIGKILL);
    }
    yk_tensor *x = yk_zeros(YK_SHAPE(7), NULL);
    outstanding = yk_all_reduce_async(x, YK_OP_SUM, c->group);
    if (!outstanding) { /* late: rank 2 is gone, and that is known */
        CHECK(yk_last_error() && yk_last_error()->code == YK_ERR_CONNECTION, "%s", yk_last_error()->message);
        yk_clear_error();
    }
    CHECK_FAILS(yk_barrier(c->group), YK_ERR_CONNECTION, "rank 2");
    const int now[RANKS] = {0, 1, -1, 2};
    CHECK_OK(yk_process_group_rebuild(c->group, now[c->rank], 3, 2));
    if (outstanding)
        CHECK_FAILS(yk_work_wait(outstanding), YK_ERR_CONNECTION, "rank 2");
    CHECK(yk_rank(c->group) == now[c->rank] && yk_world_size(c->group) == 3, "rank %d of %d", yk_rank(c->group),
          yk_world_size(c->group));
    CHECK(strcmp(yk_process_group_name(c->group), "world@2") == 0, "%s", yk_process_group_name(c->group));
    check_sum(c, c->group, 1 + 2 + 8);
    /* The other way round; then without the last, who goes on alone. */
    CHECK_OK(yk_process_group_rebuild(c->group, 2 - now[c->rank], 3, 3));
    check_sum(c, c->group, 1 + 2 + 8);
    bool last = c->rank == 3;
    CHECK_OK(yk_process_group_rebuild(c->group, last ? 0 : c->rank, last ? 1 : 2, last ? 5 : 4));
    check_sum(c, c->group, last ? 8 : 3);
    /* One more, for whom the others are new, too. */
    CHECK_OK(yk_process_group_rebuild(c->group, last ? 2 : c->rank, 3, 6));
    check_sum(c, c->group, 11);
    yk_process_group *part = yk_new_group(c->group, 2, (int[]){0, 2});
    CHECK(part, "%s", yk_last_error()->message);
    if (yk_rank(part) >= 0)
        check_sum(c, part, 9);
}

static void wrong(rank_context *c)
{
    CHECK_FAILS(yk_process_group_rebuild(c->group, 2, 2, 2), YK_ERR_ARGUMENT, "rank 2", "world of 2");
    CHECK_FAILS(yk_process_group_rebuild(c->group, 0, 0, 2), YK_ERR_ARGUMENT, "world of 0");
    CHECK_FAILS(yk_process_group_rebuild(c->group, c->rank, 2, 0), YK_ERR_ARGUMENT, "view 0");
    CHECK_FAILS(yk_process_group_rebuild(NULL, 0, 1, 2), YK_ERR_STATE, "default process group");
    yk_process_group *alone = yk_process_group_create(NULL, 0, 1, NULL);
    CHECK_FAILS(yk_process_group_rebuild(alone, 0, 2, 2), YK_ERR_STATE, "store");
    yk_process_group *part = yk_new_group(c->group, 1, (int[]){1});
    if (c->rank == 0)
        CHECK_FAILS(yk_process_group_rebuild(part, 0, 1, 2), YK_ERR_STATE, "not in the group");
    check_sum(c, c->group, 3); /* a failure leaves the group as it was */
}

static void test_shared_memory(void **state)
{
    (void)state;
    test_layout = ONE_HOST;
    run_ranks(PROCESSES, RANKS, survivors, NULL, patience(20), true);
}

static void test_tcp(void **state)
{
    (void)state;
    test_layout = EACH_ALONE;
    run_ranks(PROCESSES, RANKS, survivors, NULL, patience(20), true);
    test_layout = UNEVEN;
    run_ranks(PROCESSES, RANKS, survivors, NULL, patience(20), true);
    test_layout = ONE_HOST;
}

static void test_wrong(void **state)
{
    (void)state;
    run_ranks(PROCESSES, 2, wrong, NULL, patience(20), true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shared_memory),
        cmocka_unit_test(test_tcp),
        cmocka_unit_test(test_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
