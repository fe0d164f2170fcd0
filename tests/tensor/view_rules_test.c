/* view_rules_test.c - what strides say: contiguous, dense, views, broadcasting, and the checks that name shapes. */
#include "tests/support/expect.h"
#include "tests/support/test_device.h"

#include "tensor/tensor.h"

/* True if the elements fill a block without gaps and overlaps, by looking at every offset. */
static bool dense_by_counting(const yk_tensor *x)
{
    int64_t numel = yk_numel(x);
    char *seen = calloc((size_t)numel + 1, 1);
    bool dense = true;
    for (int64_t i = 0; i < numel; i++) {
        int64_t rest = i, offset = 0;
        for (int d = x->ndim - 1; d >= 0; d--) {
            offset += rest % x->shape[d] * x->stride[d];
            rest /= x->shape[d];
        }
        if (offset < 0 || offset >= numel || seen[offset])
            dense = false;
        else
            seen[offset] = 1;
    }
    free(seen);
    return dense;
}

static bool contiguous_by_counting(const yk_tensor *x)
{
    for (int64_t i = 0; i < yk_numel(x); i++) {
        int64_t rest = i, offset = 0;
        for (int d = x->ndim - 1; d >= 0; d--) {
            offset += rest % x->shape[d] * x->stride[d];
            rest /= x->shape[d];
        }
        if (offset != i)
            return false;
    }
    return true;
}

static void dense_and_contiguous(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 2, 3}, strides[] = {0, 1, 2, 3, 4, 6, 9};
    int dense = 0, contiguous = 0, all = 0;
    yk_tensor *base = yk__tensor_new(1, (int64_t[]){200}, NULL, YK_U8, test_device(0));
    for (int s = 0; s < 27; s++) {
        for (int t = 0; t < 343; t++) {
            int64_t shape[3] = {sizes[s % 3], sizes[s / 3 % 3], sizes[s / 9]};
            int64_t stride[3] = {strides[t % 7], strides[t / 7 % 7], strides[t / 49]};
            yk_tensor *x = yk__tensor_view(base, 3, shape, stride, 0);
            if (yk__is_dense(x) != dense_by_counting(x) || yk_is_contiguous(x) != contiguous_by_counting(x))
                fail_msg("shape (%d, %d, %d), strides %d, %d, %d: dense %d, contiguous %d", (int)shape[0],
                         (int)shape[1], (int)shape[2], (int)stride[0], (int)stride[1], (int)stride[2], yk__is_dense(x),
                         yk_is_contiguous(x));
            all++;
            dense += yk__is_dense(x);
            contiguous += yk_is_contiguous(x);
            yk_tensor_release(x);
        }
    }
    assert_int_equal(all, 27 * 343);
    assert_true(contiguous > 300 && dense > contiguous);
    yk_tensor *empty = yk__tensor_view(base, 2, (int64_t[]){0, 5}, (int64_t[]){7, 3}, 0);
    assert_true(yk_is_contiguous(empty));
    assert_true(yk__is_dense(empty));
    assert_false(yk_is_contiguous(NULL));
    yk_tensor_release(empty);
    yk_tensor_release(base);
}

static void strides_of_shapes(void **state)
{
    (void)state;
    int64_t stride[4];
    yk__contiguous_strides(4, (int64_t[]){2, 3, 4, 5}, stride);
    assert_memory_equal(stride, ((int64_t[]){60, 20, 5, 1}), sizeof(stride));
    yk__contiguous_strides(4, (int64_t[]){2, 0, 4, 5}, stride);
    assert_memory_equal(stride, ((int64_t[]){20, 20, 5, 1}), sizeof(stride));
}

static void views_share(void **state)
{
    (void)state;
    yk_tensor *x = yk__tensor_new(2, (int64_t[]){3, 4}, NULL, YK_F64, (yk_device){0});
    for (int i = 0; i < 12; i++)
        ((double *)x->data)[i] = i;
    yk_tensor *column = yk__tensor_view(x, 1, (int64_t[]){3}, (int64_t[]){4}, 2), *alias = yk__tensor_alias(x);
    assert_int_equal(atomic_load(&x->storage->references), 3);
    assert_true(((double *)column->data)[0] == 2 && ((double *)column->data)[4] == 6);
    yk__bump_version(column);
    assert_int_equal(yk_tensor_version(x), 1);
    assert_int_equal(yk_tensor_version(alias), 1);
    assert_int_equal(yk_size(alias, 0), 3);
    assert_int_equal(yk_size(alias, -1), 4);
    assert_int_equal(yk_size(alias, 2), -1);
    assert_int_equal(yk_size(alias, -3), -1);
    assert_int_equal(yk_stride(x, 0), 4);
    assert_int_equal(yk_stride(x, -1), 1);
    yk_tensor_release(x);
    assert_true(((double *)column->data)[8] == 10); /* the storage lives as long as a view of it */
    yk_tensor_release(alias);
    yk_tensor_release(column);
    assert_null(yk__tensor_view(NULL, 1, (int64_t[]){3}, (int64_t[]){4}, 2));
    assert_null(yk__tensor_alias(NULL));
    assert_null(yk__tensor_like(NULL, YK_F32));
    assert_null(yk_last_error());
}

