/*
 * lstm.c - LSTM: one layer in one direction, and one step of a cell; recurrent.c joins layers. Layer: ops.
 *
 * A layer in one direction is one node. Its input's part of the gates is one product for all steps, and so are the
 * gradients of both weights; the steps themselves are the slot lstm.
 * Derivation of the backward: docs/autograd.md.
 */
#include <stdlib.h>

#include "ops/recurrent.h"

enum { X, H0, C0, W_IH, W_HH, B_IH, B_HH, INPUTS }; /* of a layer; h0, c0 and the biases may be NULL */
enum { OUT, C_N, H_N, OUTPUTS };
/* Kept for backward after the inputs but the biases; those, too, for a recorded one alone. */
enum { H = W_HH + 1, GATES, CELLS, SAVED_B_IH, SAVED_B_HH, SAVED };

typedef struct layer_context {
    yk__lstm p;
    yk_dtype dtype; /* of all inputs */
    yk__tensor_spec x, weight[2];
    int64_t steps, rows, hidden;
    int outputs;
} layer_context;

static void layer_describe(const void *context, yk__attributes *to)
{
    yk__attribute_whole(to, "reverse", ((const layer_context *)context)->p.reverse);
}

/* x, taken over, in C order. */
static yk_tensor *in_order(yk_tensor *x)
{
    if (!x || yk__in_c_order(x))
        return x;
    yk_tensor *out = yk__raw_contiguous(x);
    yk_tensor_release(x);
    return out;
}

/* A tensor (T,N,size), or (N,size) of a single step, as the slot's. */
static const yk__view *sequence(yk__view *v, const yk_tensor *x, const layer_context *c)
{
    if (!x)
        return NULL;
    *v = yk__view_of(x);
    v->ndim = 3;
    v->shape[0] = c->steps, v->shape[1] = c->rows, v->shape[2] = x->shape[x->ndim - 1];
    yk__contiguous_strides(3, v->shape, v->stride);
    return v;
}

/* `count` steps of x, in C order, from `first`, as rows (1, count N, size). */
static yk_tensor *steps_of(yk_tensor *x, const layer_context *c, int64_t first, int64_t count)
{
    int64_t size = x->shape[x->ndim - 1], shape[3] = {1, count * c->rows, size}, stride[3];
    yk__contiguous_strides(3, shape, stride);
    return yk__tensor_view(x, 3, shape, stride, count ? first * c->rows * size : 0);
}

/* The gradient of W_hh: of each step's gates with the state before it. */
static yk_tensor *hidden_weight_gradient(yk__node *node, const layer_context *c, yk_tensor *ggates, yk_tensor *h,
                                         yk_tensor *h0)
{
    int64_t others = c->steps - 1;
    yk_tensor *g = steps_of(ggates, c, !c->p.reverse, others), *before = steps_of(h, c, c->p.reverse, others);
    yk_tensor *g0 = steps_of(ggates, c, c->p.reverse ? others : 0, 1), *rows0 = h0 ? yk__as_rows(h0) : NULL, *gw = NULL;
    if (!h0 || others)
        gw = yk__weight_gradient(node, W_HH, &c->weight[1], g, before);
    else
        gw = yk__weight_gradient(node, W_HH, &c->weight[1], g0, rows0);
    if (gw && h0 && others)
        gw = yk__tensor_if_ok(gw, g0 && rows0 ? yk__add_weight_gradient(gw, g0, rows0, true) : yk__status_of(NULL));
    yk__release_all(4, (yk_tensor *[]){g, before, g0, rows0});
    return gw;
}

