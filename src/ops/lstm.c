/*
 * lstm.c - LSTM: a whole sequence through layers and directions, and one step of a cell. Layer: ops.
 *
 * A layer in one direction is one node. Its input's part of the gates is one product for all steps, and so are the
 * gradients of both weights; the steps themselves are the slot lstm. Layers work on (T,N,...) whatever the layout of
 * the input; what joins them, dropout between and both directions side by side, is made of other operations.
 * Derivation of the backward: docs/autograd.md.
 */
#include <limits.h>
#include <stdlib.h>

#include "ops/cast_policy.h"

enum { X, H0, C0, W_IH, W_HH, B_IH, B_HH, INPUTS }; /* of a layer; h0, c0 and the biases may be NULL */
enum { OUT, C_N, H_N, OUTPUTS };
#define ANY_DTYPE YK__DTYPES                /* where none is asked for */
enum { H = W_HH + 1, GATES, CELLS, SAVED }; /* kept for backward, after those inputs that it reads */

typedef struct layer_context {
    yk__lstm p;
    yk_dtype dtype; /* of all inputs */
    yk__tensor_spec x, weight[2];
    int64_t steps, rows, hidden;
    int outputs;
} layer_context;

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
    static const yk__op op = {.name = "lstm", .backward_list = layer_backward};
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
        bool input_weight = yk__wants_grad(inputs[W_IH]), hidden_weight = yk__wants_grad(inputs[W_HH]);
        yk_tensor *saved[SAVED] = {[X] = input_weight ? x : NULL,
                                   [H0] = hidden_weight ? inputs[H0] : NULL,
                                   [C0] = inputs[C0],
                                   [W_IH] = yk__wants_grad(x) ? inputs[W_IH] : NULL,
                                   [W_HH] = inputs[W_HH],
                                   [H] = hidden_weight ? outs[OUT] : NULL,
                                   [GATES] = gates,
                                   [CELLS] = cells};
        status = yk__record_list(n_outputs, outs, &op, INPUTS, inputs, SAVED, saved, &c, sizeof(c));
    } else {
        yk__release_all(n_outputs, outs);
    }
    yk__release_all(5, (yk_tensor *[]){bias, gates, h, cells, rows});
    yk__release_all(INPUTS, in);
    return status;
}

/* ---- what is checked --------------------------------------------------------------------------------------------- */

static bool expect_shape(const char *name, const char *role, const yk_tensor *x, int ndim, const int64_t *shape)
{
    if (!x || (x->ndim == ndim && yk__equal_sizes(x->shape, shape, ndim)))
        return true;
    char a[200], b[200];
    yk__fail(YK_ERR_SHAPE, "%s: %s has shape %s, expected %s", name, role, yk_shape_format(x, a, sizeof(a)),
             yk__shape_text(ndim, shape, b, sizeof(b)));
    return false;
}

/* Checks W_ih, W_hh and the biases, or NULL, of a layer in one direction, whose input has `size` numbers and whose
 * states `hidden`; `suffix` ends their names. ANY_DTYPE: they may have any. */
static bool check_weights(const char *name, const char *suffix, yk_tensor *const weights[4], int64_t size,
                          int64_t hidden, yk_dtype dtype)
{
    static const char *const roles[] = {"weight_ih", "weight_hh", "bias_ih", "bias_hh"};
    for (int i = 0; i < 4; i++) {
        char role[64];
        const int64_t shape[2] = {4 * hidden, i ? hidden : size};
        snprintf(role, sizeof(role), "%s%s", roles[i], suffix);
        if (!expect_shape(name, role, weights[i], i < 2 ? 2 : 1, shape) ||
            (dtype != ANY_DTYPE && yk__expect_dtype(name, role, weights[i], dtype)))
            return false;
    }
    return true;
}

/* The size of the states that go with W_hh; 0 and an error where it is none's. */
static int64_t hidden_size(const char *name, const char *suffix, const yk_tensor *weight)
{
    if (weight->ndim == 2 && weight->shape[1] >= 1 && weight->shape[0] % 4 == 0 &&
        weight->shape[0] / 4 == weight->shape[1])
        return weight->shape[1];
    char text[200];
    yk__fail(YK_ERR_SHAPE, "%s: weight_hh%s has shape %s, expected (4 hidden_size, hidden_size)", name, suffix,
             yk_shape_format(weight, text, sizeof(text)));
    return 0;
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
    int64_t hidden = hidden_size(name, "", in[W_HH]);
    if (!hidden)
        return yk__error_code();
    if (x->ndim != 2 || (in[W_IH]->ndim == 2 && x->shape[1] != in[W_IH]->shape[1])) {
        char text[200];
        return yk__fail(YK_ERR_SHAPE, "lstm_cell: input has shape %s, expected (N, %lld)",
                        yk_shape_format(x, text, sizeof(text)), (long long)yk_size(in[W_IH], -1));
    }
    if (yk__expect_floating(name, role[X], x) || (!cast && yk__expect_input(name, x, in[W_IH], in[B_IH])) ||
        !check_weights(name, "", in + W_IH, x->shape[1], hidden, cast ? ANY_DTYPE : (yk_dtype)x->dtype))
        return yk__error_code();
    const int64_t state[2] = {x->shape[0], hidden};
    for (int i = H0; i <= C0; i++)
        if (!expect_shape(name, role[i], in[i], 2, state) ||
            (!cast && yk__expect_dtype(name, role[i], in[i], (yk_dtype)x->dtype)))
            return yk__error_code();
    return YK_OK;
}

