/* module_check_test.c - the check of a tree of modules: what is damaged is named with its values. */
#include <yoke/ops.h>

#include "nn/module.h"
#include "tests/support/broken.h"

static void test_names(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_module *net = yk_lenet(NULL);
    expect_sound(yk__module_tree_check(net));
    yk_module *first = net->children.items[0].object;
    assert_true(net->children.count > 1);
    char *name = net->children.items[1].name;
    net->children.items[1].name = net->children.items[0].name;
    char text[100];
    snprintf(text, sizeof(text), "LeNet: 2 parts have the name \"%s\"", net->children.items[0].name);
    expect_broken(yk__module_tree_check(net), strchr(text, '2'));
    net->children.items[1].name = (char[]){"a.b"};
    expect_broken(yk__module_tree_check(net), "a part has the name \"a.b\"");
    net->children.items[1].name = NULL;
    expect_broken(yk__module_tree_check(net), "a part has the name \"(NULL)\"");
    net->children.items[1].name = name;
    yk_module *outer = yk_sequential(net);
    expect_sound(yk__module_tree_check(outer));
    void *part = net->children.items[1].object;
    net->children.items[1].object = NULL;
    expect_broken(yk__module_tree_check(outer), "is NULL");
    net->children.items[1].object = outer;
    expect_broken(yk__module_tree_check(outer), "contains itself");
    net->children.items[1].object = part;
    assert_true(first->parameters.count > 0);
    yk_tensor *x = first->parameters.items[0].object, *made = yk_mul_scalar(x, 2);
    first->parameters.items[0].object = made;
    expect_broken(yk__module_tree_check(net), "of float32 and made by mul_scalar");
    int references = atomic_load(&made->object.references);
    atomic_store(&made->object.references, -9);
    expect_broken(yk__module_tree_check(net), "was freed");
    atomic_store(&made->object.references, references);
    first->parameters.items[0].object = x;
    expect_sound(yk__module_tree_check(outer));
    yk_scope_end(scope);
}

/* Parameters that two modules share, and a module that stands in the tree twice, are no damage. */
static void test_shared(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_module *a = yk_linear_create(3, 3, NULL), *b = yk_linear_create(3, 3, NULL);
    assert_non_null(yk_module_add_parameter(b, "weight", a->parameters.items[0].object));
    expect_sound(yk__module_tree_check(yk_sequential(a, b, a)));
    yk_module *replica = yk__module_replica_make(a);
    assert_non_null(replica);
    expect_sound(yk__module_parts_check(replica)); /* names without tensors */
    int64_t count = replica->parameters.count;
    replica->parameters.count = 1;
    expect_broken(yk__module_parts_check(replica),
                  "a replica has 1 parameters, 0 buffers and 0 children, the original 2");
    replica->parameters.count = count;
    yk_module_release(replica);
    yk_scope_end(scope);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_names), cmocka_unit_test(test_shared)};
    return cmocka_run_group_tests_name("module_check", tests, NULL, NULL);
}
