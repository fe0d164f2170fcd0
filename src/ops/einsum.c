/*
 * einsum.c - sums of products in Einstein's notation, as matrix products. Layer: ops.
 *
 * Each operand's dimensions get labels. Two operands at a time become one: a label that both have and that is needed
 * later is a batch dimension of a product, one that is not needed is summed by it, what one alone has are its rows or
 * its columns. "..." stands for labels of its own, the same for all operands, counted from the right.
 */
#include <ctype.h>

#include "ops/cast_policy.h"

/* Letters of both cases, then what "..." stands for, from DOTS on: at most every dimension. */
enum { LABELS = 52 + YK_MAX_DIMS, DOTS = 52 };

typedef struct term {
    yk_tensor *x;
    int ndim;
    int8_t label[YK_MAX_DIMS];
} term;

static int label_of(char c)
{
    return c >= 'a' ? c - 'a' + 26 : c - 'A'; /* in alphabetical order, as characters are */
}

/* Reads the labels of one operand, or of the result (x NULL: `dots` dimensions for "..."). */
static yk_status read_labels(const char **at, term *t, yk_tensor *x, int dots)
{
    int letters = 0;
    bool dotted = false;
    const char *p = *at;
    *t = (term){.x = x};
    for (; *p && *p != ',' && *p != '-'; p++)
        letters += isalpha((unsigned char)*p) != 0;
    if (x)
        dots = x->ndim - letters;
    for (p = *at; *p && *p != ',' && *p != '-'; p++) {
        if (*p == ' ')
            continue;
        bool ellipsis = strncmp(p, "...", 3) == 0 && !dotted;
        if (!ellipsis && !isalpha((unsigned char)*p))
            return yk__fail(YK_ERR_ARGUMENT, "einsum: '%c' is no label", *p);
        if (t->ndim + (ellipsis ? dots : 1) > YK_MAX_DIMS || (ellipsis && dots < 0))
            return yk__fail(YK_ERR_SHAPE, "einsum: %d labels for an operand of %d dimensions", letters,
                            x ? x->ndim : dots);
        for (int d = 0; ellipsis && d < dots; d++)
            t->label[t->ndim++] = (int8_t)(DOTS + YK_MAX_DIMS - dots + d);
        if (!ellipsis)
            t->label[t->ndim++] = (int8_t)label_of(*p);
        dotted = dotted || ellipsis;
        p += ellipsis ? 2 : 0;
    }
    if (x && t->ndim != x->ndim) {
        char text[200];
        return yk__fail(YK_ERR_SHAPE, "einsum: %d labels for an operand of shape %s", letters,
                        yk_shape_format(x, text, sizeof(text)));
    }
    *at = p;
    return YK_OK;
}

static int place_of(const term *t, int label)
{
    for (int d = 0; d < t->ndim; d++)
        if (t->label[d] == label)
            return d;
    return -1;
}

/* A label that stands twice in an operand means the diagonal. */
static yk_status extract_diagonals(term *t)
{
    for (int d = 0; d < t->ndim; d++) {
        int other = -1;
        for (int e = d + 1; e < t->ndim && other < 0; e++)
            other = t->label[e] == t->label[d] ? e : -1;
        if (other < 0)
            continue;
        if (t->x->shape[d] != t->x->shape[other])
            return yk__fail(YK_ERR_SHAPE, "einsum: a label stands for dimensions of size %lld and %lld of one operand",
                            (long long)t->x->shape[d], (long long)t->x->shape[other]);
        int8_t label = t->label[d];
        t->x = yk_diagonal(t->x, 0, d, other);
        int n = 0;
        for (int e = 0; e < t->ndim; e++)
            if (e != d && e != other)
                t->label[n++] = t->label[e];
        t->label[n++] = label;
        t->ndim = n;
        if (!t->x)
            return yk__status_of(NULL);
        d = -1;
    }
    return YK_OK;
}

/* Sums over the labels of t that are not needed. */
static yk_status sum_out(term *t, const bool *needed)
{
    int dims[YK_MAX_DIMS], n = 0, kept = 0;
    for (int d = 0; d < t->ndim; d++) {
        if (needed[t->label[d]])
            t->label[kept++] = t->label[d];
        else
            dims[n++] = d;
    }
    if (n) {
        t->x = yk_sum_dims(t->x, dims, n, false);
        t->ndim = kept;
    }
    return yk__status_of(t->x);
}

