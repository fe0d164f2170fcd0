/*
 * pipeline_group.c - a pipeline whose stages are in several processes: which rank has which, that the ranks want the
 * same, and the tensors between them. Layer: parallel.
 *
 * Note [Pipeline over processes]
 * Rank r has a block of consecutive stages; pipeline_schedule.c works them off as it does without a group, but for the
 * two edges of the block, where a neighbour's messages take the place of a handover. A batch begins with one
 * all_gather: every rank tells whether its arguments are right, so that a mistake is an error of all ranks before
 * anything was sent, and the number of samples, which the first rank knows from its inputs. Then messages alone go, per
 * edge and direction one of notes (dtype, shape and strides of the tensors) and one a tensor, for each micro-batch:
 *
 *     rank 0   notes, activations ->  rank 1   notes, activations ->  rank 2
 *              <- notes, gradients             <- notes, gradients
 *              <------------- the end: loss or shapes of outputs -----
 *
 * Sends do not wait, and are looked after by whatever the rank waits for next. A receive waits, for a message that the
 * neighbour has posted or will post without waiting for this rank's progress beyond the schedule: so two neighbours
 * that send to each other do not block. Micro-batches need no numbers: messages of one tag keep their order.
 *
 * Invariant: a batch that failed after the all_gather leaves messages that nobody takes, so it has broken the group,
 * which is the pipeline's own.
 */
#include <stdlib.h>
#include <string.h>

#include "comm/agreement.h"
#include "parallel/pipeline_parallel.h"
#include "tensor/host_tensor.h"
#include "tensor/tensor.h"

/* ---- which rank has which stages --------------------------------------------------------------------------------- */

static int first_stage(int count, int ranks, int rank)
{
    int longer = count % ranks;
    return rank * (count / ranks) + (rank < longer ? rank : longer);
}

int yk_pipeline_local(int count, yk_process_group *group, int *first)
{
    YK__LIVE(group);
    int ranks = group ? yk_world_size(group) : 1, rank = group ? yk_rank(group) : 0, begin = 0, end = 0;
    if (ranks > 0 && rank >= 0 && count > 0) {
        begin = first_stage(count, ranks, rank);
        end = first_stage(count, ranks, rank + 1);
    }
    if (first)
        *first = begin;
    return end - begin;
}

int yk__pipeline_rank(const yk__pipeline *p, int s)
{
    int ranks = p->group ? yk_world_size(p->group) : 1, rank = 0;
    while (rank + 1 < ranks && s >= first_stage(p->count, ranks, rank + 1))
        rank++;
    return rank;
}

/* ---- ranks that want the same ------------------------------------------------------------------------------------ */

/* The options of a rank that all have to give alike. */
typedef struct wanted {
    int64_t count, chunks, schedule, dim, reduction, tensors[YK__MOST_STAGES];
} wanted;

static yk_status wanted_compare(const wanted *all, int ranks)
{
    static const char *const schedules[] = {"1F1B", "GPipe"}, *const reductions[] = {"mean", "sum"};
    for (int r = 1; r < ranks; r++) {
        const wanted *a = &all[0], *b = &all[r];
        char what[200] = "";
        if (a->count != b->count)
            snprintf(what, sizeof(what), "%lld stages, and rank 0 %lld", (long long)b->count, (long long)a->count);
        else if (a->chunks != b->chunks)
            snprintf(what, sizeof(what), "%lld micro-batches (chunks), and rank 0 %lld", (long long)b->chunks,
                     (long long)a->chunks);
        else if (a->schedule != b->schedule)
            snprintf(what, sizeof(what), "the schedule %s, and rank 0 %s", schedules[b->schedule == YK_PIPELINE_GPIPE],
                     schedules[a->schedule == YK_PIPELINE_GPIPE]);
        else if (a->dim != b->dim)
            snprintf(what, sizeof(what), "batches along dimension %lld (dim), and rank 0 along %lld", (long long)b->dim,
                     (long long)a->dim);
        else if (a->reduction != b->reduction)
            snprintf(what, sizeof(what), "a loss that is a %s (reduction), and rank 0 one that is a %s",
                     reductions[b->reduction == YK_REDUCE_SUM], reductions[a->reduction == YK_REDUCE_SUM]);
        for (int s = 0; !what[0] && s < YK__MOST_STAGES; s++) {
            if (a->tensors[s] != b->tensors[s])
                snprintf(what, sizeof(what), "%lld tensors that stage %d hands on, and rank 0 %lld",
                         (long long)b->tensors[s], s, (long long)a->tensors[s]);
        }
        if (what[0])
            return yk__fail(YK_ERR_MISMATCH,
                            "pipeline: rank %d has %s; all ranks of the group give the same options but for devices "
                            "and criterion",
                            r, what);
    }
    return YK_OK;
}

