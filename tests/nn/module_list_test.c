/*
 * module_list_test.c - ModuleList and ModuleDict: names and order as in PyTorch, text, and what is refused.
 */
#include "tests/support/expect.h"

#include <stdio.h>
#include <string.h>

#include <yoke/nn.h>

static void text_of(yk_module *m, char *text, size_t size)
{
    FILE *to = fmemopen(text, size, "w");
    assert_non_null(to);
    expect_ok(yk_module_print(to, m));
    fclose(to);
}

static yk_module *linear(int64_t out)
{
    return yk_linear_create(2, out, NULL);
}

/* The children of m are these modules, under "0", "1", ... */
static void expect_children(yk_module *m, int64_t count, yk_module *const *children)
{
    assert_int_equal(yk_module_child_count(m), count);
    for (int64_t i = 0; i < count; i++) {
        char name[8];
        snprintf(name, sizeof(name), "%d", (int)i);
        assert_ptr_equal(yk_module_child(m, i), children[i]);
        assert_ptr_equal(yk_module_list_get(m, i), children[i]);
        assert_ptr_equal(yk_module_list_get(m, i - count), children[i]);
        assert_string_equal(yk_module_child_name(m, i), name);
    }
    assert_null(yk_module_list_get(m, count));
    assert_null(yk_module_list_get(m, -count - 1));
    assert_null(yk_last_error());
}

static void test_list(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_module *a = linear(1), *b = linear(2), *c = linear(3), *d = linear(4);
    yk_module *list = yk_module_list((yk_module *[]){a, b}, 2);
    assert_non_null(list);
    expect_children(list, 2, (yk_module *[]){a, b});
    assert_ptr_equal(yk_module_list_append(list, c), c);
    assert_ptr_equal(yk_module_list_insert(list, 1, d), d);
    expect_children(list, 4, (yk_module *[]){a, d, b, c});
    /* [m.weight for m in the state dict], in the names' order */
    yk_state_dict *dict = yk_module_state_dict(list);
    static const char *const names[] = {"0.weight", "0.bias", "1.weight", "1.bias",
                                        "2.weight", "2.bias", "3.weight", "3.bias"};
    assert_int_equal(yk_state_dict_count(dict), 8);
    for (int i = 0; i < 8; i++)
        assert_string_equal(yk_state_dict_name(dict, i), names[i]);
    assert_int_equal(yk_size(yk_state_dict_get(dict, "1.weight"), 0), 4);
    assert_ptr_equal(yk_module_get_module(list, "3"), c);
    /* before the last one, as insert(-1, m) of PyTorch; at the end; replaced, as list[0] = m */
    yk_module *e = linear(5), *f = linear(6);
    assert_ptr_equal(yk_module_list_insert(list, -1, e), e);
    assert_ptr_equal(yk_module_list_insert(list, 5, f), f);
    expect_children(list, 6, (yk_module *[]){a, d, b, e, c, f});
    assert_ptr_equal(yk_module_add(list, "0", f), f);
    expect_children(list, 6, (yk_module *[]){f, d, b, e, c, f});
    yk_module *empty = yk_module_list(NULL, 0);
    assert_non_null(empty);
    assert_ptr_equal(yk_module_list_insert(empty, 0, a), a);
    expect_children(empty, 1, (yk_module *[]){a});
    yk_scope_end(scope);
}

static void test_sequential(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_module *a = linear(3), *b = yk_linear_create(3, 1, NULL), *relu = yk_relu_create();
    yk_module *net = yk_sequential(a, b);
    assert_ptr_equal(yk_module_list_insert(net, 1, relu), relu);
    expect_children(net, 3, (yk_module *[]){a, relu, b});
    yk_tensor *x = yk_randn(YK_SHAPE(4, 2), NULL);
    yk_tensor *expected = yk_forward(b, yk_relu(yk_forward(a, x)));
    assert_true(yk_item(yk_all(yk_eq(yk_forward(net, x), expected))) == 1);
    yk_scope_end(scope);
}