/* t with the dimensions of labels[] in that order, of the sizes given: (b, rows, columns) by how many labels each has.
 */
static yk_tensor *as_matrices(const term *t, const int8_t *labels, const int counts[3], const int64_t *size)
{
    int dims[YK_MAX_DIMS], n = counts[0] + counts[1] + counts[2];
    int64_t shape[YK_MAX_DIMS], three[3] = {1, 1, 1};
    for (int i = 0, part = 0, in_part = 0; i < n; i++, in_part++) {
        while (in_part == counts[part]) {
            part++;
            in_part = 0;
        }
        dims[i] = place_of(t, labels[i]);
        shape[i] = size[labels[i]];
        three[part] *= shape[i];
    }
    yk_tensor *x = yk_permute(t->x, dims);
    x = x ? yk_expand(x, n, shape) : NULL;
    return x ? yk_reshape(x, 3, three) : NULL;
}

/* a and b become a. */
static yk_status contract(term *a, const term *b, const bool *needed, const int64_t *size)
{
    int8_t in_a[YK_MAX_DIMS], in_b[YK_MAX_DIMS], out[2 * YK_MAX_DIMS];
    int n_a = 0, n_b = 0, n_out = 0, count_a[3] = {0}, count_b[3] = {0};
    for (int pass = 0; pass < 3; pass++) { /* batch, rows of a, summed */
        for (int d = 0; d < a->ndim; d++) {
            int label = a->label[d];
            bool both = place_of(b, label) >= 0, wanted = needed[label];
            if (pass == (both && wanted ? 0 : both ? 2 : 1)) {
                in_a[n_a++] = (int8_t)label;
                count_a[pass]++;
                if (pass < 2)
                    out[n_out++] = (int8_t)label;
            }
        }
    }
    for (int i = 0; i < count_a[0]; i++)
        in_b[n_b++] = in_a[i];
    for (int i = n_a - count_a[2]; i < n_a; i++)
        in_b[n_b++] = in_a[i];
    count_b[0] = count_a[0];
    count_b[1] = count_a[2];
    for (int d = 0; d < b->ndim; d++) {
        if (place_of(a, b->label[d]) < 0) {
            in_b[n_b++] = b->label[d];
            count_b[2]++;
            out[n_out++] = b->label[d];
        }
    }
    if (n_out > YK_MAX_DIMS)
        return yk__fail(YK_ERR_SHAPE, "einsum: a product on the way has %d dimensions; a tensor has at most %d", n_out,
                        YK_MAX_DIMS);
    yk_tensor *left = as_matrices(a, in_a, count_a, size), *right = as_matrices(b, in_b, count_b, size);
    /* Without a label to sum over the product is elementwise: of any dtypes, and not for autocast. */
    yk_tensor *product = !left || !right ? NULL : count_a[2] ? yk_matmul(left, right) : yk_mul(left, right);
    int64_t shape[YK_MAX_DIMS];
    for (int i = 0; i < n_out; i++)
        shape[i] = size[out[i]];
    a->x = product ? yk_reshape(product, n_out, shape) : NULL;
    a->ndim = n_out;
    memcpy(a->label, out, (size_t)n_out);
    return yk__status_of(a->x);
}

static yk_status parse(const char *equation, yk_tensor *const *xs, int count, term *terms, term *out)
{
    const char *p = equation;
    int seen[LABELS] = {0}, dots = 0;
    for (int i = 0; i < count; i++) {
        if (read_labels(&p, &terms[i], xs[i], 0))
            return yk__status_of(NULL);
        for (int d = 0; d < terms[i].ndim; d++)
            seen[terms[i].label[d]]++;
        bool last = i + 1 == count;
        if (last != (*p != ','))
            return yk__fail(YK_ERR_ARGUMENT, "einsum: \"%s\" is not of %d operands", equation, count);
        p += !last;
    }
    for (int d = 0; d < YK_MAX_DIMS; d++)
        dots += seen[DOTS + d] != 0;
    if (*p == '-') {
        if (p[1] != '>')
            return yk__fail(YK_ERR_ARGUMENT, "einsum: \"%s\": '-' without '>'", equation);
        p += 2;
        if (read_labels(&p, out, NULL, dots))
            return yk__status_of(NULL);
        if (*p)
            return yk__fail(YK_ERR_ARGUMENT, "einsum: \"%s\" goes on behind its result", equation);
    } else {
        *out = (term){0};
        for (int i = 0; i < LABELS; i++) { /* "..." first */
            int label = i < YK_MAX_DIMS ? DOTS + i : i - YK_MAX_DIMS;
            if (label >= DOTS ? seen[label] : seen[label] == 1) {
                if (out->ndim == YK_MAX_DIMS)
                    return yk__fail(YK_ERR_SHAPE, "einsum: the result has more than %d dimensions", YK_MAX_DIMS);
                out->label[out->ndim++] = (int8_t)label;
            }
        }
    }
    for (int d = 0; d < out->ndim; d++) {
        term rest = *out;
        rest.label[d] = -1;
        if (!seen[out->label[d]] || place_of(&rest, out->label[d]) >= 0)
            return yk__fail(YK_ERR_ARGUMENT, "einsum: \"%s\": a label of the result stands %s", equation,
                            seen[out->label[d]] ? "there twice" : "in no operand");
    }
    return YK_OK;
}