yk_status yk__pipeline_join(yk__pipeline *p, yk_process_group *group, yk_status status)
{
    int ranks = yk_world_size(group);
    yk__rank_status *states = NULL;
    wanted mine = {p->count, p->chunks, p->schedule, p->dim, p->reduction, {0}};
    for (int s = 0; s < p->count; s++)
        mine.tensors[s] = p->tensors[s];
    wanted *all = yk__calloc((size_t)ranks, sizeof(*all));
    if (status && !yk__error_code())
        yk__fail(status, "pipeline: failed with status %d and no message", (int)status);
    status = yk__ranks_gather_status(group, NULL, &states);
    if (!status)
        status = yk__ranks_first_error(states, ranks);
    free(states);
    if (!status)
        status = all ? yk__gather_bytes(&mine, all, sizeof(mine), group) : YK_ERR_MEMORY;
    if (!status)
        status = wanted_compare(all, ranks);
    free(all);
    int *list = status ? NULL : yk__calloc((size_t)ranks, sizeof(*list));
    for (int r = 0; list && r < ranks; r++)
        list[r] = r;
    yk_scope scope = yk_scope_begin();
    if (list)
        p->group = yk_process_group_retain(yk_new_group(group, ranks, list));
    yk_scope_end(scope);
    free(list);
    return p->group ? YK_OK : yk__error_code();
}

yk_status yk__pipeline_agree(yk__pipeline *p, const char *what, yk__pipeline_batch *batch)
{
    enum { KIND, SAMPLES, SEED, CALLS };
    int ranks = yk_world_size(p->group);
    yk_random_state random = yk_random_get_state();
    int64_t values[YK__STATUS_VALUES] = {[KIND] = batch->train ? 0 : batch->n_outputs,
                                         [SAMPLES] = batch->samples,
                                         [SEED] = (int64_t)random.seed,
                                         [CALLS] = random.calls};
    yk__rank_status *all;
    yk_status status = yk__ranks_gather_status(p->group, values, &all);
    if (!status)
        status = yk__ranks_first_error(all, ranks);
    for (int r = 1; r < ranks && !status; r++) {
        int64_t mine = all[r].values[KIND], first = all[0].values[KIND];
        if (!mine != !first)
            status = yk__fail(YK_ERR_MISMATCH, "%s: rank %d is in %s, and rank 0 in %s: all ranks call the same", what,
                              r, mine ? "forward" : "yk_pipeline_step", first ? "forward" : "yk_pipeline_step");
        else if (mine != first)
            status = yk__fail(YK_ERR_MISMATCH, "%s: rank %d asks for %lld outputs, and rank 0 for %lld", what, r,
                              (long long)mine, (long long)first);
    }
    int64_t samples = status ? 0 : all[0].values[SAMPLES], of_target = status ? 0 : all[ranks - 1].values[SAMPLES];
    if (!status && of_target && of_target != samples)
        status =
            yk__fail(YK_ERR_SHAPE,
                     "%s: the target of rank %d has %lld samples along dimension %d, but the inputs of rank 0 have "
                     "%lld",
                     what, ranks - 1, (long long)of_target, p->dim, (long long)samples);
    if (!status) {
        batch->samples = samples;
        batch->random = (yk_random_state){(uint64_t)all[0].values[SEED], (uint32_t)all[0].values[CALLS]};
    }
    free(all);
    return status;
}

