/*
 * train_eval.c - `yoke train`'s test of the network on a device that carries work out later (a GPU). Layer: cli.
 *
 * What a batch gives is summed on the device, and read once. Batches of the first one's shape are tested by a recording
 * after a few that ran as they are, and are copied for it into tensors that stay; what has another shape, the last one
 * of the set, runs as it is. Where it cannot be recorded, all do. The same bits come of both.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "base/core.h"
#include "base/log.h"
#include "cli/train.h"

/* PATIENCE: batches in which a recording should have begun. */
enum { PATIENCE = 10 };

struct train_eval {
    yk_graph *graph;           /* NULL: nothing is recorded */
    yk_tensor *loss, *hits;    /* no dimensions: sums over samples, f64 and i64 */
    yk_tensor *input, *target; /* of the recording; NULL before the first batch */
    yk_tensor *now[2];         /* the batch that is tested */
    bool said;                 /* whether it is recorded */
};

static yk_status test_batch(void *user)
{
    train_job *r = user;
    const train_eval *e = r->eval;
    yk_tensor *output, *loss = train_loss(r, r->net, e->now[0], e->now[1], &output);
    yk_tensor *hits = yk_sum(yk_eq(yk_argmax(output, 1, false), e->now[1]));
    if (!yk_add_(e->loss, yk_mul_scalar(yk_cast(loss, YK_F64), (double)yk_size(e->now[0], 0)), 1) ||
        !yk_add_(e->hits, hits, 1))
        return yk__error_code();
    return YK_OK;
}

/* Copies the batch into the tensors that stay, which the first one makes; false where it has another shape. */
static bool keep(const train_job *r, const yk_batch *batch)
{
    train_eval *e = r->eval;
    if (!e->input) {
        e->input = yk_tensor_retain(yk_clone(yk_to(batch->input, r->device)));
        e->target = yk_tensor_retain(yk_clone(yk_to(batch->target, r->device)));
        return e->input && e->target;
    }
    return yk_same_shape(e->input, batch->input) && yk_same_shape(e->target, batch->target) &&
           yk_copy_(e->input, batch->input) && yk_copy_(e->target, batch->target);
}

static void say_whether(const train_job *r)
{
    train_eval *e = r->eval;
    yk_graph_info info = yk_graph_get_info(e->graph);
    if (e->said || (!info.replays && info.calls < PATIENCE))
        return;
    e->said = true;
    if (info.replays)
        yk__log(YK_LOG_INFO, "the test of a batch is recorded, and replayed from here on");
    else
        yk__log(YK_LOG_INFO, "the test of a batch is not recorded, and runs as it is: %s", info.why_not);
}

yk_status train_eval_batch(train_job *r, const yk_batch *batch)
{
    train_eval *e = r->eval;
    bool kept = e->graph && keep(r, batch);
    e->now[0] = kept ? e->input : yk_to(batch->input, r->device);
    e->now[1] = kept ? e->target : yk_to(batch->target, r->device);
    if (!e->now[0] || !e->now[1])
        return yk__error_code();
    if (!kept)
        return test_batch(r);
    yk_status status = yk_graph_run(e->graph);
    say_whether(r);
    return status;
}

yk_status train_eval_begin(train_job *r)
{
    if (!r->eval) {
        r->eval = yk__calloc(1, sizeof(*r->eval));
        if (!r->eval)
            return YK_ERR_MEMORY;
        yk_tensor_options options = {.dtype = YK_F64, .device = r->device};
        r->eval->loss = yk_tensor_retain(yk_zeros(0, NULL, &options));
        options.dtype = YK_I64;
        r->eval->hits = yk_tensor_retain(yk_zeros(0, NULL, &options));
        r->eval->graph = r->set->no_graph ? NULL : yk_graph_retain(yk_graph_create(r->device, 0, test_batch, r));
    }
    const train_eval *e = r->eval;
    if (!e->loss || !e->hits || (!e->graph && !r->set->no_graph) || !yk_zero_(e->loss) || !yk_zero_(e->hits))
        return yk__error_code();
    return YK_OK;
}

void train_eval_read(const train_job *r, double *loss, double *hits)
{
    *loss = yk_item(r->eval->loss);
    *hits = (double)yk_item_i64(r->eval->hits);
}

void train_eval_free(train_job *r)
{
    train_eval *e = r->eval;
    if (!e)
        return;
    yk_graph_release(e->graph);
    yk_tensor_release(e->loss);
    yk_tensor_release(e->hits);
    yk_tensor_release(e->input);
    yk_tensor_release(e->target);
    free(e);
    r->eval = NULL;
}
