/*
 * recurrent.c - recurrent networks over sequences: layers, directions, dropout between layers, packed sequences.
 * Layer: ops.
 *
 * Layers work on (T,N,...) whatever the layout of the input; what joins them is made of other operations. A packed
 * sequence, sorted by falling lengths, is a row of rectangles: the steps that have the same number of sequences are
 * next to each other, one layer function runs over each, and the states of those that end there wait for the others:
 *
 *     lengths 4 2 1, batch_sizes 3 2 1 1:      a b c | d e | f g
 *
 * Backwards, the rectangles come from the last to the first, and sequences join with their first states.
 */
#include "ops/recurrent.h"

#include <limits.h>
#include <stdlib.h>

/* A call: x, the states, then the weights of each layer and direction, `parts` of each. */
enum { X, STATES, WEIGHTS = STATES + YK__RECURRENT_STATES };
typedef struct recurrent_call {
    const yk__recurrent *of;
    yk__recurrent_options o;
    int64_t layers, states; /* states: layers in all directions */
    int directions, parts;
    yk_tensor **in;
    /* The rectangles of a packed sequence, (steps, batch) each. */
    int64_t (*rectangles)[2];
    int64_t count, batch;
} recurrent_call;

/* ---- checks ------------------------------------------------------------------------------------------------------ */

bool yk__expect_shape(const char *name, const char *role, const yk_tensor *x, int ndim, const int64_t *shape)
{
    if (!x || (x->ndim == ndim && yk__equal_sizes(x->shape, shape, ndim)))
        return true;
    char a[200], b[200];
    yk__fail(YK_ERR_SHAPE, "%s: %s has shape %s, expected %s", name, role, yk_shape_format(x, a, sizeof(a)),
             yk__shape_text(ndim, shape, b, sizeof(b)));
    return false;
}

bool yk__recurrent_check_weights(const yk__recurrent *of, const char *suffix, yk_tensor *const weights[4], int64_t size,
                                 int64_t hidden, yk_dtype dtype)
{
    static const char *const roles[] = {"weight_ih", "weight_hh", "bias_ih", "bias_hh"};
    for (int i = 0; i < 4; i++) {
        char role[64];
        const int64_t shape[2] = {of->gates * hidden, i ? hidden : size};
        snprintf(role, sizeof(role), "%s%s", roles[i], suffix);
        if (!yk__expect_shape(of->name, role, weights[i], i < 2 ? 2 : 1, shape) ||
            (dtype != YK__ANY_DTYPE && yk__expect_dtype(of->name, role, weights[i], dtype)))
            return false;
    }
    return true;
}

int64_t yk__recurrent_hidden(const yk__recurrent *of, const char *suffix, const yk_tensor *weight)
{
    if (weight->ndim == 2 && weight->shape[1] >= 1 && weight->shape[0] % of->gates == 0 &&
        weight->shape[0] / of->gates == weight->shape[1])
        return weight->shape[1];
    char text[200], times[16] = "";
    if (of->gates > 1)
        snprintf(times, sizeof(times), "%d ", of->gates);
    yk__fail(YK_ERR_SHAPE, "%s: weight_hh%s has shape %s, expected (%shidden_size, hidden_size)", of->name, suffix,
             yk_shape_format(weight, text, sizeof(text)), times);
    return 0;
}

/* The inputs of the i-th layer in all directions, but for x and the states. */
static void weights_of(const recurrent_call *call, int64_t i, yk_tensor **weights)
{
    for (int k = 0; k < 4; k++)
        weights[k] = k < call->parts ? call->in[WEIGHTS + i * call->parts + k] : NULL;
}

