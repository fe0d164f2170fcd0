/*
 * null_arrays_test.c - NULL for an array, a place for a result, a callback or a stream that a function needs: an error
 * that names the function and what is missing, never a crash. Objects that are NULL: record_test.c.
 */
#include <stdio.h>

#include "tests/support/expect.h"

#include <yoke/yoke.h>

#define expect_missing(call, text)                                                                                     \
    do {                                                                                                               \
        (void)!(call);                                                                                                 \
        expect_error(YK_ERR_ARGUMENT, text);                                                                           \
    } while (0)

static void test_operations(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = yk_ones(YK_SHAPE(4, 2), NULL), *parts[4];
    int count;
    expect_missing(yk_reshape(x, 2, NULL), "reshape: the shape is NULL");
    expect_missing(yk_view(x, 2, NULL), "view: the shape is NULL");
    expect_missing(yk_expand(x, 2, NULL), "expand: the shape is NULL");
    expect_missing(yk_permute(x, NULL), "permute: the order of dimensions is NULL");
    expect_missing(yk_flip(x, NULL, 1), "flip: the array of dimensions is NULL");
    expect_missing(yk_repeat(x, 2, NULL), "repeat: the array of counts is NULL");
    expect_missing(yk_cat(NULL, 2, 0), "cat: the array of tensors is NULL");
    expect_missing(yk_stack(NULL, 2, 0), "stack: the array of tensors is NULL");
    expect_missing(yk_meshgrid(NULL, 2, parts), "meshgrid: the array of tensors is NULL");
    expect_missing(yk_meshgrid_xy(&x, 1, NULL), "meshgrid: the array of results is NULL");
    expect_missing(yk_split(x, 2, 0, NULL, 4, &count), "split: the array of parts is NULL");
    expect_missing(yk_chunk(x, 2, 0, NULL, 4, &count), "chunk: the array of parts is NULL");
    expect_missing(yk_unbind(x, 0, NULL, 4, &count), "unbind: the array of parts is NULL");
    expect_missing(yk_split_sizes(x, NULL, 2, 0, parts), "split_sizes: the array of sizes is NULL");
    expect_missing(yk_split_sizes(x, (int64_t[]){1, 3}, 2, 0, NULL), "split_sizes: the array of parts is NULL");
    expect_missing(yk_layer_norm(x, 1, NULL, NULL, NULL, 1e-5), "layer_norm: the normalised shape is NULL");
    expect_missing(yk_print(NULL, x), "print: the stream is NULL");
    /* Calls that need no array. */
    yk_tensor *point = yk_scalar(1, NULL);
    assert_non_null(yk_reshape(yk_ones(YK_SHAPE(1), NULL), YK_SCALAR));
    assert_non_null(yk_permute(point, NULL));
    assert_non_null(yk_flip(x, NULL, 0));
    assert_non_null(yk_repeat(point, 0, NULL));
    expect_ok(yk_unbind(yk_ones(YK_SHAPE(0, 2), NULL), 0, NULL, 0, &count));
    assert_int_equal(count, 0);
    yk_scope_end(scope);
}

static yk_tensor *custom_forward(yk_custom *context, yk_tensor *const *inputs, int n)
{
    (void)context, (void)n;
    return yk_neg(inputs[0]);
}

static yk_status custom_backward(yk_custom *context, yk_tensor *grad, yk_tensor **grads, int n)
{
    (void)context, (void)n;
    grads[0] = yk_neg(grad);
    return YK_OK;
}

static yk_tensor *checked(yk_tensor *const *inputs, int n, void *user)
{
    (void)n, (void)user;
    return yk_neg(inputs[0]);
}

static void test_functions_and_modules(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    static const yk_custom_function function = {.name = "own", .forward = custom_forward, .backward = custom_backward};
    yk_tensor *x = yk_ones(YK_SHAPE(4, 2), YK_OPTIONS(yk_tensor_options, .dtype = YK_F64, .requires_grad = true)), *out;
    expect_missing(yk_custom_apply(&function, NULL, 1, NULL), "own: the array of inputs is NULL");
    expect_missing(yk_custom_apply_list(&function, &x, 1, NULL, 1, NULL), "own: the array of outputs is NULL");
    expect_missing(yk_gradcheck(checked, NULL, 1, NULL, NULL), "gradcheck: the array of inputs is NULL");
    expect_missing(yk_gradcheck(NULL, &x, 1, NULL, NULL), "gradcheck: the function is NULL");
    expect_missing(yk_gradcheck_list(NULL, &x, 1, 1, NULL, NULL), "gradcheck: the function is NULL");
    yk_module *m = yk_relu_create();
    expect_missing(yk_sequential_list(NULL, 2), "sequential_list: the array of modules is NULL");
    expect_missing(yk_forward_list(m, NULL, 1, &out, 1), "forward_list: the array of inputs is NULL");
    expect_missing(yk_forward_list(m, &x, 1, NULL, 1), "forward_list: the array of outputs is NULL");
    expect_missing(yk_module_apply(m, NULL, NULL), "module_apply: the function is NULL");
    yk_module *parent = yk_module_create(yk_module_class_of(m));
    expect_missing(yk_module_add(parent, NULL, parent), "ReLU: \"\" would contain itself");
    parent = yk_module_create(yk_module_class_of(m));
    expect_missing(yk_module_add_parameter(parent, NULL, yk_neg(x)), "ReLU: \"\" was made by neg");
    assert_non_null(yk_sequential_list(NULL, 0));
    yk_scope_end(scope);
}

