/* refusals_test.c - errors of the public functions for GPUs that are not there, are full, or are two where one is
 * wanted. */
#include "tests/emulator/use_emulator.h"
#include "tests/support/expect.h"

#include <yoke/yoke.h>

static yk_tensor *ones(int16_t device, int64_t count)
{
    return yk_full(YK_SHAPE(count), 1, YK_OPTIONS(yk_tensor_options, .device = {YK_CUDA, device}));
}

static void test_two_gpus(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *a = ones(0, 3), *b = ones(1, 3), *c = yk_zeros(YK_SHAPE(3), NULL);
    assert_null(yk_add(a, b));
    expect_error(YK_ERR_DEVICE,
                 "add: the tensors are on two devices, cuda:0 and cuda:1; move one with yk_to (shapes (3,) and (3,))");
    assert_null(yk_matmul(yk_reshape(b, YK_SHAPE(1, 3)), yk_reshape(a, YK_SHAPE(3, 1))));
    expect_error(YK_ERR_DEVICE, "matmul: the tensors are on two devices, cuda:1 and cuda:0");
    assert_null(yk_mul(c, a));
    expect_error(YK_ERR_DEVICE, "mul: the tensors are on two devices, cpu:0 and cuda:0");
    assert_null(yk_cross_entropy(yk_reshape(a, YK_SHAPE(1, 3)),
                                 yk_zeros(YK_SHAPE(1), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64)), NULL));
    expect_error(YK_ERR_DEVICE, "cross_entropy: the tensors are on two devices, cuda:0 and cpu:0");
    float got[3];
    expect_ok(yk_tensor_read(yk_add(a, yk_to(b, (yk_device){YK_CUDA, 0})), got, sizeof(got)));
    assert_true(got[0] == 2 && got[2] == 2);
    yk_scope_end(scope);
}

/* A tensor that is one number to an elementwise operation may lie on a CPU, as in PyTorch; its gradient comes back
 * there. */
static void test_numbers(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *a = ones(1, 3), *two = yk_scalar(2, NULL), *mask = yk_lt(a, two);
    float got[3], last;
    bool less[3];
    expect_ok(yk_tensor_read(mask, less, sizeof(less)));
    assert_true(less[0] && less[2] && yk_get_device(mask) == 1);
    expect_ok(yk_tensor_read(yk_sub(two, yk_mul(a, two)), got, sizeof(got)));
    assert_true(got[0] == 0 && got[2] == 0);
    expect_ok(yk_tensor_read(yk_where(mask, yk_scalar(-INFINITY, NULL), a), got, sizeof(got)));
    assert_true(got[0] == -INFINITY && got[2] == -INFINITY);
    expect_ok(yk_tensor_read(yk_addcmul(a, a, two, 3), got, sizeof(got)));
    assert_true(got[0] == 7 && got[2] == 7);
    expect_ok(yk_tensor_read(yk_mul_(yk_add_(yk_clone(a), two, 0.5), two), got, sizeof(got)));
    assert_true(got[0] == 4 && got[2] == 4);
    assert_int_equal(yk_get_device(yk_add(two, yk_select(a, 0, 0))), 1); /* both without dimensions */
    yk_tensor *scale = yk_scalar(3, YK_OPTIONS(yk_tensor_options, .requires_grad = true));
    expect_ok(yk_backward(yk_sum(yk_pow(yk_mul(a, scale), two))));
    yk_tensor *grad = yk_grad(scale); /* of 3 scale^2 */
    assert_int_equal(yk_tensor_device(grad).type, YK_CPU);
    expect_ok(yk_tensor_read(grad, &last, sizeof(last)));
    assert_true(last == 18);
    a = ones(0, 2);
    assert_ptr_equal(yk_add_(a, two, 1), a);
    /* The other way round it would be the result's device that changes, and one element is no number. */
    assert_null(yk_add_(two, a, 1));
    expect_error(YK_ERR_DEVICE, "add_: the tensors are on two devices, cpu:0 and cuda:0");
    assert_null(yk_add(a, yk_full(YK_SHAPE(1), 1, NULL)));
    expect_error(YK_ERR_DEVICE, "add: the tensors are on two devices, cuda:0 and cpu:0");
    assert_null(yk_add(yk_select(a, 0, 0), yk_ones(YK_SHAPE(2), NULL)));
    expect_error(YK_ERR_DEVICE, "add: the tensors are on two devices, cuda:0 and cpu:0");
    assert_null(yk_mul(a, yk_select(ones(1, 2), 0, 0)));
    expect_error(YK_ERR_DEVICE, "mul: the tensors are on two devices, cuda:0 and cuda:1");
    yk_scope_end(scope);
}

static void test_no_such_gpu(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_device device;
    assert_null(ones(2, 3));
    expect_error(YK_ERR_DEVICE, "device cuda:2 does not exist: there are 2 cuda devices");
    assert_int_equal(yk_device_parse("cuda:7", &device), YK_ERR_DEVICE);
    expect_error(YK_ERR_DEVICE, "device cuda:7 does not exist: there are 2 cuda devices");
    assert_null(yk_module_to(yk_linear_create(2, 2, NULL), (yk_device){YK_CUDA, 9}));
    expect_error(YK_ERR_DEVICE, "device cuda:9 does not exist");
    assert_int_equal(yk_set_num_threads((yk_device){YK_CUDA, 0}, 4), YK_ERR_UNSUPPORTED);
    expect_error(YK_ERR_UNSUPPORTED, "set_num_threads: cuda:0 does not compute with threads of the host's");
    yk_scope_end(scope);
}

