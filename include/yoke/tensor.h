/*
 * yoke/tensor.h - tensors, views, creation, printing.
 *
 * Layer: tensor. A tensor is a strided view of a storage; several may share one. Functions that return a tensor
 * return it owned by the thread's current scope (yoke/base.h), or NULL with the error record set; given NULL where a
 * tensor is expected they return NULL and leave the record alone.
 */
#ifndef YOKE_TENSOR_H
#define YOKE_TENSOR_H

#include <yoke/device.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct yk_tensor yk_tensor;

/* Options of every creation function; NULL means f32 on cpu:0 without gradient. */
typedef struct yk_tensor_options {
    yk_dtype dtype YK_DEFAULT(YK_DTYPE_NOT_GIVEN); /* not given: f32 */
    yk_device device YK_DEFAULT(YK_CPU, -1);       /* not given (YK_DEVICE_NOT_GIVEN): cpu:0 */
    bool requires_grad YK_DEFAULT(false);          /* floating dtypes only */
    unsigned yk__mark YK_DEFAULT(YK__MARK);        /* private */
} yk_tensor_options;
#define yk_tensor_options_DEFAULTS .yk__mark = YK__MARK, .dtype = YK_DTYPE_NOT_GIVEN, .device = {YK_CPU, -1}

/*
 * Shapes are passed as a dimension count and an array: yk_zeros(2, (int64_t[]){3, 4}, NULL), or with the macro
 * yk_zeros(YK_SHAPE(3, 4), NULL). YK_SCALAR is the shape of a 0-dimensional tensor.
 */
