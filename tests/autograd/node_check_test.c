/*
 * node_check_test.c - the checks of the tape: nothing is wrong with what operations record, and what is damaged is
 * named with its values.
 */
#include <yoke/ops.h>

#include "autograd/node.h"
#include "tests/support/broken.h"

static const yk_tensor_options *const leaf = YK_OPTIONS(yk_tensor_options, .requires_grad = true);

static yk__node *node_of(const yk_tensor *x)
{
    return x->node;
}

static void test_sound(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = yk_ones(YK_SHAPE(3), leaf), *y = yk_mul(x, x), *z = yk_exp(y), *parts[3];
    int count;
    expect_ok(yk_unbind(z, 0, parts, 3, &count));
    assert_int_equal(count, 3);
    yk_tensor *made[] = {y, z, parts[0], parts[2]};
    for (int i = 0; i < 4; i++)
        expect_sound(yk__node_check(node_of(made[i])));
    yk_tensor *w = yk_exp(x);
    assert_non_null(yk_add_(w, y, 1));
    expect_sound(yk__node_check(node_of(w)));
    expect_sound(yk__node_check(node_of(y)));
    expect_ok(yk_backward(yk_sum(z)));
    expect_sound(yk__node_check(node_of(z)));
    expect_sound(yk__node_check(x->leaf_gradient->accumulator));
    yk_scope_end(scope);
}

static void test_edges(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = yk_ones(YK_SHAPE(2), leaf), *y = yk_mul(x, x), *z = yk_exp(y);
    yk__node *node = node_of(z), *first = node_of(y);
    yk__edge kept = node->edges[0];
    node->edges[0].output = 3;
    expect_broken(yk__node_check(node), "exp: input 0 is output 3 of mul, which has 1");
    node->edges[0] = kept;
    node->edges[0].leaf = x;
    expect_broken(yk__node_check(node), "exp: input 0 leads to mul, and holds a leaf");
    node->edges[0] = kept;
    node->edges[0].node = NULL;
    node->edges[0].leaf = x;
    expect_broken(yk__node_check(node), "exp: input 0 has a leaf and no node");
    node->edges[0] = kept;
    uint64_t sequence = first->sequence;
    first->sequence = node->sequence + 5;
    expect_broken(yk__node_check(node), "was recorded before its input 0, mul");
    first->sequence = sequence;
    kept = first->edges[1];
    first->edges[1].leaf = NULL;
    expect_broken(yk__node_check(first), "mul: input 1 leads to accumulate, and holds no leaf");
    first->edges[1] = kept;
    int references = atomic_load(&first->references);
    atomic_store(&first->references, 0);
    expect_broken(yk__node_check(node), "exp: input 0 leads to a node with 0 references");
    expect_broken(yk__node_check(first), "mul has 0 references");
    atomic_store(&first->references, references);
    expect_sound(yk__node_check(first));
    expect_sound(yk__node_check(node));
    yk_scope_end(scope);
}

static void test_saved_and_outputs(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = yk_ones(YK_SHAPE(2), leaf), *y = yk_mul(x, x);
    yk__node *node = node_of(y);
    node->saved[1].version = 7;
    expect_broken(yk__node_check(node), "mul: saved tensor 1 is of version 7, later than the tensor's 0");
    node->saved[1].version = 0;
    node->freed = true;
    expect_broken(yk__node_check(node), "mul: its saved tensors were freed, and 0 of 2 is there");
    node->freed = false;
    yk__output kept = node->outputs[0];
    node->outputs[0].ndim = 9;
    expect_broken(yk__node_check(node), "mul: output 0 has dtype 0 and 9 dimensions");
    node->outputs[0] = kept;
    node->outputs[0].shape[0] = -2;
    expect_broken(yk__node_check(node), "mul: output 0 has size -2 of dimension 0");
    node->outputs[0] = kept;
    node->outputs[0].n_hooks = 1;
    expect_broken(yk__node_check(node), "mul: output 0 has 1 hooks");
    node->outputs[0] = kept;
    node->outputs[0].grad = x;
    expect_broken(yk__node_check(node), "mul: output 0 has a gradient of a backward that is over");
    node->outputs[0] = kept;
    yk__edge *edges = node->edges;
    node->edges++;
    expect_broken(yk__node_check(node), "mul: outputs, edges and saved tensors do not lie behind the node");
    node->edges = edges;
    int inputs = node->n_inputs;
    node->n_inputs = -1;
    expect_broken(yk__node_check(node), "mul has 1 outputs, -1 inputs and 2 saved tensors");
    node->n_inputs = inputs;
    expect_sound(yk__node_check(node));
    yk__node *accumulator = node->edges[0].node;
    accumulator->n_inputs = 1;
    expect_broken(yk__node_check(accumulator), "accumulate, for a leaf, has 1 inputs, 0 saved tensors and 1 outputs");
    accumulator->n_inputs = 0;
    yk_scope_end(scope);
}

static void test_ready_nodes(void **state)
{
    (void)state;
    yk__node nodes[4] = {{.head.name = "a", .sequence = 9},
                         {.head.name = "b", .sequence = 4},
                         {.head.name = "c", .sequence = 9},
                         {.head.name = "d", .sequence = 3}};
    yk__node *heap[4] = {&nodes[0], &nodes[1], &nodes[2], &nodes[3]};
    expect_sound(yk__ready_nodes_check(heap, 4));
    expect_sound(yk__ready_nodes_check(heap, 0));
    nodes[3].sequence = 5;
    expect_broken(yk__ready_nodes_check(heap, 4), "ready node 1, number 4, stands above 3, number 5");
    nodes[3].sequence = 3;
    nodes[2].pending = 2;
    expect_broken(yk__ready_nodes_check(heap, 4), "c, 2 of the nodes that are ready, waits for 2 gradients");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sound), cmocka_unit_test(test_edges),
                                       cmocka_unit_test(test_saved_and_outputs), cmocka_unit_test(test_ready_nodes)};
    return cmocka_run_group_tests_name("node_check", tests, NULL, NULL);
}