/* ---- tensors as messages ----------------------------------------------------------------------------------------- */

enum { END_TAG = 100, DREW_TAG }; /* beyond those of yk__pipeline_send */

/* The message that goes before a tensor, or says that there is none. */
typedef struct tensor_note {
    int32_t there, dtype, ndim, wants_grad;
    int64_t shape[YK_MAX_DIMS], stride[YK_MAX_DIMS]; /* dense */
} tensor_note;

static yk_tensor *bytes_new(size_t size)
{
    return yk__tensor_new(1, (int64_t[]){(int64_t)size}, NULL, YK_U8, (yk_device){0});
}

/* The elements of a dense tensor in the order of memory; one reference. */
static yk_tensor *line_view(yk_tensor *x)
{
    return yk__tensor_view(x, 1, (int64_t[]){x->numel}, (int64_t[]){1}, 0);
}

/* Begins to send x (dense) as it is in memory; the work is kept in `sends`, that the tensor is. */
static yk_status send_begin(yk__pipeline *p, yk__pipeline_sends *sends, yk_tensor *x, int rank, int tag)
{
    if (sends->count == sends->room) {
        int room = sends->room ? 2 * sends->room : 16;
        yk_work **works = realloc(sends->works, (size_t)room * sizeof(*works));
        if (!works)
            return yk__fail_memory((size_t)room * sizeof(*works));
        sends->works = works;
        sends->room = room;
    }
    yk_scope scope = yk_scope_begin();
    yk_work *work = YK__HOST_TENSORS(yk_isend(x, rank, tag, p->group));
    if (work)
        sends->works[sends->count++] = yk_work_retain(work);
    yk_scope_end(scope);
    return work ? YK_OK : yk__error_code();
}

static yk_status send_bytes(yk__pipeline *p, yk__pipeline_sends *sends, const void *bytes, size_t size, int rank,
                            int tag)
{
    yk_tensor *x = bytes_new(size);
    if (!x)
        return yk__error_code();
    memcpy(x->data, bytes, size);
    yk_status status = send_begin(p, sends, x, rank, tag);
    yk_tensor_release(x);
    return status;
}

static yk_status receive_bytes(yk__pipeline *p, void *bytes, size_t size, int rank, int tag)
{
    yk_tensor *x = bytes_new(size);
    yk_status status = x ? YK__HOST_TENSORS(yk_recv(x, rank, tag, p->group)) : yk__error_code();
    if (!status)
        memcpy(bytes, x->data, size);
    yk_tensor_release(x);
    return status;
}

static yk_status send_elements(yk__pipeline *p, yk__pipeline_sends *sends, yk_tensor *x, int rank, int tag)
{
    if (!x || !x->numel)
        return YK_OK;
    yk_tensor *line = line_view(x);
    yk_status status = line ? send_begin(p, sends, line, rank, tag) : yk__error_code();
    yk_tensor_release(line);
    return status;
}