/* Gives what is asked for of outs[] to the scope around `scope`, and ends it. */
static yk_status hand_out(yk_scope scope, yk_status status, int count, yk_tensor *const *outs, yk_tensor **const *to)
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
    return hand_out(scope, status, C_N + 1, outs, to);
}

/* ---- a sequence -------------------------------------------------------------------------------------------------- */

/* A call: x, the states, then the weights of each layer and direction, `parts` of each. */
typedef struct lstm_call {
    yk_lstm_options o;
    int64_t layers, states; /* states: layers in all directions */
    int directions, parts;
    yk_tensor **in;
} lstm_call;

/* The inputs of the i-th layer in all directions, but for x and the states. */
static void weights_of(const lstm_call *call, int64_t i, yk_tensor **weights)
{
    for (int k = 0; k < 4; k++)
        weights[k] = k < call->parts ? call->in[W_IH + i * call->parts + k] : NULL;
}

static yk_status check_sequence(const lstm_call *call)
{
    static const char name[] = "lstm", *const role[] = {"input", "h_0", "c_0"};
    const yk_tensor *x = call->in[X], *weight = call->in[W_IH];
    char text[200], suffix[48] = "_l0";
    if (x->ndim != 2 && x->ndim != 3)
        return yk__fail(YK_ERR_SHAPE, "lstm: input has shape %s, expected (%s, input_size) or (T, input_size)",
                        yk_shape_format(x, text, sizeof(text)), call->o.batch_first ? "N, T" : "T, N");
    bool batched = x->ndim == 3;
    int64_t size = x->shape[x->ndim - 1], rows = batched ? x->shape[!call->o.batch_first] : 1;
    if (x->shape[batched && call->o.batch_first] < 1)
        return yk__fail(YK_ERR_SHAPE, "lstm: input %s has no time steps", yk_shape_format(x, text, sizeof(text)));
    if (weight->ndim == 2 && size != weight->shape[1])
        return yk__fail(YK_ERR_SHAPE,
                        "lstm: input %s has %lld features, but weight_ih_l0 expects an input_size of %lld",
                        yk_shape_format(x, text, sizeof(text)), (long long)size, (long long)weight->shape[1]);
    if (yk__expect_floating(name, role[X], x) || yk__expect_input(name, x, weight, NULL))
        return yk__error_code();
    int64_t hidden = hidden_size(name, suffix, call->in[W_HH]);
    for (int64_t i = 0; i < call->states && hidden; i++) {
        yk_tensor *weights[4];
        weights_of(call, i, weights);
        snprintf(suffix, sizeof(suffix), "_l%lld%s", (long long)(i / call->directions),
                 i % call->directions ? "_reverse" : "");
        if (!check_weights(name, suffix, weights, i < call->directions ? size : hidden * call->directions, hidden,
                           (yk_dtype)x->dtype))
            return yk__error_code();
    }
    const int64_t state[3] = {call->states, batched ? rows : hidden, hidden};
    for (int i = H0; i <= C0 && hidden; i++)
        if (!expect_shape(name, role[i], call->in[i], batched ? 3 : 2, state) ||
            yk__expect_dtype(name, role[i], call->in[i], (yk_dtype)x->dtype))
            return yk__error_code();
    return hidden ? YK_OK : yk__error_code();
}

/* All layers over x (T,N,in): outs[OUT], (T,N,directions H), and of the others those that `wanted` has a bit of. */
static yk_status run_layers(const lstm_call *call, uint32_t wanted, yk_tensor **outs, yk_tensor **ends)
{
    yk_tensor *x = call->in[X];
    for (int64_t i = 0; i < call->layers; i++) {
        yk_tensor *sides[2] = {NULL};
        for (int side = 0; side < call->directions; side++) {
            yk_tensor *in[INPUTS] = {x}, *made[OUTPUTS];
            int64_t at = i * call->directions + side;
            weights_of(call, at, in + W_IH);
            for (int k = H0; k <= C0; k++)
                in[k] = call->in[k] ? yk_select(call->in[k], 0, at) : NULL;
            if ((call->in[H0] && !in[H0]) || (call->in[C0] && !in[C0]))
                return yk__status_of(NULL);
            yk_status status = layer("lstm", in, side, wanted >> H_N & 1 ? OUTPUTS : C_N + 1, made);
            if (status)
                return status;
            sides[side] = made[OUT];
            ends[at] = made[C_N];
            ends[call->states + at] = wanted >> H_N & 1 ? made[H_N] : NULL;
        }
        x = call->directions == 1 ? sides[0] : yk_cat(sides, 2, 2);
        if (i + 1 < call->layers && call->o.dropout > 0 && call->o.train)
            x = yk_dropout(x, call->o.dropout, true);
        if (!x)
            return yk__status_of(NULL);
    }
    outs[OUT] = x;
    for (int i = C_N; i <= H_N; i++) {
        if (!(wanted >> i & 1))
            continue;
        yk_tensor **of = ends + (i == H_N ? call->states : 0);
        outs[i] = call->states == 1 ? yk_unsqueeze(of[0], 0) : yk_stack(of, (int)call->states, 0);
        if (!outs[i])
            return yk__status_of(NULL);
    }
    return YK_OK;
}

