/*
 * init_matrix.c - initial values that are no independent draws of one distribution: truncated normal, orthogonal,
 * identity, sparse. Layer: nn.
 *
 * All are computed by the host in f64 from numbers that the CPU draws, so they are the same on every device, and then
 * copied to the tensor, rounded.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nn/module.h"
#include "tensor/tensor.h"

static yk_status check_tensor(const char *what, const yk_tensor *x, int least, int most)
{
    char text[200];
    if (!x)
        return yk__error_code() ? yk__error_code() : yk__fail(YK_ERR_ARGUMENT, "%s: the tensor is NULL", what);
    if (!yk_dtype_is_floating((yk_dtype)x->dtype))
        return yk__fail(YK_ERR_DTYPE, "%s: expected a floating tensor, this one is %s", what,
                        yk_dtype_name((yk_dtype)x->dtype));
    if (x->ndim >= least && x->ndim <= most)
        return YK_OK;
    yk_shape_format(x, text, sizeof(text));
    return least == most ? yk__fail(YK_ERR_SHAPE, "%s: shape %s, expected %d dimensions", what, text, least)
           : most == YK_MAX_DIMS
               ? yk__fail(YK_ERR_SHAPE, "%s: shape %s, expected at least %d dimensions", what, text, least)
               : yk__fail(YK_ERR_SHAPE, "%s: shape %s, expected %d to %d dimensions", what, text, least, most);
}

/* f64 in the host's memory, of this shape in C order; one reference. */
static yk_tensor *host_tensor(int ndim, const int64_t *shape)
{
    return yk__tensor_new(ndim, shape, NULL, YK_F64, (yk_device){YK_CPU, 0});
}

static double *numbers_of(const yk_tensor *host)
{
    return host->data;
}

/* Copies what was computed to x, and drops it. */
static yk_status hand_over(yk_tensor *x, yk_tensor *host, yk_status status)
{
    if (!status)
        status = yk__raw_copy(x, host);
    if (!status)
        yk__bump_version(x);
    yk_tensor_release(host);
    return status;
}

/* ---- truncated normal -------------------------------------------------------------------------------------------- */

static double normal_cdf(double z)
{
    return erfc(-z / sqrt(2)) / 2;
}

/*
 * Numbers are proposed until one is accepted, for all that are left at once. Where enough of the distribution is
 * inside, a normal number is accepted if it is; else one that is uniform in [a, b] is accepted as often as the density
 * there is of its peak. Parts of [a, b] where that is below e^-40, less than any random number, are left out.
 */
typedef struct truncation {
    double mean, deviation, a, b, peak; /* peak: the exponent of the largest density in [a, b] */
    bool normal;
} truncation;

static yk_status propose(const truncation *t, yk_tensor *proposals, yk_tensor *chances)
{
    if (t->normal)
        return yk_init_normal(proposals, t->mean, t->deviation);
    yk_status status = yk_init_uniform(proposals, t->a, t->b);
    return status ? status : yk_init_uniform(chances, 0, 1);
}

static bool accepts(const truncation *t, double x, double chance)
{
    if (t->normal)
        return x >= t->a && x <= t->b;
    double z = (x - t->mean) / t->deviation;
    return log(chance) <= -0.5 * z * z - t->peak;
}

/* One round for the `left` numbers with these indices; those that remain are moved to the front. */
static yk_status truncate_round(const truncation *t, double *to, int64_t *pending, int64_t *left)
{
    int64_t count = *left;
    yk_tensor *proposals = host_tensor(1, &count), *chances = proposals ? host_tensor(1, &count) : NULL;
    yk_status status = chances ? propose(t, proposals, chances) : yk__error_code();
    *left = 0;
    for (int64_t i = 0; i < count && !status; i++) {
        double x = numbers_of(proposals)[i];
        if (accepts(t, x, t->normal ? 0 : numbers_of(chances)[i]))
            to[pending[i]] = fmax(t->a, fmin(t->b, x));
        else
            pending[(*left)++] = pending[i];
    }
    yk_tensor_release(proposals);
    yk_tensor_release(chances);
    return status;
}

