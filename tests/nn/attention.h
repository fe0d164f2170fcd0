/* attention.h - a module of the tests' own with several inputs and outputs: scaled dot-product attention with a mask.
 */
#ifndef YOKE_TESTS_ATTENTION_H
#define YOKE_TESTS_ATTENTION_H

#include <math.h>

#include <yoke/nn.h>

/* q, k, v (N,T,D) and mask (N,T) of bool or NULL: (N,T,D), and the weights (N,T,T) where two are wanted. */
static inline yk_status attention_forward(yk_module *self, yk_tensor *const *in, int n_inputs, yk_tensor **out,
                                          int n_outputs)
{
    (void)self;
    yk_tensor *mask = n_inputs > 3 ? in[3] : NULL;
    yk_tensor *scores = yk_div_scalar(yk_matmul(in[0], yk_transpose(in[1], 1, 2)), sqrt((double)yk_size(in[0], 2)));
    if (mask)
        scores = yk_where(yk_unsqueeze(mask, 1), scores, yk_full_like(scores, -INFINITY));
    yk_tensor *weights = yk_softmax(scores, 2);
    out[0] = yk_matmul(weights, in[2]);
    if (n_outputs > 1)
        out[1] = weights;
    return YK_OK;
}

static inline yk_module *attention_create(void)
{
    static const yk_module_class attention = {.name = "Attention", .forward_list = attention_forward};
    return yk_module_create(&attention);
}

/* Everything counts in the even rows, the first half in the odd ones. */
static inline yk_tensor *attention_mask(int64_t n, int64_t t)
{
    bool values[64] = {false};
    for (int64_t i = 0; i < n * t; i++)
        values[i] = i / t % 2 == 0 || i % t < t / 2;
    return yk_from_data(values, YK_SHAPE(n, t), YK_OPTIONS(yk_tensor_options, .dtype = YK_BOOL));
}

#endif
