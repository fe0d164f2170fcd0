/*
 * powers.h - the greatest of numbers and the sum of their exponentials, in one reading. Layer: device/cuda.
 *
 * A thread keeps the greatest of those that it has seen, and the sum of e^(x - greatest), in f64; where a greater one
 * comes, the sum is scaled down. The factor is made in f64, so that the result is as near as that of two readings.
 * Source: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018.
 */
#ifndef YOKE_DEVICE_CUDA_POWERS_H
#define YOKE_DEVICE_CUDA_POWERS_H

#include "device/cuda/exponential.h"

template <typename number> struct powers {
    number top;
    double sum;
    YK__DEVICE powers() : top((number)-INFINITY), sum(0)
    {
    }
    /* Adds N numbers more, -INFINITY for those that are missing. */
    template <int N> YK__DEVICE void add(const number *x)
    {
        number most = top;
        YK__UNROLL for (int u = 0; u < N; u++) most = yk__greater(most, x[u]);
        if (most == (number)-INFINITY)
            return;
        if (most != top)
            sum *= exponential((double)top - (double)most);
        top = most;
        number power[N];
        YK__UNROLL for (int u = 0; u < N; u++) power[u] = x[u] - top;
        exponentials<N>(power);
        YK__UNROLL for (int u = 0; u < N; u++) sum += (double)power[u];
    }
    /* The sum as of `greatest`, the top of all threads. Nothing but -INFINITY gives NaN, as in two readings. */
    YK__DEVICE double scaled_to(number greatest) const
    {
        if (greatest == (number)-INFINITY)
            return (double)(greatest - greatest);
        return top == greatest ? sum : sum * exponential((double)top - (double)greatest);
    }
};

#endif