static yk_status layer_backward(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    enum { G_OUT = H + 1, G_C_N, G_H_N, READ };
    const layer_context *c = yk__context(node);
    yk_status status = YK_OK;
    yk_tensor *from[READ] = {NULL}, *in[READ], *ggates = NULL, *gstate[2] = {NULL};
    for (int i = 0; i <= H; i++)
        from[i] = yk__saved(node, i, &status);
    yk_tensor *gates = yk__saved(node, GATES, &status), *cells = yk__saved(node, CELLS, &status);
    for (int i = 0; i < c->outputs; i++)
        from[G_OUT + i] = gouts[i];
    if (status || (status = yk__operands(YK__SLOT_lstm, (1u << READ) - 1, READ, from, in)))
        return status;
    for (int i = 0; i < READ && !status; i++) {
        bool missing = !in[i];
        in[i] = i == W_IH || i == W_HH ? in[i] : in_order(in[i]);
        status = missing ? YK_OK : yk__status_of(in[i]);
    }
    const int64_t state[2] = {c->rows, c->hidden};
    for (int i = 0; i < 2 && !status; i++) {
        gstate[i] = yk__tensor_new(2, state, NULL, (yk_dtype)cells->dtype, yk__device_of(cells));
        status = yk__status_of(gstate[i]);
    }
    ggates = status ? NULL : yk__tensor_like(gates, (yk_dtype)gates->dtype);
    status = status ? status : yk__status_of(ggates);
    if (!status && ggates->numel) {
        yk__lstm p = c->p;
        p.want_h0 = yk__needs_grad(node, H0);
        yk__view v[READ], vgg, vgates, vcells, vh = yk__view_of(gstate[0]), vc = yk__view_of(gstate[1]);
        yk__view weight = yk__view_of(in[W_HH]);
        status = YK__SLOT(cells, lstm_backward, &p, sequence(&vgg, ggates, c), &vh, &vc,
                          sequence(&v[G_OUT], in[G_OUT], c), yk__optional_view(&v[G_H_N], in[G_H_N]),
                          yk__optional_view(&v[G_C_N], in[G_C_N]), sequence(&vgates, gates, c),
                          sequence(&vcells, cells, c), yk__optional_view(&v[C0], in[C0]), &weight);
    }
    yk_tensor *rows = status ? NULL : yk__as_rows(ggates);
    status = status ? status : yk__status_of(rows);
    if (!status && yk__needs_grad(node, X)) {
        yk_tensor *gx = yk__tensor_new(c->x.ndim, c->x.shape, NULL, (yk_dtype)gates->dtype, yk__device_of(gates));
        yk_tensor *to = gx ? yk__as_rows(gx) : NULL;
        status = yk__status_of(to);
        if (!status) {
            yk__view vg = yk__view_of(rows), vw = yk__matrix_of(in[W_IH], false), vx = yk__view_of(to);
            status = yk__multiply(to, &vx, &vg, &vw, NULL, false);
        }
        yk_tensor_release(to);
        grads[X] = gx ? yk__tensor_if_ok(gx, status) : NULL;
    }
    for (int i = 0; i < 2 && !status; i++) {
        if (yk__needs_grad(node, H0 + i))
            grads[H0 + i] = yk_tensor_retain(gstate[i]);
    }
    if (!status && yk__needs_grad(node, W_IH)) {
        yk_tensor *x = yk__as_rows(in[X]);
        grads[W_IH] = yk__weight_gradient(node, W_IH, &c->weight[0], rows, x);
        yk_tensor_release(x);
        status = yk__status_of(grads[W_IH]);
    }
    if (!status && yk__needs_grad(node, W_HH)) {
        grads[W_HH] = hidden_weight_gradient(node, c, ggates, in[H], in[H0]);
        status = yk__status_of(grads[W_HH]);
    }
    /* Both biases have the same gradient, each a tensor of its own, for the leaf accumulates in it. */
    for (int i = B_IH; i <= B_HH && !status; i++) {
        if (!yk__needs_grad(node, i))
            continue;
        grads[i] =
            i == B_HH && grads[B_IH] ? yk__raw_clone(grads[B_IH]) : yk__raw_reduce("lstm", YK__SUM, rows, 3, false, 0);
        status = yk__status_of(grads[i]);
    }
    for (int i = 0; i < INPUTS; i++) {
        bool wanted = grads[i] != NULL;
        grads[i] = yk__narrow_to(grads[i], c->dtype);
        if (wanted && !status)
            status = yk__status_of(grads[i]);
    }
    yk__release_all(4, (yk_tensor *[]){ggates, gstate[0], gstate[1], rows});
    yk__release_all(READ, in);
    return status;
}

/* ---- a backward that is recorded --------------------------------------------------------------------------------- */

/* A step that was taken: the states before it, its gates and the hyperbolic tangent of its cell. */
typedef struct step {
    yk_tensor *h, *c, *gate[4], *tanh_c, *ggates;
} step;

/* 1 - x^2, the derivative of a hyperbolic tangent x. */
static yk_tensor *tanh_slope(yk_tensor *x)
{
    return yk_add_scalar(yk_neg(yk_square(x)), 1);
}

