/*
 * attention_blocks.c - attention by operations, one block of queries at a time: for what no kernel computes (on GPUs
 * dropout, and masks that want a gradient; more than four dimensions), and for gradients of gradients. Layer: ops.
 *
 * Note [Orders of attention]
 * Order 0 gives attention's output of q, k, v and mask; order n + 1 gives the gradients of order n's inputs, of these
 * inputs and the gradients of order n's results. Each is one node of the tape, which keeps its inputs alone, and whose
 * backward is the order above it. A block of it is computed from the block's inputs as leaves: the operations of order
 * 0 are recorded, and yk_autograd_grad of them, with create_graph but for the last time, gives what the orders above
 * are. Then the block's graph is gone. A result that all blocks have a term of (the gradients of k and v, and of a mask
 * with one row for all queries) is added up block by block, in f32 where it is a half.
 *
 * The inputs in their order: q k v mask | gout | gradients of order 1's results, those of q k v mask | gradients of
 * order 2's results, those of q k v mask gout. Order 3 is computed in one block, recorded, and so are those above it.
 *
 * A block is some heads, and either all of their queries or some queries of each, so that its weights are runs of equal
 * length of all weights, in C order: they are dropped by the words that these have.
 */
#include "ops/attention.h"

#include "device/graph.h"

enum { Q, K, V, MASK, GOUT, MOST_INPUTS = 14, LAST_IN_BLOCKS = 2, ORDERS = 4 };
static const int inputs_of[ORDERS] = {4, 5, 9, 14};

int64_t yk__attention_block;

typedef struct family {
    yk__attention form; /* with the stream */
    int order;
    bool wide;               /* halves are computed in f32 */
    uint32_t wanted[ORDERS]; /* of order n > 0: bit i where the gradient of input i of the order below is a result */
} family;

static int results_of(int order)
{
    return order ? inputs_of[order - 1] : 1;
}

static bool is_wanted(const family *f, int result)
{
    return f->order == 0 || (f->wanted[f->order] >> result & 1);
}

