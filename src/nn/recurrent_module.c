/*
 * recurrent_module.c - LSTM, GRU and RNN, whole sequences through layers and directions, packed ones too, and their
 * cells, one step. Layer: nn.
 *
 * A module's parameters have the names that PyTorch gives them, by which forward puts them in the order of the
 * operation: those that are computed (parametrize.c) stand elsewhere, and one that was is at the end of the list.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nn/module.h"
#include "ops/op.h"

enum { MOST_LAYERS = 10000 };
typedef enum kind { LSTM, GRU, RNN } kind;
static const struct {
    const char *name, *cell;
    int gates, states;
} kinds[] = {
    [LSTM] = {"lstm", "lstm_cell", 4, 2}, [GRU] = {"gru", "gru_cell", 3, 1}, [RNN] = {"rnn", "rnn_cell", 1, 1}};

static yk_tensor *parameter(yk_module *m, const char *what, const char *name, int ndim, int64_t rows, int64_t columns,
                            double bound)
{
    yk_tensor *x =
        yk__module_take_parameter(m, name, yk__module_tensor(what, ndim, (int64_t[]){rows, columns}, YK_F32));
    if (x && yk_init_uniform(x, -bound, bound))
        m->incomplete = true;
    return x;
}

/* The parameters of one layer in one direction, of `rows` rows; `suffix` ends their names. */
static void add_parameters(yk_module *m, const char *what, const char *suffix, int64_t rows, int64_t input,
                           int64_t hidden, bool bias, yk_tensor *made[4])
{
    static const char *const names[] = {"weight_ih", "weight_hh", "bias_ih", "bias_hh"};
    double bound = 1 / sqrt((double)hidden);
    for (int i = 0; i < 4; i++) {
        char name[64];
        snprintf(name, sizeof(name), "%s%s", names[i], suffix);
        made[i] = i < 2 || bias ? parameter(m, what, name, i < 2 ? 2 : 1, rows, i ? hidden : input, bound) : NULL;
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

static bool check_nonlinearity(const char *what, yk_nonlinearity nonlinearity)
{
    if ((unsigned)nonlinearity <= YK_NONLINEARITY_RELU)
        return true;
    yk__fail(YK_ERR_ARGUMENT, "%s: nonlinearity %d is neither tanh nor relu", what, (int)nonlinearity);
    return false;
}

/* ---- cells ------------------------------------------------------------------------------------------------------- */

typedef struct cell {
    yk_tensor *parameters[4];
    int64_t input_size, hidden_size;
    kind kind;
    yk_nonlinearity nonlinearity;
} cell;

static yk_status cell_forward(yk_module *m, yk_tensor *const *in, int n_inputs, yk_tensor **out, int n_outputs)
{
    cell *d = yk__module_data(m);
    int states = kinds[d->kind].states;
    yk_tensor *x = n_inputs > 0 ? in[0] : NULL, *h = n_inputs > 1 ? in[1] : NULL, **p = d->parameters;
    if (!x || n_inputs > 1 + states || n_outputs > states)
        return yk__fail(YK_ERR_ARGUMENT, "%s: %d inputs for %d outputs; expected %s", kinds[d->kind].cell, n_inputs,
                        n_outputs, states == 2 ? "x [, h [, c]] for h' or for h' and c'" : "x [, h] for h'");
    if (d->kind == LSTM)
        return yk_lstm_cell(x, h, n_inputs > 2 ? in[2] : NULL, p[0], p[1], p[2], p[3], &out[0],
                            n_outputs == 2 ? &out[1] : NULL);
    out[0] = d->kind == GRU ? yk_gru_cell(x, h, p[0], p[1], p[2], p[3])
                            : yk_rnn_cell(x, h, p[0], p[1], p[2], p[3], d->nonlinearity);
    return yk__status_of(out[0]);
}

static void cell_describe(yk_module *m, char *buffer, size_t size)
{
    cell *d = yk__module_data(m);
    snprintf(buffer, size, "%lld, %lld%s%s", (long long)d->input_size, (long long)d->hidden_size,
             d->parameters[2] ? "" : ", bias=False",
             d->nonlinearity == YK_NONLINEARITY_RELU ? ", nonlinearity=relu" : "");
}

#define CELL_CLASS(shown)                                                                                              \
    {                                                                                                                  \
        .name = shown, .data_size = sizeof(cell), .forward_list = cell_forward, .describe = cell_describe              \
    }
static const yk_module_class cell_classes[] = {
    [LSTM] = CELL_CLASS("LSTMCell"), [GRU] = CELL_CLASS("GRUCell"), [RNN] = CELL_CLASS("RNNCell")};

static yk_module *cell_create(const char *what, kind of, int64_t input_size, int64_t hidden_size, bool bias,
                              yk_nonlinearity nonlinearity)
{
    yk_module *m = check_sizes(what, input_size, hidden_size) && check_nonlinearity(what, nonlinearity)
                       ? yk_module_create(&cell_classes[of])
                       : NULL;
    if (!m)
        return NULL;
    cell *d = yk__module_data(m);
    d->input_size = input_size;
    d->hidden_size = hidden_size;
    d->kind = of;
    d->nonlinearity = nonlinearity;
    add_parameters(m, what, "", kinds[of].gates * hidden_size, input_size, hidden_size, bias, d->parameters);
    return yk_module_check(m);
}

yk_module *yk_lstm_cell_create(int64_t input_size, int64_t hidden_size, const yk_lstm_cell_options *options)
{
    yk_lstm_cell_options o;
    return YK__OPTIONS_TAKE("lstm_cell_create", yk_lstm_cell_options, options, &o)
               ? NULL
               : cell_create("lstm_cell_create", LSTM, input_size, hidden_size, o.bias, YK_NONLINEARITY_TANH);
}

yk_module *yk_gru_cell_create(int64_t input_size, int64_t hidden_size, const yk_gru_cell_options *options)
{
    yk_gru_cell_options o;
    return YK__OPTIONS_TAKE("gru_cell_create", yk_gru_cell_options, options, &o)
               ? NULL
               : cell_create("gru_cell_create", GRU, input_size, hidden_size, o.bias, YK_NONLINEARITY_TANH);
}

yk_module *yk_rnn_cell_create(int64_t input_size, int64_t hidden_size, const yk_rnn_cell_options *options)
{
    yk_rnn_cell_options o;
    return YK__OPTIONS_TAKE("rnn_cell_create", yk_rnn_cell_options, options, &o)
               ? NULL
               : cell_create("rnn_cell_create", RNN, input_size, hidden_size, o.bias, o.nonlinearity);
}

/* ---- sequences --------------------------------------------------------------------------------------------------- */

/* The options that all kinds have. */
typedef struct recurrent {
    int64_t input_size, hidden_size, num_layers;
    int count; /* of parameters */
    kind kind;
    yk_nonlinearity nonlinearity;
    bool bias, batch_first, bidirectional;
    double dropout;
} recurrent;

/* The place of a parameter in the operation's order; -1 for another name than "weight_hh_l1_reverse" and its kin. */
static int64_t order_of(const recurrent *d, const char *name)
{
    bool bias = strncmp(name, "bias_", 5) == 0;
    if (!bias && strncmp(name, "weight_", 7) != 0)
        return -1;
    const char *which = name + (bias ? 5 : 7);
    if ((which[0] != 'i' && which[0] != 'h') || strncmp(which + 1, "h_l", 3) != 0)
        return -1;
    char *end;
    int64_t layer = strtol(which + 4, &end, 10), directions = d->bidirectional ? 2 : 1;
    bool reverse = strcmp(end, "_reverse") == 0;
    if (end == which + 4 || layer < 0 || layer >= d->num_layers || (*end && !reverse) || reverse >= directions ||
        (bias && !d->bias))
        return -1;
    return (layer * directions + reverse) * (d->bias ? 4 : 2) + 2 * bias + (which[0] == 'h');
}

/* The d->count parameters in the operation's order. */
static yk_status weights_find(yk_module *m, const recurrent *d, yk_tensor **weights)
{
    int found = 0;
    for (int64_t i = 0; i < m->parameters.count; i++) {
        int64_t at = order_of(d, m->parameters.items[i].name);
        if (at >= 0) {
            weights[at] = m->parameters.items[i].object;
            found++;
        }
    }
    const char *name;
    yk_tensor *weight;
    for (int64_t i = 0; (name = yk__parametrized_weight(m, i, &weight)); i++) {
        int64_t at = order_of(d, name);
        if (at >= 0) {
            weights[at] = weight;
            found++;
        }
    }
    return found == d->count
               ? YK_OK
               : yk__fail(YK_ERR_STATE, "%s: %d of its %d parameters are there", kinds[d->kind].name, found, d->count);
}

static yk_status recurrent_forward(yk_module *m, yk_tensor *const *in, int n_inputs, yk_tensor **out, int n_outputs)
{
    recurrent *d = yk__module_data(m);
    int states = kinds[d->kind].states;
    yk_tensor *x = n_inputs > 0 ? in[0] : NULL, *h = n_inputs > 1 ? in[1] : NULL;
    yk_tensor *sizes = n_inputs == 2 + states ? in[1 + states] : NULL, **h_n = n_outputs > 1 ? &out[1] : NULL;
    if (!x || n_inputs > 2 + states || n_outputs > 1 + states)
        return yk__fail(YK_ERR_ARGUMENT, "%s: %d inputs for %d outputs; expected %s", kinds[d->kind].name, n_inputs,
                        n_outputs,
                        states == 2 ? "x [, h_0 [, c_0 [, batch_sizes]]] for output [, h_n [, c_n]]"
                                    : "x [, h_0 [, batch_sizes]] for output [, h_n]");
    yk_tensor **weights = yk__calloc((size_t)d->count, sizeof(*weights));
    if (!weights)
        return yk__error_code();
    yk_status status = weights_find(m, d, weights);
#define GIVEN                                                                                                          \
    .num_layers = d->num_layers, .bias = d->bias, .batch_first = d->batch_first, .bidirectional = d->bidirectional,    \
    .dropout = d->dropout, .train = m->training, .batch_sizes = sizes
    if (!status && d->kind == LSTM)
        status = yk_lstm(x, h, n_inputs > 2 ? in[2] : NULL, weights, d->count, YK_OPTIONS(yk_lstm_options, GIVEN),
                         &out[0], h_n, n_outputs > 2 ? &out[2] : NULL);
    else if (!status && d->kind == GRU)
        status = yk_gru(x, h, weights, d->count, YK_OPTIONS(yk_gru_options, GIVEN), &out[0], h_n);
    else if (!status)
        status = yk_rnn(x, h, weights, d->count, YK_OPTIONS(yk_rnn_options, GIVEN, .nonlinearity = d->nonlinearity),
                        &out[0], h_n);
#undef GIVEN
    free(weights);
    return status;
}

bool yk__finds_by_name(const yk_module *m)
{
    return m->cls->forward_list == recurrent_forward;
}

static void recurrent_describe(yk_module *m, char *buffer, size_t size)
{
    const recurrent *d = yk__module_data(m);
    char layers[40] = "", dropout[48] = "", p[YK__NUMBER_ROOM];
    if (d->num_layers != 1)
        snprintf(layers, sizeof(layers), ", num_layers=%lld", (long long)d->num_layers);
    if (d->dropout > 0)
        snprintf(dropout, sizeof(dropout), ", dropout=%s", yk__module_number(d->dropout, p));
    snprintf(buffer, size, "%lld, %lld%s%s%s%s%s", (long long)d->input_size, (long long)d->hidden_size, layers,
             d->bias ? "" : ", bias=False", d->batch_first ? ", batch_first=True" : "", dropout,
             d->bidirectional ? ", bidirectional=True" : "");
}

#define RECURRENT_CLASS(shown)                                                                                         \
    {                                                                                                                  \
        .name = shown, .data_size = sizeof(recurrent), .forward_list = recurrent_forward,                              \
        .describe = recurrent_describe                                                                                 \
    }
static const yk_module_class classes[] = {
    [LSTM] = RECURRENT_CLASS("LSTM"), [GRU] = RECURRENT_CLASS("GRU"), [RNN] = RECURRENT_CLASS("RNN")};

/* The module with the options, and the sizes, of `given`. */
static yk_module *recurrent_create(const char *what, const recurrent *given)
{
    if (!check_sizes(what, given->input_size, given->hidden_size) || !check_nonlinearity(what, given->nonlinearity) ||
        yk__check_number(what, "dropout", given->dropout, 0, 1))
        return NULL;
    if (given->num_layers < 1 || given->num_layers > MOST_LAYERS) {
        yk__fail(YK_ERR_ARGUMENT, "%s: num_layers is %lld, expected 1 to %d", what, (long long)given->num_layers,
                 MOST_LAYERS);
        return NULL;
    }
    yk_module *m = yk_module_create(&classes[given->kind]);
    if (!m)
        return NULL;
    recurrent *d = yk__module_data(m);
    *d = *given;
    int directions = d->bidirectional ? 2 : 1;
    d->count = (int)d->num_layers * directions * (d->bias ? 4 : 2);
    for (int64_t i = 0; i < d->num_layers * directions && !m->incomplete; i++) {
        yk_tensor *made[4];
        char suffix[48];
        snprintf(suffix, sizeof(suffix), "_l%lld%s", (long long)(i / directions), i % directions ? "_reverse" : "");
        add_parameters(m, what, suffix, kinds[d->kind].gates * d->hidden_size,
                       i < directions ? d->input_size : directions * d->hidden_size, d->hidden_size, d->bias, made);
    }
    return yk_module_check(m);
}

#define GIVEN                                                                                                          \
    .input_size = input_size, .hidden_size = hidden_size, .num_layers = o.num_layers, .bias = o.bias,                  \
    .batch_first = o.batch_first, .bidirectional = o.bidirectional, .dropout = o.dropout

yk_module *yk_lstm_create(int64_t input_size, int64_t hidden_size, const yk_lstm_module_options *options)
{
    yk_lstm_module_options o;
    return YK__OPTIONS_TAKE("lstm_create", yk_lstm_module_options, options, &o)
               ? NULL
               : recurrent_create("lstm_create", &(recurrent){.kind = LSTM, GIVEN});
}

yk_module *yk_gru_create(int64_t input_size, int64_t hidden_size, const yk_gru_module_options *options)
{
    yk_gru_module_options o;
    return YK__OPTIONS_TAKE("gru_create", yk_gru_module_options, options, &o)
               ? NULL
               : recurrent_create("gru_create", &(recurrent){.kind = GRU, GIVEN});
}

yk_module *yk_rnn_create(int64_t input_size, int64_t hidden_size, const yk_rnn_module_options *options)
{
    yk_rnn_module_options o;
    return YK__OPTIONS_TAKE("rnn_create", yk_rnn_module_options, options, &o)
               ? NULL
               : recurrent_create("rnn_create", &(recurrent){.kind = RNN, GIVEN, .nonlinearity = o.nonlinearity});
}

/* ---- packed sequences -------------------------------------------------------------------------------------------- */

/* States (layers,N,H) with the batch in another order, or as they are. */
static yk_tensor *in_order(yk_tensor *state, yk_tensor *indices)
{
    return state && indices ? yk_index_select(state, 1, indices) : state;
}

yk_status yk_forward_packed(yk_module *m, const yk_packed_sequence *x, yk_tensor *const *states, int n_states,
                            yk_packed_sequence *output, yk_tensor **ends, int n_ends)
{
    static const char name[] = "forward_packed";
    char text[200];
    YK__LIVE(m);
    for (int i = 0; i < n_ends && ends; i++)
        ends[i] = NULL;
    if (!yk__is_there(name, "module", m) || !yk__is_there(name, "packed sequence", x) ||
        !yk__is_there(name, "packed sequence of the output", output) ||
        (n_states > 0 && !yk__is_there(name, "array of states", states)) ||
        (n_ends > 0 && !yk__is_there(name, "array of ends", ends)))
        return YK_ERR_ARGUMENT;
    *output = (yk_packed_sequence){.data = NULL};
    for (int i = 0; i < n_states; i++)
        if (yk__is_freed(states[i]))
            return yk__fail_freed(__func__, states[i]);
    const yk_tensor *const parts[] = {x->sorted_indices, x->unsorted_indices};
    for (int i = 0; i < 2; i++)
        if (yk__is_freed(parts[i]))
            return yk__fail_freed(__func__, parts[i]);
    int of = 0, most = sizeof(classes) / sizeof(*classes);
    while (of < most && m->cls != &classes[of])
        of++;
    if (of == most)
        return yk__fail(YK_ERR_ARGUMENT, "%s: the module is a %s, expected LSTM, GRU or RNN", name, m->shown_name);
    if (n_states < 0 || n_states > kinds[of].states || n_ends < 0 || n_ends > kinds[of].states)
        return yk__fail(YK_ERR_ARGUMENT, "%s: %d states for %d ends; %s has %d", name, n_states, n_ends, m->shown_name,
                        kinds[of].states);
    if (!x->data || !x->batch_sizes)
        return yk__fail(YK_ERR_ARGUMENT, "%s: the packed sequence has no %s", name, x->data ? "batch_sizes" : "data");
    const yk_tensor *sorting = x->sorted_indices;
    for (int i = 0; i < n_states && sorting; i++) /* before states are put in order: a GPU finds a wrong index late */
        if (states[i] && (states[i]->ndim != 3 || states[i]->shape[1] != sorting->numel))
            return yk__fail(
                YK_ERR_SHAPE, "%s: state %d has shape %s, expected (layers, %lld, size): the batch has %lld", name, i,
                yk_shape_format(states[i], text, sizeof(text)), (long long)sorting->numel, (long long)sorting->numel);
    yk_scope scope = yk_scope_begin();
    yk_tensor *in[4] = {x->data}, *out[3] = {NULL};
    yk_status status = YK_OK;
    for (int i = 0; i < n_states && !status; i++) {
        in[1 + i] = in_order(states[i], x->sorted_indices);
        status = states[i] ? yk__status_of(in[1 + i]) : YK_OK;
    }
    in[1 + kinds[of].states] = x->batch_sizes;
    if (!status)
        status = yk_forward_list(m, in, 2 + kinds[of].states, out, 1 + n_ends);
    for (int i = n_ends; i >= 0 && !status; i--) {
        yk_tensor *made = i ? in_order(out[i], x->unsorted_indices) : out[0];
        yk_tensor **to = i ? &ends[i - 1] : &output->data;
        *to = made ? yk_scope_return(scope, made) : NULL;
        status = yk__status_of(*to);
    }
    yk_scope_end(scope);
    for (int i = 0; i < n_ends && status; i++)
        ends[i] = NULL;
    if (!status)
        *output = (yk_packed_sequence){output->data, x->batch_sizes, x->sorted_indices, x->unsorted_indices};
    return status;
}
