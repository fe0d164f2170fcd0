/*
 * sync_batch_norm.c - batch normalisation over the joined batch of all ranks. Layer: parallel.
 *
 * Forward: every rank takes count, mean and variance of its own part; the parts' are gathered and combined in f64, in
 * the order of ranks (Chan et al., 1979):  n = sum n_r,  mean = sum n_r mean_r / n,
 * var = sum n_r (var_r + (mean_r - mean)^2) / n.  Then it is the kernel of evaluation mode with these statistics.
 *
 * Backward, with xhat = (x - mean) invstd and sums over the joined batch:
 *     gx = weight invstd (g - sum(g) / n - xhat sum(g xhat) / n)
 * The kernel of evaluation mode gives weight invstd g and this rank's sums, which are the gradients of bias and weight
 * and, added over the ranks, the sums above; one more forward kernel adds the two other terms. The parameters'
 * gradients stay this rank's own: averaging them is DistributedDataParallel's.
 */
#include <stdlib.h>
#include <string.h>

#include "base/events.h"
#include "comm/agreement.h"
#include "comm/group.h"
#include "host/rank_info.h"
#include "nn/module.h"
#include "ops/op.h"
#include "parallel/reducer.h"
#include "tensor/host_tensor.h"

enum { X, WEIGHT, BIAS, RESIDUAL, DIFFERENTIABLE };

typedef struct sync_context {
    yk__batch_norm p;
    bool has_residual;
    int8_t parameter_dtype;
    yk__tensor_spec x;
    double count;            /* values per channel in all ranks together */
    yk_process_group *group; /* a reference */
} sync_context;

static _Thread_local double waited;

double yk__sync_waited(void)
{
    return waited;
}

static void sync_clear(void *context)
{
    sync_context *c = context;
    yk_process_group_release(c->group);
    c->group = NULL;
}

/* Reads a vector into f64 numbers of the host. */
static yk_status read_vector(const yk_tensor *x, int64_t n, double *out)
{
    yk_tensor *wide = yk__raw_cast((yk_tensor *)(uintptr_t)x, YK_F64);
    yk_status status = wide ? yk__tensor_read("batch_norm", wide, out, (size_t)n * sizeof(double)) : yk__error_code();
    yk_tensor_release(wide);
    return status;
}

