/*
 * lstm_module.c - LSTMCell: one step of a recurrent network, from an input and a state to the next state. Layer: nn.
 */
#include <math.h>

#include "nn/module.h"
#include "ops/cast_policy.h"

typedef struct lstm_cell {
    yk_tensor *weight_ih, *weight_hh, *bias_ih, *bias_hh;
    int64_t input_size, hidden_size;
} lstm_cell;

/* A state that was not given is zeros. */
static yk_tensor *state_or_zeros(const lstm_cell *d, const char *role, yk_tensor *x, yk_tensor *state)
{
    int64_t shape[2] = {x->shape[0], d->hidden_size};
    if (!state)
        return yk_zeros(2, shape, &(yk_tensor_options){.dtype = (yk_dtype)x->dtype, .device = yk__device_of(x)});
    if (state->ndim == 2 && state->shape[0] == shape[0] && state->shape[1] == shape[1])
        return state;
    char a[200], b[200];
    yk__fail(YK_ERR_SHAPE, "lstm_cell: %s has shape %s, expected %s", role, yk_shape_format(state, a, sizeof(a)),
             yk__shape_text(2, shape, b, sizeof(b)));
    return NULL;
}

/* i, f, g, o = W_ih x + b_ih + W_hh h + b_hh;  c' = sigmoid(f) c + sigmoid(i) tanh(g);  h' = sigmoid(o) tanh(c') */
static yk_status lstm_cell_forward(yk_module *m, yk_tensor *const *in, int n_inputs, yk_tensor **out, int n_outputs)
{
    lstm_cell *d = yk_module_data(m);
    yk_tensor *x = n_inputs > 0 ? in[0] : NULL;
    if (!x || n_inputs > 3 || n_outputs > 2)
        return yk__fail(YK_ERR_ARGUMENT,
                        "lstm_cell: %d inputs for %d outputs; expected x [, h [, c]] for h' or for h' and c'", n_inputs,
                        n_outputs);
    if (x->ndim != 2 || x->shape[1] != d->input_size) {
        char text[200];
        return yk__fail(YK_ERR_SHAPE, "lstm_cell: input has shape %s, expected (N, %lld)",
                        yk_shape_format(x, text, sizeof(text)), (long long)d->input_size);
    }
    yk_tensor *h = state_or_zeros(d, "h", x, n_inputs > 1 ? in[1] : NULL);
    yk_tensor *c = state_or_zeros(d, "c", x, n_inputs > 2 ? in[2] : NULL);
    enum { X, H, C, W_IH, W_HH, B_IH, B_HH, USED };
    yk_tensor *used[USED] = {x, h, c, d->weight_ih, d->weight_hh, d->bias_ih, d->bias_hh};
    yk__autocast_inputs(YK__CAST_OP_lstm_cell, USED, used);
    yk_tensor *gates = yk_add(yk_linear(used[X], used[W_IH], used[B_IH]), yk_linear(used[H], used[W_HH], used[B_HH]));
    yk_tensor *part[4];
    int count;
    yk_status status = yk_chunk(gates, 4, 1, part, 4, &count);
    if (status)
        return status;
    c = yk_add(yk_mul(yk_sigmoid(part[1]), used[C]), yk_mul(yk_sigmoid(part[0]), yk_tanh(part[2])));
    out[0] = yk_mul(yk_sigmoid(part[3]), yk_tanh(c));
    if (n_outputs == 2)
        out[1] = c;
    return yk__error_code();
}

static void lstm_cell_describe(yk_module *m, char *buffer, size_t size)
{
    lstm_cell *d = yk_module_data(m);
    snprintf(buffer, size, "%lld, %lld%s", (long long)d->input_size, (long long)d->hidden_size,
             d->bias_ih ? "" : ", bias=False");
}

static const yk_module_class lstm_cell_class = {.name = "LSTMCell",
                                                .data_size = sizeof(lstm_cell),
                                                .forward_list = lstm_cell_forward,
                                                .describe = lstm_cell_describe};

static yk_tensor *parameter(yk_module *m, const char *name, int ndim, int64_t rows, int64_t columns, double bound)
{
    yk_tensor *x = yk__module_take_parameter(
        m, name, yk__module_tensor("lstm_cell_create", ndim, (int64_t[]){rows, columns}, YK_F32));
    if (x && yk_init_uniform(x, -bound, bound))
        m->incomplete = true;
    return x;
}

yk_module *yk_lstm_cell_create(int64_t input_size, int64_t hidden_size, const yk_lstm_cell_options *options)
{
    if (input_size < 1 || hidden_size < 1 || hidden_size > INT64_MAX / 8) {
        yk__fail(YK_ERR_ARGUMENT, "lstm_cell_create: input_size %lld, hidden_size %lld: both must be at least 1",
                 (long long)input_size, (long long)hidden_size);
        return NULL;
    }
    yk_module *m = yk_module_create(&lstm_cell_class);
    if (!m)
        return NULL;
    lstm_cell *d = yk_module_data(m);
    d->input_size = input_size;
    d->hidden_size = hidden_size;
    double bound = 1 / sqrt((double)hidden_size);
    d->weight_ih = parameter(m, "weight_ih", 2, 4 * hidden_size, input_size, bound);
    d->weight_hh = parameter(m, "weight_hh", 2, 4 * hidden_size, hidden_size, bound);
    if (!options || !options->no_bias) {
        d->bias_ih = parameter(m, "bias_ih", 1, 4 * hidden_size, 0, bound);
        d->bias_hh = parameter(m, "bias_hh", 1, 4 * hidden_size, 0, bound);
    }
    return yk_module_check(m);
}