/* Reads the batch sizes into rectangles. */
static yk_status check_batch_sizes(recurrent_call *call)
{
    const char *name = call->of->name;
    const yk_tensor *sizes = call->o.batch_sizes, *x = call->in[X];
    char text[200];
    if (sizes->ndim != 1 || sizes->dtype != YK_I64 || yk__device_of(sizes).type != YK_CPU || !sizes->numel)
        return yk__fail(YK_ERR_ARGUMENT, "%s: batch_sizes is %s of %s, expected (T) of int64 on a CPU", name,
                        yk_shape_format(sizes, text, sizeof(text)), yk_dtype_name((yk_dtype)sizes->dtype));
    if (x->ndim != 2)
        return yk__fail(YK_ERR_SHAPE, "%s: input has shape %s, expected (sum of batch_sizes, input_size)", name,
                        yk_shape_format(x, text, sizeof(text)));
    int64_t steps = sizes->numel, *values = yk__calloc((size_t)steps, sizeof(*values)), sum = 0;
    call->rectangles = yk__calloc((size_t)steps, sizeof(*call->rectangles));
    yk_status status =
        values && call->rectangles ? yk_tensor_read(sizes, values, sizeof(*values) * (size_t)steps) : YK_ERR_MEMORY;
    for (int64_t t = 0; t < steps && !status; t++) {
        if (values[t] < 1 || (t && values[t] > values[t - 1]) || values[t] > x->shape[0] - sum)
            status = yk__fail(YK_ERR_ARGUMENT,
                              "%s: batch_sizes[%lld] is %lld: they are at least 1, none above the one before, and add "
                              "up to the %lld rows of input",
                              name, (long long)t, (long long)values[t], (long long)x->shape[0]);
        sum += values[t];
        if (!t || values[t] != values[t - 1])
            call->rectangles[call->count++][1] = values[t];
        call->rectangles[call->count - 1][0]++;
    }
    if (!status && sum != x->shape[0])
        status = yk__fail(YK_ERR_ARGUMENT, "%s: batch_sizes add up to %lld, but input has %lld rows", name,
                          (long long)sum, (long long)x->shape[0]);
    call->batch = status ? 0 : values[0];
    free(values);
    return status;
}

static yk_status check_sequence(recurrent_call *call)
{
    static const char *const role[] = {"h_0", "c_0"};
    const char *name = call->of->name;
    const yk_tensor *x = call->in[X], *weight = call->in[WEIGHTS];
    char text[200], suffix[48] = "_l0";
    bool packed = call->o.batch_sizes != NULL, cast = !call->of->casts && yk__autocast_types != 0;
    if (packed && check_batch_sizes(call))
        return yk__error_code();
    if (x->ndim != 2 && x->ndim != 3)
        return yk__fail(YK_ERR_SHAPE, "%s: input has shape %s, expected (%s, input_size) or (T, input_size)", name,
                        yk_shape_format(x, text, sizeof(text)), call->o.batch_first ? "N, T" : "T, N");
    bool batched = x->ndim == 3;
    int64_t size = x->shape[x->ndim - 1], rows = batched ? x->shape[!call->o.batch_first] : packed ? call->batch : 1;
    if (x->shape[batched && call->o.batch_first] < 1)
        return yk__fail(YK_ERR_SHAPE, "%s: input %s has no time steps", name, yk_shape_format(x, text, sizeof(text)));
    if (weight->ndim == 2 && size != weight->shape[1])
        return yk__fail(YK_ERR_SHAPE, "%s: input %s has %lld features, but weight_ih_l0 expects an input_size of %lld",
                        name, yk_shape_format(x, text, sizeof(text)), (long long)size, (long long)weight->shape[1]);
    if (yk__expect_floating(name, "input", x) || (!cast && yk__expect_input(name, x, weight, NULL)))
        return yk__error_code();
    yk_dtype dtype = cast ? YK__ANY_DTYPE : (yk_dtype)x->dtype;
    int64_t hidden = yk__recurrent_hidden(call->of, suffix, call->in[WEIGHTS + 1]);
    for (int64_t i = 0; i < call->states && hidden; i++) {
        yk_tensor *weights[4];
        weights_of(call, i, weights);
        snprintf(suffix, sizeof(suffix), "_l%lld%s", (long long)(i / call->directions),
                 i % call->directions ? "_reverse" : "");
        if (!yk__recurrent_check_weights(call->of, suffix, weights,
                                         i < call->directions ? size : hidden * call->directions, hidden, dtype))
            return yk__error_code();
    }
    bool wide = batched || packed;
    const int64_t state[3] = {call->states, wide ? rows : hidden, hidden};
    for (int i = 0; i < call->of->states && hidden; i++)
        if (!yk__expect_shape(name, role[i], call->in[STATES + i], wide ? 3 : 2, state) ||
            (!cast && yk__expect_dtype(name, role[i], call->in[STATES + i], (yk_dtype)x->dtype)))
            return yk__error_code();
    return hidden ? YK_OK : yk__error_code();
}