/* A tensor of the host's f64 numbers, in a dtype and on a device. */
static yk_tensor *write_vector(const double *values, int64_t n, yk_dtype dtype, yk_device device)
{
    yk_tensor *host = yk__tensor_new(1, &n, NULL, YK_F64, (yk_device){0});
    if (!host)
        return NULL;
    memcpy(host->data, values, (size_t)n * sizeof(double));
    yk_tensor *cast = yk__raw_cast(host, dtype), *out = cast ? yk__raw_to(cast, device) : NULL;
    yk_tensor_release(host);
    yk_tensor_release(cast);
    return out;
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

/* sums: (2 C) f64, of g and of g xhat; this rank's become everybody's. */
static yk_status add_sums(const sync_context *c, const yk_tensor *gbias, const yk_tensor *gweight, double *sums)
{
    int64_t channels = c->x.shape[1], both = 2 * channels;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = yk__scope_own(yk__host_zeros(1, &both, YK_F64));
    double *own = x ? x->data : NULL;
    yk_status status = x ? read_vector(gbias, channels, own) : yk__error_code();
    if (!status)
        status = read_vector(gweight, channels, own + channels);
    double began = yk__now();
    if (!status)
        status = YK__HOST_TENSORS(yk_all_reduce(x, YK_OP_SUM, c->group));
    waited += yk__now() - began;
    if (!status)
        memcpy(sums, own, (size_t)both * sizeof(double));
    yk_scope_end(scope);
    return status;
}

/* gx += -weight invstd (sum(g) + xhat sum(g xhat)) / n; a new tensor. */
static yk_tensor *add_terms(const sync_context *c, yk_tensor *gx, yk_tensor *x, const yk_tensor *weight,
                            const yk_tensor *mean, const yk_tensor *invstd, const double *sums)
{
    int64_t channels = c->x.shape[1];
    yk_dtype dtype = (yk_dtype)x->dtype;
    yk_device device = yk__device_of(x);
    double *v = yk__calloc((size_t)channels * 4 + 1, sizeof(*v));
    yk_tensor *scale = NULL, *shift = NULL, *var = NULL, *out = NULL, *scratch[2] = {NULL};
    yk_status status = v ? YK_OK : YK_ERR_MEMORY;
    double *w = v, *inv = v + channels, *a = v + 2 * channels, *b = v + 3 * channels;
    if (!status && weight)
        status = read_vector(weight, channels, w);
    if (!status)
        status = read_vector(invstd, channels, inv);
    for (int64_t i = 0; i < channels && !status; i++) {
        double factor = -(weight ? w[i] : 1) * inv[i] / c->count;
        b[i] = factor * sums[i];
        a[i] = factor * sums[channels + i];
        w[i] = 1 / (inv[i] * inv[i]) - c->p.eps; /* the variance again */
    }
    if (!status) {
        scale = write_vector(a, channels, dtype, device);
        shift = write_vector(b, channels, dtype, device);
        var = write_vector(w, channels, dtype, device);
        out = yk__spec_new(&c->x, device);
        for (int i = 0; i < 2; i++)
            scratch[i] = yk__tensor_new(1, &channels, NULL, dtype, device);
        status = scale && shift && var && out && scratch[0] && scratch[1] ? YK_OK : yk__status_of(NULL);
    }
    if (!status) {
        yk__batch_norm p = {.momentum = 0, .eps = c->p.eps};
        yk__view vo = yk__view_of(out), vm = yk__view_of(scratch[0]), vi = yk__view_of(scratch[1]), vx = yk__view_of(x),
                 vg = yk__view_of(gx), vs = yk__view_of(scale), vh = yk__view_of(shift), vmean = yk__view_of(mean),
                 vvar = yk__view_of(var);
        status = YK__SLOT(x, batch_norm, &p, &vo, &vm, &vi, &vx, &vg, &vs, &vh, &vmean, &vvar);
    }
    yk_tensor *done[5] = {scale, shift, var, scratch[0], scratch[1]};
    yk__release_all(5, done);
    free(v);
    return yk__tensor_if_ok(out, status);
}

static yk_status local_gradients(const sync_context *c, yk_tensor *const *in, yk_tensor **made)
{
    enum { G, SAVED_X, SAVED_WEIGHT, MEAN, INVSTD, OUT, READ };
    yk_status status = YK_OK;
    if (!in[SAVED_X]->numel) {
        for (int i = 0; i < DIFFERENTIABLE && !status; i++)
            status = made[i] ? yk__raw_fill(made[i], 0) : YK_OK;
        return status;
    }
    yk__view v[READ], m[DIFFERENTIABLE];
    const yk__view *read[READ], *write[DIFFERENTIABLE];
    for (int i = 0; i < READ; i++)
        read[i] = yk__optional_view(&v[i], in[i]);
    for (int i = 0; i < DIFFERENTIABLE; i++)
        write[i] = yk__optional_view(&m[i], made[i]);
    return YK__SLOT(in[G], batch_norm_backward, &c->p, write[X], write[RESIDUAL], write[WEIGHT], write[BIAS], read[G],
                    NULL, read[SAVED_X], read[OUT], read[SAVED_WEIGHT], read[MEAN], read[INVSTD]);
}

static yk_status sync_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    enum { G, SAVED_X, SAVED_WEIGHT, MEAN, INVSTD, OUT, READ };
    const sync_context *c = yk__context(node);
    yk_status status = YK_OK;
    yk_tensor *from[READ] = {gout}, *in[READ], *made[DIFFERENTIABLE] = {NULL};
    for (int i = 1; i < READ; i++)
        from[i] = yk__saved(node, i - 1, &status);
    if (status || (status = yk__operands(YK__SLOT_batch_norm, 0, READ, from, in)))
        return status;
    yk_device device = yk__device_of(gout);
    yk_dtype dtype = (yk_dtype)in[SAVED_X]->dtype;
    int64_t channels = c->x.shape[1];
    double *sums = yk__calloc(2 * (size_t)channels, sizeof(*sums));
    /* All of them whatever is wanted: the ranks must do the same, and the sums are needed for gx. */
    made[X] = yk__spec_new(&c->x, device);
    made[WEIGHT] = yk__gradient_vector(node, WEIGHT, channels, dtype, device);
    made[BIAS] = yk__gradient_vector(node, BIAS, channels, dtype, device);
    made[RESIDUAL] = yk__needs_grad(node, RESIDUAL) && c->p.relu ? yk__spec_new(&c->x, device) : NULL;
    if (!sums || !made[X] || !made[WEIGHT] || !made[BIAS])
        status = yk__status_of(NULL);
    if (!status)
        status = local_gradients(c, in, made);
    if (!status)
        status = add_sums(c, made[BIAS], made[WEIGHT], sums);
    if (!status && yk__needs_grad(node, X) && made[X]->numel) {
        yk_tensor *gx = add_terms(c, made[X], in[SAVED_X], in[SAVED_WEIGHT], in[MEAN], in[INVSTD], sums);
        yk_tensor_release(made[X]);
        made[X] = gx;
        status = yk__status_of(gx);
    }
    free(sums);
    yk__release_all(READ, in);
    for (int i = 0; i < DIFFERENTIABLE; i++) {
        if (status || !yk__needs_grad(node, i)) {
            yk_tensor_release(made[i]);
            continue;
        }
        bool parameter = i == WEIGHT || i == BIAS, there = made[i] != NULL;
        grads[i] = yk__narrow_to(made[i], parameter ? (yk_dtype)c->parameter_dtype : (yk_dtype)gout->dtype);
        if (there)
            status = yk__status_of(grads[i]);
    }
    if (!status && c->has_residual && !c->p.relu && yk__needs_grad(node, RESIDUAL))
        grads[RESIDUAL] = yk_tensor_retain(gout);
    return status;
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

/* Count, mean and variance of the joined batch; mean and var have room for C numbers each. */
static yk_status joined_statistics(yk_tensor *x, yk_process_group *group, double *count, double *mean, double *var)
{
    int64_t channels = x->shape[1], row = 2 * channels + 1;
    int world_size = yk_world_size(group);
    double *own = yk__calloc((size_t)row * (size_t)(world_size + 1), sizeof(*own)), *all = own + row;
    yk_status status = own ? YK_OK : YK_ERR_MEMORY;
    if (!status && x->numel) {
        uint32_t all_but_channels = ((1u << x->ndim) - 1) & ~2u;
        yk_tensor *m = yk__raw_reduce("sync_batch_norm", YK__MEAN, x, all_but_channels, false, 0);
        yk_tensor *v = yk__raw_reduce("sync_batch_norm", YK__VAR, x, all_but_channels, false, 0);
        own[0] = (double)(x->numel / channels);
        status = m && v ? read_vector(m, channels, own + 1) : yk__status_of(NULL);
        if (!status)
            status = read_vector(v, channels, own + 1 + channels);
        yk_tensor_release(m);
        yk_tensor_release(v);
    }
    double began = yk__now();
    if (!status)
        status = yk__gather_bytes(own, all, (size_t)row * sizeof(*own), group);
    waited += yk__now() - began;
    *count = 0;
    for (int r = 0; r < world_size && !status; r++)
        *count += all[r * row];
    for (int64_t c = 0; c < channels && !status && *count > 0; c++) {
        mean[c] = var[c] = 0;
        for (int r = 0; r < world_size; r++)
            mean[c] += all[r * row] * all[r * row + 1 + c] / *count;
        for (int r = 0; r < world_size; r++) {
            double from = all[r * row + 1 + c] - mean[c];
            var[c] += all[r * row] * (all[r * row + 1 + channels + c] + from * from) / *count;
        }
    }
    free(own);
    return status;
}

/* running += momentum (value - running) */
static yk_status move_running(yk_tensor *running, const double *values, double factor, double momentum, int64_t n)
{
    double *now = yk__calloc((size_t)n, sizeof(*now));
    yk_status status = now ? read_vector(running, n, now) : YK_ERR_MEMORY;
    for (int64_t i = 0; i < n && !status; i++)
        now[i] += momentum * (values[i] * factor - now[i]);
    yk_tensor *moved = status ? NULL : write_vector(now, n, (yk_dtype)running->dtype, yk__device_of(running));
    free(now);
    if (!status)
        status = moved ? yk__raw_copy(running, moved) : yk__error_code();
    yk__bump_version(running);
    yk_tensor_release(moved);
    return status;
}

static yk_status normalise(const sync_context *c, yk_tensor *const *wide, const double *mean, const double *var,
                           yk_tensor **out, yk_tensor **saved_mean, yk_tensor **invstd)
{
    yk_tensor *x = wide[X];
    yk_dtype dtype = (yk_dtype)x->dtype;
    yk_device device = yk__device_of(x);
    int64_t channels = x->shape[1];
    yk_tensor *m = write_vector(mean, channels, dtype, device), *v = write_vector(var, channels, dtype, device);
    *out = yk__tensor_like(x, dtype);
    *saved_mean = yk__tensor_new(1, &channels, NULL, dtype, device);
    *invstd = yk__tensor_new(1, &channels, NULL, dtype, device);
    yk_status status = m && v && *out && *saved_mean && *invstd ? YK_OK : yk__status_of(NULL);
    if (!status && !x->numel) {
        status = yk__raw_copy(*saved_mean, m);
        if (!status)
            status = yk__raw_fill(*invstd, 1); /* nothing is scaled by it */
    } else if (!status) {
        yk__view vo = yk__view_of(*out), vs = yk__view_of(*saved_mean), vi = yk__view_of(*invstd), vm = yk__view_of(m),
                 vv = yk__view_of(v), in[DIFFERENTIABLE];
        const yk__view *read[DIFFERENTIABLE];
        for (int i = 0; i < DIFFERENTIABLE; i++)
            read[i] = yk__optional_view(&in[i], wide[i]);
        status =
            YK__SLOT(x, batch_norm, &c->p, &vo, &vs, &vi, read[X], read[RESIDUAL], read[WEIGHT], read[BIAS], &vm, &vv);
    }
    yk_tensor_release(m);
    yk_tensor_release(v);
    return status;
}

/* Instead of yk_batch_norm in training, in a BatchNorm2d, which has checked x's shape. */
static yk_tensor *sync_batch_norm(yk_tensor *x, yk_tensor *weight, yk_tensor *bias, yk_tensor *running_mean,
                                  yk_tensor *running_var, const yk_batch_norm_options *o, void *group)
{
    static const yk__op op = {.name = "sync_batch_norm", .backward = sync_backward, .clear = sync_clear};
    yk_tensor *in[DIFFERENTIABLE] = {x, weight, bias, o->residual}, *wide[DIFFERENTIABLE] = {NULL};
    char a[200], b[200];
    YK__EVENT(YK__EVENT_OPERATION, "sync_batch_norm");
    if (!yk__op_begin("sync_batch_norm", DIFFERENTIABLE, in, ~1u) || yk__expect_floating("sync_batch_norm", "input", x))
        return NULL;
    if (o->residual && (!yk_same_shape(o->residual, x) || o->residual->dtype != x->dtype)) {
        yk__fail(YK_ERR_SHAPE, "sync_batch_norm: residual is %s, expected the input's %s",
                 yk_shape_format(o->residual, a, sizeof(a)), yk_shape_format(x, b, sizeof(b)));
        return NULL;
    }
    if (weight && weight->dtype != x->dtype && yk__expect_dtype("sync_batch_norm", "weight", weight, yk__wide_dtype(x)))
        return NULL;
    int64_t channels = x->shape[1];
    sync_context c = {.p = {.momentum = o->momentum, .eps = o->eps, .relu = o->relu},
                      .has_residual = o->residual != NULL};
    yk_tensor *out = NULL, *mean = NULL, *invstd = NULL;
    double *m = yk__calloc(2 * (size_t)channels, sizeof(*m)), *v = m + channels;
    yk_status status = m ? yk__operands(YK__SLOT_batch_norm, 0, DIFFERENTIABLE, in, wide) : YK_ERR_MEMORY;
    if (!status)
        status = joined_statistics(wide[X], group, &c.count, m, v);
    if (!status && c.count == 1)
        status = yk__fail(YK_ERR_SHAPE,
                          "sync_batch_norm: expected more than 1 value per channel when training, all ranks "
                          "together have %g; this one's input is %s",
                          c.count, yk_shape_format(x, a, sizeof(a)));
    if (!status && running_mean && c.count > 0) /* no rank has anything: there is nothing to move them by */
        status = move_running(running_mean, m, 1, c.p.momentum, channels);
    if (!status && running_var && c.count > 0)
        status = move_running(running_var, v, c.count / (c.count - 1), c.p.momentum, channels);
    if (!status)
        status = normalise(&c, wide, m, v, &out, &mean, &invstd);
    free(m);
    if (!status) {
        c.parameter_dtype = weight ? weight->dtype : bias ? bias->dtype : x->dtype;
        c.x = yk__spec_of(x);
        c.x.dtype = wide[X]->dtype;
    }
    yk__release_all(DIFFERENTIABLE, wide);
    out = yk__narrow_to(yk__tensor_if_ok(out, status), (yk_dtype)x->dtype);
    c.group = yk_process_group_retain(group);
    yk_tensor *saved[5] = {x, weight, mean, invstd, o->relu ? out : NULL};
    out = yk__record(out, &op, DIFFERENTIABLE, in, 5, saved, &c, sizeof(c));
    yk_tensor_release(mean);
    yk_tensor_release(invstd);
    return out;
}

/* ---- modules ----------------------------------------------------------------------------------------------------- */

static yk_status convert(yk_module *m, void *group)
{
    if (yk__is_batch_norm(m))
        yk__batch_norm_convert(m, sync_batch_norm, group);
    return YK_OK;
}

yk_module *yk_convert_sync_batch_norm(yk_module *m, yk_process_group *group)
{
    YK__LIVE(m);
    if (yk__is_freed(group)) {
        yk__fail_freed(__func__, group);
        return NULL;
    }
    if (!yk__module_usable("convert_sync_batch_norm", m))
        return NULL;
    int virtual_ranks;
    if (yk__virtual_ranks_read(&virtual_ranks))
        return NULL;
    if (virtual_ranks > 1) {
        yk__fail(YK_ERR_UNSUPPORTED,
                 "convert_sync_batch_norm: SyncBatchNorm communicates inside forward, where virtual ranks "
                 "(YOKE_VIRTUAL_RANKS=%d) come one after the other; leave it out, or start without virtual ranks",
                 virtual_ranks);
        return NULL;
    }
    if (!group && yk__group_expected("convert_sync_batch_norm"))
        return NULL;
    if (!group && yk_is_initialized())
        group = yk_default_process_group();
    if (!group || yk_world_size(group) == 1)
        return m;
    if (yk_rank(group) < 0) {
        yk__fail(YK_ERR_STATE, "convert_sync_batch_norm: this rank is not in the group '%s'",
                 yk_process_group_name(group));
        return NULL;
    }
    return yk_module_apply(m, convert, group) ? NULL : m;
}

yk_module *yk_sync_batch_norm2d_create(int64_t features, const yk_batch_norm2d_options *options,
                                       yk_process_group *group)
{
    return yk_convert_sync_batch_norm(yk_batch_norm2d_create(features, options), group);
}

static yk_status batch_norm_find(yk_module *m, void *found)
{
    *(bool *)found |= yk__is_sync_batch_norm(m);
    return YK_OK;
}

bool yk__has_sync_batch_norm(yk_module *m)
{
    bool found = false;
    return !yk_module_apply(m, batch_norm_find, &found) && found;
}