static void of_null(void **state)
{
    (void)state;
    char text[20];
    assert_int_equal(yk_ndim(NULL), 0);
    assert_int_equal(yk_size(NULL, 0), 0);
    assert_int_equal(yk_stride(NULL, 0), 0);
    assert_null(yk_sizes(NULL));
    assert_int_equal(yk_numel(NULL), 0);
    assert_int_equal(yk_tensor_dtype(NULL), YK_F32);
    assert_true(yk_device_equal(yk_tensor_device(NULL), (yk_device){0}));
    assert_false(yk_same_shape(NULL, NULL));
    assert_string_equal(yk_shape_format(NULL, text, sizeof(text)), "NULL");
    assert_int_equal(yk_tensor_version(NULL), 0);
    assert_null(yk_tensor_retain(NULL));
    yk_tensor_release(NULL);
    assert_null(yk_last_error());
}

static void shapes_as_text(void **state)
{
    (void)state;
    char text[200], small[8];
    assert_string_equal(yk__shape_text(0, NULL, text, sizeof(text)), "()");
    assert_string_equal(yk__shape_text(1, (int64_t[]){3}, text, sizeof(text)), "(3,)");
    assert_string_equal(yk__shape_text(3, (int64_t[]){3, 0, -1}, text, sizeof(text)), "(3, 0, -1)");
    assert_string_equal(yk__shape_text(3, (int64_t[]){1000, 1000, 1000}, small, sizeof(small)), "(1000, ");
    int64_t widest[8];
    for (int d = 0; d < 8; d++)
        widest[d] = INT64_MIN;
    assert_int_equal(strlen(yk__shape_text(8, widest, text, sizeof(text))), 8 * 20 + 7 * 2 + 2);
}

static void dims_wrap(void **state)
{
    (void)state;
    yk_tensor *x = yk__tensor_new(3, (int64_t[]){2, 3, 4}, NULL, YK_F32, test_device(0));
    yk_tensor *scalar = yk__tensor_new(0, NULL, NULL, YK_F32, test_device(0));
    for (int dim = -3; dim < 3; dim++) {
        int wrapped = dim;
        expect_ok(yk__wrap_dim("sum", x, &wrapped));
        assert_int_equal(wrapped, (dim + 3) % 3);
    }
    int dim = 3;
    assert_int_equal(yk__wrap_dim("sum", x, &dim), YK_ERR_SHAPE);
    expect_error(YK_ERR_SHAPE, "sum: dimension 3 is outside [-3, 2] of shape (2, 3, 4)");
    dim = -4;
    assert_int_equal(yk__wrap_dim("sum", x, &dim), YK_ERR_SHAPE);
    expect_error(YK_ERR_SHAPE, "sum: dimension -4");
    dim = -1;
    expect_ok(yk__wrap_dim("sum", scalar, &dim));
    assert_int_equal(dim, 0);
    dim = 1;
    assert_int_equal(yk__wrap_dim("sum", scalar, &dim), YK_ERR_SHAPE);
    expect_error(YK_ERR_SHAPE, "outside [-1, 0] of shape ()");
    yk_tensor_release(x);
    yk_tensor_release(scalar);
}

typedef struct shape {
    int ndim;
    int64_t sizes[4];
} shape;