/* ---- packed sequences -------------------------------------------------------------------------------------------- */

/* The rows [from, to) of the first states, zeros where there are none, that join the states of a layer. */
static yk_tensor *joining(const yk_tensor *like, yk_tensor *first, int64_t from, int64_t to)
{
    if (first)
        return yk_narrow(first, 0, from, to - from);
    return yk_zeros(2, (int64_t[]){to - from, like->shape[1]},
                    YK_OPTIONS(yk_tensor_options, .dtype = (yk_dtype)like->dtype, .device = yk__device_of(like)));
}

/* The states for the next rectangle of `batch` rows, of `now` rows that were in the one before: fewer, and what ends
 * here goes to ended[], or more. */
static yk_status change_batch(const recurrent_call *call, int64_t now, int64_t batch, yk_tensor *const *first,
                              yk_tensor **states, yk_tensor **ended)
{
    for (int i = 0; i < call->of->states; i++) {
        if (batch < now) {
            ended[i] = yk_narrow(states[i], 0, batch, now - batch);
            states[i] = yk_narrow(states[i], 0, 0, batch);
            if (!ended[i])
                return yk__status_of(NULL);
        } else if (batch > now) {
            states[i] = yk_cat((yk_tensor *[]){states[i], joining(states[i], first[i], now, batch)}, 2, 0);
        }
        if (!states[i])
            return yk__status_of(NULL);
    }
    return YK_OK;
}

/* One layer in one direction over x (rows,in): *output (rows,H), ends[] (N,H). */
static yk_status run_packed(const recurrent_call *call, yk_tensor *x, yk_tensor *const *first,
                            yk_tensor *const *weights, bool reverse, yk_tensor **output, yk_tensor **ends)
{
    int kinds = call->of->states;
    int64_t count = call->count, at = reverse ? x->shape[0] : 0, now = call->rectangles[reverse ? count - 1 : 0][1];
    yk_tensor *states[YK__RECURRENT_STATES] = {NULL};
    /* The outputs of all rectangles, then by kind of state the pieces of the ends, in order from the back. */
    yk_tensor **parts = yk__calloc((size_t)count, sizeof(*parts) * (1 + YK__RECURRENT_STATES));
    if (!parts)
        return yk__error_code();
    yk_status status = YK_OK;
    for (int i = 0; i < kinds && !status; i++) {
        states[i] = first[i] ? yk_narrow(first[i], 0, 0, now) : NULL;
        status = first[i] && !states[i] ? yk__status_of(NULL) : YK_OK;
    }
    for (int64_t k = 0; k < count && !status; k++) {
        int64_t which = reverse ? count - 1 - k : k, steps = call->rectangles[which][0];
        int64_t batch = call->rectangles[which][1], rows = steps * batch, hidden = weights[1]->shape[1];
        yk_tensor *ended[YK__RECURRENT_STATES] = {NULL}, *y = NULL;
        status = k ? change_batch(call, now, batch, first, states, ended) : YK_OK;
        for (int i = 0; i < kinds && k; i++)
            parts[(1 + i) * count + count - k] = ended[i];
        at -= reverse ? rows : 0;
        yk_tensor *part =
            status ? NULL : yk_reshape(yk_narrow(x, 0, at, rows), 3, (int64_t[]){steps, batch, x->shape[1]});
        at += reverse ? 0 : rows;
        now = batch;
        status = status ? status : yk__status_of(part);
        if (!status)
            status = call->of->layer(call->of, part, states, weights, reverse, true, &y, states);
        parts[which] = status ? NULL : yk_reshape(y, 2, (int64_t[]){rows, hidden});
        status = status ? status : yk__status_of(parts[which]);
    }
    if (!status) {
        *output = count == 1 ? parts[0] : yk_cat(parts, (int)count, 0);
        status = yk__status_of(*output);
    }
    for (int i = 0; i < kinds && !status; i++) {
        yk_tensor **pieces = parts + (1 + i) * count;
        pieces[0] = states[i];
        ends[i] = reverse || count == 1 ? states[i] : yk_cat(pieces, (int)count, 0);
        status = yk__status_of(ends[i]);
    }
    free(parts);
    return status;
}

