/*
 * gru.c - GRU and RNN: a layer in one direction, and one step of a cell, made of operations; recurrent.c joins layers.
 * Layer: ops.
 *
 * The inputs' part of all steps is one product; a step multiplies the state alone. With a = x W_ih^T + b_ih and
 * b = h W_hh^T + b_hh, in parts r, z and n of hidden_size each:
 *
 *     r, z = sigmoid(a + b),  n = tanh(a + r b),  h' = n + z (h - n)
 */
#include <stdlib.h>

#include "ops/recurrent.h"

/* The next state of a GRU: of the input's part of r and z, (N,2H), and of n, (N,H). */
static yk_tensor *gru_step(yk_tensor *gates, yk_tensor *candidate, yk_tensor *h, yk_tensor *weight, yk_tensor *bias)
{
    yk_tensor *own = yk_linear(h, weight, bias), *part[2], *rz[2];
    int64_t hidden = own ? h->shape[1] : 0;
    if (!own || yk_split_sizes(own, (int64_t[]){2 * hidden, hidden}, 2, 1, part))
        return NULL;
    yk_tensor *both = yk_sigmoid(yk_add(gates, part[0]));
    if (!both || yk_chunk(both, 2, 1, rz, 2, NULL))
        return NULL;
    yk_tensor *n = yk_tanh(yk_add(candidate, yk_mul(rz[0], part[1])));
    return yk_add(n, yk_mul(rz[1], yk_sub(h, n)));
}

static yk_tensor *rnn_step(yk_tensor *a, yk_tensor *h, yk_tensor *weight, yk_tensor *bias, bool relu)
{
    yk_tensor *sum = yk_add(a, yk_linear(h, weight, bias));
    return relu ? yk_relu(sum) : yk_tanh(sum);
}

/* States (N,H) of zeros for x (...,N,in). */
static yk_tensor *zeros_for(const yk_tensor *x, int64_t hidden)
{
    return yk_zeros(2, (int64_t[]){x->shape[x->ndim - 2], hidden},
                    YK_OPTIONS(yk_tensor_options, .dtype = (yk_dtype)x->dtype, .device = yk__device_of(x)));
}

/* The input's part of every step, in parts[] of T each: of a GRU r and z, then n. */
static yk_status parts_of_steps(const yk__recurrent *of, yk_tensor *x, yk_tensor *const *weights, yk_tensor **parts)
{
    yk_tensor *a = yk_linear(x, weights[0], weights[2]), *split[2] = {a};
    int64_t hidden = weights[1]->shape[1], steps = x->shape[0];
    int kinds = of->gates == 3 ? 2 : 1;
    yk_status status = yk__status_of(a);
    if (!status && kinds == 2)
        status = yk_split_sizes(a, (int64_t[]){2 * hidden, hidden}, 2, 2, split);
    for (int i = 0; i < kinds && !status; i++)
        status = yk_unbind(split[i], 0, parts + i * steps, (int)steps, NULL);
    return status;
}

static yk_status steps_layer(const yk__recurrent *of, yk_tensor *x, yk_tensor *const *states, yk_tensor *const *weights,
                             bool reverse, bool want_h, yk_tensor **output, yk_tensor **ends)
{
    int64_t steps = x->shape[0];
    (void)want_h;
    yk_tensor **parts = yk__calloc((size_t)steps, 3 * sizeof(*parts)), **made = parts + 2 * steps;
    yk_tensor *h = states[0] ? states[0] : zeros_for(x, weights[1]->shape[1]);
    if (!parts)
        return yk__error_code();
    yk_status status = h ? parts_of_steps(of, x, weights, parts) : yk__status_of(NULL);
    for (int64_t i = 0; i < steps && !status; i++) {
        int64_t t = reverse ? steps - 1 - i : i;
        made[t] = h = of->gates == 3 ? gru_step(parts[t], parts[steps + t], h, weights[1], weights[3])
                                     : rnn_step(parts[t], h, weights[1], weights[3], of->relu);
        status = yk__status_of(h);
    }
    *output = status ? NULL : steps == 1 ? yk_unsqueeze(h, 0) : yk_stack(made, (int)steps, 0);
    ends[0] = status ? NULL : h;
    free(parts);
    return status ? status : yk__status_of(*output);
}

static const yk__recurrent gru = {.name = "gru", .gates = 3, .states = 1, .layer = steps_layer};
static const yk__recurrent rnn = {.name = "rnn", .gates = 1, .states = 1, .layer = steps_layer};
static const yk__recurrent rnn_relu = {.name = "rnn", .gates = 1, .states = 1, .relu = true, .layer = steps_layer};

static bool check_nonlinearity(const char *name, yk_nonlinearity nonlinearity)
{
    if ((unsigned)nonlinearity <= YK_NONLINEARITY_RELU)
        return true;
    yk__fail(YK_ERR_ARGUMENT, "%s: nonlinearity %d is neither tanh nor relu", name, (int)nonlinearity);
    return false;
}