static yk_status run_sequence(lstm_call *call, uint32_t wanted, yk_tensor **outs)
{
    yk_status status = check_sequence(call);
    if (status)
        return status;
    yk_tensor **in = call->in, **ends = yk__calloc((size_t)call->states, 2 * sizeof(*ends));
    if (!ends)
        return yk__error_code();
    bool batched = in[X]->ndim == 3, turned = batched && call->o.batch_first;
    in[X] = !batched ? yk_unsqueeze(in[X], 1) : turned ? yk_transpose(in[X], 0, 1) : in[X];
    for (int i = H0; i <= C0 && !batched; i++)
        in[i] = in[i] ? yk_unsqueeze(in[i], 1) : NULL;
    status = yk__error_code() && !in[X] ? yk__error_code() : run_layers(call, wanted, outs, ends);
    free(ends);
    if (status)
        return status;
    if (turned)
        outs[OUT] = yk_transpose(outs[OUT], 0, 1);
    for (int i = 0; i < OUTPUTS && !batched; i++)
        outs[i] = outs[i] ? yk_squeeze(outs[i], 1) : NULL;
    return YK_OK;
}

yk_status yk_lstm(yk_tensor *x, yk_tensor *h_0, yk_tensor *c_0, yk_tensor *const *weights, int count,
                  const yk_lstm_options *options, yk_tensor **output, yk_tensor **h_n, yk_tensor **c_n)
{
    yk_tensor **to[OUTPUTS] = {[OUT] = output, [C_N] = c_n, [H_N] = h_n}, *outs[OUTPUTS] = {NULL};
    lstm_call call = {.layers = 0};
    uint32_t wanted = 0;
    for (int i = 0; i < OUTPUTS; i++) {
        wanted |= to[i] ? 1u << i : 0;
        if (to[i])
            *to[i] = NULL;
    }
    if (YK__OPTIONS_TAKE("lstm", yk_lstm_options, options, &call.o))
        return YK_ERR_ARGUMENT;
    call.layers = call.o.num_layers;
    call.directions = call.o.bidirectional ? 2 : 1;
    call.parts = call.o.bias ? 4 : 2;
    YK__EVENT(YK__EVENT_OPERATION, "lstm");
    if (!yk__op_begin("lstm", W_IH, (yk_tensor *[]){x, h_0, c_0}, 1u << H0 | 1u << C0) ||
        (count > 0 && !yk__op_begin("lstm", count, weights, 0)))
        return yk__status_of(NULL);
    if (yk__check_number("lstm", "dropout", call.o.dropout, 0, 1))
        return yk__error_code();
    if (call.layers < 1 || call.layers > INT_MAX / 8 || count != call.layers * call.directions * call.parts)
        return yk__fail(YK_ERR_ARGUMENT, "lstm: %d weights for num_layers %lld%s%s, expected %d for each%s", count,
                        (long long)call.layers, call.o.bidirectional ? ", bidirectional" : "",
                        call.o.bias ? "" : ", without biases", call.parts,
                        call.o.bidirectional ? " layer and direction" : " layer");
    call.states = call.layers * call.directions;
    call.in = yk__calloc((size_t)count + W_IH, sizeof(*call.in));
    if (!call.in)
        return yk__error_code();
    memcpy(call.in, (yk_tensor *[]){x, h_0, c_0}, sizeof(*call.in) * W_IH);
    memcpy(call.in + W_IH, weights, sizeof(*weights) * (size_t)count);
    yk_status status = yk__same_device("lstm", count + W_IH, call.in);
    if (!status) {
        yk_scope scope = yk_scope_begin();
        yk__autocast_inputs(YK__CAST_OP_lstm, count + W_IH, call.in);
        uint32_t cast_types = yk__autocast_pause();
        status = call.in[X] ? run_sequence(&call, wanted, outs) : yk__status_of(NULL);
        yk__autocast_types = cast_types;
        status = hand_out(scope, status, OUTPUTS, outs, to);
    }
    free(call.in);
    return status;
}