yk_status yk__pipeline_send(yk__pipeline *p, yk__pipeline_sends *sends, yk_tensor *const *tensors, int width, int rank,
                            int tag)
{
    tensor_note *notes = yk__calloc((size_t)width, sizeof(*notes));
    yk_tensor **dense = yk__calloc((size_t)width, sizeof(*dense));
    yk_status status = notes && dense ? YK_OK : YK_ERR_MEMORY;
    for (int i = 0; i < width && !status; i++) {
        yk_tensor *x = tensors[i];
        if (!x)
            continue;
        dense[i] = yk__is_dense(x) ? yk__tensor_alias(x) : yk__raw_contiguous(x);
        status = dense[i] ? YK_OK : yk__error_code();
        if (status)
            break;
        notes[i] = (tensor_note){.there = 1, .dtype = x->dtype, .ndim = x->ndim, .wants_grad = yk__wants_grad(x)};
        memcpy(notes[i].shape, x->shape, sizeof(notes[i].shape));
        memcpy(notes[i].stride, dense[i]->stride, sizeof(notes[i].stride));
    }
    if (!status)
        status = send_bytes(p, sends, notes, (size_t)width * sizeof(*notes), rank, tag);
    for (int i = 0; i < width && !status; i++)
        status = send_elements(p, sends, dense[i], rank, tag + 1);
    for (int i = 0; dense && i < width; i++)
        yk_tensor_release(dense[i]);
    free(dense);
    free(notes);
    return status;
}

/* A tensor as the note says, without values; one reference. What a neighbour sends is not taken on trust. */
static yk_tensor *tensor_of_note(const tensor_note *note, yk_device device)
{
    if (note->dtype < 0 || note->dtype >= YK__DTYPES) {
        yk__fail(YK_ERR_FORMAT, "pipeline: a message of a stage names dtype %d, which does not exist", note->dtype);
        return NULL;
    }
    const yk_tensor_options *options = YK_OPTIONS(yk_tensor_options, .dtype = (yk_dtype)note->dtype, .device = device);
    if (yk__tensor_check("pipeline", note->ndim, note->shape, options))
        return NULL;
    yk_tensor layout = {.ndim = (int8_t)note->ndim, .numel = 1};
    for (int d = 0; d < note->ndim; d++) {
        layout.shape[d] = note->shape[d];
        layout.stride[d] = note->stride[d];
        layout.numel *= note->shape[d];
    }
    if (!yk__is_dense(&layout)) {
        yk__fail(YK_ERR_FORMAT, "pipeline: a message of a stage has strides that do not fill its tensor");
        return NULL;
    }
    return yk__tensor_new(note->ndim, note->shape, note->stride, (yk_dtype)note->dtype, device);
}

yk_status yk__pipeline_receive(yk__pipeline *p, yk_tensor **tensors, int width, yk_device device, int rank, int tag)
{
    tensor_note *notes = yk__calloc((size_t)width, sizeof(*notes));
    yk_status status = notes ? receive_bytes(p, notes, (size_t)width * sizeof(*notes), rank, tag) : YK_ERR_MEMORY;
    for (int i = 0; i < width && !status; i++) {
        if (!notes[i].there)
            continue;
        tensors[i] = tensor_of_note(&notes[i], device);
        yk_tensor *line = tensors[i] ? line_view(tensors[i]) : NULL;
        status = !line ? yk__error_code() : line->numel ? yk_recv(line, rank, tag + 1, p->group) : YK_OK;
        yk_tensor_release(line);
        if (!status && notes[i].wants_grad)
            status = yk__tensor_require_grad(tensors[i]);
    }
    free(notes);
    return status;
}

yk_status yk__pipeline_sends_end(yk__pipeline_sends *sends, bool wait)
{
    yk_status status = YK_OK;
    for (int i = 0; i < sends->count; i++) {
        if (wait && !status)
            status = yk_work_wait(sends->works[i]);
        yk_work_release(sends->works[i]);
    }
    free(sends->works);
    *sends = (yk__pipeline_sends){0};
    return status;
}

/* ---- the end of a batch ------------------------------------------------------------------------------------------ */

/* The message with which the last rank tells the others how a batch ended: the loss, or what the outputs are like. */
typedef struct end_note {
    tensor_note tensor;
    unsigned char value[8]; /* of the loss */
} end_note;