/* The one of q, k, v, mask and gout that an input has the shape of. */
static int role_of(int input)
{
    return input < inputs_of[1] ? input : input < inputs_of[2] ? input - inputs_of[1] : input - inputs_of[2];
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

/* The matrix of weights, (..., L, S) of `ndim` dimensions, and the block, which is all of the dimensions but [0, outer)
 * of which it has one element each, `heads` of dimension `outer`, and `rows` of the queries. */
typedef struct plan {
    int ndim, outer;
    int64_t size[YK_MAX_DIMS], heads, rows;
} plan;

typedef struct block {
    int64_t first[YK_MAX_DIMS], count[YK_MAX_DIMS];
} block;

/* False where value has batches that query and key do not have: the weights serve several of them. */
static bool sizes_find(plan *p, yk_tensor *const *in)
{
    const yk_tensor *q = in[Q], *k = in[K], *v = in[V];
    p->ndim = q->ndim > k->ndim ? q->ndim : k->ndim;
    p->size[p->ndim - 2] = q->shape[q->ndim - 2], p->size[p->ndim - 1] = k->shape[k->ndim - 2];
    for (int d = 3; d <= p->ndim; d++) {
        int64_t of_q = d <= q->ndim ? q->shape[q->ndim - d] : 1, of_k = d <= k->ndim ? k->shape[k->ndim - d] : 1;
        p->size[p->ndim - d] = of_q == 1 ? of_k : of_q;
        if (of_q != 1 && of_k != 1 && of_q != of_k)
            return false;
    }
    for (int d = 3; d <= v->ndim; d++)
        if (v->shape[v->ndim - d] != 1 && (d > p->ndim || v->shape[v->ndim - d] != p->size[p->ndim - d]))
            return false;
    return true;
}

static int64_t product(const int64_t *size, int from, int to)
{
    int64_t n = 1;
    for (int d = from; d < to; d++)
        n *= size[d];
    return n;
}

static int64_t block_elements(const yk_tensor *x)
{
    enum { ON_CPU = 1 << 18, ON_OTHERS = 1 << 22 };
    return yk__attention_block ? yk__attention_block : yk__device_of(x).type == YK_CPU ? ON_CPU : ON_OTHERS;
}

static int64_t at_least_one(int64_t n, int64_t most)
{
    return n < 1 ? 1 : n < most ? n : most;
}

static plan plan_of(yk_tensor *const *in)
{
    enum { FEW_ROWS = 64 }; /* products of fewer are slow: rather fewer heads */
    plan p = {.heads = 1};
    (void)sizes_find(&p, in);
    int64_t most = block_elements(in[Q]), queries = p.size[p.ndim - 2], keys = p.size[p.ndim - 1];
    int64_t few = queries < FEW_ROWS ? queries : FEW_ROWS, inner = 1;
    for (p.outer = 0; p.outer < p.ndim - 3; p.outer++) {
        inner = product(p.size, p.outer + 1, p.ndim - 2);
        if (inner * keys * few <= most)
            break;
    }
    inner = p.ndim > 3 ? product(p.size, p.outer + 1, p.ndim - 2) : 1;
    if (p.ndim > 2)
        p.heads = at_least_one(most / at_least_one(inner * queries * keys, INT64_MAX), p.size[p.outer]);
    p.rows = at_least_one(most / at_least_one(inner * keys, INT64_MAX), queries);
    if (inner * queries * keys <= most)
        p.rows = queries;
    return p;
}

bool yk__attention_is_large(yk_tensor *const inputs[YK__ATTENTION_INPUTS])
{
    plan p;
    int64_t elements = 1, most = block_elements(inputs[Q]);
    if (yk__listening || !sizes_find(&p, inputs))
        return false;
    for (int d = 0; d < p.ndim; d++)
        if (__builtin_mul_overflow(elements, p.size[d], &elements)) /* an error of matmul's */
            return false;
    return elements > most;
}

/* The next block; false after the last one. One of no elements comes `first`. */
static bool block_next(const plan *p, block *b, bool first)
{
    if (first) {
        memset(b->first, 0, sizeof(b->first));
    } else {
        int d = p->ndim - 2;
        for (; d >= 0; d = d == p->ndim - 2 ? (p->ndim > 2 ? p->outer : -1) : d - 1) {
            b->first[d] += b->count[d];
            if (b->first[d] < p->size[d])
                break;
            b->first[d] = 0;
        }
        if (d < 0)
            return false;
    }
    for (int d = 0; d < p->ndim; d++) {
        int64_t most = d == p->ndim - 2                   ? p->rows
                       : d == p->ndim - 1 || d > p->outer ? p->size[d]
                       : d == p->outer                    ? p->heads
                                                          : 1;
        b->count[d] = most < p->size[d] - b->first[d] ? most : p->size[d] - b->first[d];
    }
    return true;
}

/* The elements of the block's weights among all of them. */
static yk__dropout dropout_of(const family *f, const plan *p, const block *b)
{
    yk__dropout d = {.stream = f->form.stream, .calls = f->form.calls, .p = f->form.dropout, .parts = 1};
    for (int i = 0; i < p->ndim; i++)
        d.first = d.first * p->size[i] + b->first[i];
    if (b->count[p->ndim - 2] < p->size[p->ndim - 2]) {
        d.parts = product(b->count, 0, p->ndim - 2);
        d.step = p->size[p->ndim - 2] * p->size[p->ndim - 1];
    }
    return d;
}

/* The block's part of x, a tensor of that role: another view of the memory, without history. The scope owns it. */
static yk_tensor *part_of(const plan *p, const block *b, yk_tensor *x, int role)
{
    int64_t shape[YK_MAX_DIMS], offset = 0;
    memcpy(shape, x->shape, sizeof(shape[0]) * (size_t)x->ndim);
    for (int d = 0; d < x->ndim; d++) {
        int of_all = d + p->ndim - x->ndim;
        if (x->shape[d] == 1 || of_all >= p->ndim - (role == K || role == V ? 2 : 1))
            continue;
        shape[d] = b->count[of_all];
        offset += b->first[of_all] * x->stride[d];
    }
    return yk__scope_own(yk__tensor_view(x, x->ndim, shape, x->stride, offset));
}

/* ---- one block --------------------------------------------------------------------------------------------------- */

static yk_tensor *attend(const family *f, yk_tensor *const *in, int64_t row, const yk__dropout *dropout)
{
    yk_tensor *taken[YK__ATTENTION_INPUTS];
    for (int i = 0; i < YK__ATTENTION_INPUTS; i++)
        taken[i] = f->wide && in[i] && in[i]->dtype != YK_BOOL ? yk__recorded_wide(in[i]) : in[i];
    if (yk__error_code())
        return NULL;
    yk_tensor *out = yk__attention_composed(taken, &f->form, row, dropout);
    return out && f->wide ? yk_cast(out, (yk_dtype)in[Q]->dtype) : out;
}

/* The results of an order, of in[], into out[], NULL for what is not wanted or zero. */
static bool evaluate(const family *f, int order, yk_tensor *const *in, int64_t row, const yk__dropout *dropout,
                     bool create_graph, yk_tensor **out)
{
    if (order == 0)
        return (out[0] = attend(f, in, row, dropout)) != NULL;
    yk_tensor *below[MOST_INPUTS] = {NULL}, *roots[MOST_INPUTS], *gradients[MOST_INPUTS];
    yk_tensor *inputs[MOST_INPUTS], *got[MOST_INPUTS];
    int n_roots = 0, n_inputs = 0, count = inputs_of[order - 1];
    if (!evaluate(f, order - 1, in, row, dropout, true, below))
        return false;
    for (int i = 0; i < results_of(order - 1); i++) {
        if (!below[i] || !in[count + i] || !yk__wants_grad(below[i]))
            continue;
        roots[n_roots] = below[i];
        gradients[n_roots++] = in[count + i];
    }
    for (int i = 0; i < count; i++) {
        out[i] = NULL;
        if (in[i] && (f->wanted[order] >> i & 1) && yk__wants_grad(in[i]))
            inputs[n_inputs++] = in[i];
    }
    if (!n_roots || !n_inputs)
        return true;
    if (yk_autograd_grad(roots, n_roots, inputs, n_inputs, gradients, got,
                         YK_OPTIONS(yk_autograd_grad_options, .allow_unused = true, .create_graph = create_graph)))
        return false;
    for (int i = 0, k = 0; i < count; i++)
        if (k < n_inputs && in[i] == inputs[k])
            out[i] = got[k++];
    return true;
}

/* Adds the results of a block to its parts of whole[]. */
static yk_status block_add(const family *f, const plan *p, const block *b, yk_tensor *const *in, yk_tensor **whole)
{
    yk_tensor *part[MOST_INPUTS] = {NULL}, *out[MOST_INPUTS] = {NULL};
    const yk__dropout dropout = dropout_of(f, p, b);
    uint32_t leaves = 0;
    for (int n = 1; n <= f->order; n++)
        leaves |= f->wanted[n];
    for (int i = 0; i < inputs_of[f->order]; i++) {
        part[i] = in[i] ? part_of(p, b, in[i], role_of(i)) : NULL;
        if (in[i] && (!part[i] || ((leaves >> i & 1) && yk_set_requires_grad(part[i], true))))
            return yk__error_code();
    }
    if (!evaluate(f, f->order, part, b->first[p->ndim - 2], &dropout, false, out))
        return yk__status_of(NULL);
    yk_status status = YK_OK;
    for (int i = 0; i < results_of(f->order) && !status; i++) {
        if (!out[i] || !whole[i])
            continue;
        yk_tensor *to = part_of(p, b, whole[i], f->order ? role_of(i) : GOUT);
        yk_tensor *term = to ? yk__scope_own(yk__raw_cast(out[i], (yk_dtype)whole[i]->dtype)) : NULL;
        status = term ? yk__raw_binary_into("attention", YK__ADD, to, to, term, 1) : yk__error_code();
    }
    return status;
}

/* ---- all blocks -------------------------------------------------------------------------------------------------- */

/* A result of zeros, to add to. */
static yk_tensor *result_new(const family *f, const plan *p, yk_tensor *const *in, int i)
{
    yk_dtype dtype = yk__statistic_dtype((yk_dtype)in[Q]->dtype);
    int64_t shape[YK_MAX_DIMS];
    yk_tensor *out;
    if (f->order == 0) {
        memcpy(shape, p->size, sizeof(shape[0]) * (size_t)p->ndim);
        shape[p->ndim - 1] = in[V]->shape[in[V]->ndim - 1];
        out = yk__tensor_new(p->ndim, shape, NULL, dtype, yk__device_of(in[Q]));
    } else {
        out = yk__tensor_like(in[i], dtype);
    }
    return out ? yk__tensor_if_ok(out, yk__raw_fill(out, 0)) : NULL;
}

/* The results of the family's order, in the dtype of the inputs, without history: one reference each, NULL for what is
 * not wanted. On failure none is left. */
static yk_status blocks_run(const family *f, yk_tensor *const *in, yk_tensor **whole)
{
    const plan p = plan_of(in);
    yk_status status = YK_OK;
    bool before = f->order ? yk_enable_grad_begin() : yk_no_grad_begin();
    uint32_t cast_types = yk__autocast_pause();
    for (int i = 0; i < results_of(f->order) && !status; i++) {
        whole[i] = is_wanted(f, i) && (f->order == 0 || in[i]) ? result_new(f, &p, in, i) : NULL;
        status = whole[i] || !is_wanted(f, i) ? YK_OK : yk__error_code();
    }
    block b;
    for (bool more = block_next(&p, &b, true); more && !status; more = block_next(&p, &b, false)) {
        yk_scope scope = yk_scope_begin();
        status = block_add(f, &p, &b, in, whole);
        yk_scope_end(scope);
    }
    yk__autocast_types = cast_types;
    if (f->order)
        yk_enable_grad_end(before);
    else
        yk_no_grad_end(before);
    for (int i = 0; i < results_of(f->order); i++) {
        if (whole[i] && !status) {
            whole[i] = yk__narrow_to(whole[i], (yk_dtype)in[Q]->dtype);
            status = yk__status_of(whole[i]);
        }
    }
    if (status)
        yk__release_all(results_of(f->order), whole);
    return status;
}

/* ---- the tape ---------------------------------------------------------------------------------------------------- */

/* The order above the node's, and its inputs: those that were saved, and the gradients of the node's results. */
static family order_above(yk__node *node, yk_tensor *const *gouts, yk_tensor **in)
{
    family f = *(const family *)yk__context(node);
    int count = inputs_of[f.order];
    for (int i = 0, k = 0; i < results_of(f.order); i++)
        in[count + i] = is_wanted(&f, i) ? gouts[k++] : NULL;
    f.order++;
    f.wanted[f.order] = 0;
    for (int i = 0; i < count; i++)
        f.wanted[f.order] |= (uint32_t)yk__needs_grad(node, i) << i;
    return f;
}

static yk_status blocks_backward(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    yk_tensor *in[MOST_INPUTS] = {NULL};
    yk_status status = YK_OK;
    family f = order_above(node, gouts, in);
    for (int i = 0; i < results_of(f.order); i++)
        in[i] = yk__saved(node, i, &status);
    return status ? status : blocks_run(&f, in, grads);
}

static void apply(const family *f, yk_tensor *const *in, yk_tensor **out);

static void blocks_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    yk_tensor *in[MOST_INPUTS] = {NULL};
    family f = order_above(node, gouts, in);
    for (int i = 0; i < results_of(f.order); i++)
        in[i] = yk__saved_in_graph(node, i);
    if (yk__error_code())
        return;
    if (f.order <= LAST_IN_BLOCKS) {
        apply(&f, in, grads);
        return;
    }
    for (int i = 0; i < inputs_of[f.order]; i++)
        if (in[i]) /* in the graph, but not the tensors that are in other graphs, too */
            in[i] = yk_view(in[i], in[i]->ndim, in[i]->shape);
    plan p = {.heads = 1};
    const block all = {.first = {0}};
    (void)sizes_find(&p, in);
    yk__dropout dropout = dropout_of(&f, &p, &all);
    dropout.parts = 1;
    if (!yk__error_code())
        (void)evaluate(&f, f.order, in, 0, &dropout, true, grads);
}

