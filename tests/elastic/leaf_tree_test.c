/* leaf_tree_test.c - neighbours of a range of leaves that may be added, held against the tree itself, made level by
 * level. */
#include "tests/support/expect.h"

#include "comm/backend.h"
#include "elastic/leaf_tree.h"

enum { MOST = 70 };

typedef struct level {
    yk__leaves nodes[MOST];
    int count;
} level;

/* The levels of the tree, leaves first; an odd last node stands in the next level as it is. Returns how many. */
static int make_tree(int leaves, level levels[8])
{
    int n = 1;
    levels[0].count = leaves;
    for (int i = 0; i < leaves; i++)
        levels[0].nodes[i] = (yk__leaves){i, i + 1};
    for (; levels[n - 1].count > 1; n++) {
        const level *below = &levels[n - 1];
        levels[n].count = (below->count + 1) / 2;
        for (int i = 0; i < levels[n].count; i++)
            levels[n].nodes[i] =
                (yk__leaves){below->nodes[2 * i].begin, below->nodes[2 * i + 1 < below->count ? 2 * i + 1 : 2 * i].end};
    }
    return n;
}

static bool same(yk__leaves a, yk__leaves b)
{
    return a.begin == b.begin && a.end == b.end;
}

static bool is_node(const level *levels, int n, yk__leaves of)
{
    for (int l = 0; l < n; l++)
        for (int i = 0; i < levels[l].count; i++)
            if (same(levels[l].nodes[i], of))
                return true;
    return false;
}

static bool are_children(const level *levels, int n, yk__leaves left, yk__leaves right)
{
    for (int l = 0; l < n; l++)
        for (int i = 0; i + 1 < levels[l].count; i += 2)
            if (same(levels[l].nodes[i], left) && same(levels[l].nodes[i + 1], right))
                return true;
    return false;
}

static void test_joins(void **state)
{
    (void)state;
    level levels[8];
    for (int leaves = 1; leaves <= MOST; leaves++) {
        int n = make_tree(leaves, levels);
        for (int l = 0; l < n; l++)
            for (int i = 0; i < levels[l].count; i++)
                for (int m = 0; m < n; m++)
                    for (int k = 0; k < levels[m].count; k++) {
                        yk__leaves a = levels[l].nodes[i], b = levels[m].nodes[k];
                        if (a.end == b.begin && yk__leaves_join(leaves, a, b) != are_children(levels, n, a, b))
                            fail_msg("of %d leaves [%d, %d) and [%d, %d)", leaves, a.begin, a.end, b.begin, b.end);
                    }
    }
}

/* A range falls into nodes of the tree, side by side, of which no two neighbours are children of one node. */
static void test_nodes(void **state)
{
    (void)state;
    level levels[8];
    for (int leaves = 1; leaves <= MOST; leaves++) {
        int n = make_tree(leaves, levels);
        for (int begin = 0; begin < leaves; begin++)
            for (int end = begin + 1; end <= leaves; end++) {
                yk__leaves nodes[YK__MOST_NODES];
                int count = yk__leaves_nodes(leaves, (yk__leaves){begin, end}, nodes), at = begin;
                for (int i = 0; i < count; at = nodes[i++].end) {
                    assert_int_equal(nodes[i].begin, at);
                    assert_true(is_node(levels, n, nodes[i]));
                    assert_false(i && are_children(levels, n, nodes[i - 1], nodes[i]));
                }
                assert_int_equal(at, end);
            }
    }
}

/* Every leaf is one process's, the parts differ by one at most, and the larger ones come first. */
static void test_parts(void **state)
{
    (void)state;
    for (int leaves = 1; leaves <= MOST; leaves++)
        for (int parts = 1; parts <= leaves; parts++) {
            int at = 0, before = leaves;
            for (int p = 0; p < parts; p++) {
                yk__leaves of = yk__leaves_of(leaves, parts, p);
                int count = of.end - of.begin;
                assert_int_equal(of.begin, at);
                assert_in_range(count, leaves / parts, before);
                at = of.end;
                before = count;
            }
            assert_int_equal(at, leaves);
            assert_true(yk__leaves_of(leaves, parts, 0).end - before <= 1);
        }
}