/* ---- layers ------------------------------------------------------------------------------------------------------ */

/* All layers over x (T,N,in), or a packed one: outs[0], (...,directions H), and of the states those that `wanted` has a
 * bit of. */
static yk_status run_layers(const recurrent_call *call, uint32_t wanted, yk_tensor **outs, yk_tensor **ends)
{
    yk_tensor *x = call->in[X];
    int kinds = call->of->states;
    for (int64_t i = 0; i < call->layers; i++) {
        yk_tensor *sides[2] = {NULL};
        for (int side = 0; side < call->directions; side++) {
            yk_tensor *weights[4], *first[YK__RECURRENT_STATES] = {NULL}, *last[YK__RECURRENT_STATES] = {NULL};
            int64_t at = i * call->directions + side;
            weights_of(call, at, weights);
            for (int k = 0; k < kinds; k++) {
                first[k] = call->in[STATES + k] ? yk_select(call->in[STATES + k], 0, at) : NULL;
                if (call->in[STATES + k] && !first[k])
                    return yk__status_of(NULL);
            }
            yk_status status = call->o.batch_sizes ? run_packed(call, x, first, weights, side, &sides[side], last)
                                                   : call->of->layer(call->of, x, first, weights, side, wanted >> 1 & 1,
                                                                     &sides[side], last);
            if (status)
                return status;
            for (int k = 0; k < kinds; k++)
                ends[k * call->states + at] = last[k];
        }
        x = call->directions == 1 ? sides[0] : yk_cat(sides, 2, -1);
        if (i + 1 < call->layers && call->o.dropout > 0 && call->o.train)
            x = yk_dropout(x, call->o.dropout, true);
        if (!x)
            return yk__status_of(NULL);
    }
    outs[0] = x;
    for (int k = 0; k < kinds; k++) {
        if (!(wanted >> (1 + k) & 1))
            continue;
        yk_tensor **of = ends + k * call->states;
        outs[1 + k] = call->states == 1 ? yk_unsqueeze(of[0], 0) : yk_stack(of, (int)call->states, 0);
        if (!outs[1 + k])
            return yk__status_of(NULL);
    }
    return YK_OK;
}

static yk_status run_sequence(recurrent_call *call, uint32_t wanted, yk_tensor **outs)
{
    yk_status status = check_sequence(call);
    if (status)
        return status;
    yk_tensor **in = call->in, **ends = yk__calloc((size_t)call->states, YK__RECURRENT_STATES * sizeof(*ends));
    if (!ends)
        return yk__error_code();
    bool packed = call->o.batch_sizes != NULL, single = in[X]->ndim == 2 && !packed;
    bool turned = in[X]->ndim == 3 && call->o.batch_first;
    in[X] = single ? yk_unsqueeze(in[X], 1) : turned ? yk_transpose(in[X], 0, 1) : in[X];
    for (int i = 0; i < call->of->states && single; i++)
        in[STATES + i] = in[STATES + i] ? yk_unsqueeze(in[STATES + i], 1) : NULL;
    status = yk__error_code() && !in[X] ? yk__error_code() : run_layers(call, wanted, outs, ends);
    free(ends);
    if (status)
        return status;
    if (turned)
        outs[0] = yk_transpose(outs[0], 0, 1);
    for (int i = 0; i < YK__RECURRENT_OUTPUTS && single; i++)
        outs[i] = outs[i] ? yk_squeeze(outs[i], 1) : NULL;
    return YK_OK;
}