static yk_tensor *sum_of(yk_tensor *a, yk_tensor *b)
{
    return a && b ? yk_add(a, b) : a ? a : b;
}

/* The steps again, of operations that are recorded: x (T,N,in). */
static void record_steps(const layer_context *c, yk_tensor *const *in, step *steps)
{
    yk_tensor *a = yk_linear(in[X], in[W_IH], in[B_IH]), *h = in[H0], *cell = in[C0];
    for (int64_t i = 0; i < c->steps && a; i++) {
        step *s = &steps[c->p.reverse ? c->steps - 1 - i : i];
        yk_tensor *part[4] = {NULL};
        s->h = h, s->c = cell;
        yk_tensor *sum = yk_add(yk_select(a, 0, s - steps), yk_linear(h, in[W_HH], in[B_HH]));
        if (!sum || yk_chunk(sum, 4, 1, part, 4, NULL))
            return;
        for (int k = 0; k < 4; k++)
            s->gate[k] = k == 2 ? yk_tanh(part[k]) : yk_sigmoid(part[k]);
        cell = yk_add(yk_mul(s->gate[1], cell), yk_mul(s->gate[0], s->gate[2]));
        s->tanh_c = yk_tanh(cell);
        h = yk_mul(s->gate[3], s->tanh_c);
    }
}

/* The gradients of the sums in the gates, step by step back, and those of the first states in *gh and *gc. */
static void backward_steps(const layer_context *c, yk_tensor *const *in, yk_tensor *gout, step *steps, yk_tensor **gh,
                           yk_tensor **gc)
{
    for (int64_t i = c->steps - 1; i >= 0; i--) {
        step *s = &steps[c->p.reverse ? c->steps - 1 - i : i];
        yk_tensor *const *gate = s->gate, *part[4];
        yk_tensor *g = gout ? sum_of(*gh, yk_select(gout, 0, s - steps)) : *gh;
        if (!g) /* the cell's gradient alone */
            g = s->h ? yk_zeros_like(s->h) : NULL;
        yk_tensor *cell = sum_of(yk_mul(yk_mul(g, gate[3]), tanh_slope(s->tanh_c)), *gc);
        yk_tensor *of[4] = {yk_mul(cell, gate[2]), yk_mul(cell, s->c), yk_mul(cell, gate[0]), yk_mul(g, s->tanh_c)};
        for (int k = 0; k < 4; k++)
            part[k] = yk_mul(of[k], k == 2 ? tanh_slope(gate[k]) : yk_sub(gate[k], yk_square(gate[k])));
        for (int k = 0; k < 4; k++)
            if (!part[k])
                return;
        s->ggates = yk_cat((yk_tensor **)part, 4, 1);
        *gh = yk_matmul(s->ggates, in[W_HH]);
        *gc = yk_mul(cell, gate[1]);
    }
}

/* The rows of all steps, (T N, size), of a member of each. */
static yk_tensor *rows_of_steps(const layer_context *c, const step *steps, bool states)
{
    yk_tensor **all = yk__calloc((size_t)c->steps, sizeof(*all));
    bool complete = all != NULL;
    for (int64_t t = 0; t < c->steps && complete; t++) {
        all[t] = states ? steps[t].h : steps[t].ggates;
        complete = all[t] != NULL;
    }
    yk_tensor *out = complete ? yk_cat(all, (int)c->steps, 0) : NULL;
    free(all);
    return out;
}

