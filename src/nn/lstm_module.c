/*
 * lstm_module.c - LSTM, whole sequences through layers and directions, and LSTMCell, one step. Layer: nn.
 *
 * A module's parameters are those of yk_lstm in its order, and the first that were added; forward takes them from
 * there.
 */
#include <math.h>
#include <stdlib.h>

#include "nn/module.h"

enum { MOST_LAYERS = 10000 };

static yk_tensor *parameter(yk_module *m, const char *what, const char *name, int ndim, int64_t rows, int64_t columns,
                            double bound)
{
    yk_tensor *x =
        yk__module_take_parameter(m, name, yk__module_tensor(what, ndim, (int64_t[]){rows, columns}, YK_F32));
    if (x && yk_init_uniform(x, -bound, bound))
        m->incomplete = true;
    return x;
}

/* The parameters of one layer in one direction; `suffix` ends their names. */
static void add_parameters(yk_module *m, const char *what, const char *suffix, int64_t input, int64_t hidden, bool bias,
                           yk_tensor *made[4])
{
    static const char *const names[] = {"weight_ih", "weight_hh", "bias_ih", "bias_hh"};
    double bound = 1 / sqrt((double)hidden);
    for (int i = 0; i < 4; i++) {
        char name[64];
        snprintf(name, sizeof(name), "%s%s", names[i], suffix);
        made[i] = i < 2 || bias ? parameter(m, what, name, i < 2 ? 2 : 1, 4 * hidden, i ? hidden : input, bound) : NULL;
    }
}

static bool check_sizes(const char *what, int64_t input, int64_t hidden)
{
    if (input >= 1 && hidden >= 1 && hidden <= INT64_MAX / 8)
        return true;
    yk__fail(YK_ERR_ARGUMENT, "%s: input_size %lld, hidden_size %lld: both must be at least 1", what, (long long)input,
             (long long)hidden);
    return false;
}

/* ---- LSTMCell ---------------------------------------------------------------------------------------------------- */

typedef struct lstm_cell {
    yk_tensor *parameters[4];
    int64_t input_size, hidden_size;
} lstm_cell;

static yk_status lstm_cell_forward(yk_module *m, yk_tensor *const *in, int n_inputs, yk_tensor **out, int n_outputs)
{
    lstm_cell *d = yk_module_data(m);
    yk_tensor *x = n_inputs > 0 ? in[0] : NULL;
    if (!x || n_inputs > 3 || n_outputs > 2)
        return yk__fail(YK_ERR_ARGUMENT,
                        "lstm_cell: %d inputs for %d outputs; expected x [, h [, c]] for h' or for h' and c'", n_inputs,
                        n_outputs);
    return yk_lstm_cell(x, n_inputs > 1 ? in[1] : NULL, n_inputs > 2 ? in[2] : NULL, d->parameters[0], d->parameters[1],
                        d->parameters[2], d->parameters[3], &out[0], n_outputs == 2 ? &out[1] : NULL);
}

static void lstm_cell_describe(yk_module *m, char *buffer, size_t size)
{
    lstm_cell *d = yk_module_data(m);
    snprintf(buffer, size, "%lld, %lld%s", (long long)d->input_size, (long long)d->hidden_size,
             d->parameters[2] ? "" : ", bias=False");
}

static const yk_module_class lstm_cell_class = {.name = "LSTMCell",
                                                .data_size = sizeof(lstm_cell),
                                                .forward_list = lstm_cell_forward,
                                                .describe = lstm_cell_describe};

yk_module *yk_lstm_cell_create(int64_t input_size, int64_t hidden_size, const yk_lstm_cell_options *options)
{
    yk_lstm_cell_options o;
    if (YK__OPTIONS_TAKE("lstm_cell_create", yk_lstm_cell_options, options, &o) ||
        !check_sizes("lstm_cell_create", input_size, hidden_size))
        return NULL;
    yk_module *m = yk_module_create(&lstm_cell_class);
    if (!m)
        return NULL;
    lstm_cell *d = yk_module_data(m);
    d->input_size = input_size;
    d->hidden_size = hidden_size;
    add_parameters(m, "lstm_cell_create", "", input_size, hidden_size, o.bias, d->parameters);
    return yk_module_check(m);
}