static bool even_parts(int leaves, int parts)
{
    int begin[MOST + 1] = {0};
    for (int p = 0; p < parts; p++)
        begin[p + 1] = yk__leaves_of(leaves, parts, p).end;
    return yk__leaves_even(leaves, parts, begin);
}

/* Even parts: added as leaves of a tree of their own they give the tree over all leaves. */
static void test_even(void **state)
{
    (void)state;
    level all[8], of_parts[8];
    int even = 0;
    for (int leaves = 1; leaves <= MOST; leaves++)
        for (int parts = 1; parts <= leaves; parts++) {
            int n = make_tree(leaves, all), m = make_tree(parts, of_parts);
            bool expected = true;
            for (int l = 0; l < m; l++) /* each node of the parts' tree is one of the leaves' */
                for (int i = 0; i < of_parts[l].count; i++) {
                    yk__leaves node = of_parts[l].nodes[i];
                    expected &= is_node(all, n,
                                        (yk__leaves){yk__leaves_of(leaves, parts, node.begin).begin,
                                                     yk__leaves_of(leaves, parts, node.end - 1).end});
                }
            if (even_parts(leaves, parts) != expected)
                fail_msg("%d leaves in %d parts", leaves, parts);
            even += expected;
        }
    assert_true(even > 2 * MOST); /* one part, and as many as leaves, among others */
    assert_true(even_parts(12, 3) && even_parts(12, 6) && even_parts(7, 2));
    assert_false(even_parts(12, 2) || even_parts(12, 4) || even_parts(7, 3));
    assert_true(yk__leaves_even(12, 2, (int[]){0, 8, 12}) && yk__leaves_even(12, 3, (int[]){0, 4, 8, 12}));
    assert_false(yk__leaves_even(12, 2, (int[]){0, 4, 12}) || yk__leaves_even(12, 3, (int[]){0, 2, 8, 12}));
}

/* No other division is done earlier; found by trying all for three processes. */
static void test_divide(void **state)
{
    (void)state;
    const double speeds[][3] = {{1, 1, 1}, {1, 2, 4}, {5, 1, 1}, {0.3, 0.31, 9}, {1e-9, 1, 1}};
    for (size_t s = 0; s < sizeof(speeds) / sizeof(*speeds); s++)
        for (int leaves = 3; leaves <= 24; leaves++) {
            int begin[4];
            double best = INFINITY, last = yk__leaves_divide(leaves, 3, speeds[s], begin), found = 0;
            for (int a = 1; a < leaves - 1; a++)
                for (int b = 1; a + b < leaves; b++) {
                    double until = fmax(fmax(a * speeds[s][0], b * speeds[s][1]), (leaves - a - b) * speeds[s][2]);
                    best = fmin(best, until);
                }
            assert_true(begin[0] == 0 && begin[3] == leaves);
            for (int p = 0; p < 3; p++) {
                assert_true(begin[p + 1] > begin[p]);
                found = fmax(found, (begin[p + 1] - begin[p]) * speeds[s][p]);
            }
            assert_true(last == best && found == best);
        }
}

/* The sum of numbers has the bits of a reduction over ranks. */
static void test_sum(void **state)
{
    (void)state;
    for (int leaves = 1; leaves <= MOST; leaves++) {
        double values[MOST], kept[MOST], reduced;
        const char *in[MOST];
        for (int i = 0; i < leaves; i++) {
            values[i] = kept[i] = sin(i + 1.0) * pow(10, i % 7);
            in[i] = (const char *)&kept[i];
        }
        char *out = (char *)&reduced;
        expect_ok(yk__comm_combine(YK_OP_SUM, YK_F64, 1, &out, leaves, in, 1, false));
        assert_true(yk__leaves_sum(values, leaves) == reduced);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_joins),  cmocka_unit_test(test_nodes),
                                       cmocka_unit_test(test_parts),  cmocka_unit_test(test_even),
                                       cmocka_unit_test(test_divide), cmocka_unit_test(test_sum)};
    return cmocka_run_group_tests_name("leaf_tree", tests, NULL, NULL);
}