static void layer_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    static const int kept[INPUTS] = {X, H0, C0, W_IH, W_HH, SAVED_B_IH, SAVED_B_HH};
    const layer_context *c = yk__context(node);
    yk_tensor *in[INPUTS], *g[OUTPUTS] = {NULL};
    for (int i = 0; i < INPUTS; i++)
        in[i] = yk__recorded_wide(yk__saved_in_graph(node, kept[i]));
    for (int i = 0; i < c->outputs; i++)
        g[i] = yk__recorded_wide(gouts[i]);
    if (yk__error_code())
        return;
    const int64_t state[2] = {c->rows, c->hidden}, rows = c->steps * c->rows, input = c->x.shape[c->x.ndim - 1];
    const int64_t x_shape[3] = {c->steps, c->rows, input}, out_shape[3] = {c->steps, c->rows, c->hidden};
    for (int i = H0; i <= C0; i++)
        if (!in[i])
            in[i] = yk_zeros(
                2, state,
                YK_OPTIONS(yk_tensor_options, .dtype = (yk_dtype)in[X]->dtype, .device = yk__device_of(in[X])));
    in[X] = yk_reshape(in[X], 3, x_shape);
    step *steps = yk__calloc((size_t)c->steps, sizeof(*steps));
    if (!steps || !in[X])
        return free(steps);
    yk_tensor *gh = g[H_N], *gc = g[C_N];
    record_steps(c, in, steps);
    backward_steps(c, in, g[OUT] ? yk_reshape(g[OUT], 3, out_shape) : NULL, steps, &gh, &gc);
    yk_tensor *ggates = rows_of_steps(c, steps, false), *before = rows_of_steps(c, steps, true);
    free(steps);
    if (!ggates || !before)
        return;
    const int first = 0;
    yk_tensor *turned = yk_transpose(ggates, 0, 1), *bias = yk_sum_dims(ggates, &first, 1, false);
    yk_tensor *made[INPUTS] = {
        [X] = yk__needs_grad(node, X) ? yk_reshape(yk_matmul(ggates, in[W_IH]), c->x.ndim, c->x.shape) : NULL,
        [H0] = gh,
        [C0] = gc,
        [W_IH] = yk__needs_grad(node, W_IH) ? yk_matmul(turned, yk_reshape(in[X], 2, (int64_t[]){rows, input})) : NULL,
        [W_HH] = yk__needs_grad(node, W_HH) ? yk_matmul(turned, before) : NULL,
        [B_IH] = bias,
        [B_HH] = bias};
    for (int i = 0; i < INPUTS; i++)
        if (yk__needs_grad(node, i) && made[i])
            grads[i] = yk_cast(made[i], c->dtype);
}

/* The last step that was taken of x (T,N,H), a new tensor (N,H) in the dtype. */
static yk_tensor *last_step(yk_tensor *x, const layer_context *c, yk_dtype dtype)
{
    int64_t shape[2] = {c->rows, c->hidden}, stride[2] = {c->hidden, 1};
    yk_tensor *part = yk__tensor_view(x, 2, shape, stride, c->p.reverse ? 0 : (c->steps - 1) * c->rows * c->hidden);
    yk_tensor *out = part ? yk__raw_clone(part) : NULL;
    yk_tensor_release(part);
    return yk__narrow_to(out, dtype);
}

/*
 * One layer in one direction, of checked inputs: x (T,N,in), or (N,in) for a single step. outs[]: the states (T,N,H),
 * or (N,H); the last cell (N,H); and, where n_outputs is OUTPUTS, the last state.
 */