enum { MOST = 16 }; /* operands */

static yk_tensor *sum_of_products(const char *equation, yk_tensor *const *xs, int count)
{
    term terms[MOST], out;
    int64_t size[LABELS];
    if (count < 1 || count > MOST) {
        yk__fail(YK_ERR_ARGUMENT, "einsum: %d operands, expected 1 to %d", count, MOST);
        return NULL;
    }
    if (parse(equation, xs, count, terms, &out))
        return NULL;
    for (int i = 0; i < LABELS; i++)
        size[i] = 1;
    for (int i = 0; i < count; i++) {
        if (extract_diagonals(&terms[i]))
            return NULL;
        for (int d = 0; d < terms[i].ndim; d++) {
            int64_t *known = &size[terms[i].label[d]], own = terms[i].x->shape[d];
            if (own != *known && own != 1 && *known != 1) {
                yk__fail(YK_ERR_SHAPE, "einsum: operand %d of \"%s\" has size %lld where another has %lld", i, equation,
                         (long long)own, (long long)*known);
                return NULL;
            }
            *known = own != 1 ? own : *known;
        }
    }
    for (int i = 0; i < count; i++) {
        bool needed[LABELS] = {false};
        for (int d = 0; d < out.ndim; d++)
            needed[out.label[d]] = true;
        for (int j = i + 1; j < count; j++)
            for (int d = 0; d < terms[j].ndim; d++)
                needed[terms[j].label[d]] = true;
        bool contracts = i > 0;
        if (contracts) {
            bool elsewhere[LABELS];
            memcpy(elsewhere, needed, sizeof(elsewhere));
            for (int d = 0; d < terms[0].ndim; d++)
                elsewhere[terms[0].label[d]] = true;
            if (sum_out(&terms[i], elsewhere) || contract(&terms[0], &terms[i], needed, size))
                return NULL;
        }
        if (sum_out(&terms[0], needed))
            return NULL;
    }
    int dims[YK_MAX_DIMS];
    for (int d = 0; d < out.ndim; d++)
        dims[d] = place_of(&terms[0], out.label[d]);
    yk_tensor *x = yk_permute(terms[0].x, dims);
    return x && x->storage == xs[0]->storage ? yk_clone(x) : x;
}

yk_tensor *yk_einsum(const char *equation, yk_tensor *const *xs, int count)
{
    if (!equation || !xs || count < 1) {
        yk__fail(YK_ERR_ARGUMENT, "einsum: %s", !equation ? "the equation is NULL" : "there are no operands");
        return NULL;
    }
    if (__builtin_expect(yk__autocast_types != 0, 0) && count <= MOST) {
        yk_tensor *inputs[MOST];
        memcpy(inputs, xs, sizeof(*xs) * (size_t)count);
        YK__AUTOCAST(einsum, count, inputs, yk_einsum(equation, inputs, count));
    }
    YK__EVENT(YK__EVENT_OPERATION, "einsum");
    if (!yk__op_begin("einsum", count, xs, 0))
        return NULL;
    yk_scope scope = yk_scope_begin(); /* not YK__WITHIN_SCOPE: matmul is cast */
    yk_tensor *out = sum_of_products(equation, xs, count);
    out = out ? yk_scope_return(scope, out) : NULL;
    yk_scope_end(scope);
    return out;
}
