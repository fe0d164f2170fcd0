/*
 * ctc.c - connectionist temporal classification: the loss of labels whose positions in time are not known. Layer: ops.
 *
 * The labels of each input become l, of 2 S + 1: a blank before, between and after them. alpha[s] is the logarithm of
 * the probability of all ways to have come to l[s] by time t; from there to t + 1 one stays, goes to s + 1, or to s + 2
 * where that leaves out a blank between two different labels. All is made of recorded operations over (N, 2 S + 1), one
 * step in time after the other, so that gradients have gradients. What cannot be reached has the logarithm `never`,
 * which is finite, so that no difference of infinities arises in a backward.
 */
#include <math.h>

#include "ops/op.h"

static const double never = -1e30; /* in f32, too, all sums of logarithms are lost beside it */

typedef struct ctc {
    int64_t times, batch, classes, labels;     /* labels: S, the most of one input */
    yk_tensor *targets;                        /* (N,S), i64, anything beyond an input's length */
    yk_tensor *input_lengths, *target_lengths; /* (N), i64 */
} ctc;

/* ---- checks ---- */

static bool lengths_check(const char *role, const yk_tensor *lengths, int64_t batch)
{
    char text[200];
    if (lengths->dtype != YK_I64 && lengths->dtype != YK_I32) {
        yk__fail(YK_ERR_DTYPE, "ctc_loss: %s are %s, expected int64 or int32", role,
                 yk_dtype_name((yk_dtype)lengths->dtype));
        return false;
    }
    if (lengths->numel == batch && lengths->ndim <= 1)
        return true;
    yk__fail(YK_ERR_SHAPE, "ctc_loss: %s %s for %lld inputs", role, yk_shape_format(lengths, text, sizeof(text)),
             (long long)batch);
    return false;
}

/* Lengths are in [0, most]; the host waits for them. */
static bool range_of(const char *role, yk_tensor *lengths, int64_t most, const char *of)
{
    if (lengths->numel == 0)
        return true;
    yk_tensor *low = yk_min(lengths), *high = yk_max(lengths);
    if (!low || !high)
        return false;
    int64_t least = yk_item_i64(low), largest = yk_item_i64(high);
    if (least < 0 || largest > most) {
        yk__fail(YK_ERR_ARGUMENT, "ctc_loss: %s from %lld to %lld, outside 0 to %lld, %s", role, (long long)least,
                 (long long)largest, (long long)most, of);
        return false;
    }
    return true;
}

/* ---- the labels ---- */

/* Labels one after the other as (N,S). */
static yk_tensor *padded_targets(yk_tensor *line, yk_tensor *lengths, int64_t labels, yk_device device)
{
    yk_tensor *starts = yk_sub(yk_cumsum(lengths, 0), lengths);
    yk_tensor *position = yk_add(yk_unsqueeze(starts, 1), yk__scope_own(yk__raw_positions(labels, 1, device)));
    if (!position || line->numel == 0)
        return position ? yk_zeros_like(position) : NULL;
    return yk_take(line, yk_clamp(position, 0, (double)(line->numel - 1)));
}

/* True where `position` (S) is before the length of the input: (N,S). */
static yk_tensor *is_before(const yk_tensor *lengths, int64_t count)
{
    yk_tensor *position = yk__scope_own(yk__raw_positions(count, 1, yk__device_of(lengths)));
    return yk_lt(position, yk_unsqueeze((yk_tensor *)lengths, 1));
}

/* l: (N, 2 S + 1), blank wherever there is no label. NULL, with an error, where a label is none. */
static yk_tensor *with_blanks(const ctc *c, int64_t blank)
{
    yk_tensor *given = is_before(c->target_lengths, c->labels);
    yk_tensor *blanks = yk_full_like(c->targets, (double)blank), *labels = yk_where(given, c->targets, blanks);
    if (!labels)
        return NULL;
    if (labels->numel && !range_of("labels", labels, c->classes - 1, "the classes"))
        return NULL;
    yk_tensor *wrong = yk_any(yk_logical_and(given, yk_eq_scalar(labels, (double)blank)));
    if (!wrong || yk_item(wrong) != 0) {
        if (wrong)
            yk__fail(YK_ERR_ARGUMENT, "ctc_loss: a label is %lld, the blank", (long long)blank);
        return NULL;
    }
    yk_tensor *pairs = yk_reshape(yk_stack((yk_tensor *[]){blanks, labels}, 2, 2), YK_SHAPE(c->batch, 2 * c->labels));
    yk_tensor *last = yk_full(YK_SHAPE(c->batch, 1), (double)blank,
                              YK_OPTIONS(yk_tensor_options, .dtype = YK_I64, .device = yk__device_of(labels)));
    return yk_cat((yk_tensor *[]){pairs, last}, 2, 1);
}

