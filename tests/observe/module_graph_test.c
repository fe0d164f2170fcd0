/*
 * module_graph_test.c - networks as TensorBoard's graph: names, operations between modules, what is the input of what;
 * every node is on a way from an input to the output; the model is as it was before; forwards that fail.
 */
#include "tests/support/expect.h"

#include <yoke/yoke.h>

#include "observe/module_graph.h"
#include "tests/support/test_device.h"

enum { MOST_NODES = 400, MOST_INPUTS = 8 };
typedef struct shown_node {
    char name[128], op[64], inputs[MOST_INPUTS][128];
    int n_inputs;
} shown_node;
static shown_node shown[MOST_NODES];
static int n_shown;

static uint64_t number_read(const unsigned char **at)
{
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
        unsigned byte = *(*at)++;
        value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128)
            return value;
    }
}

/* All that stands in a graph has a length and bytes. */
static void node_read(const unsigned char *at, const unsigned char *end)
{
    shown_node *n = &shown[n_shown++];
    assert_true(n_shown < MOST_NODES);
    *n = (shown_node){0};
    while (at < end) {
        unsigned key = (unsigned)number_read(&at);
        assert_int_equal(key & 7, 2);
        size_t size = (size_t)number_read(&at);
        char *to = key >> 3 == 1 ? n->name : key >> 3 == 2 ? n->op : key >> 3 == 3 ? n->inputs[n->n_inputs++] : NULL;
        assert_true(n->n_inputs < MOST_INPUTS && size < 128);
        if (to)
            memcpy(to, at, size);
        at += size;
    }
}

static yk_status graph_make(yk_module *model, yk_tensor *const *inputs, int count)
{
    yk__proto graph = {0};
    n_shown = 0;
    yk_status status = yk__module_graph(model, inputs, count, &graph);
    const unsigned char *at = graph.data, *end = at ? at + graph.size : at;
    while (!status && at < end) {
        assert_int_equal(number_read(&at), 1 << 3 | 2);
        size_t size = (size_t)number_read(&at);
        node_read(at, at + size);
        at += size;
    }
    free(graph.data);
    return status;
}

static const shown_node *node_find(const char *name)
{
    for (int i = 0; i < n_shown; i++) {
        if (strcmp(shown[i].name, name) == 0)
            return &shown[i];
    }
    return NULL;
}

/* "name = op(input, input)" of the node. */
static void expect_node(const char *text)
{
    char name[128], is[1200];
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(text, " "), text);
    const shown_node *n = node_find(name);
    if (!n)
        fail_msg("there is no node '%s'", name);
    int size = snprintf(is, sizeof(is), "%s = %s(", n->name, n->op);
    for (int i = 0; i < n->n_inputs; i++)
        size += snprintf(is + size, sizeof(is) - (size_t)size, "%s%s", i ? ", " : "", n->inputs[i]);
    snprintf(is + size, sizeof(is) - (size_t)size, ")");
    assert_string_equal(is, text);
}

/* Every node is on a way from an input to the output. */
static void expect_connected(void)
{
    bool before[MOST_NODES] = {false}, after[MOST_NODES] = {false};
    for (int round = 0; round < n_shown; round++) {
        for (int i = 0; i < n_shown; i++) {
            before[i] |= strcmp(shown[i].op, "Placeholder") == 0;
            after[i] |= strcmp(shown[i].name, "output") == 0;
            for (int k = 0; k < shown[i].n_inputs; k++) {
                const shown_node *from = node_find(shown[i].inputs[k]);
                assert_non_null(from);
                before[i] |= before[from - shown];
                after[from - shown] |= after[i];
            }
        }
    }
    for (int i = 0; i < n_shown; i++) {
        if (!before[i] || !after[i])
            fail_msg("'%s' is not between input and output", shown[i].name);
    }
}