static yk_status layer(const char *name, yk_tensor *const *inputs, bool reverse, int n_outputs, yk_tensor **outs)
{
    static const yk__op op = {
        .name = "lstm", .backward_list = layer_backward, .recorded = layer_recorded, .describe = layer_describe};
    yk_tensor *in[INPUTS], *x = inputs[X], *bias = NULL, *gates = NULL, *h = NULL, *cells = NULL, *rows = NULL;
    bool single = x->ndim == 2;
    layer_context c = {.p = {.reverse = reverse},
                       .dtype = (yk_dtype)x->dtype,
                       .steps = single ? 1 : x->shape[0],
                       .rows = x->shape[x->ndim - 2],
                       .hidden = inputs[W_HH]->shape[1],
                       .outputs = n_outputs};
    const int64_t shape[3] = {c.steps, c.rows, 4 * c.hidden}, states[3] = {c.steps, c.rows, c.hidden};
    for (int i = 0; i < n_outputs; i++)
        outs[i] = NULL;
    yk_status status = yk__operands(YK__SLOT_lstm, (1u << INPUTS) - 1, INPUTS, inputs, in);
    if (status)
        return status;
    for (int i = X; i <= C0 && !status; i++) {
        bool missing = !in[i];
        in[i] = in_order(in[i]);
        status = missing ? YK_OK : yk__status_of(in[i]);
    }
    yk_device device = yk__device_of(x);
    yk_dtype dtype = (yk_dtype)in[W_HH]->dtype;
    if (!status && in[B_IH]) {
        bias = yk__raw_binary(name, YK__ADD, in[B_IH], in[B_HH], 1);
        status = yk__status_of(bias);
    }
    if (!status) {
        gates = yk__tensor_new(3, shape, NULL, dtype, device);
        cells = yk__tensor_new(3, states, NULL, dtype, device);
        h = yk__tensor_new(single ? 2 : 3, states + single, NULL, dtype, device);
        rows = yk__as_rows(in[X]);
        status = gates && cells && h && rows ? YK_OK : yk__status_of(NULL);
    }
    if (!status && gates->numel) {
        yk__view vg, vh, vc, v0[2], a = yk__view_of(rows), b = yk__matrix_of(in[W_IH], true);
        yk__view weight = yk__view_of(in[W_HH]), vo = yk__view_of(gates);
        vo.shape[0] = 1, vo.shape[1] = a.shape[1];
        yk__contiguous_strides(3, vo.shape, vo.stride);
        status = yk__multiply(gates, &vo, &a, &b, bias, false);
        if (!status)
            status = YK__SLOT(x, lstm, &c.p, sequence(&vg, gates, &c), sequence(&vh, h, &c), sequence(&vc, cells, &c),
                              yk__optional_view(&v0[0], in[H0]), yk__optional_view(&v0[1], in[C0]), &weight);
    }
    if (!status) {
        outs[C_N] = last_step(cells, &c, c.dtype);
        if (n_outputs == OUTPUTS)
            outs[H_N] = last_step(h, &c, c.dtype);
        outs[OUT] = yk__narrow_to(h, c.dtype);
        h = NULL;
        for (int i = 0; i < n_outputs && !status; i++)
            status = yk__status_of(outs[i]);
    }
    if (!status) {
        c.x = yk__spec_of(x);
        for (int i = 0; i < 2; i++) {
            c.weight[i] = yk__spec_of(inputs[W_IH + i]);
            c.weight[i].dtype = (int8_t)dtype;
        }
        yk_tensor *saved[SAVED] = {[H] = yk__wants_grad(inputs[W_HH]) ? outs[OUT] : NULL,
                                   [GATES] = gates,
                                   [CELLS] = cells,
                                   [SAVED_B_IH] = inputs[B_IH],
                                   [SAVED_B_HH] = inputs[B_HH]};
        memcpy(saved, inputs, sizeof(saved[0]) * B_IH);
        status = yk__record_list(n_outputs, outs, &op, INPUTS, inputs, SAVED, saved, &c, sizeof(c));
    } else {
        yk__release_all(n_outputs, outs);
    }
    yk__release_all(5, (yk_tensor *[]){bias, gates, h, cells, rows});
    yk__release_all(INPUTS, in);
    return status;
}

/* ---- a sequence -------------------------------------------------------------------------------------------------- */

static yk_status lstm_layer(const yk__recurrent *of, yk_tensor *x, yk_tensor *const *states, yk_tensor *const *weights,
                            bool reverse, bool want_h, yk_tensor **output, yk_tensor **ends)
{
    yk_tensor *in[INPUTS] = {x, states[0], states[1], weights[0], weights[1], weights[2], weights[3]}, *made[OUTPUTS];
    yk_status status = layer(of->name, in, reverse, want_h ? OUTPUTS : C_N + 1, made);
    *output = made[OUT];
    ends[0] = want_h ? made[H_N] : NULL;
    ends[1] = made[C_N];
    return status;
}

static const yk__recurrent kind = {
    .name = "lstm", .gates = 4, .states = 2, .layer = lstm_layer, .cast = YK__CAST_OP_lstm, .casts = true};
static const yk__recurrent cell_kind = {.name = "lstm_cell", .gates = 4, .states = 2};

yk_status yk_lstm(yk_tensor *x, yk_tensor *h_0, yk_tensor *c_0, yk_tensor *const *weights, int count,
                  const yk_lstm_options *options, yk_tensor **output, yk_tensor **h_n, yk_tensor **c_n)
{
    yk_lstm_options o;
    yk_tensor **to[YK__RECURRENT_OUTPUTS] = {output, h_n, c_n};
    yk__recurrent_clear(to);
    if (YK__OPTIONS_TAKE("lstm", yk_lstm_options, options, &o))
        return YK_ERR_ARGUMENT;
    return yk__recurrent_run(&kind, x, (yk_tensor *[]){h_0, c_0}, weights, count, YK__RECURRENT_OPTIONS(o), to);
}

/* ---- a cell ------------------------------------------------------------------------------------------------------ */