static void test_dict(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_module *a = linear(1), *b = linear(2), *c = linear(3);
    yk_module *dict = yk_module_dict((const char *[]){"left", "right"}, (yk_module *[]){a, b}, 2);
    assert_non_null(dict);
    assert_ptr_equal(yk_module_get_module(dict, "right"), b);
    assert_null(yk_module_get_module(dict, "none"));
    assert_ptr_equal(yk_module_add(dict, "left", c), c);
    assert_int_equal(yk_module_child_count(dict), 2);
    assert_string_equal(yk_module_child_name(dict, 0), "left");
    assert_ptr_equal(yk_module_child(dict, 0), c);
    yk_state_dict *values = yk_module_state_dict(dict);
    assert_string_equal(yk_state_dict_name(values, 0), "left.weight");
    assert_string_equal(yk_state_dict_name(values, 3), "right.bias");
    assert_non_null(yk_module_dict(NULL, NULL, 0));
    yk_scope_end(scope);
}

/* Equal neighbours of a list are one line, as in PyTorch's repr, which wrote these. */
static void test_text(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    char text[1000] = "";
    yk_module *pair[2] = {yk_sequential(yk_relu_create(), yk_relu_create()),
                          yk_sequential(yk_relu_create(), yk_relu_create())};
    text_of(yk_module_list(
                (yk_module *[]){linear(3), linear(3), yk_relu_create(), pair[0], pair[1], yk_module_list(NULL, 0)}, 6),
            text, sizeof(text));
    assert_string_equal(text, "ModuleList(\n"
                              "  (0-1): 2 x Linear(in_features=2, out_features=3, bias=True)\n"
                              "  (2): ReLU()\n"
                              "  (3-4): 2 x Sequential(\n"
                              "    (0): ReLU()\n"
                              "    (1): ReLU()\n"
                              "  )\n"
                              "  (5): ModuleList()\n"
                              ")\n");
    memset(text, 0, sizeof(text));
    text_of(yk_module_dict((const char *[]){"a", "b"}, (yk_module *[]){linear(3), linear(3)}, 2), text, sizeof(text));
    assert_string_equal(text, "ModuleDict(\n"
                              "  (a): Linear(in_features=2, out_features=3, bias=True)\n"
                              "  (b): Linear(in_features=2, out_features=3, bias=True)\n"
                              ")\n");
    yk_scope_end(scope);
}

static void test_errors(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_module *list = yk_module_list((yk_module *[]){linear(1)}, 1);
    assert_null(yk_forward(list, yk_ones(YK_SHAPE(1, 2), NULL)));
    expect_error(YK_ERR_STATE, "ModuleList has no forward: call yk_forward with its children");
    assert_null(yk_module_list_insert(list, 2, linear(1)));
    expect_error(YK_ERR_ARGUMENT, "module_list_insert: index 2 is outside a ModuleList of 1 modules");
    assert_null(yk_module_list_insert(list, -2, linear(1)));
    expect_error(YK_ERR_ARGUMENT, "module_list_insert: index -2 is outside a ModuleList of 1 modules");
    assert_null(yk_module_list_append(linear(1), linear(1)));
    expect_error(YK_ERR_ARGUMENT, "module_list_append: the module is a Linear, expected a ModuleList or a Sequential");
    assert_null(yk_module_list_append(list, NULL));
    expect_error(YK_ERR_ARGUMENT, "module_list_append: the module to append is NULL");
    assert_null(yk_module_list_append(NULL, linear(1)));
    expect_error(YK_ERR_ARGUMENT, "module_list_append: the module is NULL");
    assert_null(yk_module_list_get(linear(1), 0));
    assert_null(yk_module_list(NULL, 1));
    expect_error(YK_ERR_ARGUMENT, "module_list: the array of modules is NULL");
    assert_null(yk_module_list((yk_module *[]){NULL}, 1));
    expect_error(YK_ERR_ARGUMENT, "ModuleList: \"0\" is NULL");
    assert_null(yk_module_dict(NULL, (yk_module *[]){list}, 1));
    expect_error(YK_ERR_ARGUMENT, "module_dict: the array of names is NULL");
    assert_null(yk_module_dict((const char *[]){"a.b"}, (yk_module *[]){list}, 1));
    expect_error(YK_ERR_ARGUMENT, "ModuleDict: \"a.b\" is not a name for a part");
    assert_null(
        yk_forward(yk_module_dict((const char *[]){"a"}, (yk_module *[]){list}, 1), yk_ones(YK_SHAPE(1, 2), NULL)));
    expect_error(YK_ERR_STATE, "ModuleDict has no forward");
    assert_int_equal(yk_module_child_count(list), 1);
    assert_null(yk_module_list_append(list, list));
    expect_error(YK_ERR_ARGUMENT, "would contain itself");
    yk_scope_end(scope);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_list), cmocka_unit_test(test_sequential), cmocka_unit_test(test_dict),
        cmocka_unit_test(test_text), cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
