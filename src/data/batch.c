/*
 * batch.c - the tensors of a batch from its samples: stacked, or by the program's own collate. Layer: data.
 *
 * Stacked, an input goes from the pipeline straight to its row of the batch: as floats, or as bytes where the device is
 * to make the floats, which the first sample decides. Where a later one is no image of bytes, the batch is made again,
 * of floats: a sample is a function of its index. For a collate of the program's own all samples of the batch are there
 * at once, each with memory of its own, which goes when the collate returns.
 */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "data/dataset.h"
#include "tensor/tensor.h"

static yk_status differs(const yk__batch_plan *plan, const yk_sample *first, const yk_sample *sample, int i)
{
    char one[200], other[200], where[300], which[32] = "";
    const yk_dataset *dataset = plan->pipeline->dataset;
    if (i >= first->count || i >= sample->count)
        return yk__fail(YK_ERR_SHAPE, "%s: sample %lld has %d tensors, but sample %lld of the same batch has %d",
                        dataset->table.name, (long long)sample->index, sample->count, (long long)first->index,
                        first->count);
    yk_sample_tensor a = yk__sample_tensor(sample, i), b = yk__sample_tensor(first, i);
    if (i)
        snprintf(which, sizeof(which), "tensor %d of ", i);
    return yk__fail(YK_ERR_SHAPE,
                    "%s: %ssample %lld (%s) is %s after its transforms, but %ssample %lld of the same batch is %s; "
                    "use a resize or a crop that makes them equal, or a collate",
                    dataset->table.name, which, (long long)sample->index,
                    yk_dataset_describe(dataset, sample->index, where, sizeof(where)),
                    yk__sample_tensor_format(&a, one, sizeof(one)), i ? "that of " : "", (long long)first->index,
                    yk__sample_tensor_format(&b, other, sizeof(other)));
}

/* The length of a row of each tensor, and the first sample, whose shapes and types the others must have. */
typedef struct rows {
    yk_sample first;
    size_t bytes[YK_SAMPLE_TENSORS];
    bool packed; /* the input is bytes, and the batch has crops */
    bool mixed;  /* ...but this sample's is not: nothing was stored */
} rows;

static bool alike(yk_dtype dtype, int ndim, const int64_t *shape, yk_dtype dtype2, int ndim2, const int64_t *shape2)
{
    bool same = dtype == dtype2 && ndim == ndim2;
    for (int d = 0; d < ndim && same; d++)
        same = shape[d] == shape2[d];
    return same;
}

yk_tensor *yk__batch_tensor(const yk__batch_plan *plan, int ndim, const int64_t *shape, yk_dtype dtype)
{
    return plan->pinned ? yk__pinned_tensor(plan->pinned, ndim, shape, dtype)
                        : yk__tensor_new(ndim, shape, NULL, dtype, (yk_device){0});
}

static yk_status make_tensors(const yk__batch_plan *plan, const yk_sample *sample, rows *r, yk__batch *batch)
{
    r->first = *sample;
    for (int i = 0; i < sample->count; i++) {
        yk_sample_tensor from = yk__sample_tensor(sample, i);
        if (i == 0 && r->packed)
            from.dtype = YK_U8;
        int64_t shape[YK_MAX_DIMS] = {plan->count};
        memcpy(shape + 1, from.shape, (size_t)from.ndim * sizeof(*shape));
        r->bytes[i] = yk__sample_tensor_bytes(&from);
        batch->tensors[i] = yk__batch_tensor(plan, 1 + from.ndim, shape, from.dtype);
        if (!batch->tensors[i])
            return yk__error_code();
    }
    if (r->packed)
        batch->crops = yk__batch_tensor(plan, 2, (int64_t[]){plan->count, YK__CROP_NUMBERS}, YK_I64);
    return r->packed && !batch->crops ? yk__error_code() : YK_OK;
}

static void store_input(const yk__batch_plan *plan, const yk__loaded *loaded, int64_t row, const rows *r,
                        yk__batch *batch)
{
    char *to = (char *)batch->tensors[0]->data + (size_t)row * r->bytes[0];
    if (r->packed) {
        yk__crop *crop = (yk__crop *)batch->crops->data + row;
        yk__loaded_pack(loaded, (unsigned char *)to, crop);
        crop->from = row * (int64_t)r->bytes[0];
    } else {
        yk__pipeline_store(plan->pipeline, loaded, to);
    }
}

