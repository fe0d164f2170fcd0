/*
 * activation_math.h - activations and their derivatives that are longer than an expression, for the kernels of every
 * device. Layer: device. C and C++.
 *
 * Made of the functions of scalar_math.h, and rounded as they are written.
 */
#ifndef YOKE_DEVICE_ACTIVATION_MATH_H
#define YOKE_DEVICE_ACTIVATION_MATH_H

#include "device/scalar_math.h"

/* The derivative of x sigmoid(x). */
YK__SCALAR float yk__silu_grad_f32(float x)
{
    float s = yk__sigmoid_f32(x);
    return s * (1.0f + x * (1.0f - s));
}

/* The derivative of x t, t = tanh(log(1 + e^x)). */
YK__SCALAR float yk__mish_grad_f32(float x)
{
    float t = yk__tanh_f32(yk__log1p_f32(yk__exp_f32(x)));
    return t + x * yk__sigmoid_f32(x) * (1.0f - t * t);
}

/* x (1 + tanh(u)) / 2 with u = sqrt(2 / pi) (x + 0.044715 x^3), which is x sigmoid(2 u), and its derivative. */
YK__SCALAR float yk__gelu_tanh_f32(float x)
{
    return x * yk__sigmoid_f32(2.0f * 0.797884561f * (x + 0.044715f * x * x * x));
}

YK__SCALAR float yk__gelu_tanh_grad_f32(float x)
{
    float s = yk__sigmoid_f32(2.0f * 0.797884561f * (x + 0.044715f * x * x * x));
    return s + 2.0f * x * s * (1.0f - s) * (0.797884561f * (1.0f + 3.0f * 0.044715f * x * x));
}

/* The derivative of x sigmoid(x). */
YK__SCALAR double yk__silu_grad_f64(double x)
{
    double s = yk__sigmoid_f64(x);
    return s * (1.0 + x * (1.0 - s));
}

/* The derivative of x t, t = tanh(log(1 + e^x)). */
YK__SCALAR double yk__mish_grad_f64(double x)
{
    double t = yk__tanh_f64(yk__log1p_f64(yk__exp_f64(x)));
    return t + x * yk__sigmoid_f64(x) * (1.0 - t * t);
}

/* x (1 + tanh(u)) / 2 with u = sqrt(2 / pi) (x + 0.044715 x^3), which is x sigmoid(2 u), and its derivative. */
YK__SCALAR double yk__gelu_tanh_f64(double x)
{
    return x * yk__sigmoid_f64(2.0 * 0.79788456080286535588 * (x + 0.044715 * x * x * x));
}

YK__SCALAR double yk__gelu_tanh_grad_f64(double x)
{
    double s = yk__sigmoid_f64(2.0 * 0.79788456080286535588 * (x + 0.044715 * x * x * x));
    return s + 2.0 * x * s * (1.0 - s) * (0.79788456080286535588 * (1.0 + 3.0 * 0.044715 * x * x));
}

/* d^2 / (2 beta) up to |d| = beta, |d| - beta / 2 beyond, and the derivative. */
YK__SCALAR float yk__smooth_l1_f32(float d, float beta)
{
    float size = fabsf(d), least = size > beta ? beta : size;
    return least / beta * (size - 0.5f * least);
}

YK__SCALAR float yk__smooth_l1_slope_f32(float d, float beta)
{
    float part = d / beta;
    return part < -1.0f ? -1.0f : part > 1.0f ? 1.0f : part;
}

/* d^2 / (2 beta) up to |d| = beta, |d| - beta / 2 beyond, and the derivative. */
YK__SCALAR double yk__smooth_l1_f64(double d, double beta)
{
    double size = fabs(d), least = size > beta ? beta : size;
    return least / beta * (size - 0.5 * least);
}

YK__SCALAR double yk__smooth_l1_slope_f64(double d, double beta)
{
    double part = d / beta;
    return part < -1.0 ? -1.0 : part > 1.0 ? 1.0 : part;
}

#endif
