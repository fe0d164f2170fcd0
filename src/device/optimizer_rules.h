/*
 * optimizer_rules.h - a step by RMSprop, Adagrad, Adadelta, Adamax, NAdam or RAdam, element by element, for kernels of
 * every device. Layer: device. C and C++.
 *
 * The formulas are those of torch.optim, term by term; both devices compile them without fused multiply-adds, so that
 * both give the same bits. An element's numbers x are the parameter, the gradient and the state:
 *
 *     RMSprop    square_avg, momentum_buffer (with a momentum), grad_avg (centered)
 *     Adagrad    sum
 *     Adadelta   square_avg, acc_delta
 *     Adamax     exp_avg, exp_inf
 *     NAdam      exp_avg, exp_avg_sq
 *     RAdam      exp_avg, exp_avg_sq
 */
#ifndef YOKE_DEVICE_OPTIMIZER_RULES_H
#define YOKE_DEVICE_OPTIMIZER_RULES_H

#include "device/optimizer_math.h"

/* yk__rule_S: yk__factors in the dtype of the parameters. yk__rule_apply_S: one element by a rule, which is a constant
 * of the call where the compiler is to leave the others out. */
#define YK__RULE_FUNCTIONS(S, T, root, magnitude)                                                                      \
    typedef struct yk__rule_##S {                                                                                      \
        T decay, shrink, keep, toward, rest, eps, momentum, step_size, of_grad, root_scale, sign;                      \
        bool rectified;                                                                                                \
    } yk__rule_##S;                                                                                                    \
    YK__SCALAR yk__rule_##S yk__rule_of_##S(const yk__factors *f)                                                      \
    {                                                                                                                  \
        yk__rule_##S r;                                                                                                \
        r.decay = (T)f->decay, r.shrink = (T)f->shrink, r.keep = (T)f->keep, r.toward = (T)f->toward;                  \
        r.rest = (T)f->rest, r.eps = (T)f->eps, r.momentum = (T)f->momentum, r.step_size = (T)f->step_size;            \
        r.of_grad = (T)f->of_grad, r.root_scale = (T)f->root_scale, r.sign = f->maximize ? -1 : 1;                     \
        r.rectified = f->rectified;                                                                                    \
        return r;                                                                                                      \
    }                                                                                                                  \
    YK__SCALAR void yk__rmsprop_##S(const yk__rule_##S *f, T d, T *x, bool with_momentum, bool centered)               \
    {                                                                                                                  \
        T square = f->keep * x[2] + f->rest * (d * d), spread = square;                                                \
        x[2] = square;                                                                                                 \
        if (centered) {                                                                                                \
            T mean = x[4] + f->rest * (d - x[4]);                                                                      \
            x[4] = mean;                                                                                               \
            spread = square - mean * mean;                                                                             \
        }                                                                                                              \
        T move = d / (root(spread) + f->eps);                                                                          \
        if (with_momentum) {                                                                                           \
            move = f->momentum * x[3] + move;                                                                          \
            x[3] = move;                                                                                               \
        }                                                                                                              \
        x[0] = x[0] - f->step_size * move;                                                                             \
    }                                                                                                                  \
    YK__SCALAR void yk__adagrad_##S(const yk__rule_##S *f, T d, T *x)                                                  \
    {                                                                                                                  \
        T sum = x[2] + d * d;                                                                                          \
        x[2] = sum;                                                                                                    \
        x[0] = x[0] - f->step_size * (d / (root(sum) + f->eps));                                                       \
    }                                                                                                                  \
    YK__SCALAR void yk__adadelta_##S(const yk__rule_##S *f, T d, T *x)                                                 \
    {                                                                                                                  \
        T square = f->keep * x[2] + f->rest * (d * d);                                                                 \
        T move = root(x[3] + f->eps) / root(square + f->eps) * d;                                                      \
        x[2] = square;                                                                                                 \
        x[3] = f->keep * x[3] + f->rest * (move * move);                                                               \
        x[0] = x[0] - f->step_size * move;                                                                             \
    }                                                                                                                  \
    YK__SCALAR void yk__adamax_##S(const yk__rule_##S *f, T d, T *x)                                                   \
    {                                                                                                                  \
        T mean = x[2] + f->toward * (d - x[2]), before = f->keep * x[3], now = magnitude(d) + f->eps;                  \
        T greatest = before > now || before != before ? before : now;                                                  \
        x[2] = mean;                                                                                                   \
        x[3] = greatest;                                                                                               \
        x[0] = x[0] - f->step_size * (mean / greatest);                                                                \
    }                                                                                                                  \
    YK__SCALAR void yk__nadam_##S(const yk__rule_##S *f, T d, T *x)                                                    \
    {                                                                                                                  \
        T mean = x[2] + f->toward * (d - x[2]), square = f->keep * x[3] + f->rest * (d * d);                           \
        T spread = root(square) * f->root_scale + f->eps;                                                              \
        x[2] = mean;                                                                                                   \
        x[3] = square;                                                                                                 \
        x[0] = x[0] * f->shrink - f->of_grad * (d / spread) - f->step_size * (mean / spread);                          \
    }                                                                                                                  \
    YK__SCALAR void yk__radam_##S(const yk__rule_##S *f, T d, T *x)                                                    \
    {                                                                                                                  \
        T mean = x[2] + f->toward * (d - x[2]), square = f->keep * x[3] + f->rest * (d * d);                           \
        T spread = f->rectified ? root(square) + f->eps : (T)1;                                                        \
        x[2] = mean;                                                                                                   \
        x[3] = square;                                                                                                 \
        x[0] = x[0] * f->shrink - f->step_size * (mean / spread);                                                      \
    }                                                                                                                  \
    YK__SCALAR void yk__rule_apply_##S(yk__rule rule, const yk__rule_##S *f, T *x, bool with_second, bool with_third)  \
    {                                                                                                                  \
        T d = f->sign * x[1] + f->decay * x[0];                                                                        \
        switch (rule) {                                                                                                \
        case YK__RMSPROP: yk__rmsprop_##S(f, d, x, with_second, with_third); break;                                    \
        case YK__ADAGRAD: yk__adagrad_##S(f, d, x); break;                                                             \
        case YK__ADADELTA: yk__adadelta_##S(f, d, x); break;                                                           \
        case YK__ADAMAX: yk__adamax_##S(f, d, x); break;                                                               \
        case YK__NADAM: yk__nadam_##S(f, d, x); break;                                                                 \
        default: yk__radam_##S(f, d, x); break;                                                                        \
        }                                                                                                              \
    }
YK__RULE_FUNCTIONS(f32, float, sqrtf, fabsf)
YK__RULE_FUNCTIONS(f64, double, sqrt, fabs)
#undef YK__RULE_FUNCTIONS

#endif
