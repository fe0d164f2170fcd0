/*
 * recurrent.h - what LSTM, GRU and RNN share: layers in both directions over sequences, packed ones too, their checks.
 * Layer: ops.
 */
#ifndef YOKE_OPS_RECURRENT_H
#define YOKE_OPS_RECURRENT_H

#include "ops/cast_policy.h"

#define YK__ANY_DTYPE YK__DTYPES /* where none is asked for */

enum { YK__RECURRENT_STATES = 2, YK__RECURRENT_OUTPUTS = 1 + YK__RECURRENT_STATES }; /* at most; output, h_n, c_n */

/* A kind of network. */
typedef struct yk__recurrent yk__recurrent;
struct yk__recurrent {
    const char *name;
    int gates;  /* the rows of weights are so many times hidden_size */
    int states; /* 1, h, or 2, h and c */
    bool relu;  /* the layer function's own */
    bool casts; /* under autocast: inputs as `cast` has them, and no operation inside casts; else the operations do */
    yk__cast_op cast;
    /* One layer in one direction over checked inputs: x (T,N,in), states[] (N,H) or NULL for zeros, weights W_ih, W_hh,
     * b_ih, b_hh, the biases NULL for none. *output (T,N,H); ends[] (N,H), the states after the last step that was
     * taken, where that of h may be NULL unless want_h. The scope owns them. */
    yk_status (*layer)(const yk__recurrent *of, yk_tensor *x, yk_tensor *const *states, yk_tensor *const *weights,
                       bool reverse, bool want_h, yk_tensor **output, yk_tensor **ends);
};

/* The options that all kinds have (yk_lstm_options). */
typedef struct yk__recurrent_options {
    int64_t num_layers;
    bool bias, batch_first, bidirectional, train;
    double dropout;
    yk_tensor *batch_sizes;
} yk__recurrent_options;
#define YK__RECURRENT_OPTIONS(o)                                                                                       \
    &(yk__recurrent_options)                                                                                           \
    {                                                                                                                  \
        .num_layers = (o).num_layers, .bias = (o).bias, .batch_first = (o).batch_first,                                \
        .bidirectional = (o).bidirectional, .train = (o).train, .dropout = (o).dropout, .batch_sizes = (o).batch_sizes \
    }

/* *to[i] = NULL of those that are asked for. */
void yk__recurrent_clear(yk_tensor **const to[YK__RECURRENT_OUTPUTS]);
/* The whole of yk_lstm and its kin after their options: states[] has of->states entries; *to[], the output and the
 * states, are handed to the caller's scope; any of to[] may be NULL. */
yk_status yk__recurrent_run(const yk__recurrent *of, yk_tensor *x, yk_tensor *const *states, yk_tensor *const *weights,
                            int count, const yk__recurrent_options *o, yk_tensor **const to[YK__RECURRENT_OUTPUTS]);

/* ---- checks, in the name of the kind ---- */
/* False and an error unless x has the shape; a NULL x passes. */
bool yk__expect_shape(const char *name, const char *role, const yk_tensor *x, int ndim, const int64_t *shape);
/* The size of the states that go with W_hh; 0 and an error where it is none's. */
int64_t yk__recurrent_hidden(const yk__recurrent *of, const char *suffix, const yk_tensor *weight);
/* W_ih, W_hh and the biases, or NULL, of a layer in one direction, whose input has `size` numbers and whose states
 * `hidden`; `suffix` ends their names. YK__ANY_DTYPE: they may have any. */
bool yk__recurrent_check_weights(const yk__recurrent *of, const char *suffix, yk_tensor *const weights[4], int64_t size,
                                 int64_t hidden, yk_dtype dtype);
/* Gives what is asked for of outs[] to the scope around `scope`, and ends it. */
yk_status yk__hand_out(yk_scope scope, yk_status status, int count, yk_tensor *const *outs, yk_tensor **const *to);

#endif