yk_status yk_init_trunc_normal(yk_tensor *x, double mean, double deviation, double a, double b)
{
    static const char what[] = "init_trunc_normal";
    YK__LIVE(x);
    yk_status status = check_tensor(what, x, 0, YK_MAX_DIMS);
    if (!status)
        status = yk__check_number(what, "mean", mean, -DBL_MAX, DBL_MAX);
    if (!status)
        status = yk__check_positive(what, "deviation", deviation);
    if (!status)
        status = yk__check_number(what, "a", a, -DBL_MAX, DBL_MAX);
    if (!status)
        status = yk__check_number(what, "b", b, a, DBL_MAX);
    if (status || x->numel == 0)
        return status;
    if (a == b)
        return yk_init_constant(x, a);
    truncation t = {.mean = mean, .deviation = deviation, .a = a, .b = b};
    t.normal = normal_cdf((b - mean) / deviation) - normal_cdf((a - mean) / deviation) > 0.3;
    if (!t.normal) {
        double z = (fmax(a, fmin(mean, b)) - mean) / deviation, reach = sqrt(z * z + 80) * deviation;
        t.peak = -0.5 * z * z;
        t.a = fmax(a, mean - reach);
        t.b = fmin(b, mean + reach);
    }
    yk_tensor *host = host_tensor(x->ndim, x->shape);
    int64_t left = x->numel, *pending = host ? yk__calloc((size_t)left, sizeof(*pending)) : NULL;
    status = pending ? YK_OK : yk__error_code();
    for (int64_t i = 0; pending && i < left; i++)
        pending[i] = i;
    while (!status && left)
        status = truncate_round(&t, numbers_of(host), pending, &left);
    free(pending);
    return hand_over(x, host, status);
}

/* ---- orthogonal -------------------------------------------------------------------------------------------------- */

/*
 * Makes `count` vectors of `size` numbers orthonormal, one after another, by taking away what lies along those before:
 * twice, after which no more than rounding is left. Each keeps a positive part along itself, so these are the columns
 * of the Q whose R has a positive diagonal. Source: Giraud, Langou and Rozloznik, 2005.
 */
static void orthonormalise(double *vectors, int64_t count, int64_t size)
{
    for (int64_t j = 0; j < count; j++) {
        double *v = vectors + j * size, square = 0;
        for (int64_t pair = 0; pair < 2 * j; pair++) {
            const double *q = vectors + pair % j * size;
            double along = 0;
            for (int64_t i = 0; i < size; i++)
                along += q[i] * v[i];
            for (int64_t i = 0; i < size; i++)
                v[i] -= along * q[i];
        }
        for (int64_t i = 0; i < size; i++)
            square += v[i] * v[i];
        for (int64_t i = 0; i < size && square > 0; i++)
            v[i] /= sqrt(square);
    }
}

/* Writes `from`, (rows, columns), to `to`, (columns, rows). */
static void transpose(const double *from, double *to, int64_t rows, int64_t columns)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++)
            to[c * rows + r] = from[r * columns + c];
}

yk_status yk_init_orthogonal(yk_tensor *x, double gain)
{
    static const char what[] = "init_orthogonal";
    YK__LIVE(x);
    yk_status status = check_tensor(what, x, 2, YK_MAX_DIMS);
    if (!status)
        status = yk__check_number(what, "gain", gain, -DBL_MAX, DBL_MAX);
    if (status || x->numel == 0)
        return status;
    int64_t rows = x->shape[0], columns = x->numel / rows;
    yk_tensor *host = host_tensor(x->ndim, x->shape);
    status = host ? yk_init_normal(host, 0, 1) : yk__error_code();
    double *turned = !status && rows >= columns ? yk__calloc((size_t)x->numel, sizeof(*turned)) : NULL;
    if (!status && rows >= columns && !turned)
        status = YK_ERR_MEMORY;
    if (turned) { /* the columns are the vectors */
        transpose(numbers_of(host), turned, rows, columns);
        orthonormalise(turned, columns, rows);
        transpose(turned, numbers_of(host), columns, rows);
    } else if (!status) {
        orthonormalise(numbers_of(host), rows, columns);
    }
    for (int64_t i = 0; i < x->numel && !status; i++)
        numbers_of(host)[i] *= gain;
    free(turned);
    return hand_over(x, host, status);
}