/* Row `row` of each tensor of the batch, which are made with the first. */
static yk_status stack_sample(const yk__batch_plan *plan, const yk__loaded *loaded, int64_t row, rows *r,
                              yk__batch *batch)
{
    const yk_sample *sample = &loaded->sample, *first = &r->first;
    if (row == 0)
        r->packed = r->packed && loaded->fused;
    yk_status status = row == 0 ? make_tensors(plan, sample, r, batch) : YK_OK;
    if (status)
        return status;
    if (sample->count != first->count)
        return differs(plan, first, sample, YK_SAMPLE_TENSORS);
    if (!alike(sample->dtype, sample->ndim, sample->shape, first->dtype, first->ndim, first->shape))
        return differs(plan, first, sample, 0);
    r->mixed = r->packed && !loaded->fused;
    if (r->mixed)
        return YK_OK;
    store_input(plan, loaded, row, r, batch);
    for (int i = 1; i < sample->count; i++) {
        const yk_sample_tensor *from = &sample->more[i - 1], *like = &first->more[i - 1];
        if (!alike(from->dtype, from->ndim, from->shape, like->dtype, like->ndim, like->shape))
            return differs(plan, first, sample, i);
        if (r->bytes[i])
            memcpy((char *)batch->tensors[i]->data + (size_t)row * r->bytes[i], from->data, r->bytes[i]);
    }
    return YK_OK;
}

/* A copy of the sample that stays when the worker goes on to the next; the caller frees *memory. */
static yk_status keep_sample(const yk__batch_plan *plan, const yk__loaded *loaded, yk_sample *kept, char **memory)
{
    size_t offset[YK_SAMPLE_TENSORS], total = 0;
    *kept = loaded->sample;
    kept->worker = NULL;
    for (int i = 0; i < kept->count; i++) {
        yk_sample_tensor from = yk__sample_tensor(&loaded->sample, i);
        offset[i] = total;
        total += (yk__sample_tensor_bytes(&from) + 63) & ~(size_t)63;
    }
    *memory = yk__calloc(total + 1, 1);
    if (!*memory)
        return YK_ERR_MEMORY;
    yk__pipeline_store(plan->pipeline, loaded, *memory);
    kept->data = *memory;
    for (int i = 1; i < kept->count; i++) {
        yk_sample_tensor *tensor = &kept->more[i - 1];
        size_t bytes = yk__sample_tensor_bytes(tensor);
        if (bytes)
            memcpy(*memory + offset[i], tensor->data, bytes);
        tensor->data = *memory + offset[i];
    }
    return YK_OK;
}

static yk_status collate(const yk__batch_plan *plan, const yk_sample *samples, yk__batch *batch)
{
    const char *name = plan->pipeline->dataset->table.name;
    yk_tensor *made[YK_SAMPLE_TENSORS] = {NULL};
    int n = 0;
    yk_scope scope = yk_scope_begin();
    yk_status status = plan->collate(plan->collate_user, samples, plan->count, made, &n);
    if (status && !yk__error_code())
        yk__fail(status, "collate failed with status \"%s\" and set no error", yk_status_name(status));
    else if (!status && yk__error_code())
        status = yk__error_code();
    if (!status && (n < 1 || n > YK_SAMPLE_TENSORS))
        status = yk__fail(YK_ERR_CALLBACK, "collate made %d tensors, expected 1 to %d", n, YK_SAMPLE_TENSORS);
    for (int i = 0; i < n && !status; i++) {
        if (!made[i])
            status = yk__fail(YK_ERR_CALLBACK, "collate left tensor %d of %d NULL", i, n);
    }
    for (int i = 0; i < n && !status; i++) {
        batch->tensors[i] = plan->pinned ? yk__pinned_copy(plan->pinned, made[i]) : yk_tensor_retain(made[i]);
        status = batch->tensors[i] ? YK_OK : yk__error_code();
    }
    yk_scope_end(scope);
    if (status)
        yk__error_prefix("%s: samples from %lld on", name, (long long)plan->order[0]);
    else
        batch->count = n;
    return status;
}

/* Notes that another sample is in the place of the batch's sample `row`. */
static yk_status note_skipped(const yk__batch_plan *plan, int64_t row, int64_t index, const char *why, yk__batch *batch)
{
    if (!batch->samples) {
        batch->samples = yk__calloc((size_t)plan->count, sizeof(*batch->samples));
        if (!batch->samples)
            return YK_ERR_MEMORY;
        memcpy(batch->samples, plan->order, (size_t)plan->count * sizeof(*batch->samples));
    }
    batch->samples[row] = index;
    batch->skipped++;
    if (!batch->why)
        batch->why = yk__strdup(why);
    return batch->why ? YK_OK : YK_ERR_MEMORY;
}

/* Loads the batch's sample `row`, or, where it cannot be read and that is wanted, the next that can: see yk_on_error.
 */
static yk_status load_sample(const yk__batch_plan *plan, yk__data_worker *worker, int64_t row, yk__batch *batch,
                             yk__loaded *loaded)
{
    enum { MOST_TRIES = 1000 };
    const yk__pipeline *p = plan->pipeline;
    int64_t length = p->dataset->table.length, first = plan->order[row], tries = 0;
    yk_error why = {0};
    for (;; tries++) {
        int64_t index = (first + tries) % length;
        yk_status status = yk__pipeline_load(p, worker, plan->seed, plan->epoch, index, loaded);
        if (!status && tries)
            return note_skipped(plan, row, index, why.message, batch);
        if (!status || plan->on_error != YK_SKIP || !loaded->unread || status == YK_ERR_MEMORY)
            return status;
        yk_error error;
        yk__error_take(&error);
        if (!tries)
            why = error;
        if (atomic_fetch_sub(plan->warnings, 1) > 0)
            yk__log(YK_LOG_WARN, "a sample is skipped: %s", error.message);
        if (tries + 1 == length || tries + 1 == MOST_TRIES)
            return yk__fail(why.code, "%.700s; nor can the %lld samples after it be read", why.message,
                            (long long)tries);
    }
}