yk_status yk__hand_out(yk_scope scope, yk_status status, int count, yk_tensor *const *outs, yk_tensor **const *to)
{
    for (int i = 0; i < count && !status; i++) {
        if (!to[i])
            continue;
        *to[i] = outs[i] ? yk_scope_return(scope, outs[i]) : NULL;
        status = yk__status_of(*to[i]);
    }
    yk_scope_end(scope);
    for (int i = 0; i < count && status; i++)
        if (to[i])
            *to[i] = NULL;
    return status;
}

void yk__recurrent_clear(yk_tensor **const to[YK__RECURRENT_OUTPUTS])
{
    for (int i = 0; i < YK__RECURRENT_OUTPUTS; i++)
        if (to[i])
            *to[i] = NULL;
}

yk_status yk__recurrent_run(const yk__recurrent *of, yk_tensor *x, yk_tensor *const *states, yk_tensor *const *weights,
                            int count, const yk__recurrent_options *o, yk_tensor **const to[YK__RECURRENT_OUTPUTS])
{
    yk_tensor *outs[YK__RECURRENT_OUTPUTS] = {NULL}, *first[WEIGHTS + 1] = {x};
    const char *name = of->name;
    recurrent_call call = {.of = of, .o = *o, .layers = o->num_layers};
    uint32_t wanted = 0;
    for (int i = 0; i < YK__RECURRENT_OUTPUTS; i++)
        wanted |= to[i] ? 1u << i : 0;
    memcpy(first + STATES, states, sizeof(*states) * (size_t)of->states);
    first[WEIGHTS] = o->batch_sizes;
    call.directions = o->bidirectional ? 2 : 1;
    call.parts = o->bias ? 4 : 2;
    YK__EVENT(YK__EVENT_OPERATION, name);
    if (!yk__op_begin(name, WEIGHTS, first, 1u << STATES | 1u << (STATES + 1)) ||
        !yk__op_begin(name, 1, first + WEIGHTS, 1) || (count > 0 && !yk__op_begin(name, count, weights, 0)))
        return yk__status_of(NULL);
    if (yk__check_number(name, "dropout", o->dropout, 0, 1))
        return yk__error_code();
    if (call.layers < 1 || call.layers > INT_MAX / 8 || count != call.layers * call.directions * call.parts)
        return yk__fail(YK_ERR_ARGUMENT, "%s: %d weights for num_layers %lld%s%s, expected %d for each%s", name, count,
                        (long long)call.layers, o->bidirectional ? ", bidirectional" : "",
                        o->bias ? "" : ", without biases", call.parts,
                        o->bidirectional ? " layer and direction" : " layer");
    call.states = call.layers * call.directions;
    call.in = yk__calloc((size_t)count + WEIGHTS, sizeof(*call.in));
    if (!call.in)
        return yk__error_code();
    memcpy(call.in, first, sizeof(*call.in) * WEIGHTS);
    memcpy(call.in + WEIGHTS, weights, sizeof(*weights) * (size_t)count);
    yk_status status = yk__same_device(name, count + WEIGHTS, call.in);
    if (!status) {
        yk_scope scope = yk_scope_begin();
        uint32_t cast_types = yk__autocast_types;
        if (of->casts) {
            yk__autocast_inputs(of->cast, count + WEIGHTS, call.in);
            cast_types = yk__autocast_pause();
        }
        status = call.in[X] ? run_sequence(&call, wanted, outs) : yk__status_of(NULL);
        yk__autocast_types = cast_types;
        status = yk__hand_out(scope, status, YK__RECURRENT_OUTPUTS, outs, to);
    }
    free(call.rectangles);
    free(call.in);
    return status;
}