/* ---- the sum over all ways ---- */

/* x (N,L) moved by `positions` towards larger s; `never` comes in. */
static yk_tensor *moved(yk_tensor *x, int64_t positions)
{
    return yk_pad(x, (int64_t[]){positions, -positions}, 2, YK_PAD_CONSTANT, never);
}

/* log(e^a + e^b + e^c), of which none is infinite. */
static yk_tensor *sum_of_logs(yk_tensor *const *logs, int count)
{
    return yk_logsumexp(yk_stack(logs, count, 0), (int[]){0}, 1, false);
}

/* The logarithm of the probability of the labels of each input, (N); `never` or less where they cannot be. */
static yk_tensor *log_likelihood(yk_tensor *log_probs, const ctc *c, yk_tensor *labels, int64_t blank)
{
    int64_t size = 2 * c->labels + 1;
    yk_tensor *index = yk_expand(yk_unsqueeze(labels, 0), YK_SHAPE(c->times, c->batch, size));
    yk_tensor *emitted = yk_gather_dim(log_probs, 2, yk_contiguous(index));
    yk_tensor *position = yk__scope_own(yk__raw_positions(size, 1, yk__device_of(log_probs)));
    yk_tensor *some = yk_unsqueeze(yk_gt_scalar(c->target_lengths, 0), 1);
    yk_tensor *starts = yk_logical_or(yk_eq_scalar(position, 0), yk_logical_and(yk_eq_scalar(position, 1), some));
    yk_tensor *two_back = size > 2 ? yk_pad(labels, (int64_t[]){2, -2}, 2, YK_PAD_CONSTANT, (double)blank) : labels;
    yk_tensor *leaps = yk_logical_and(yk_ne_scalar(labels, (double)blank), yk_ne(labels, two_back));
    leaps = yk_logical_and(leaps, yk_ge_scalar(position, 2));
    yk_tensor *first = yk_select(emitted, 0, 0), *nothing = yk__recorded_number(log_probs, never);
    yk_tensor *alpha = yk_where(starts, first, nothing);
    for (int64_t t = 1; t < c->times && alpha; t++) {
        yk_tensor *from[3] = {alpha, moved(alpha, 1), size > 2 ? yk_where(leaps, moved(alpha, 2), nothing) : nothing};
        yk_tensor *next = yk_add(sum_of_logs(from, size > 2 ? 3 : 2), yk_select(emitted, 0, t));
        alpha = yk_where(yk_unsqueeze(yk_gt_scalar(c->input_lengths, (double)t), 1), next, alpha);
    }
    yk_tensor *end = yk_unsqueeze(yk_mul_scalar(c->target_lengths, 2), 1);
    yk_tensor *on_blank = yk_squeeze(yk_gather_dim(alpha, 1, end), 1);
    yk_tensor *before = yk_squeeze(yk_gather_dim(alpha, 1, yk_clamp(yk_add_scalar(end, -1), 0, INFINITY)), 1);
    before = yk_where(yk_gt_scalar(c->target_lengths, 0), before, nothing);
    return sum_of_logs((yk_tensor *[]){on_blank, before}, 2);
}

/* Without times there is one way to have no labels, and none to have some. */
static yk_tensor *losses_of(yk_tensor *log_probs, const ctc *c, const yk_ctc_loss_options *o)
{
    yk_tensor *labels = with_blanks(c, o->blank), *infinite = yk__recorded_number(log_probs, INFINITY);
    if (!labels)
        return NULL;
    yk_tensor *loss = yk_neg(log_likelihood(log_probs, c, labels, o->blank));
    yk_tensor *timeless = yk_eq_scalar(c->input_lengths, 0), *some = yk_gt_scalar(c->target_lengths, 0);
    yk_tensor *lost = yk_where(timeless, some, yk_gt_scalar(loss, -0.5 * never));
    loss = yk__recorded_where_not(yk_logical_and(timeless, yk_logical_not(some)), loss);
    return yk_where(lost, o->zero_infinity ? yk__recorded_number(log_probs, 0) : infinite, loss);
}

static yk_tensor *ctc_reduced(yk_tensor *loss, const ctc *c, yk_reduction reduction)
{
    if (reduction == YK_REDUCE_SUM)
        return yk_sum(loss);
    if (reduction == YK_REDUCE_NONE)
        return loss;
    return yk_mean(yk_div(loss, yk_cast(yk_clamp(c->target_lengths, 1, INFINITY), (yk_dtype)loss->dtype)));
}