/* The cell as a composition of operations, each of which autocast casts if it has it on its list, as PyTorch's cell
 * is. */
static yk_status composed_cell(yk_tensor *const *inputs, yk_tensor **outs)
{
    yk_tensor *in[INPUTS], *x = inputs[X], *part[4];
    memcpy(in, inputs, sizeof(in));
    const int64_t shape[2] = {x->shape[0], in[W_HH]->shape[1]};
    for (int i = H0; i <= C0; i++)
        if (!in[i])
            in[i] = yk_zeros(2, shape,
                             YK_OPTIONS(yk_tensor_options, .dtype = (yk_dtype)x->dtype, .device = yk__device_of(x)));
    yk__autocast_inputs(YK__CAST_OP_lstm_cell, INPUTS, in);
    yk_tensor *gates = yk_add(yk_linear(in[X], in[W_IH], in[B_IH]), yk_linear(in[H0], in[W_HH], in[B_HH]));
    yk_status status = yk_chunk(gates, 4, 1, part, 4, NULL);
    if (status)
        return status;
    outs[C_N] = yk_add(yk_mul(yk_sigmoid(part[1]), in[C0]), yk_mul(yk_sigmoid(part[0]), yk_tanh(part[2])));
    outs[OUT] = yk_mul(yk_sigmoid(part[3]), yk_tanh(outs[C_N]));
    return yk__status_of(outs[OUT]);
}

/* Checks the inputs of a cell; under autocast (`cast`) the operations that the cell is composed of check the dtypes. */
static yk_status check_cell(yk_tensor *const *in, bool cast)
{
    static const char name[] = "lstm_cell", *const role[] = {"input", "h", "c"};
    const yk_tensor *x = in[X];
    int64_t hidden = yk__recurrent_hidden(&cell_kind, "", in[W_HH]);
    if (!hidden)
        return yk__error_code();
    if (x->ndim != 2 || (in[W_IH]->ndim == 2 && x->shape[1] != in[W_IH]->shape[1])) {
        char text[200];
        return yk__fail(YK_ERR_SHAPE, "lstm_cell: input has shape %s, expected (N, %lld)",
                        yk_shape_format(x, text, sizeof(text)), (long long)yk_size(in[W_IH], -1));
    }
    if (yk__expect_floating(name, role[X], x) || (!cast && yk__expect_input(name, x, in[W_IH], in[B_IH])) ||
        !yk__recurrent_check_weights(&cell_kind, "", in + W_IH, x->shape[1], hidden,
                                     cast ? YK__ANY_DTYPE : (yk_dtype)x->dtype))
        return yk__error_code();
    const int64_t state[2] = {x->shape[0], hidden};
    for (int i = H0; i <= C0; i++)
        if (!yk__expect_shape(name, role[i], in[i], 2, state) ||
            (!cast && yk__expect_dtype(name, role[i], in[i], (yk_dtype)x->dtype)))
            return yk__error_code();
    return YK_OK;
}

yk_status yk_lstm_cell(yk_tensor *x, yk_tensor *h, yk_tensor *c, yk_tensor *weight_ih, yk_tensor *weight_hh,
                       yk_tensor *bias_ih, yk_tensor *bias_hh, yk_tensor **next_h, yk_tensor **next_c)
{
    yk_tensor *inputs[INPUTS] = {x, h, c, weight_ih, weight_hh, bias_ih, bias_hh}, *outs[OUTPUTS] = {NULL};
    yk_tensor **to[] = {[OUT] = next_h, [C_N] = next_c};
    for (int i = OUT; i <= C_N; i++)
        if (to[i])
            *to[i] = NULL;
    bool biased = bias_ih || bias_hh, cast = yk__autocast_types != 0;
    uint32_t optional = 1u << H0 | 1u << C0 | (biased ? 0 : 1u << B_IH | 1u << B_HH);
    YK__EVENT(YK__EVENT_OPERATION, "lstm_cell");
    if (!yk__op_begin("lstm_cell", INPUTS, inputs, optional))
        return yk__status_of(NULL);
    yk_status status = check_cell(inputs, cast);
    if (status)
        return status;
    yk_scope scope = yk_scope_begin();
    status = cast ? composed_cell(inputs, outs) : layer("lstm_cell", inputs, false, C_N + 1, outs);
    return yk__hand_out(scope, status, C_N + 1, outs, to);
}