static yk_status get(void *context, int64_t index, yk_sample *sample)
{
    (void)context, (void)index;
    static const float value[1];
    yk_sample_view(sample, value, YK_F32, 1, NULL);
    return YK_OK;
}

static void test_results_and_files(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_dataset *set = yk_glyphs(YK_TEST, NULL, 0);
    yk_tensor *tensors[YK_SAMPLE_TENSORS];
    int count;
    expect_missing(yk_device_parse("cpu", NULL), "device_parse: the result is NULL");
    expect_missing(yk_dtype_parse("f32", NULL), "dtype_parse: the result is NULL");
    expect_missing(yk_device_memory((yk_device){0}, NULL), "device_memory: the info is NULL");
    expect_missing(yk_dataset_create(NULL, NULL, NULL), "dataset_create: the table is NULL");
    expect_missing(yk_dataset_get_list(set, 0, YK_F32, NULL, &count), "dataset_get: the array of tensors is NULL");
    expect_missing(yk_dataset_get_list(set, 0, YK_F32, tensors, NULL), "dataset_get: the count is NULL");
    yk_loader *loader = yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = 2));
    expect_missing(yk_loader_next(loader, NULL), "loader_next: the batch is NULL");
    yk_store *store = yk_hash_store();
    expect_missing(yk_store_check(store, (const char *[]){"key"}, 1, NULL), "check: the answer is NULL");
    expect_missing(yk_store_count(store, NULL), "count: the number is NULL");
    expect_missing(yk_checkpoint_find_latest("/nowhere", NULL), "checkpoint_find_latest: the result is NULL");
    expect_missing(yk_safetensors_load(NULL, (yk_device){0}), "safetensors_load: the path is NULL");
    expect_missing(yk_safetensors_save(NULL, yk_state_dict_create(), NULL), "safetensors_save: the path is NULL");
    expect_missing(yk_pt_load(NULL, NULL), "pt_load: the path is NULL");
    expect_missing(yk_checkpoint_load_weights(NULL, (yk_device){0}), "checkpoint_load_weights: the path is NULL");
    yk_process_group *group = yk_process_group_create(NULL, 0, 1, NULL);
    expect_missing(yk_process_group_dump(group, NULL), "process_group_dump: the stream is NULL");
    yk_scope_end(scope);
}

/* A sample without memory behind it, which a program made itself to try a transform, say. */
static void test_samples(void **state)
{
    (void)state;
    yk_sample own = {.count = 1};
    yk_sample_label(&own, 3);
    expect_error(YK_ERR_STATE, "sample_label: the sample is none that a data set or a transform was called with");
    assert_null(yk_sample_allocate(&own, YK_F32, YK_SHAPE(2)));
    expect_error(YK_ERR_STATE, "sample_allocate: the sample is none");
    assert_null(yk_sample_allocate_at(&own, 1, YK_F32, YK_SHAPE(2)));
    expect_error(YK_ERR_STATE, "sample_allocate_at: the sample is none");
    assert_int_equal(yk_sample_below(&own, 7), 0);
    expect_error(YK_ERR_STATE, "sample_random: the sample is none");
    expect_missing(yk_sample_random(NULL), "sample_random: the sample is NULL");
    expect_missing(yk_sample_view_at(NULL, 1, NULL, YK_F32, YK_SHAPE(2)), "sample_view_at: the sample is NULL");
    expect_missing(yk_sample_view_at(&own, 1, NULL, YK_F32, 1, NULL), "sample_view_at: the shape is NULL");
    yk_sample_view(NULL, NULL, YK_F32, YK_SHAPE(2));
    expect_error(YK_ERR_ARGUMENT, "sample_view: the sample is NULL");
    yk_scope scope = yk_scope_begin();
    yk_dataset *set = yk_dataset_create(&(yk_dataset_table){.name = "rows", .length = 1, .get = get}, NULL, NULL);
    assert_null(yk_dataset_get(set, 0, YK_F32, NULL));
    expect_error(YK_ERR_ARGUMENT, "rows: sample 0: sample_view: the shape is NULL");
    yk_scope_end(scope);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_operations),
        cmocka_unit_test(test_functions_and_modules),
        cmocka_unit_test(test_results_and_files),
        cmocka_unit_test(test_samples),
    };
    return cmocka_run_group_tests_name("null arrays", tests, NULL, NULL);
}