static yk_tensor *ctc_whole(yk_tensor *log_probs, yk_tensor *targets, yk_tensor *input_lengths,
                            yk_tensor *target_lengths, const yk_ctc_loss_options *o)
{
    bool one = log_probs->ndim == 2;
    yk_tensor *wide = yk__recorded_wide(one ? yk_unsqueeze(log_probs, 1) : log_probs);
    if (!wide)
        return NULL;
    char text[200];
    ctc c = {.times = wide->shape[0], .batch = wide->shape[1], .classes = wide->shape[2]};
    c.input_lengths = yk_cast(yk_reshape(input_lengths, YK_SHAPE(-1)), YK_I64);
    c.target_lengths = yk_cast(yk_reshape(target_lengths, YK_SHAPE(-1)), YK_I64);
    targets = yk_cast(targets, YK_I64);
    if (!c.input_lengths || !c.target_lengths || !targets ||
        !range_of("input lengths", c.input_lengths, c.times, "the times"))
        return NULL;
    bool rows = targets->ndim == 2 || one;
    if (rows) {
        c.labels = targets->shape[targets->ndim - 1];
        c.targets = one ? yk_reshape(targets, YK_SHAPE(1, -1)) : targets;
        if (!range_of("target lengths", c.target_lengths, c.labels, "the labels of an input"))
            return NULL;
    } else {
        if (!range_of("target lengths", c.target_lengths, targets->numel, "the labels"))
            return NULL;
        int64_t sum = yk_item_i64(yk_sum(c.target_lengths));
        if (sum != targets->numel) {
            yk__fail(YK_ERR_SHAPE, "ctc_loss: targets %s, and target lengths add up to %lld",
                     yk_shape_format(targets, text, sizeof(text)), (long long)sum);
            return NULL;
        }
        c.labels = c.batch ? yk_item_i64(yk_max(c.target_lengths)) : 0;
        c.targets = padded_targets(targets, c.target_lengths, c.labels, yk__device_of(targets));
    }
    yk_tensor *loss = c.targets ? losses_of(wide, &c, o) : NULL;
    loss = loss ? ctc_reduced(loss, &c, o->reduction) : NULL;
    if (loss && one && o->reduction == YK_REDUCE_NONE)
        loss = yk_squeeze(loss, 0);
    return loss ? yk_cast(loss, (yk_dtype)log_probs->dtype) : NULL;
}

yk_tensor *yk_ctc_loss(yk_tensor *log_probs, yk_tensor *targets, yk_tensor *input_lengths, yk_tensor *target_lengths,
                       const yk_ctc_loss_options *options)
{
    yk_ctc_loss_options o;
    char a[200], b[200];
    if (YK__OPTIONS_TAKE("ctc_loss", yk_ctc_loss_options, options, &o))
        return NULL;
    yk_tensor *inputs[4] = {log_probs, targets, input_lengths, target_lengths};
    YK__EVENT(YK__EVENT_OPERATION, "ctc_loss");
    if (!yk__op_begin("ctc_loss", 4, inputs, 0) || yk__expect_floating("ctc_loss", "log_probs", log_probs))
        return NULL;
    if (!yk__reduction_check("ctc_loss", o.reduction, false))
        return NULL;
    bool whole = log_probs->ndim == 3 || log_probs->ndim == 2, one = log_probs->ndim == 2;
    bool fits = whole && log_probs->numel > 0 && targets->ndim >= 1 && targets->ndim <= (one ? 1 : 2);
    if (!fits || (targets->ndim == 2 && targets->shape[0] != log_probs->shape[1])) {
        yk__fail(YK_ERR_SHAPE,
                 "ctc_loss: log_probs %s and targets %s, expected (T, N, C) and (N, S) or (labels), or (T, C) and (S)",
                 yk_shape_format(log_probs, a, sizeof(a)), yk_shape_format(targets, b, sizeof(b)));
        return NULL;
    }
    int64_t batch = one ? 1 : log_probs->shape[1], classes = log_probs->shape[log_probs->ndim - 1];
    if (targets->dtype != YK_I64 && targets->dtype != YK_I32) {
        yk__fail(YK_ERR_DTYPE, "ctc_loss: targets are %s, expected int64 or int32",
                 yk_dtype_name((yk_dtype)targets->dtype));
        return NULL;
    }
    if (o.blank < 0 || o.blank >= classes) {
        yk__fail(YK_ERR_ARGUMENT, "ctc_loss: blank %lld is none of the %lld classes", (long long)o.blank,
                 (long long)classes);
        return NULL;
    }
    if (!lengths_check("input lengths", input_lengths, batch) ||
        !lengths_check("target lengths", target_lengths, batch))
        return NULL;
    YK__WITHIN_SCOPE(ctc_whole(log_probs, targets, input_lengths, target_lengths, &o));
}