/* Fills this rank's tensors by the notes: the loss, or outputs of which the last rank has the samples. */
static yk_status take_end(const yk__pipeline *p, const yk__pipeline_batch *batch, end_note *notes, yk_tensor **tensors)
{
    yk_device device = p->devices[p->first + p->own - 1];
    for (int i = 0; i < (batch->train ? 1 : batch->n_outputs); i++) {
        tensor_note *note = &notes[i].tensor;
        int dim = p->dim < 0 ? p->dim + note->ndim : p->dim < note->ndim ? p->dim : 0;
        yk__contiguous_strides(note->ndim, note->shape, note->stride);
        if (!batch->train && note->ndim > 0 && dim >= 0)
            note->shape[dim] = 0;
        tensors[i] = yk__scope_own(tensor_of_note(note, device));
        if (!tensors[i] ||
            (batch->train && yk_tensor_write(tensors[i], notes[i].value, yk_dtype_size((yk_dtype)note->dtype))))
            return yk__error_code();
    }
    return YK_OK;
}

static yk_status note_end(const yk__pipeline_batch *batch, end_note *notes, yk_tensor *const *tensors)
{
    for (int i = 0; i < (batch->train ? 1 : batch->n_outputs); i++) {
        const yk_tensor *x = tensors[i];
        notes[i].tensor = (tensor_note){.there = 1, .dtype = x->dtype, .ndim = x->ndim};
        memcpy(notes[i].tensor.shape, x->shape, sizeof(x->shape));
        if (batch->train && yk_tensor_read(x, notes[i].value, yk_dtype_size((yk_dtype)x->dtype)))
            return yk__error_code();
    }
    return YK_OK;
}

yk_status yk__pipeline_end(yk__pipeline *p, yk__pipeline_batch *batch, yk_tensor **tensors, yk_status status)
{
    int rank = yk_rank(p->group), ranks = yk_world_size(p->group), count = batch->train ? 1 : batch->n_outputs;
    size_t bytes = (size_t)count * sizeof(end_note);
    end_note *notes = yk__calloc((size_t)count, sizeof(*notes));
    yk__pipeline_sends sends = {0};
    if (!status && !notes)
        status = YK_ERR_MEMORY;
    if (!status && rank == ranks - 1) {
        status = note_end(batch, notes, tensors);
        for (int r = 0; r < rank && !status; r++)
            status = send_bytes(p, &sends, notes, bytes, r, END_TAG);
    } else if (!status) {
        status = receive_bytes(p, notes, bytes, ranks - 1, END_TAG);
        if (!status)
            status = take_end(p, batch, notes, tensors);
    }
    /* The first rank's generator is the one from which all stages' come, and moves on where any of them drew. */
    unsigned char drew = batch->drew;
    if (!status && rank > 0)
        status = send_bytes(p, &sends, &drew, 1, 0, DREW_TAG);
    for (int r = 1; rank == 0 && r < ranks && !status; r++) {
        unsigned char other = 0;
        status = receive_bytes(p, &other, 1, r, DREW_TAG);
        drew |= other;
    }
    if (!status && rank == 0 && drew && yk_random_get_state().calls == batch->random.calls)
        yk__random_next();
    yk_status sent = yk__pipeline_sends_end(&sends, !status);
    free(notes);
    status = status ? status : sent;
    if (status) /* the others wait for what will not come */
        yk_process_group_abort(p->group, yk_last_error() ? yk_last_error()->message : "the batch could not be ended");
    return status;
}

yk_status yk__pipeline_gather_times(yk__pipeline *p, yk_stage_times *stages)
{
    int ranks = yk_world_size(p->group);
    size_t bytes = (size_t)p->count * sizeof(*stages);
    yk_stage_times *all = yk__calloc((size_t)ranks, bytes);
    yk_status status = all ? yk__gather_bytes(stages, all, bytes, p->group) : YK_ERR_MEMORY;
    for (int s = 0; s < p->count && !status; s++) {
        int rank = yk__pipeline_rank(p, s);
        stages[s] = all[(size_t)rank * (size_t)p->count + (size_t)s];
        stages[s].rank = rank;
    }
    free(all);
    return status;
}