static void broadcasting(void **state)
{
    (void)state;
    static const struct {
        shape a, b, both; /* both.ndim -1: they do not fit */
    } cases[] = {
        {{2, {2, 3}}, {2, {2, 3}}, {2, {2, 3}}},
        {{2, {2, 3}}, {1, {3}}, {2, {2, 3}}},
        {{1, {3}}, {2, {2, 3}}, {2, {2, 3}}},
        {{2, {2, 1}}, {2, {1, 3}}, {2, {2, 3}}},
        {{0, {0}}, {2, {2, 3}}, {2, {2, 3}}},
        {{0, {0}}, {0, {0}}, {0, {0}}},
        {{3, {4, 1, 3}}, {2, {2, 1}}, {3, {4, 2, 3}}},
        {{2, {0, 3}}, {2, {1, 3}}, {2, {0, 3}}},
        {{1, {1}}, {1, {0}}, {1, {0}}},
        {{1, {0}}, {1, {2}}, {-1, {0}}},
        {{2, {2, 3}}, {1, {2}}, {-1, {0}}},
        {{2, {2, 3}}, {2, {3, 2}}, {-1, {0}}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        yk_tensor *a = yk__tensor_new(cases[i].a.ndim, cases[i].a.sizes, NULL, YK_F32, test_device(0));
        yk_tensor *b = yk__tensor_new(cases[i].b.ndim, cases[i].b.sizes, NULL, YK_F32, test_device(0));
        int ndim;
        int64_t sizes[YK_MAX_DIMS];
        yk_status status = yk__broadcast("add", a, b, &ndim, sizes);
        if (cases[i].both.ndim < 0) {
            assert_int_equal(status, YK_ERR_SHAPE);
            expect_error(YK_ERR_SHAPE, "do not broadcast");
        } else {
            expect_ok(status);
            assert_int_equal(ndim, cases[i].both.ndim);
            assert_memory_equal(sizes, cases[i].both.sizes, (size_t)ndim * sizeof(sizes[0]));
            yk__view v = yk__view_expanded(b, ndim, sizes);
            for (int d = 0; d < ndim; d++) {
                int own = d - (ndim - b->ndim);
                bool repeated = own < 0 || b->shape[own] != sizes[d];
                assert_int_equal(v.shape[d], sizes[d]);
                assert_int_equal(v.stride[d], repeated ? 0 : b->stride[own]);
            }
        }
        yk_tensor_release(a);
        yk_tensor_release(b);
    }
    yk_tensor *a = yk__tensor_new(2, (int64_t[]){2, 3}, NULL, YK_F32, test_device(0));
    yk_tensor *b = yk__tensor_new(2, (int64_t[]){2, 4}, NULL, YK_F32, test_device(0));
    int ndim;
    int64_t sizes[YK_MAX_DIMS];
    assert_int_equal(yk__broadcast("add", a, b, &ndim, sizes), YK_ERR_SHAPE);
    expect_error(YK_ERR_SHAPE, "add: shapes (2, 3) and (2, 4) do not broadcast: 3 against 4 in dimension 1");
    yk_tensor_release(a);
    yk_tensor_release(b);
}

static void one_device(void **state)
{
    (void)state;
    yk_tensor *a = yk__tensor_new(0, NULL, NULL, YK_F32, test_device(0));
    yk_tensor *b = yk__tensor_new(0, NULL, NULL, YK_F32, test_device(1));
    yk_tensor *same[] = {a, NULL, a}, *two[] = {NULL, a, b};
    expect_ok(yk__same_device("conv2d", 3, same));
    assert_int_equal(yk__same_device("conv2d", 3, two), YK_ERR_DEVICE);
    expect_error(YK_ERR_DEVICE,
                 device_text("conv2d: the tensors are on two devices, cpu:0 and cpu:1; move one with yk_to"));
    yk_tensor_release(a);
    yk_tensor_release(b);
}

static void same_strides(void **state)
{
    (void)state;
    yk_tensor *x = yk__tensor_new(3, (int64_t[]){2, 1, 3}, NULL, YK_F32, test_device(0));
    yk_tensor *other = yk__tensor_new(3, (int64_t[]){2, 1, 3}, (int64_t[]){3, 77, 1}, YK_F32, test_device(0));
    yk_tensor *turned = yk__tensor_new(3, (int64_t[]){2, 1, 3}, (int64_t[]){1, 1, 2}, YK_F32, test_device(0));
    assert_true(yk__same_strides(x, other)); /* the stride of a size of one says nothing */
    assert_false(yk__same_strides(x, turned));
    assert_true(yk_same_shape(x, turned));
    yk_tensor_release(x);
    yk_tensor_release(other);
    yk_tensor_release(turned);
}

int main(void)
{
    use_devices(2);
    start_devices();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dense_and_contiguous), cmocka_unit_test(strides_of_shapes),
        cmocka_unit_test(views_share),          cmocka_unit_test(of_null),
        cmocka_unit_test(shapes_as_text),       cmocka_unit_test(dims_wrap),
        cmocka_unit_test(broadcasting),         cmocka_unit_test(one_device),
        cmocka_unit_test(same_strides),
    };
    return cmocka_run_group_tests_name("tensor/view_rules", tests, NULL, NULL);
}