/* ---- identities -------------------------------------------------------------------------------------------------- */

yk_status yk_init_eye(yk_tensor *x)
{
    YK__LIVE(x);
    yk_status status = check_tensor("init_eye", x, 2, 2);
    if (status || x->numel == 0)
        return status;
    yk_tensor *host = host_tensor(2, x->shape);
    if (!host)
        return yk__error_code();
    memset(numbers_of(host), 0, (size_t)x->numel * sizeof(double));
    for (int64_t i = 0; i < x->shape[0] && i < x->shape[1]; i++)
        numbers_of(host)[i * x->shape[1] + i] = 1;
    return hand_over(x, host, YK_OK);
}

yk_status yk_init_dirac(yk_tensor *x, int64_t groups)
{
    static const char what[] = "init_dirac";
    YK__LIVE(x);
    yk_status status = check_tensor(what, x, 3, 5);
    if (!status)
        status = yk__check_integer(what, "groups", groups, 1, INT64_MAX);
    if (!status && x->shape[0] % groups)
        status = yk__fail(YK_ERR_SHAPE, "%s: %lld channels are not a multiple of %lld groups", what,
                          (long long)x->shape[0], (long long)groups);
    if (status || x->numel == 0)
        return status;
    yk_tensor *host = host_tensor(x->ndim, x->shape);
    if (!host)
        return yk__error_code();
    memset(numbers_of(host), 0, (size_t)x->numel * sizeof(double));
    int64_t in = x->shape[1], per_group = x->shape[0] / groups, field = 1, middle = 0;
    for (int d = 2; d < x->ndim; d++) {
        field *= x->shape[d];
        middle = middle * x->shape[d] + x->shape[d] / 2;
    }
    for (int64_t out = 0; out < x->shape[0]; out++)
        if (out % per_group < in)
            numbers_of(host)[(out * in + out % per_group) * field + middle] = 1;
    return hand_over(x, host, YK_OK);
}

/* ---- sparse ------------------------------------------------------------------------------------------------------ */

typedef struct keyed_row {
    double key;
    int64_t row;
} keyed_row;

static int compare_keys(const void *a, const void *b)
{
    const keyed_row *p = a, *q = b;
    return p->key < q->key ? -1 : p->key > q->key ? 1 : p->row < q->row ? -1 : p->row > q->row;
}

/* Sets `zeros` rows of each column to 0: those with the least of as many random numbers as there are rows. */
static yk_status clear_rows(double *numbers, int64_t rows, int64_t columns, int64_t zeros)
{
    yk_tensor *keys = host_tensor(2, (int64_t[]){columns, rows});
    keyed_row *order = keys ? yk__calloc((size_t)rows, sizeof(*order)) : NULL;
    yk_status status = order ? yk_init_uniform(keys, 0, 1) : yk__error_code();
    for (int64_t c = 0; c < columns && !status; c++) {
        for (int64_t r = 0; r < rows; r++)
            order[r] = (keyed_row){numbers_of(keys)[c * rows + r], r};
        qsort(order, (size_t)rows, sizeof(*order), compare_keys);
        for (int64_t i = 0; i < zeros; i++)
            numbers[order[i].row * columns + c] = 0;
    }
    free(order);
    yk_tensor_release(keys);
    return status;
}

yk_status yk_init_sparse(yk_tensor *x, double sparsity, double deviation)
{
    static const char what[] = "init_sparse";
    YK__LIVE(x);
    yk_status status = check_tensor(what, x, 2, 2);
    if (!status)
        status = yk__check_number(what, "sparsity", sparsity, 0, 1);
    if (!status)
        status = yk__check_number(what, "deviation", deviation, 0, DBL_MAX);
    if (status || x->numel == 0)
        return status;
    yk_tensor *host = host_tensor(2, x->shape);
    status = host ? yk_init_normal(host, 0, deviation) : yk__error_code();
    if (!status)
        status = clear_rows(numbers_of(host), x->shape[0], x->shape[1], (int64_t)ceil(sparsity * (double)x->shape[0]));
    return hand_over(x, host, status);
}