void yk__batch_clear(yk__batch *batch)
{
    free(batch->samples);
    free(batch->why);
    for (int i = 0; i < YK_SAMPLE_TENSORS; i++)
        yk_tensor_release(batch->tensors[i]);
    yk_tensor_release(batch->crops);
    *batch = (yk__batch){0};
}

/* Cuts the tensors of a batch to the first `left` rows. */
static yk_status shorten(const yk__batch_plan *plan, int64_t left, yk__batch *batch)
{
    for (int i = 0; i < batch->count; i++) {
        yk_tensor *whole = batch->tensors[i];
        int64_t shape[YK_MAX_DIMS] = {left};
        size_t bytes = (size_t)left * yk_dtype_size(whole->dtype);
        for (int d = 1; d < whole->ndim; d++) {
            shape[d] = whole->shape[d];
            bytes *= (size_t)whole->shape[d];
        }
        yk_tensor *part = yk__batch_tensor(plan, whole->ndim, shape, whole->dtype);
        if (!part)
            return yk__error_code();
        if (bytes)
            memcpy(part->data, whole->data, bytes);
        batch->tensors[i] = part;
        yk_tensor_release(whole);
    }
    return YK_OK;
}

/* The next sample of the plan's stream, into its place in the list of numbers. */
static yk_status next_sample(const yk__batch_plan *plan, yk__data_worker *worker, int64_t row, yk__batch *batch,
                             yk__loaded *loaded)
{
    loaded->ended = plan->stream->ended;
    if (loaded->ended)
        return YK_OK;
    yk_status status = yk__pipeline_next(plan->pipeline, worker, plan->stream, loaded);
    if (!status && !loaded->ended)
        batch->samples[row] = loaded->sample.index;
    return status;
}

yk_status yk__batch_make(const yk__batch_plan *wanted, yk__data_worker *worker, yk__batch *batch)
{
    yk_status status = YK_OK;
    yk__batch_plan of_stream = *wanted, *plan = &of_stream;
    rows r = {.packed = plan->pinned && !plan->collate && !plan->mix && !plan->stream &&
                        yk__pinned_can_augment(plan->pinned)};
    yk_sample *kept = NULL;
    char **memory = NULL;
    yk__loaded loaded;
    int64_t done = 0;
    bool aborted = false, ended = false;
    if (plan->stream) {
        batch->samples = yk__calloc((size_t)plan->count, sizeof(*batch->samples));
        plan->order = batch->samples;
        status = batch->samples ? YK_OK : YK_ERR_MEMORY;
    }
    if (plan->collate && !status) {
        kept = yk__calloc((size_t)plan->count, sizeof(*kept));
        memory = kept ? yk__calloc((size_t)plan->count, sizeof(*memory)) : NULL;
        status = memory ? YK_OK : YK_ERR_MEMORY;
    }
    for (; done < plan->count && !status; done++) {
        aborted = atomic_load_explicit(plan->abort, memory_order_relaxed);
        if (aborted)
            break;
        status = plan->stream ? next_sample(plan, worker, done, batch, &loaded)
                              : load_sample(plan, worker, done, batch, &loaded);
        ended = !status && plan->stream && loaded.ended;
        if (ended)
            break;
        if (!status)
            status = plan->collate ? keep_sample(plan, &loaded, &kept[done], &memory[done])
                                   : stack_sample(plan, &loaded, done, &r, batch);
        if (r.mixed) {
            yk__batch_clear(batch);
            r = (rows){0};
            done = -1;
        }
    }
    bool full = done == plan->count;
    bool none = ended && (!done || plan->drop_last);
    if (plan->stream)
        plan->count = batch->rows = done;
    if (!status && !aborted && !none) {
        if (plan->collate)
            status = collate(plan, kept, batch);
        else
            batch->count = r.first.count;
        if (!status && !full && !plan->collate)
            status = shorten(plan, done, batch);
        if (!status && plan->mix) {
            status = yk__mix_batch(plan, worker, batch);
            if (status)
                yk__error_prefix("%s: samples from %lld on", plan->pipeline->dataset->table.name,
                                 (long long)plan->order[0]);
        }
    }
    for (int64_t i = 0; memory && i < wanted->count; i++)
        free(memory[i]);
    free(memory);
    free(kept);
    if (status || aborted || none)
        yk__batch_clear(batch);
    for (int i = 0; i < batch->count; i++)
        yk__object_set_maker(batch->tensors[i], "loader_next");
    return status;
}