static void models(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *digits = yk_zeros(YK_SHAPE(1, 1, 28, 28), NULL);
    yk_tensor *pictures = yk_zeros(YK_SHAPE(1, 3, 32, 32), NULL);
    expect_ok(graph_make(yk_lenet(NULL), &digits, 1));
    expect_connected();
    expect_node("input = Placeholder()");
    expect_node("LeNet/conv1 = Conv2d(input)");
    expect_node("LeNet/max_pool2d = max_pool2d(LeNet/conv1)");
    expect_node("LeNet/flatten = flatten(LeNet/relu_1)");
    expect_node("output = Identity(LeNet/fc3)");
    assert_int_equal(n_shown, 14);
    expect_ok(graph_make(yk_resnet18(NULL), &pictures, 1));
    expect_connected();
    expect_node("ResNet/layer1/0/add = add(ResNet/layer1/0/bn2, ResNet/maxpool)");
    int adds = 0, convolutions = 0;
    for (int i = 0; i < n_shown; i++) {
        adds += strstr(shown[i].op, "add") && shown[i].n_inputs == 2;
        convolutions += strcmp(shown[i].op, "Conv2d") == 0;
    }
    assert_int_equal(adds, 8); /* what each block adds to its input */
    assert_int_equal(convolutions, 20);
    yk_scope_end(scope);
}

/* A module with a way around: y = relu(a(x)) * 2 + b(x), in which a is called twice, and the loader's ids go to an
 * embedding. */
static yk_status around_forward(yk_module *m, yk_tensor *const *inputs, int n_inputs, yk_tensor **outputs,
                                int n_outputs)
{
    (void)n_inputs;
    (void)n_outputs;
    yk_tensor *x = yk_forward(yk_module_get_module(m, "words"), inputs[0]);
    yk_module *a = yk_module_get_module(m, "a");
    yk_tensor *left = yk_relu(yk_forward(a, yk_forward(a, x)));
    yk_tensor *kept = yk_forward(yk_module_get_module(m, "drop"), yk_forward(yk_module_get_module(m, "b"), x));
    outputs[0] = yk_add(yk_mul(left, inputs[1]), kept);
    return outputs[0] ? YK_OK : yk_last_error()->code;
}

static const yk_module_class around_class = {.name = "around", .forward_list = around_forward};

static yk_module *around_make(void)
{
    yk_module *m = yk_module_create(&around_class);
    yk_module_add(m, "words", yk_embedding_create(10, 4, NULL));
    yk_module_add(m, "a", yk_linear_create(4, 4, NULL));
    yk_module_add(m, "b", yk_linear_create(4, 4, NULL));
    yk_module_add(m, "drop", yk_dropout_create(0.5));
    return yk_module_check(m);
}

static void own_operations(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_module *m = around_make();
    assert_non_null(m);
    yk_tensor *inputs[] = {yk_zeros(YK_SHAPE(2), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64)),
                           yk_ones(YK_SHAPE(4), NULL)};
    yk_module_train(yk_module_get_module(m, "b"), false);
    expect_ok(graph_make(m, inputs, 2));
    expect_connected();
    expect_node("around/words = Embedding(input)");
    expect_node("around/a = Linear(around/words)");
    expect_node("around/a_1 = Linear(around/a)");
    expect_node("around/b = Linear(around/words)");
    expect_node("around/drop = Dropout(around/b)");
    expect_node("around/relu = relu(around/a_1)");
    expect_node("around/mul = mul(around/relu, input_1)");
    expect_node("around/add = add(around/mul, around/drop)");
    expect_node("output = Identity(around/add)");
    /* The model is as it was. */
    assert_true(yk_module_is_training(m) && yk_module_is_training(yk_module_get_module(m, "drop")));
    assert_false(yk_module_is_training(yk_module_get_module(m, "b")));
    assert_false(yk_requires_grad(inputs[1]));
    /* Without inputs: the modules, and no edges. */
    expect_ok(graph_make(m, NULL, 0));
    assert_int_equal(n_shown, 5);
    expect_node("around = around()");
    expect_node("around/a = Linear()");
    /* A forward that fails. */
    yk_tensor *wrong[] = {inputs[0], yk_ones(YK_SHAPE(3), NULL)};
    assert_int_equal(graph_make(m, wrong, 2), YK_ERR_SHAPE);
    yk_clear_error();
    assert_true(yk_module_is_training(m));
    expect_ok(graph_make(m, inputs, 2));
    expect_connected();
    yk_scope_end(scope);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(models), cmocka_unit_test(own_operations)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
