/*
 * op_errors_test.c - what may not be: shapes, dtypes, devices and values, each refused with a message that says why.
 */
#include "tests/support/expect.h"
#include "tests/support/test_device.h"

#include <yoke/ops.h>

/* Short makers; all on the first device. */
#define T(...) yk_ones(YK_SHAPE(__VA_ARGS__), NULL)
#define S      yk_ones(YK_SCALAR, NULL)

static yk_tensor *of(yk_dtype dtype, int64_t n)
{
    return yk_ones(1, &n, YK_OPTIONS(yk_tensor_options, .dtype = dtype));
}

static yk_tensor *away(void)
{
    return yk_ones(YK_SHAPE(2), YK_OPTIONS(yk_tensor_options, .device = test_device(1)));
}

static yk_tensor *labels(int64_t a, int64_t b)
{
    return yk_from_data((int64_t[]){a, b}, YK_SHAPE(2), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64));
}

static yk_tensor *as_dtype(yk_tensor *x, yk_dtype dtype)
{
    return yk_cast(x, dtype);
}

static yk_tensor *split(yk_tensor *x, int64_t chunk, int dim, int capacity)
{
    yk_tensor *parts[8] = {NULL};
    int count = 0;
    return yk_split(x, chunk, dim, parts, capacity, &count) ? NULL : parts[0];
}

#define CONV(...)       YK_OPTIONS(yk_conv2d_options, __VA_ARGS__)
#define CONVN(...)      YK_OPTIONS(yk_conv_options, __VA_ARGS__)
#define POOLN(...)      YK_OPTIONS(yk_pool_options, __VA_ARGS__)
#define POOL(...)       YK_OPTIONS(yk_pool2d_options, __VA_ARGS__)
#define INSTANCE(...)   YK_OPTIONS(yk_instance_norm_options, __VA_ARGS__)
#define TO(...)         YK_OPTIONS(yk_upsample_options, __VA_ARGS__)
#define UNFOLD(...)     YK_OPTIONS(yk_fold_options, __VA_ARGS__)
#define GRID(...)       YK_OPTIONS(yk_grid_sample_options, __VA_ARGS__)
#define BATCH_NORM(...) YK_OPTIONS(yk_batch_norm_options, __VA_ARGS__)
#define LOSS(...)       YK_OPTIONS(yk_cross_entropy_options, __VA_ARGS__)
#define TRAIN           BATCH_NORM(.training = true)