yk_status yk_gru(yk_tensor *x, yk_tensor *h_0, yk_tensor *const *weights, int count, const yk_gru_options *options,
                 yk_tensor **output, yk_tensor **h_n)
{
    yk_gru_options o;
    yk_tensor **to[YK__RECURRENT_OUTPUTS] = {output, h_n};
    yk__recurrent_clear(to);
    if (YK__OPTIONS_TAKE("gru", yk_gru_options, options, &o))
        return YK_ERR_ARGUMENT;
    return yk__recurrent_run(&gru, x, &h_0, weights, count, YK__RECURRENT_OPTIONS(o), to);
}

yk_status yk_rnn(yk_tensor *x, yk_tensor *h_0, yk_tensor *const *weights, int count, const yk_rnn_options *options,
                 yk_tensor **output, yk_tensor **h_n)
{
    yk_rnn_options o;
    yk_tensor **to[YK__RECURRENT_OUTPUTS] = {output, h_n};
    yk__recurrent_clear(to);
    if (YK__OPTIONS_TAKE("rnn", yk_rnn_options, options, &o) || !check_nonlinearity("rnn", o.nonlinearity))
        return YK_ERR_ARGUMENT;
    return yk__recurrent_run(o.nonlinearity == YK_NONLINEARITY_RELU ? &rnn_relu : &rnn, x, &h_0, weights, count,
                             YK__RECURRENT_OPTIONS(o), to);
}

/* ---- cells ------------------------------------------------------------------------------------------------------- */

enum { X, H, W_IH, W_HH, B_IH, B_HH, INPUTS };

static yk_status check_cell(const yk__recurrent *of, yk_tensor *const *in)
{
    const yk_tensor *x = in[X];
    bool cast = yk__autocast_types != 0;
    int64_t hidden = yk__recurrent_hidden(of, "", in[W_HH]);
    if (!hidden)
        return yk__error_code();
    if (x->ndim != 2 || (in[W_IH]->ndim == 2 && x->shape[1] != in[W_IH]->shape[1])) {
        char text[200];
        return yk__fail(YK_ERR_SHAPE, "%s: input has shape %s, expected (N, %lld)", of->name,
                        yk_shape_format(x, text, sizeof(text)), (long long)yk_size(in[W_IH], -1));
    }
    const int64_t state[2] = {x->shape[0], hidden};
    if (yk__expect_floating(of->name, "input", x) || (!cast && yk__expect_input(of->name, x, in[W_IH], in[B_IH])) ||
        !yk__recurrent_check_weights(of, "", in + W_IH, x->shape[1], hidden,
                                     cast ? YK__ANY_DTYPE : (yk_dtype)x->dtype) ||
        !yk__expect_shape(of->name, "h", in[H], 2, state) ||
        (!cast && yk__expect_dtype(of->name, "h", in[H], (yk_dtype)x->dtype)))
        return yk__error_code();
    return YK_OK;
}

static yk_tensor *cell(const yk__recurrent *of, yk_tensor *const *in)
{
    bool biased = in[B_IH] || in[B_HH];
    uint32_t optional = 1u << H | (biased ? 0 : 1u << B_IH | 1u << B_HH);
    YK__EVENT(YK__EVENT_OPERATION, of->name);
    if (!yk__op_begin(of->name, INPUTS, in, optional) || check_cell(of, in))
        return NULL;
    yk_scope scope = yk_scope_begin();
    int64_t hidden = in[W_HH]->shape[1];
    yk_tensor *h = in[H] ? in[H] : zeros_for(in[X], hidden), *a = yk_linear(in[X], in[W_IH], in[B_IH]), *part[2];
    yk_tensor *out = NULL;
    if (of->gates == 1)
        out = rnn_step(a, h, in[W_HH], in[B_HH], of->relu);
    else if (a && h && !yk_split_sizes(a, (int64_t[]){2 * hidden, hidden}, 2, 1, part))
        out = gru_step(part[0], part[1], h, in[W_HH], in[B_HH]);
    out = out ? yk_scope_return(scope, out) : NULL;
    yk_scope_end(scope);
    return out;
}

yk_tensor *yk_gru_cell(yk_tensor *x, yk_tensor *h, yk_tensor *weight_ih, yk_tensor *weight_hh, yk_tensor *bias_ih,
                       yk_tensor *bias_hh)
{
    static const yk__recurrent of = {.name = "gru_cell", .gates = 3, .states = 1};
    return cell(&of, (yk_tensor *[]){x, h, weight_ih, weight_hh, bias_ih, bias_hh});
}

yk_tensor *yk_rnn_cell(yk_tensor *x, yk_tensor *h, yk_tensor *weight_ih, yk_tensor *weight_hh, yk_tensor *bias_ih,
                       yk_tensor *bias_hh, yk_nonlinearity nonlinearity)
{
    if (!check_nonlinearity("rnn_cell", nonlinearity))
        return NULL;
    const yk__recurrent of = {
        .name = "rnn_cell", .gates = 1, .states = 1, .relu = nonlinearity == YK_NONLINEARITY_RELU};
    return cell(&of, (yk_tensor *[]){x, h, weight_ih, weight_hh, bias_ih, bias_hh});
}
