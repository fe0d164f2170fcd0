/*
 * A callback that sets an error and returns success has failed, wherever the library calls one: data sets, transforms,
 * collate, hooks of tensors, module_apply, custom functions forward and backward, spawned processes. The error is the
 * callback's own.
 */
#include "tests/support/expect.h"

#include <yoke/yoke.h>

/* Any call of the library that fails, whose result nobody looks at. */
static void forget_an_error(void)
{
    yk_scope scope = yk_scope_begin();
    (void)yk_zeros(1, (int64_t[]){-7}, NULL);
    yk_scope_end(scope);
}
static const char mark[] = "-7";

static void expect_its_error(yk_status status)
{
    const yk_error *error = yk_last_error();
    assert_non_null(error);
    assert_true(status != YK_OK);
    if (!strstr(error->message, mark) || !strstr(error->message, "zeros"))
        fail_msg("the error is '%s', expected that of zeros", error->message);
    yk_clear_error();
}

/* ---- data ---- */

enum { IN_GET = 1, IN_TRANSFORM, IN_COLLATE };

static yk_status get(void *context, int64_t index, yk_sample *sample)
{
    float *to = yk_sample_allocate(sample, YK_F32, 1, (int64_t[]){2});
    if (!to)
        return YK_ERR_MEMORY;
    to[0] = to[1] = (float)index;
    yk_sample_label(sample, 1);
    if (*(int *)context == IN_GET && index == 5)
        forget_an_error();
    return YK_OK;
}

static yk_status transform(void *user, yk_sample *sample)
{
    (void)sample;
    if (*(int *)user == IN_TRANSFORM)
        forget_an_error();
    return YK_OK;
}

static yk_status collate(void *user, const yk_sample *samples, int64_t count, yk_tensor **tensors, int *n_tensors)
{
    (void)samples;
    tensors[0] = yk_ones(1, &count, NULL);
    *n_tensors = 1;
    if (*(int *)user == IN_COLLATE)
        forget_an_error();
    return YK_OK;
}

static void test_data(void **state)
{
    (void)state;
    for (int where = IN_GET; where <= IN_COLLATE; where++)
        for (int workers = 0; workers <= 2; workers += 2) {
            yk_scope scope = yk_scope_begin();
            yk_dataset *set = yk_dataset_create(&(yk_dataset_table){.name = "own", .length = 12, .get = get}, &where,
                                                yk_transform_create("own", transform, &where, NULL));
            yk_loader *loader = yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = 4, .workers = workers,
                                                                 .collate = collate, .collate_user = &where));
            expect_ok(loader ? YK_OK : YK_ERR_INTERNAL);
            yk_batch batch;
            int batches = 0;
            for (yk_loader_start(loader, 0); yk_loader_next(loader, &batch);)
                batches++;
            assert_true(batches < 3);
            expect_its_error(yk_last_error() ? yk_last_error()->code : YK_OK);
            yk_scope_end(scope);
        }
}

/* ---- gradients ---- */

static yk_tensor *gradient_hook(yk_tensor *gradient, void *user)
{
    (void)user;
    forget_an_error();
    return gradient;
}

static yk_status leaf_hook(yk_tensor *leaf, void *user)
{
    (void)leaf, (void)user;
    forget_an_error();
    return YK_OK;
}

static void test_hooks(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = yk_ones(1, (int64_t[]){3}, YK_OPTIONS(yk_tensor_options, .requires_grad = true));
    assert_true(yk_register_hook(x, gradient_hook, NULL) != 0);
    expect_its_error(yk_backward(yk_sum(x)));
    yk_tensor *y = yk_ones(1, (int64_t[]){3}, YK_OPTIONS(yk_tensor_options, .requires_grad = true));
    assert_true(yk_register_post_accumulate_hook(y, leaf_hook, NULL) != 0);
    expect_its_error(yk_backward(yk_sum(y)));
    yk_scope_end(scope);
}

static yk_tensor *custom_forward(yk_custom *context, yk_tensor *const *inputs, int n_inputs)
{
    (void)n_inputs;
    if (*(int *)yk_custom_user(context) == 0)
        forget_an_error();
    return inputs[0];
}

static yk_status custom_backward(yk_custom *context, yk_tensor *gradient, yk_tensor **gradients, int n_inputs)
{
    (void)context, (void)n_inputs;
    gradients[0] = gradient;
    forget_an_error();
    return YK_OK;
}

static void test_custom_functions(void **state)
{
    (void)state;
    static const yk_custom_function function = {.name = "own", .forward = custom_forward, .backward = custom_backward};
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = yk_ones(1, (int64_t[]){3}, YK_OPTIONS(yk_tensor_options, .requires_grad = true));
    int in_forward = 0, in_backward = 1;
    assert_null(yk_custom_apply(&function, &x, 1, &in_forward));
    expect_its_error(YK_ERR_CALLBACK);
    yk_tensor *out = yk_custom_apply(&function, &x, 1, &in_backward);
    assert_non_null(out);
    expect_its_error(yk_backward(yk_sum(out)));
    yk_scope_end(scope);
}

/* ---- modules ---- */

static yk_status visit(yk_module *module, void *user)
{
    (void)module;
    ++*(int *)user;
    forget_an_error();
    return YK_OK;
}

static void test_module_apply(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    int visited = 0;
    expect_its_error(yk_module_apply(yk_lenet(NULL), visit, &visited));
    assert_int_equal(visited, 1);
    yk_scope_end(scope);
}

/* ---- processes ---- */

static yk_status run_rank(int rank, void *arg)
{
    (void)arg;
    yk_scope scope = yk_scope_begin();
    if (rank == 1)
        forget_an_error();
    yk_scope_end(scope);
    return YK_OK;
}

static void test_spawn(void **state)
{
    (void)state;
    yk_status status = yk_spawn(run_rank, NULL, 2, NULL);
    const yk_error *error = yk_last_error();
    assert_true(error && strstr(error->message, "rank 1"));
    expect_its_error(status);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spawn), /* first: it forks */
        cmocka_unit_test(test_data),         cmocka_unit_test(test_hooks), cmocka_unit_test(test_custom_functions),
        cmocka_unit_test(test_module_apply),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