/* clang-format off */
#define ERRORS(ROW)                                                                                                    \
    /* elementwise */                                                                                                  \
    ROW(yk_add(T(2, 3), T(4)), SHAPE, "add: shapes (2, 3) and (4,) do not broadcast: 3 against 4 in dimension 1")      \
    ROW(yk_mul(T(2), away()), DEVICE, "mul: the tensors are on two devices, cpu:0 and cpu:1; move one with yk_to")     \
    ROW(yk_sub(of(YK_BOOL, 2), of(YK_BOOL, 2)), DTYPE, "sub: bool minus bool: not defined for bool tensors")                            \
    ROW(yk_neg(of(YK_BOOL, 2)), DTYPE, "neg: not defined for bool tensors")                                            \
    ROW(yk_where(T(2), T(2), T(2)), DTYPE, "where: the condition is float32, expected bool")                           \
    ROW(yk_add(T(2), NULL), ARGUMENT, "add: argument 2 is NULL")                                                       \
    ROW(yk_relu(NULL), ARGUMENT, "relu: argument 1 is NULL")                                                           \
    /* in place */                                                                                                     \
    ROW(yk_add_(T(2), T(3, 2), 1), SHAPE, "add_: the result has shape (3, 2) and cannot be written into (2,)")         \
    ROW(yk_add_(of(YK_I64, 2), T(2), 1), DTYPE, "add_: a float32 result cannot be written into a int64 tensor")        \
    ROW(yk_add_(of(YK_I64, 2), of(YK_I32, 2), 2.5), ARGUMENT,                                                          \
        "add_: alpha is 2.5, expected an integer, because int64 and int32 are added as integers")                      \
    ROW(yk_add_scaled(of(YK_U8, 2), of(YK_BOOL, 2), -0.5), ARGUMENT, "add: alpha is -0.5, expected an integer")        \
    ROW(yk_add_(of(YK_BOOL, 2), of(YK_I64, 2), 1), DTYPE, "add_: a int64 result cannot be written into a bool tensor") \
    ROW(yk_mul_scalar_(of(YK_BOOL, 2), 3), DTYPE, "mul_scalar_: a tensor of bool cannot hold its product with 3")      \
    ROW(yk_add_(of(YK_I64, 0), T(0), 1), DTYPE, "add_: a float32 result cannot be written into a int64 tensor")        \
    ROW(yk_add_(of(YK_BOOL, 0), of(YK_I64, 0), 1), DTYPE, "add_: a int64 result cannot be written into a bool tensor") \
    ROW(yk_mul_(of(YK_I64, 0), T(0)), DTYPE, "mul_: a float32 result cannot be written into a int64 tensor")           \
    ROW(yk_relu_(of(YK_BOOL, 2)), DTYPE, "relu_: not defined for bool tensors")                                        \
    ROW(yk_relu_(of(YK_BOOL, 0)), DTYPE, "relu_: not defined for bool tensors")                                        \
    ROW(yk_mul_(T(2), away()), DEVICE, "mul_: the tensors are on two devices, cpu:0 and cpu:1")                        \
    ROW(yk_mul_scalar_(of(YK_I64, 2), 0.5), DTYPE, "mul_scalar_: a tensor of int64 cannot hold its product with 0.5")  \
    ROW(yk_copy_(T(2), T(3)), SHAPE, "shapes (2,) and (3,) do not broadcast")                                          \
    ROW(yk_copy_(T(2), NULL), ARGUMENT, "copy_: argument 2 is NULL")                                                   \
    ROW(yk_fill_(NULL, 1), ARGUMENT, "fill_: argument 1 is NULL")                                                      \
    ROW(yk_fill_(of(YK_U8, 2), 300), DTYPE, "fill_: a tensor of uint8 cannot hold 300")                                \
    ROW(yk_fill_(of(YK_F16, 2), -1e5), DTYPE, "fill_: a tensor of float16 cannot hold -100000")                        \
    ROW(yk_mul_scalar_(yk_expand(T(1), YK_SHAPE(3)), 1), STATE, "mul_scalar_: the tensor is expanded")                             \
    ROW(yk_uniform_(T(2), 2, 1), ARGUMENT, "uniform_: the range [2, 1) is empty")                                      \
    ROW(yk_uniform_(T(2), 0, INFINITY), ARGUMENT, "uniform_: the range [0, inf) does not fit in float32")               \
    ROW(yk_uniform_(T(2), -3e38, 3e38), ARGUMENT, "uniform_: the range [-3e+38, 3e+38) does not fit in float32")       \
    ROW(yk_uniform_(of(YK_F16, 2), 0, 1e5), ARGUMENT, "uniform_: the range [0, 100000) does not fit in float16")       \
    ROW(yk_uniform_(of(YK_F64, 2), -1e308, 1e308), ARGUMENT, "uniform_: the range [-1e+308, 1e+308) does not fit in ") \
    ROW(yk_normal_(T(2), 0, -1), ARGUMENT, "normal_: the deviation -1 is negative")                                    \
    ROW(yk_normal_(of(YK_I64, 2), 0, 1), DTYPE, "normal_: expected a floating tensor, this one is int64")              \
    /* shape */                                                                                                        \
    ROW(yk_reshape(T(2, 3), YK_SHAPE(4, 2)), SHAPE, "reshape: shape (4, 2) does not fit the 6 elements of (2, 3)")     \
    ROW(yk_reshape(T(2, 3), YK_SHAPE(4, -1)), SHAPE, "reshape: shape (4, -1) does not fit the 6 elements of (2, 3)")   \
    ROW(yk_reshape(T(4), YK_SHAPE(-1, -1)), SHAPE, "reshape: shape (-1, -1) does not fit the 4 elements of (4,)")      \
    ROW(yk_reshape(T(0), YK_SHAPE(0, -1)), SHAPE, "reshape: shape (0, -1) does not fit the 0 elements of (0,)")        \
    ROW(yk_reshape(T(4), YK_SHAPE(-4, -1)), SHAPE, "reshape: shape (-4, -1) does not fit")                             \
    ROW(yk_reshape(T(1), YK_SHAPE(INT64_MAX, 4)), SHAPE,                                                               \
        "reshape: shape (9223372036854775807, 4) does not fit the 1 element of (1,)")                                  \
    ROW(yk_reshape(T(1), 9, (int64_t[9]){1}), SHAPE, "reshape: 9 dimensions; a tensor has 0 to 8")                     \
    ROW(yk_view(yk_transpose(T(2, 3), 0, 1), YK_SHAPE(6)), SHAPE,                                                      \
        "view: shape (6,) has no strides over (3, 2) with strides (1, 3); use yk_reshape, which copies")               \
    ROW(yk_flatten(T(2, 3), 1, 0), SHAPE, "flatten: the first dimension 1 lies behind the last one 0")                 \
    ROW(yk_flatten(T(2, 3), 0, 2), SHAPE, "flatten: dimension 2 is outside [-2, 1] of shape (2, 3)")                   \
    ROW(yk_permute(T(2, 3), (int[]){0, 0}), SHAPE, "permute: dimension 0 is named twice")                              \
    ROW(yk_transpose(T(2, 3), 0, 2), SHAPE, "transpose: dimension 2 is outside [-2, 1] of shape (2, 3)")               \
    ROW(yk_squeeze(T(2), 1), SHAPE, "squeeze: dimension 1 is outside [-1, 0] of shape (2,)")                           \
    ROW(yk_unsqueeze(T(2), 2), SHAPE, "unsqueeze: no new dimension 2 for shape (2,)")                                  \
    ROW(yk_unsqueeze(T(1, 1, 1, 1, 1, 1, 1, 1), 0), SHAPE, "unsqueeze: no new dimension 0")                            \
    ROW(yk_expand(T(2, 3), YK_SHAPE(4, 3)), SHAPE, "expand: shape (2, 3) cannot be repeated to (4, 3)")                \
    ROW(yk_expand(T(3), YK_SHAPE(-1, 3)), SHAPE, "expand: shape (3,) cannot be repeated to (-1, 3)")                   \
    ROW(yk_expand(T(2, 3), YK_SHAPE(3)), SHAPE, "expand: shape (2, 3) cannot be repeated to (3,)")                     \
    ROW(yk_slice(T(3), 0, 0, 2, 0), ARGUMENT, "slice: the step is 0, expected at least 1")                             \
    ROW(yk_slice(T(3), 1, 0, 2, 1), SHAPE, "slice: dimension 1 is outside [-1, 0] of shape (3,)")                      \
    ROW(yk_slice(S, 0, 0, 1, 1), SHAPE, "slice: a 0-dimensional tensor has no dimension 0")                            \
    ROW(yk_select(T(3, 4), 1, 4), SHAPE, "select: index 4 of dimension 1 is outside shape (3, 4)")                     \
    ROW(yk_select(T(3, 4), 0, -4), SHAPE, "select: index -4 of dimension 0 is outside shape (3, 4)")                   \
    ROW(yk_narrow(T(3), 0, 2, 2), SHAPE, "narrow: 2 elements from 2 on are not in dimension 0 of shape (3,)")          \
    ROW(yk_narrow(T(3), 0, 1, INT64_MAX), SHAPE, "narrow: 9223372036854775807 elements from 1 on are not in")          \
    ROW(yk_cat((yk_tensor *[]){T(2, 3), T(2, 4)}, 2, 0), SHAPE,                                                        \
        "cat: tensor 1 has shape (2, 4), which does not fit (2, 3) outside the joined dimension")                      \
    ROW(yk_cat((yk_tensor *[]){T(2), T(2, 1)}, 2, 0), SHAPE, "cat: tensor 1 has shape (2, 1), which does not fit (2,)")\
    ROW(yk_cat((yk_tensor *[]){T(2)}, 1, 1), SHAPE, "cat: dimension 1 of tensors of shape (2,)")                       \
    ROW(yk_cat(NULL, 0, 0), ARGUMENT, "cat: expected at least one tensor")                                             \
    ROW(yk_cat((yk_tensor *[]){T(2), away()}, 2, 0), DEVICE, "cat: the tensors are on two devices")                    \
    ROW(yk_stack((yk_tensor *[]){T(2), T(3)}, 2, 0), SHAPE, "stack: tensor 1 has shape (3,), which does not fit (2,)") \
    ROW(yk_stack((yk_tensor *[]){T(2)}, 1, 2), SHAPE, "stack: dimension 2 of tensors of shape (2,)")                   \
    ROW(yk_stack((yk_tensor *[]){T(1, 1, 1, 1, 1, 1, 1, 1)}, 1, 0), SHAPE, "stack: 9 dimensions")                      \
    ROW(split(T(5), 0, 0, 8), ARGUMENT, "split: the size of a part is 0, expected at least 1")                         \
    ROW(split(T(5), 2, 0, 2), ARGUMENT, "split: dimension 0 of shape (5,) makes 3 parts, there is room for 2")                    \
    ROW(split(T(0), -1, 0, 2), ARGUMENT, "split: the size of a part is -1, expected at least 1")                       \
    ROW(split(S, 1, 0, 2), SHAPE, "split: a 0-dimensional tensor has no dimension 0")                                  \
    ROW(as_dtype(T(2), (yk_dtype)77), DTYPE, "cast: 77 is not a dtype")                                                \
    ROW(yk_to(T(2), test_device(2)), DEVICE, "device cpu:2 does not exist: there are 2 cpu devices")           \
    /* reductions */                                                                                                   \
    ROW(yk_sum_dims(T(2, 3), (int[]){0, -2}, 2, false), SHAPE, "sum: dimension 0 is named twice")                      \
    ROW(yk_mean_dims(T(2, 3), (int[]){2}, 1, false), SHAPE, "mean: dimension 2 is outside [-2, 1] of shape (2, 3)")    \
    ROW(yk_mean(of(YK_I64, 2)), DTYPE, "mean: expected a floating tensor, this one is int64")                          \
    ROW(yk_var(of(YK_I32, 2)), DTYPE, "var: expected a floating tensor, this one is int32")                            \
    ROW(yk_max(T(0)), SHAPE, "max: no elements to choose from in shape (0,)")                                          \
    ROW(yk_max_dim(T(0, 3), 0, false, NULL), SHAPE, "max_dim: no elements to choose from in shape (0, 3)")             \
    ROW(yk_argmax(T(3), 1, false), SHAPE, "argmax: dimension 1 is outside [-1, 0] of shape (3,)")                      \
    ROW(yk_softmax(of(YK_I64, 3), 0), DTYPE, "softmax: expected a floating tensor, this one is int64")                 \
    ROW(yk_log_softmax(T(3), -2), SHAPE, "log_softmax: dimension -2 is outside [-1, 0] of shape (3,)")                 \
    /* products */                                                                                                     \
    ROW(yk_matmul(T(2, 3), T(2, 3)), SHAPE, "matmul: shapes (2, 3) and (2, 3): 3 columns times 2 rows")                \
    ROW(yk_matmul(T(3), T(2)), SHAPE, "matmul: shapes (3,) and (2,): 3 columns times 2 rows")                          \
    ROW(yk_matmul(S, T(2)), SHAPE, "matmul: shapes () and (2,); both need at least one dimension")                     \
    ROW(yk_matmul(T(2, 1, 3), T(3, 3, 2)), SHAPE,                                                                      \
        "matmul: the batches of (2, 1, 3) and (3, 3, 2) do not broadcast: 2 against 3")                                \
    ROW(yk_matmul(of(YK_F64, 2), T(2)), DTYPE, "matmul: float64 times float32; cast one with yk_cast")                 \
    ROW(yk_matmul(of(YK_I64, 2), of(YK_I64, 2)), DTYPE, "matmul: expected a floating tensor, this one is int64")       \
    ROW(yk_linear(T(4, 3), T(2, 4), NULL), SHAPE, "linear: input (4, 3) has 3 features but weight (2, 4) expects 4")   \
    ROW(yk_linear(T(4, 3), T(3), NULL), SHAPE, "linear: weight has shape (3,), expected (out, in)")                    \
    ROW(yk_linear(S, T(2, 3), NULL), SHAPE, "linear: input () has 0 features but weight (2, 3) expects 3")             \
    ROW(yk_linear(T(4, 3), T(2, 3), T(3)), SHAPE,                                                                      \
        "linear: bias has shape (3,), expected (2,): one value per output feature")                                    \
    ROW(yk_linear(T(4, 3), yk_cast(T(2, 3), YK_F64), NULL), DTYPE, "linear: input is float32, expected float64 as the weight is")      \
    ROW(yk_linear(T(2), yk_to(T(3, 2), test_device(1)), NULL), DEVICE,                                         \
        "linear: the tensors are on two devices, cpu:0 and cpu:1")                                                     \
    /* convolution */                                                                                                  \
    ROW(yk_conv2d(T(1, 3, 8, 8), T(64, 4, 3, 3), NULL, NULL), SHAPE,                                                   \
        "conv2d: input has 3 channels but weight (64, 4, 3, 3) expects 4 (groups 1)")                                  \
    ROW(yk_conv2d(T(1, 4, 8, 8), T(6, 4, 3, 3), NULL, CONV(.groups = 2)), SHAPE,                                       \
        "conv2d: input has 4 channels but weight (6, 4, 3, 3) expects 8 (groups 2)")                                   \
    ROW(yk_conv2d(T(1, 4, 8, 8), T(3, 2, 3, 3), NULL, CONV(.groups = 2)), SHAPE,                                       \
        "conv2d: the 3 output channels of weight (3, 2, 3, 3) do not divide into 2 groups")                            \
    ROW(yk_conv2d(T(8, 8), T(2, 3, 3, 3), NULL, NULL), SHAPE,                                                          \
        "conv2d: input (8, 8) and weight (2, 3, 3, 3), expected (N, C, H, W) or (C, H, W) and (O, C / groups, KH, KW)")\
    ROW(yk_conv2d(T(1, 1, 4, 4), T(1, 1, 3, 5), NULL, NULL), SHAPE,                                                    \
        "conv2d: weight (1, 1, 3, 5) with dilation 1 covers 5 of the width, but input (1, 1, 4, 4) "                   \
        "with padding 0 has 4")                                                                                        \
    ROW(yk_conv2d(T(1, 1, 4, 4), T(1, 1, 3, 3), NULL, CONV(.dilation = {2, 1})), SHAPE, "covers 5 of the height")      \
    ROW(yk_conv2d(T(1, 1, 4, 4), T(1, 1, 1, 1), NULL, CONV(.stride = {1, -1})), ARGUMENT,                              \
        "conv2d: stride -1, padding 0, dilation 1 of the width is not possible")                                       \
    ROW(yk_conv2d(T(1, 1, 4, 4), T(1, 1, 1, 1), NULL, CONV(.groups = -1)), ARGUMENT, "conv2d: groups -1")              \
    ROW(yk_conv2d(T(1, 1, 4, 4), T(2, 1, 1, 1), T(1), NULL), SHAPE,                                                    \
        "conv2d: bias has shape (1,), expected (2,): one value per output channel")                                    \
    ROW(yk_conv2d(yk_cast(T(1, 1, 4, 4), YK_BF16), T(2, 1, 1, 1), NULL, NULL), DTYPE,                                  \
        "conv2d: input is bfloat16, expected float32 as the weight is")                                                                \
    ROW(yk_conv2d(yk_cast(T(1, 1, 4, 4), YK_I64), T(2, 1, 1, 1), NULL, NULL), DTYPE,                                   \
        "conv2d: expected a floating input")                                                                           \
    ROW(yk_conv2d(T(1, 1, 4, 4), T(1, 1, 3, 3), NULL, CONV(.padding = {YK_PADDING_SAME, 0}, .stride = {2, 1})), ARGUMENT,\
        "conv2d: padding \"same\" and stride 2 of the height do not go together")                                      \
    ROW(yk_conv1d(T(2, 3, 4, 5), T(2, 3, 3), NULL, NULL), SHAPE,                                                       \
        "conv1d: input (2, 3, 4, 5) and weight (2, 3, 3), expected (N, C, L) or (C, L) and (O, C / groups, K)")        \
    ROW(yk_conv1d(T(2, 3, 4), T(2, 3, 5), NULL, NULL), SHAPE,                                                          \
        "conv1d: weight (2, 3, 5) with dilation 1 covers 5 of the length, but input (2, 3, 4) with padding 0 has 4")   \
    ROW(yk_conv1d(T(2, 3, 4), T(2, 3, 1), NULL, CONVN(.stride = {0})), ARGUMENT,                                       \
        "conv1d: stride 0, padding 0, dilation 1 of the length is not possible")                                       \
    ROW(yk_conv1d(T(2, 3, 4), T(2, 3, 1), NULL, CONVN(.output_padding = {1})), ARGUMENT,                               \
        "conv1d: output_padding 1 of the length is for transposed convolutions")                                       \
    ROW(yk_conv1d(T(2, 3, 4), T(2, 3, 1), T(3), NULL), SHAPE,                                                          \
        "conv1d: bias has shape (3,), expected (2,): one value per output channel")                                    \
    ROW(yk_conv1d(T(2, 3, 4), yk_cast(T(2, 3, 1), YK_F64), NULL, NULL), DTYPE,                                         \
        "conv1d: input is float32, expected float64 as the weight is")                                                 \
    ROW(yk_conv1d(T(2, 3, 4), T(2, 3, 0), NULL, NULL), SHAPE,                                                          \
        "conv1d: weight (2, 3, 0) with dilation 1 covers 0 of the length")                                             \
    ROW(yk_conv3d(T(2, 3, 4, 4), T(2, 3, 1, 1, 1), NULL, NULL), SHAPE,                                                 \
        "conv3d: input has 2 channels but weight (2, 3, 1, 1, 1) expects 3 (groups 1)")                                           \
    ROW(yk_conv3d(T(2, 4, 4, 4), T(3, 1, 1, 1, 1), NULL, CONVN(.groups = 2)), SHAPE,                                   \
        "conv3d: the 3 output channels of weight (3, 1, 1, 1, 1) do not divide into 2 groups")                         \
    ROW(yk_conv3d(T(1, 1, 2, 4, 4), T(1, 1, 3, 1, 1), NULL, NULL), SHAPE,                                              \
        "covers 3 of the depth, but input (1, 1, 2, 4, 4)")                                                            \
    ROW(yk_conv_transpose1d(T(2, 3, 4), T(4, 2, 3), NULL, NULL), SHAPE,                                                \
        "conv_transpose1d: input has 3 channels but weight (4, 2, 3) expects 4 (groups 1)")                            \
    ROW(yk_conv_transpose1d(T(2, 3, 4), T(3, 2, 3), NULL, CONVN(.groups = 2)), SHAPE,                                  \
        "conv_transpose1d: the 3 input channels of weight (3, 2, 3) do not divide into 2 groups")                      \
    ROW(yk_conv_transpose1d(T(2, 3, 4), T(3, 2, 3), NULL, CONVN(.padding = {YK_PADDING_SAME})), ARGUMENT,              \
        "conv_transpose1d: padding \"same\" and stride 1 of the length do not go together")                            \
    ROW(yk_conv_transpose2d(T(2, 3, 4), T(2, 1, 1, 1), NULL, CONVN(.output_padding = {0, 1})), ARGUMENT,               \
        "conv_transpose2d: output_padding 1 of the width, expected at least 0 and below its stride or dilation")       \
    ROW(yk_conv_transpose2d(T(2, 3, 4), T(2, 1, 1, 1), NULL, CONVN(.padding = {2, 0})), SHAPE,                         \
        "conv_transpose2d: input (2, 3, 4) and weight (2, 1, 1, 1) with stride 1, padding 2, dilation 1 leave nothing")\
    ROW(yk_conv_transpose3d(T(4, 4), T(1, 1, 1, 1, 1), NULL, NULL), SHAPE,                                             \
        "conv_transpose3d: input (4, 4) and weight (1, 1, 1, 1, 1), expected (N, C, D, H, W) or (C, D, H, W) and (C, O / ")\
    /* pooling */                                                                                                      \
    ROW(yk_max_pool2d(T(4, 4), POOL(.kernel = {2, 2})), SHAPE,                                                         \
        "max_pool2d: input has shape (4, 4), expected (N, C, H, W) or (C, H, W) with C, H and W above 0")              \
    ROW(yk_max_pool1d(T(4), POOLN(.kernel = {2})), SHAPE,                                                              \
        "max_pool1d: input has shape (4,), expected (N, C, L) or (C, L) with sizes above 0 for all but N")             \
    ROW(yk_max_pool1d(T(2, 4), NULL), ARGUMENT,                                                                        \
        "max_pool1d: the kernel was not given, and has no default")                                                    \
    ROW(yk_avg_pool3d(T(2, 0, 4, 4), POOLN(.kernel = {1, 1, 1})), SHAPE,                                               \
        "avg_pool3d: input has shape (2, 0, 4, 4), expected (N, C, D, H, W) or (C, D, H, W) with sizes")               \
    ROW(yk_avg_pool3d(yk_cast(T(2, 4, 4, 4), YK_I64), POOLN(.kernel = {1, 1, 1})), DTYPE,                              \
        "avg_pool3d: expected a floating input")                                                                       \
    ROW(yk_max_pool3d(T(1, 2, 4, 4), POOLN(.kernel = {3, 1, 1})), SHAPE,                                               \
        "max_pool3d: the kernel covers 3 of the depth, but input (1, 2, 4, 4) with padding 0 has 2")                   \
    ROW(yk_max_pool1d(T(2, 4), POOLN(.kernel = {2}, .padding = {2})), ARGUMENT,                                        \
        "max_pool1d: padding 2 of the length is more than half of the kernel's 2")                                     \
    ROW(yk_avg_pool1d(T(2, 4), POOLN(.kernel = {2}, .divisor_override = 0)), ARGUMENT,                                 \
        "avg_pool1d: divisor_override is 0")                                                                           \
    ROW(yk_adaptive_avg_pool1d(T(2, 4), 0), ARGUMENT,                                                                  \
        "adaptive_avg_pool1d: a result of 0 along the length")                                                         \
    ROW(yk_adaptive_max_pool2d(T(2, 4, 4), 1, -2), ARGUMENT,                                                           \
        "adaptive_max_pool2d: a result of -2 along the width")                                                         \
    ROW(yk_adaptive_max_pool3d(T(2, 4, 4), 1, 1, 1), SHAPE,                                                            \
        "adaptive_max_pool3d: input has shape (2, 4, 4), expected (N, C, D, H, W) or (C, D, H, W)")                    \
    ROW(yk_max_pool2d(T(1, 1, 4, 4), NULL), ARGUMENT, "max_pool2d: the kernel was not given, and has no default")       \
    ROW(yk_max_pool2d(T(1, 1, 4, 4), POOL(.kernel = {2, 0})), ARGUMENT, "max_pool2d: kernel 0, stride 0")              \
    ROW(yk_max_pool2d(T(1, 1, 4, 4), POOL(.kernel = {5, 5})), SHAPE,                                                   \
        "max_pool2d: the kernel covers 5 of the height, but input (1, 1, 4, 4) with padding 0 has 4")                  \
    ROW(yk_avg_pool2d(T(1, 1, 4, 4), POOL(.kernel = {2, 2}, .padding = {0, 2})), ARGUMENT,                             \
        "avg_pool2d: padding 2 of the width is more than half of the kernel's 2")                                      \
    ROW(yk_avg_pool2d(T(1, 1, 4, 4), POOL(.kernel = {2, 2}, .dilation = {2, 2})), ARGUMENT,                            \
        "dilation 2 of the height")                                                                                    \
    ROW(yk_adaptive_avg_pool2d(T(1, 1, 4, 4), 0, 1), ARGUMENT, "adaptive_avg_pool2d: a result of 0 by 1")              \
    /* normalisation */                                                                                                \
    ROW(yk_batch_norm(T(1, 64, 1, 1), NULL, NULL, NULL, NULL, TRAIN), SHAPE,                                           \
        "batch_norm: expected more than 1 value per channel when training, got input size (1, 64, 1, 1)")              \
    ROW(yk_batch_norm(T(2), NULL, NULL, NULL, NULL, TRAIN), SHAPE,                                                     \
        "batch_norm: input has shape (2,), expected 2 to 5 dimensions (N, C, ...)")                                    \
    ROW(yk_batch_norm(yk_cast(T(4, 3), YK_F64), T(3), T(3), T(3), T(3), TRAIN), DTYPE, \
        "batch_norm: input is float64, expected float32 as the weight is") \
    ROW(yk_batch_norm(yk_cast(T(4, 3), YK_F64), NULL, NULL, T(3), T(3), NULL), DTYPE, \
        "batch_norm: input is float64, expected float32 as the running_mean is") \
    ROW(yk_batch_norm(T(4, 3), T(3), T(3), T(3), yk_cast(T(3), YK_F64), TRAIN), DTYPE, \
        "batch_norm: running_var is float64, expected float32") \
    ROW(yk_batch_norm(yk_cast(T(4, 3), YK_F16), T(3), yk_cast(T(3), YK_F64), NULL, NULL, TRAIN), DTYPE, \
        "batch_norm: bias is float64, expected float32") \
    ROW(yk_group_norm(T(2, 6, 2), 4, NULL, NULL, 1e-5), SHAPE,                                                         \
        "group_norm: the 6 channels of input (2, 6, 2) do not divide into 4 groups")                                   \
    ROW(yk_group_norm(T(2, 6, 2), 0, NULL, NULL, 1e-5), ARGUMENT,                                                      \
        "group_norm: num_groups is 0")                                                                                 \
    ROW(yk_group_norm(T(1, 4, 1), 4, NULL, NULL, 1e-5), SHAPE,                                                         \
        "group_norm: expected more than 1 value per group, got input size (1, 4, 1) and 4 groups")                     \
    ROW(yk_group_norm(T(4), 2, NULL, NULL, 1e-5), SHAPE,                                                               \
        "group_norm: input has shape (4,), expected (N, C, ...)")                                                      \
    ROW(yk_group_norm(T(2, 4), 2, T(3), NULL, 1e-5), SHAPE,                                                            \
        "group_norm: weight has shape (3,), expected (4,): one value per channel")                                     \
    ROW(yk_group_norm(T(2, 4), 2, T(4), yk_cast(T(4), YK_F64), 1e-5), DTYPE,                                           \
        "group_norm: bias is float64, expected float32")                                                               \
    ROW(yk_group_norm(yk_cast(T(2, 4), YK_I64), 2, NULL, NULL, 1e-5), DTYPE,                                           \
        "group_norm: expected a floating input")                                                                       \
    ROW(yk_instance_norm(T(2, 3, 1), NULL, NULL, NULL, NULL, NULL), SHAPE,                                             \
        "instance_norm: input has shape (2, 3, 1), expected (N, C, ...) of 3 to 5 dimensions with more than 1 value")  \
    ROW(yk_instance_norm(T(2, 3), NULL, NULL, NULL, NULL, NULL), SHAPE,                                                \
        "instance_norm: input has shape (2, 3), expected (N, C, ...) of 3 to 5 dimensions")                            \
    ROW(yk_instance_norm(T(2, 3, 4), NULL, NULL, T(3), NULL, NULL), ARGUMENT,                                          \
        "instance_norm: running_mean and running_var go together; one is NULL")                                        \
    ROW(yk_instance_norm(T(2, 3, 4), NULL, NULL, NULL, NULL, INSTANCE(.use_input_stats = false)), ARGUMENT,            \
        "instance_norm: running_mean and running_var are needed without use_input_stats")                              \
    ROW(yk_rms_norm(T(2, 3), YK_SHAPE(4), NULL, 1e-5), SHAPE,                                                          \
        "rms_norm: input (2, 3) does not end in the normalised shape (4,)")                                            \
    ROW(yk_rms_norm(T(2, 3), 0, NULL, NULL, 1e-5), SHAPE,                                                              \
        "rms_norm: input (2, 3) does not end in the normalised shape ()")                                              \
    ROW(yk_rms_norm(T(2, 3), YK_SHAPE(3), T(2), 1e-5), SHAPE,                                                          \
        "rms_norm: weight has shape (2,), expected the normalised shape (3,)")                                         \
    ROW(yk_rms_norm(T(2, 3), 1, NULL, NULL, 1e-5), ARGUMENT,                                                           \
        "rms_norm: the normalised shape is NULL")                                                                      \
    ROW(yk_local_response_norm(T(2, 3), 2, 1e-4, 0.75, 1), SHAPE,                                                      \
        "local_response_norm: input has shape (2, 3), expected (N, C, ...) of at least 3 dimensions")                  \
    ROW(yk_local_response_norm(T(2, 3, 2), 0, 1e-4, 0.75, 1), ARGUMENT,                                                \
        "local_response_norm: size is 0")                                                                              \
    ROW(yk_interpolate(T(1, 1, 4), TO(.size = {2}, .scale_factor = {2})), ARGUMENT,                                    \
        "interpolate: size and scale_factor are both given, expected one of them")                                     \
    ROW(yk_interpolate(T(1, 1, 4), TO(.size = {2}, .mode = YK_INTERPOLATE_BILINEAR)), SHAPE,                           \
        "interpolate: input has shape (1, 1, 4); mode bilinear takes (N, C, H, W)")                                    \
    ROW(yk_interpolate(T(1, 4), TO(.size = {2})), SHAPE,                                                               \
        "interpolate: input has shape (1, 4); mode nearest takes (N, C, ...) of 3 to 5 dimensions")                    \
    ROW(yk_interpolate(T(1, 1, 4, 4), TO(.size = {2})), ARGUMENT,                                                      \
        "interpolate: size is 0, expected at least 1 for each dimension")                                              \
    ROW(yk_interpolate(T(1, 1, 4), TO(.scale_factor = {0.1})), ARGUMENT,                                               \
        "interpolate: scale_factor is 0.1, expected above 0, and a result of at least 1")                              \
    ROW(yk_interpolate(T(1, 1, 4), TO(.size = {2}, .align_corners = true)), ARGUMENT,                                  \
        "interpolate: align_corners is not for mode nearest")                                                          \
    ROW(yk_interpolate(T(1, 1, 0), TO(.size = {2})), SHAPE,                                                            \
        "interpolate: input (1, 1, 0) has nothing to interpolate")                                                     \
    ROW(yk_interpolate(yk_cast(T(1, 1, 4), YK_I64), TO(.size = {2})), DTYPE,                                           \
        "interpolate: expected a floating input")                                                                      \
    ROW(yk_pixel_shuffle(T(1, 6, 2, 2), 2), SHAPE,                                                                     \
        "pixel_shuffle: the 6 channels of input (1, 6, 2, 2) do not divide into 2 squared")                            \
    ROW(yk_pixel_shuffle(T(4, 4), 2), SHAPE,                                                                           \
        "pixel_shuffle: input has shape (4, 4), expected (..., C, H, W)")                                              \
    ROW(yk_pixel_unshuffle(T(1, 3, 4), 2), SHAPE,                                                                      \
        "pixel_unshuffle: height and width of input (1, 3, 4) do not divide by 2")                                     \
    ROW(yk_pixel_unshuffle(T(1, 4, 4), 0), ARGUMENT,                                                                   \
        "pixel_unshuffle: downscale_factor is 0")                                                                      \
    ROW(yk_unfold(T(1, 2, 3, 3), NULL), ARGUMENT, "unfold: the kernel was not given, and has no default")              \
    ROW(yk_unfold(T(3, 3), UNFOLD(.kernel = {2, 2})), SHAPE,                                                           \
        "unfold: input has shape (3, 3), expected (N, C, H, W) or (C, H, W) with sizes above 0 for all but N")         \
    ROW(yk_unfold(T(2, 3, 3), UNFOLD(.kernel = {2, 4})), SHAPE,                                                        \
        "unfold: the kernel covers 4 of the width, which with padding 0 has 3")                                        \
    ROW(yk_unfold(T(2, 3, 3), UNFOLD(.kernel = {2, 2}, .stride = {0, 1})), ARGUMENT,                                   \
        "unfold: kernel 2, stride 0, padding 0, dilation 1 of the height is not possible")                             \
    ROW(yk_unfold(yk_cast(T(2, 3, 3), YK_I64), UNFOLD(.kernel = {2, 2})), DTYPE,                                       \
        "unfold: expected a floating input, this one is int64")                                                        \
    ROW(yk_fold(T(1, 8, 5), 3, 3, UNFOLD(.kernel = {2, 2})), SHAPE,                                                    \
        "fold: input has shape (1, 8, 5), expected (..., C 4, 4) for 2 x 2 windows of 2 x 2")                          \
    ROW(yk_fold(T(1, 6, 4), 3, 3, UNFOLD(.kernel = {2, 2})), SHAPE,                                                    \
        "fold: input has shape (1, 6, 4), expected (..., C 4, 4)")                                                     \
    ROW(yk_fold(T(8), 3, 3, UNFOLD(.kernel = {2, 2})), SHAPE,                                                          \
        "fold: input has shape (8,), expected (N, C KH KW, windows) or (C KH KW, windows)")                            \
    ROW(yk_fold(T(1, 4, 4), 0, 3, UNFOLD(.kernel = {2, 2})), ARGUMENT, "fold: height is 0")                            \
    ROW(yk_grid_sample(T(1, 2, 3, 3), T(1, 2, 2, 3), NULL), SHAPE,                                                     \
        "grid_sample: input (1, 2, 3, 3) and grid (1, 2, 2, 3), expected (N, C, H, W) and (N, OH, OW, 2)")             \
    ROW(yk_grid_sample(T(1, 2, 0, 3), T(1, 2, 2, 2), NULL), SHAPE,                                                     \
        "grid_sample: input (1, 2, 0, 3) and grid (1, 2, 2, 2), expected")                                             \
    ROW(yk_grid_sample(T(1, 2, 3, 3), yk_cast(T(1, 2, 2, 2), YK_F64), NULL), DTYPE,                                    \
        "grid_sample: grid is float64, expected float32")                                                              \
    ROW(yk_grid_sample(T(1, 2, 3, 3, 3), T(1, 2, 2, 2, 3), GRID(.mode = YK_GRID_BICUBIC)), SHAPE,                      \
        "grid_sample: input has shape (1, 2, 3, 3, 3); mode bicubic takes (N, C, H, W)")                               \
    ROW(yk_grid_sample(T(1, 2, 3, 3), T(1, 2, 2, 2), GRID(.mode = (yk_grid_mode)7)), ARGUMENT,                         \
        "grid_sample: mode 7 is none of bilinear, nearest and bicubic")                                                \
    ROW(yk_affine_grid(T(2, 2, 3), YK_SHAPE(1, 1, 2, 2), false), SHAPE,                                                \
        "affine_grid: theta (2, 2, 3) and size (1, 1, 2, 2), expected (N, 2, 3) and sizes above 0 for all but N")      \
    ROW(yk_affine_grid(T(2, 2, 3), YK_SHAPE(2, 2, 2), false), SHAPE,                                                   \
        "affine_grid: a size of 3 dimensions, expected (N, C, H, W) or (N, C, D, H, W)")                               \
    ROW(yk_layer_norm(T(4, 3), 1, (int64_t[]){3}, yk_cast(T(3), YK_F64), yk_cast(T(3), YK_F64), 1e-5), DTYPE, \
        "layer_norm: input is float32, expected float64 as the weight is") \
    ROW(yk_layer_norm(yk_cast(T(4, 3), YK_F64), 1, (int64_t[]){3}, yk_cast(T(3), YK_F64), T(3), 1e-5), DTYPE, \
        "layer_norm: bias is float32, expected float64") \
    ROW(yk_batch_norm(T(4, 3), T(4), NULL, NULL, NULL, TRAIN), SHAPE,                                                  \
        "batch_norm: weight has shape (4,), expected (3,): one value per channel")                                     \
    ROW(yk_batch_norm(T(4, 3), NULL, NULL, T(3), NULL, TRAIN), ARGUMENT, "running_mean and running_var go together")   \
    ROW(yk_batch_norm(T(4, 3), NULL, NULL, NULL, NULL, NULL), ARGUMENT,                                                \
        "batch_norm: running_mean and running_var are needed outside training")                                        \
    ROW(yk_batch_norm(T(4, 3), NULL, of(YK_F64, 3), NULL, NULL, TRAIN), DTYPE,                                         \
        "batch_norm: bias is float64, expected float32")                                                               \
    ROW(yk_batch_norm(yk_cast(T(4, 3), YK_F16), of(YK_F16, 3), NULL, of(YK_BF16, 3), of(YK_BF16, 3), TRAIN), DTYPE,    \
        "batch_norm: running_mean is bfloat16, expected float32")                                                      \
    ROW(yk_batch_norm(yk_cast(T(4, 3), YK_F16), of(YK_F16, 3), T(3), NULL, NULL, TRAIN), DTYPE,                        \
        "batch_norm: weight is float16 but bias is float32")                                                           \
    ROW(yk_batch_norm(T(4, 3), NULL, NULL, NULL, NULL, BATCH_NORM(.training = true, .residual = T(4, 1))), SHAPE,      \
        "batch_norm: residual is (4, 1) of float32, expected the input's (4, 3) of float32")                           \
    ROW(yk_layer_norm(T(2, 3), YK_SHAPE(4), NULL, NULL, 1e-5), SHAPE,                                                  \
        "layer_norm: input (2, 3) does not end in the normalised shape (4,)")                                          \
    ROW(yk_layer_norm(T(3), YK_SHAPE(2, 3), NULL, NULL, 1e-5), SHAPE, "layer_norm: input (3,) does not end in")        \
    ROW(yk_layer_norm(T(2, 3), YK_SHAPE(3), T(2), NULL, 1e-5), SHAPE,                                                  \
        "layer_norm: weight has shape (2,), expected the normalised shape (3,)")                                       \
    ROW(yk_layer_norm(T(2, 3), YK_SHAPE(3), NULL, of(YK_F64, 3), 1e-5), DTYPE,                                         \
        "layer_norm: bias is float64, expected float32")                                                               \
    /* lookup, dropout, losses */                                                                                      \
    ROW(yk_embedding(T(2), T(3, 2), -1), DTYPE, "embedding: index is float32, expected int64 or int32")                \
    ROW(yk_embedding(labels(0, 1), T(3), -1), SHAPE, "embedding: weight has shape (3,), expected (V, D)")              \
    ROW(yk_embedding(labels(0, 1), T(3, 2), 3), ARGUMENT,                                                              \
        "embedding: padding_idx 3 is outside weight (3, 2); -1 means none")                                            \
    ROW(yk_embedding(labels(0, 3), T(3, 2), -1), ARGUMENT, "embedding: index 3 at position 1 is outside [0, 3)")       \
    ROW(yk_embedding(labels(-1, 0), T(3, 2), -1), ARGUMENT, "embedding: index -1 at position 0 is outside [0, 3)")     \
    ROW(yk_dropout(T(2), 1.5, true), ARGUMENT, "dropout: p is 1.5, expected a probability in [0, 1]")                  \
    ROW(yk_dropout(T(2), NAN, false), ARGUMENT, "dropout: p is nan")                                                   \
    ROW(yk_dropout(of(YK_I64, 2), 0.5, true), DTYPE, "dropout: expected a floating tensor, this one is int64")         \
    ROW(yk_cross_entropy(T(2, 3), T(2), NULL), DTYPE,                                                                  \
        "cross_entropy: target is float32, expected class indices as int64")                                           \
    ROW(yk_cross_entropy(T(3, 3), labels(0, 1), NULL), SHAPE,                                                          \
        "cross_entropy: logits (3, 3) and target (2,), expected (N, C) and (N,) with C above 0")                       \
    ROW(yk_cross_entropy(T(2), labels(0, 1), NULL), SHAPE, "cross_entropy: logits (2,) and target (2,)")               \
    ROW(yk_cross_entropy(T(2, 3), labels(0, 3), NULL), ARGUMENT, "cross_entropy: target 3 in row 1 is outside [0, 3)") \
    ROW(yk_cross_entropy(T(2, 3), labels(-1, 1), LOSS(.reduction = YK_REDUCE_NONE)), ARGUMENT,                         \
        "cross_entropy: target -1 in row 0 is outside [0, 3)")                                                         \
    ROW(yk_cross_entropy(T(2, 3), labels(0, 1), LOSS(.weight = T(2))), SHAPE,                                          \
        "cross_entropy: weight has shape (2,), expected (3,): one value per class")                                    \
    ROW(yk_cross_entropy(T(2, 3), labels(0, 1), LOSS(.weight = of(YK_F64, 3))), DTYPE,                                 \
        "cross_entropy: weight is float64")                                                                            \
    ROW(yk_cross_entropy(T(2, 3), labels(0, 1), LOSS(.label_smoothing = 2)), ARGUMENT,                                 \
        "cross_entropy: label_smoothing is 2")                                                                         \
    ROW(yk_cross_entropy(T(2, 3), labels(0, 1), LOSS(.reduction = (yk_reduction)7)), ARGUMENT, "reduction 7") \
    ROW(yk_mse_loss(T(2), T(3), YK_REDUCE_MEAN), SHAPE,                                                                \
        "mse_loss: input (2,) and target (3,); the shapes must be equal")                                              \
    ROW(yk_mse_loss(T(2), of(YK_I64, 2), YK_REDUCE_MEAN), DTYPE,                                                       \
        "mse_loss: expected a floating target, this one is int64")                                                     \
    ROW(yk_mse_loss(T(2), T(2), (yk_reduction)-1), ARGUMENT, "mse_loss: reduction -1")
/* clang-format on */

#define NUMBERED(call, code, text)                                                                                     \
    do {                                                                                                               \
        yk_scope scope = yk_scope_begin();                                                                             \
        if (finished(call))                                                                                            \
            fail_msg("%s is accepted, expected '%s'", #call, text);                                                    \
        expect_error(YK_ERR_##code, device_text(text));                                                                \
        yk_scope_end(scope);                                                                                           \
        count++;                                                                                                       \
    } while (0);

static void test_refused(void **state)
{
    (void)state;
    int count = 0;
    ERRORS(NUMBERED)
    assert_true(count > 100);
}

int main(void)
{
    use_devices(2);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests_name("op_errors", tests, NULL, NULL);
}