static void test_full(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *kept = yk_relu(ones(1, 1 << 18)); /* with its operand 2 MiB of 8 */
    assert_null(ones(1, 1 << 21));
    expect_error(YK_ERR_MEMORY, "cuda:1: out of memory: 8.0 MiB were asked for, and GPU 1 has 6.0 MiB free of 8.0 MiB");
    assert_null(ones(1, 1 << 21));
    expect_error(YK_ERR_MEMORY, "(a smaller batch, or bf16, needs less); tensors hold 2.0 MiB (");
    assert_null(ones(1, 1 << 21));
    expect_error(YK_ERR_MEMORY, "relu 1.0 MiB in 1");
    float got;
    expect_ok(yk_tensor_read(yk_sum(kept), &got, sizeof(got))); /* the GPU goes on */
    assert_true(got == 1 << 18);
    yk_scope_end(scope);
}

/* Libraries start with memory of their own, for which the cache gives back what it has; of what is in use there is
 * none to be had, which is said. */
static void test_no_room_for_a_library(void **state)
{
    (void)state;
    enum { PIECE = 1 << 15 }; /* elements */
    const yk_tensor_options on_gpu = *YK_OPTIONS(yk_tensor_options, .device = {YK_CUDA, 0});
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = yk_full(YK_SHAPE(1, 8, 8, 8), 1, &on_gpu), *w = yk_full(YK_SHAPE(8, 8, 1, 1), 1, &on_gpu);
    yk_tensor *a = yk_reshape(x, YK_SHAPE(64, 8)), *b = yk_reshape(w, YK_SHAPE(8, 8));
    for (int room = 0; room < 2; room++) {
        yk_scope fill = yk_scope_begin();
        while (yk_empty(YK_SHAPE(PIECE), &on_gpu)) {
        }
        expect_error(YK_ERR_MEMORY, "out of memory");
        if (room)
            yk_scope_end(fill);
        for (int i = 0; i < 2; i++) {
            yk_tensor *made = i ? yk_matmul(a, b) : yk_conv2d(x, w, NULL, NULL);
            assert_int_equal(made != NULL, room);
            if (!room)
                expect_error(YK_ERR_MEMORY, i ? "cublasLtCreate" : "cudnnCreate");
        }
        if (!room)
            yk_scope_end(fill);
    }
    yk_scope_end(scope);
}

/* A wait tells what a kernel found before; whoever waits for a number then fails, and does not go on without it. */
static void test_found_before(void **state)
{
    (void)state;
    const yk_tensor_options on_gpu = *YK_OPTIONS(yk_tensor_options, .device = {YK_CUDA, 0}),
                            index_on_gpu = *YK_OPTIONS(yk_tensor_options, .device = {YK_CUDA, 0}, .dtype = YK_I64);
    for (int variant = 0; variant < 7; variant++) {
        yk_scope scope = yk_scope_begin();
        yk_tensor *x = yk_full(YK_SHAPE(3), 2, &on_gpu), *index = yk_zeros(YK_SHAPE(2), &index_on_gpu);
        expect_ok(yk_set_requires_grad(x, true));
        yk_tensor *loss = yk_sum(variant == 5 ? yk_cumprod(x, 0) : variant == 6 ? yk_median(x) : x);
        yk_tensor *first = yk_select(index, 0, 0), *weights = yk_detach(x);
        assert_non_null(yk_index_select(weights, 0, yk_full(YK_SHAPE(1), 7, &index_on_gpu)));
        if (variant >= 5) {
            assert_int_not_equal(yk_backward(loss), YK_OK);
            assert_null(yk_grad(x));
        } else {
            assert_false(variant == 4 && yk_all_close(weights, weights, 0, 0, false));
            assert_null(variant == 0   ? yk_one_hot(index, 4)
                        : variant == 1 ? yk_bincount(index, NULL, 0)
                        : variant == 2 ? yk_multinomial(weights, 1, true)
                        : variant == 3 ? yk_index(weights, YK_INDEX(yk_by(first)))
                                       : NULL);
        }
        expect_error(YK_ERR_ARGUMENT, "index 7 is outside dimension 0 of size 3 (found on cuda:0)");
        yk_scope_end(scope);
    }
}

int main(void)
{
    setenv("YOKE_EMULATOR_GPUS", "2", 1);
    setenv("YOKE_EMULATOR_MEMORY", "8", 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
    if (!use_emulator())
        return 0;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_two_gpus),
                                       cmocka_unit_test(test_numbers),
                                       cmocka_unit_test(test_no_such_gpu),
                                       cmocka_unit_test(test_full),
                                       cmocka_unit_test(test_no_room_for_a_library),
                                       cmocka_unit_test(test_found_before)};
    return cmocka_run_group_tests_name("refusals", tests, NULL, NULL);
}