#ifdef __cplusplus
} /* templates are C++ */
struct yk__sizes {
    int64_t sizes[8];
};
extern "C" {
#define YK_SHAPE(...) (int)sizeof(yk__measure(__VA_ARGS__)), yk__sizes{{__VA_ARGS__}}.sizes
#else
#define YK_SHAPE(...)                                                                                                  \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[])                                             \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }
#endif
#define YK_SCALAR 0, NULL

/* ---- creation; sizes may be 0 but not negative -------------------------------------------------------------- */
YK_API yk_tensor *yk_empty(int ndim, const int64_t *shape, const yk_tensor_options *options);
YK_API yk_tensor *yk_zeros(int ndim, const int64_t *shape, const yk_tensor_options *options);
YK_API yk_tensor *yk_ones(int ndim, const int64_t *shape, const yk_tensor_options *options);
/* A value that the dtype does not hold is an error (YK_ERR_DTYPE); integers drop fractions. The same holds for all
 * functions that fill. */
YK_API yk_tensor *yk_full(int ndim, const int64_t *shape, double value, const yk_tensor_options *options);
/* 0-dimensional, holding `value`; a float beyond the dtype's becomes infinite. */
YK_API yk_tensor *yk_scalar(double value, const yk_tensor_options *options);
/* start, start + step, ... below `end` (above it for a negative step); (ceil((end - start) / step)). */
YK_API yk_tensor *yk_arange(double start, double end, double step, const yk_tensor_options *options);
/* Uniform in [0, 1), normal with mean 0 and variance 1, integers in [low, high) (a dtype that is not given is i64
 * there; of a floating dtype those that it holds, others rounded to them). From the process's generator:
 * yk_manual_seed. */
YK_API yk_tensor *yk_rand(int ndim, const int64_t *shape, const yk_tensor_options *options);
YK_API yk_tensor *yk_randn(int ndim, const int64_t *shape, const yk_tensor_options *options);
YK_API yk_tensor *yk_randint(int64_t low, int64_t high, int ndim, const int64_t *shape,
                             const yk_tensor_options *options);
/* A random permutation of 0..n-1 as i64. */
YK_API yk_tensor *yk_randperm(int64_t n);
/* Copies `data` (C order, elements of options->dtype, in host memory) into a new tensor. */
YK_API yk_tensor *yk_from_data(const void *data, int ndim, const int64_t *shape, const yk_tensor_options *options);
/* A tensor over memory of the caller's on cpu:0 without a copy; `release(context)` is called when the last view goes
 * (NULL: the caller keeps it alive); when this fails it is not called. */
YK_API yk_tensor *yk_from_memory(void *data, int ndim, const int64_t *shape, yk_dtype dtype, void (*release)(void *),
                                 void *context);
/* Like `x` in shape, dtype, device and (where it is dense) memory order; no gradient. rand and randn: C order. */
YK_API yk_tensor *yk_empty_like(const yk_tensor *x);
YK_API yk_tensor *yk_zeros_like(const yk_tensor *x);
YK_API yk_tensor *yk_ones_like(const yk_tensor *x);
YK_API yk_tensor *yk_full_like(const yk_tensor *x, double value);
YK_API yk_tensor *yk_rand_like(const yk_tensor *x);
YK_API yk_tensor *yk_randn_like(const yk_tensor *x);
/* The properties in which the new tensor differs from x; NULL: none. */
typedef struct yk_like_options {
    yk_dtype dtype YK_DEFAULT(YK_DTYPE_NOT_GIVEN); /* not given: x's */
    yk_device device YK_DEFAULT(YK_CPU, -1);       /* not given (YK_DEVICE_NOT_GIVEN): x's */
    bool requires_grad YK_DEFAULT(false);          /* floating dtypes only */
    unsigned yk__mark YK_DEFAULT(YK__MARK);        /* private */
} yk_like_options;
#define yk_like_options_DEFAULTS .yk__mark = YK__MARK, .dtype = YK_DTYPE_NOT_GIVEN, .device = {YK_CPU, -1}
/* Source: torch.zeros_like(x, dtype=torch.int32) and its kin. */
YK_API yk_tensor *yk_empty_like_with(const yk_tensor *x, const yk_like_options *options);
YK_API yk_tensor *yk_zeros_like_with(const yk_tensor *x, const yk_like_options *options);
YK_API yk_tensor *yk_ones_like_with(const yk_tensor *x, const yk_like_options *options);
YK_API yk_tensor *yk_full_like_with(const yk_tensor *x, double value, const yk_like_options *options);
YK_API yk_tensor *yk_rand_like_with(const yk_tensor *x, const yk_like_options *options);
YK_API yk_tensor *yk_randn_like_with(const yk_tensor *x, const yk_like_options *options);
/* New tensors of another shape than x, in C order, with x's dtype and device unless the options (NULL: nothing) say
 * otherwise; no gradient unless they do. new_tensor copies `data`, elements of that dtype in host memory. Source:
 * x.new_zeros and its kin. */
YK_API yk_tensor *yk_new_empty(const yk_tensor *x, int ndim, const int64_t *shape, const yk_like_options *options);
YK_API yk_tensor *yk_new_zeros(const yk_tensor *x, int ndim, const int64_t *shape, const yk_like_options *options);
YK_API yk_tensor *yk_new_ones(const yk_tensor *x, int ndim, const int64_t *shape, const yk_like_options *options);
YK_API yk_tensor *yk_new_full(const yk_tensor *x, int ndim, const int64_t *shape, double value,
                              const yk_like_options *options);
YK_API yk_tensor *yk_new_tensor(const yk_tensor *x, const void *data, int ndim, const int64_t *shape,
                                const yk_like_options *options);

/* ---- properties of a tensor (NULL gives zero values) ----------------------------------------------------------- */
YK_API int yk_ndim(const yk_tensor *x) YK_QUESTION;
YK_API int64_t yk_size(const yk_tensor *x,
                       int dim) YK_QUESTION; /* negative dims count from the end; -1 for a dim that is not there */
YK_API int64_t yk_stride(const yk_tensor *x, int dim) YK_QUESTION; /* in elements */
YK_API const int64_t *yk_sizes(const yk_tensor *x) YK_QUESTION;    /* ndim numbers, valid as long as x */
YK_API int64_t yk_numel(const yk_tensor *x) YK_QUESTION;
YK_API yk_dtype yk_tensor_dtype(const yk_tensor *x) YK_QUESTION;
YK_API yk_device yk_tensor_device(const yk_tensor *x) YK_QUESTION;
/* The number of the GPU that x is on. A tensor on the CPU has none: -1, and an error. Source: Tensor.get_device. */
YK_API int yk_get_device(const yk_tensor *x);
/* dtype and type of device in one name: "torch.FloatTensor", "torch.cuda.LongTensor"; static, NULL for NULL.
 * Source: Tensor.type. */
YK_API const char *yk_tensor_type(const yk_tensor *x) YK_QUESTION;
YK_API bool yk_is_contiguous(const yk_tensor *x) YK_QUESTION; /* C order */
YK_API bool yk_same_shape(const yk_tensor *a, const yk_tensor *b) YK_QUESTION;
/* Writes "(2, 3, 4)" into `buffer` and returns it. */
YK_API const char *yk_shape_format(const yk_tensor *x, char *buffer, size_t size) YK_QUESTION;
/* The number of times that the storage was written in place; saved tensors are checked against it. */
YK_API uint32_t yk_tensor_version(const yk_tensor *x) YK_QUESTION;

/* The typed forms of yk_object_retain, yk_object_release and yk_scope_return_object. */
YK_API yk_tensor *yk_tensor_retain(yk_tensor *x);
YK_API void yk_tensor_release(yk_tensor *x);
YK_API yk_tensor *yk_scope_return(yk_scope scope, yk_tensor *x);

/* ---- access from the host --------------------------------------------------------------------------------------- */
/* The first element of a CPU tensor, to be walked with yk_stride; NULL and an error for a tensor of another device.
 * Writing through it is seen by every view and is not tracked. */
YK_API void *yk_tensor_data(yk_tensor *x);
/* The value of a tensor with one element, of any dtype and device. NaN and the error record set on failure. */
YK_API double yk_item(const yk_tensor *x);
YK_API int64_t yk_item_i64(const yk_tensor *x);
/* One element by its index, as a double. */
YK_API double yk_get(const yk_tensor *x, const int64_t *index);
/* Copies all elements in C order into `data` (yk_numel * yk_dtype_size bytes), from any device and strides. */
YK_API yk_status yk_tensor_read(const yk_tensor *x, void *data, size_t bytes) YK_MUST_CHECK;
/* Overwrites all elements from `data` in C order; counts as a write in place: a leaf that requires a
 * gradient can be written between yk_no_grad_begin and yk_no_grad_end only. */
YK_API yk_status yk_tensor_write(yk_tensor *x, const void *data, size_t bytes) YK_MUST_CHECK;
/*
 * The format in which all threads print tensors. A number that is not given keeps its value, or gets that of the
 * profile where one is named: "default" (precision 4, threshold 1000, edgeitems 3, linewidth 80), "short" (2, 1000, 2,
 * 80) or "full" (4, all, 3, 80). Source: torch.set_printoptions.
 */
typedef enum yk_sci_mode { YK_SCI_AUTO, YK_SCI_ON, YK_SCI_OFF } yk_sci_mode;
typedef struct yk_print_options {
    const char *profile YK_DEFAULT(NULL);
    int precision YK_DEFAULT(YK_NOT_GIVEN);       /* digits after the point, 0 to 60 */
    int64_t threshold YK_DEFAULT(YK_NOT_GIVEN);   /* elements above which a tensor is summarised; INT64_MAX: never */
    int64_t edgeitems YK_DEFAULT(YK_NOT_GIVEN);   /* of each end of a dimension that is summarised; at least 1 */
    int64_t linewidth YK_DEFAULT(YK_NOT_GIVEN);   /* characters; longer rows go on in the next line */
    yk_sci_mode sci_mode YK_DEFAULT(YK_SCI_AUTO); /* auto: by the elements; set anew by every call */
    unsigned yk__mark YK_DEFAULT(YK__MARK);       /* private */
} yk_print_options;
#define yk_print_options_DEFAULTS                                                                                      \
    .yk__mark = YK__MARK, .precision = YK_NOT_GIVEN, .threshold = YK_NOT_GIVEN, .edgeitems = YK_NOT_GIVEN,             \
    .linewidth = YK_NOT_GIVEN
/* NULL: the default profile. */
YK_API yk_status yk_set_printoptions(const yk_print_options *options) YK_MUST_CHECK;
/* Fills *now with the present format; profile is the one named last, a static string. */
YK_API void yk_get_printoptions(yk_print_options *now);
/* Prints like PyTorch: tensor([[ 1.0000,  2.0000], ...]). Summarised above 1,000 elements (yk_set_printoptions). */
YK_API yk_status yk_print(FILE *to, const yk_tensor *x) YK_MUST_CHECK;
/* The same as a string that the caller frees; NULL on failure. */
YK_API char *yk_to_string(const yk_tensor *x);

#ifdef __cplusplus
}
#endif
#endif