static void blocks_describe(const void *context, yk__attributes *to)
{
    const family *f = context;
    yk__attribute_real(to, "scale", f->form.scale);
    yk__attribute_whole(to, "causal", f->form.causal);
    yk__attribute_real(to, "dropout_p", f->form.dropout);
}

/* The family's order as a node; its results, which the scope owns, into out[], NULL for what is not wanted. */
static void apply(const family *f, yk_tensor *const *in, yk_tensor **out)
{
    static const yk__op forward = {.name = "scaled_dot_product_attention",
                                   .backward_list = blocks_backward,
                                   .recorded = blocks_recorded,
                                   .describe = blocks_describe},
                        gradient = {.name = "scaled_dot_product_attention_backward",
                                    .backward_list = blocks_backward,
                                    .recorded = blocks_recorded,
                                    .describe = blocks_describe};
    yk_tensor *whole[MOST_INPUTS] = {NULL}, *made[MOST_INPUTS];
    int count = 0, inputs = inputs_of[f->order];
    if (blocks_run(f, in, whole))
        return;
    for (int i = 0; i < results_of(f->order); i++)
        if (whole[i])
            made[count++] = whole[i];
    if (count == 0 ||
        yk__record_list(count, made, f->order ? &gradient : &forward, inputs, in, inputs, in, f, sizeof(*f)))
        return;
    for (int i = 0, k = 0; i < results_of(f->order); i++)
        if (whole[i])
            out[i] = made[k++];
}

yk_tensor *yk__attention_blocks(yk_tensor *const inputs[YK__ATTENTION_INPUTS], const yk__attention *p)
{
    family f = {.form = *p};
    yk_tensor *out = NULL;
    if (p->dropout > 0)
        f.form.stream = yk__random_draw(yk__device_of(inputs[Q]), &f.form.calls);
    apply(&f, inputs, &out);
    return out;
}

void yk__attention_gradients(yk_tensor *const inputs[YK__ATTENTION_INPUTS], yk_tensor *gout, const yk__attention *p,
                             uint32_t wanted, yk_tensor **grads)
{
    family f = {.form = *p, .order = 1, .wide = yk__is_half((yk_dtype)inputs[Q]->dtype), .wanted = {0, wanted}};
    yk_tensor *in[] = {inputs[Q], inputs[K], inputs[V], inputs[MASK], gout};
    apply(&f, in, grads);
}