/* ---- LSTM -------------------------------------------------------------------------------------------------------- */

typedef struct lstm {
    int64_t input_size, hidden_size;
    int count; /* of parameters */
    yk_lstm_options o;
} lstm;

static yk_status lstm_forward(yk_module *m, yk_tensor *const *in, int n_inputs, yk_tensor **out, int n_outputs)
{
    lstm *d = yk_module_data(m);
    yk_tensor *x = n_inputs > 0 ? in[0] : NULL;
    if (!x || n_inputs > 3 || n_outputs > 3)
        return yk__fail(YK_ERR_ARGUMENT,
                        "lstm: %d inputs for %d outputs; expected x [, h_0 [, c_0]] for output [, h_n [, c_n]]",
                        n_inputs, n_outputs);
    yk_tensor **weights = yk__calloc((size_t)d->count, sizeof(*weights));
    if (!weights)
        return yk__error_code();
    for (int i = 0; i < d->count; i++)
        weights[i] = m->parameters.items[i].object;
    yk_lstm_options o = d->o;
    o.train = m->training;
    yk_status status = yk_lstm(x, n_inputs > 1 ? in[1] : NULL, n_inputs > 2 ? in[2] : NULL, weights, d->count, &o,
                               &out[0], n_outputs > 1 ? &out[1] : NULL, n_outputs > 2 ? &out[2] : NULL);
    free(weights);
    return status;
}

static void lstm_describe(yk_module *m, char *buffer, size_t size)
{
    const lstm *d = yk_module_data(m);
    char layers[40] = "", dropout[48] = "", p[YK__NUMBER_ROOM];
    if (d->o.num_layers != 1)
        snprintf(layers, sizeof(layers), ", num_layers=%lld", (long long)d->o.num_layers);
    if (d->o.dropout > 0)
        snprintf(dropout, sizeof(dropout), ", dropout=%s", yk__module_number(d->o.dropout, p));
    snprintf(buffer, size, "%lld, %lld%s%s%s%s%s", (long long)d->input_size, (long long)d->hidden_size, layers,
             d->o.bias ? "" : ", bias=False", d->o.batch_first ? ", batch_first=True" : "", dropout,
             d->o.bidirectional ? ", bidirectional=True" : "");
}

static const yk_module_class lstm_class = {
    .name = "LSTM", .data_size = sizeof(lstm), .forward_list = lstm_forward, .describe = lstm_describe};

yk_module *yk_lstm_create(int64_t input_size, int64_t hidden_size, const yk_lstm_module_options *options)
{
    yk_lstm_module_options o;
    if (YK__OPTIONS_TAKE("lstm_create", yk_lstm_module_options, options, &o) ||
        !check_sizes("lstm_create", input_size, hidden_size) ||
        yk__check_number("lstm_create", "dropout", o.dropout, 0, 1))
        return NULL;
    if (o.num_layers < 1 || o.num_layers > MOST_LAYERS) {
        yk__fail(YK_ERR_ARGUMENT, "lstm_create: num_layers is %lld, expected 1 to %d", (long long)o.num_layers,
                 MOST_LAYERS);
        return NULL;
    }
    yk_module *m = yk_module_create(&lstm_class);
    if (!m)
        return NULL;
    lstm *d = yk_module_data(m);
    d->input_size = input_size;
    d->hidden_size = hidden_size;
    d->o = *YK_OPTIONS(yk_lstm_options, .num_layers = o.num_layers, .bias = o.bias, .batch_first = o.batch_first,
                       .bidirectional = o.bidirectional, .dropout = o.dropout);
    int directions = o.bidirectional ? 2 : 1;
    d->count = (int)o.num_layers * directions * (o.bias ? 4 : 2);
    for (int64_t i = 0; i < o.num_layers * directions && !m->incomplete; i++) {
        yk_tensor *made[4];
        char suffix[48];
        snprintf(suffix, sizeof(suffix), "_l%lld%s", (long long)(i / directions), i % directions ? "_reverse" : "");
        add_parameters(m, "lstm_create", suffix, i < directions ? input_size : directions * hidden_size, hidden_size,
                       o.bias, made);
    }
    return yk_module_check(m);
}
