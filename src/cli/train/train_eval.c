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
#include "cli/train/train.h"
#include "cli/train/train_text.h"

struct train_eval {
    train_recording recording;
    yk_tensor *loss, *hits, *top5;  /* no dimensions: sums over samples, f64, i64 and i64 */
    yk_tensor *stay[BATCH_TENSORS]; /* of the recording; NULL before the first batch */
    yk_tensor *now[BATCH_TENSORS];  /* the batch that is tested */
};

bool train_has_top5(const train_job *r)
{
    enum { LEAST_CLASSES = 10 };
    return yk_dataset_classes(r->data.train_set) >= LEAST_CLASSES;
}

yk_tensor *train_count_top5(yk_tensor *output, yk_tensor *target)
{
    enum { BEST = 5 };
    yk_tensor *own = yk_gather_dim(output, 1, yk_unsqueeze(target, 1));
    /* Outputs that are NaN are below nothing, and right in nothing. */
    yk_tensor *below = yk_sum_dims(yk_cast(yk_le(output, own), YK_F32), (const int[]){1}, 1, false);
    yk_tensor *least = yk_full(0, NULL, (double)(yk_size(output, 1) - BEST),
                               YK_OPTIONS(yk_tensor_options, .device = yk_tensor_device(output)));
    return yk_sum(yk_gt(below, least));
}

static yk_status test_batch(void *user)
{
    train_job *r = user;
    const train_eval *e = r->eval;
    yk_tensor *output, *loss = train_loss(r, r->learner.net, e->now[INPUT], e->now[TARGET], &output);
    yk_tensor *hits = yk_sum(yk_eq(yk_argmax(output, 1, false), train_text_flat(e->now[TARGET], false)));
    if (!yk_add_(e->loss, yk_mul_scalar(yk_cast(loss, YK_F64), (double)yk_size(e->now[INPUT], 0)), 1) ||
        !yk_add_(e->hits, hits, 1))
        return yk__error_code();
    if (train_has_top5(r) && !yk_add_(e->top5, train_count_top5(output, e->now[TARGET]), 1))
        return yk__error_code();
    return YK_OK;
}

static void say_whether(const train_job *r)
{
    yk_graph_info info;
    if (!train_recording_decide(&r->eval->recording, &info))
        return;
    if (info.replays)
        yk__log(YK_LOG_INFO, "the test of a batch is recorded, and replayed from here on");
    else
        yk__log(YK_LOG_INFO, "the test of a batch is not recorded, and runs as it is: %s", info.why_not);
}

yk_status train_eval_batch(train_job *r, const yk_batch *batch)
{
    train_eval *e = r->eval;
    yk_graph *graph = e->recording.graph;
    bool kept = graph && train_batch_stays(e->stay, batch, r->device);
    e->now[INPUT] = kept ? e->stay[INPUT] : yk_to(batch->input, r->device);
    e->now[TARGET] = kept ? e->stay[TARGET] : yk_to(batch->target, r->device);
    if (!e->now[INPUT] || !e->now[TARGET])
        return yk__error_code();
    if (!kept)
        return test_batch(r);
    yk_status status = yk_graph_run(graph);
    say_whether(r);
    return status;
}

yk_status train_eval_begin(train_job *r)
{
    if (!r->eval) {
        r->eval = yk__calloc(1, sizeof(*r->eval));
        if (!r->eval)
            return YK_ERR_MEMORY;
        yk_tensor_options options = *YK_OPTIONS(yk_tensor_options, .dtype = YK_F64, .device = r->device);
        r->eval->loss = yk_tensor_retain(yk_zeros(0, NULL, &options));
        options.dtype = YK_I64;
        r->eval->hits = yk_tensor_retain(yk_zeros(0, NULL, &options));
        r->eval->top5 = yk_tensor_retain(yk_zeros(0, NULL, &options));
        r->eval->recording.graph =
            r->set->no_graph ? NULL : yk_graph_retain(yk_graph_create(r->device, 0, test_batch, r));
    }
    const train_eval *e = r->eval;
    if (!e->loss || !e->hits || !e->top5 || (!e->recording.graph && !r->set->no_graph) || !yk_zero_(e->loss) ||
        !yk_zero_(e->hits) || !yk_zero_(e->top5))
        return yk__error_code();
    return YK_OK;
}

void train_eval_read(const train_job *r, double *loss, double *hits, double *top5)
{
    *loss = yk_item(r->eval->loss);
    int64_t parts =
        train_is_text(r->set->data) ? r->data.gpt2.n_positions : 1; /* of a block the share of tokens counts */
    *hits = (double)yk_item_i64(r->eval->hits) / (double)parts;
    *top5 = (double)yk_item_i64(r->eval->top5);
}

void train_eval_free(train_job *r)
{
    train_eval *e = r->eval;
    if (!e)
        return;
    yk_graph_release(e->recording.graph);
    yk_tensor_release(e->loss);
    yk_tensor_release(e->hits);
    yk_tensor_release(e->top5);
    yk_tensor_release(e->stay[INPUT]);
    yk_tensor_release(e->stay[TARGET]);
    free(e);
    r->eval = NULL;
}
