/*
 * loader.c - batches, made ahead by worker threads. Layer: data.
 *
 * Note [Order of batches]
 * An epoch is an order of samples, fixed when it starts, of which sampler.c gives each rank its part; batch b is
 * positions b * batch_size and on of that part. Workers claim batches in order, one whole batch each, and put them into
 * slot b % slots; the caller takes them from there in the same order. A worker may claim batch b only while batch b -
 * slots has been taken, which bounds what is made ahead. Since a sample is a function of (seed, epoch, index), who
 * makes it and when changes nothing.
 *
 *   claimed by workers ->  [ b+3 filling ] [ b+2 ready ] [ b+1 filling ]  -> taken by the caller: b
 *
 * For a device that copies while it computes (pinned.c) the caller's thread brings a batch there, and the one behind it
 * where that is ready: it is `ahead`, taken from its slot and not yet given to the caller.
 *
 * A batch gets new tensors each time; the ones given back come out of the device's cache again, so memory is reused
 * unless the caller kept a reference. A failed batch is put into its slot like any other: the caller meets it at its
 * position in the order, whatever came after it.
 *
 * Invariants, under `lock`: taken <= claimed <= batches; slots of batches [taken, claimed) are in use, all others
 * empty. `abort` is read outside the lock, between samples, to leave a batch that nobody will take.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "data/dataset.h"
#include "data/sampler.h"
#include "host/progress.h"
#include "host/rank_info.h"
#include "tensor/tensor.h"

/* Any numbers far beyond what helps: larger ones are taken for mistakes. 1,024 is also the largest thread count of a
 * CPU device. */
enum { MOST_WORKERS = 1024, MOST_PREFETCH = 1 << 16 };

typedef struct made_batch {
    yk__batch batch;
    bool failed;
    yk_error error;
} made_batch;

typedef struct slot {
    bool ready;
    made_batch made;
} slot;

typedef struct worker {
    yk_loader *loader;
    pthread_t thread;
    yk__data_worker data;
} worker;

struct yk_loader {
    yk__object object;
    yk_dataset *dataset;
    yk_loader_options options;
    yk__pipeline pipeline;
    yk__sampler sampler;  /* of the epoch, or of what was left of it for set_state; its rank is the first one's */
    yk__turns turns;      /* of that rank and those behind it whose parts this loader gives; one, unless shared out */
    int64_t *all;         /* dataset indices of the whole epoch */
    int64_t *part;        /* (turns.ranks, samples): the ranks' parts, where there are others; else NULL */
    const int64_t *order; /* what is given: in `part` or in `all` */
    int64_t samples;      /* of each rank */
    int64_t batches;      /* that are given, of all turns from their origin on */
    int64_t epoch, next_epoch;
    uint64_t loads; /* batches asked for */
    bool restored;  /* the epoch is to be gone on with by YK_NEXT_EPOCH */

    pthread_mutex_t lock;
    pthread_cond_t work;  /* for workers: something to claim, or the end */
    pthread_cond_t ready; /* for the caller: a slot is ready, or nobody is busy */
    slot *slots;
    int64_t slot_count, claimed, taken;
    int busy; /* workers that are making a batch */
    bool stopping;
    atomic_bool abort;
    bool over;  /* nothing to give until the next start: not started, or failed */
    bool fresh; /* never started: next does it */

    atomic_int warnings; /* how many more skipped samples are logged */
    int64_t skipped;     /* in the batches given of this epoch */
    char *why;           /* the error of the first of them, or NULL */

    worker *workers; /* options.workers of them; one, without a thread, for workers = 0 */
    int running;     /* threads */
    made_batch held; /* what the caller has */

    yk__pinned *pinned; /* NULL: the device's memory is the host's */
    made_batch ahead;   /* on its way to the device */
    bool has_ahead;
};

/* The number of the batch that the caller gets next, of all that are given. */
static int64_t next_given(const yk_loader *l)
{
    return l->taken - l->has_ahead;
}

/* The batch of each rank's part that comes next; of several ranks, in the middle of a step, its first one. */
static int64_t next_batch(const yk_loader *l)
{
    int64_t next = next_given(l);
    if (next >= l->batches)
        return l->turns.batches;
    yk__turn turn = yk__turns_at(&l->turns, next);
    return l->turns.ranks == 1 ? turn.batch : turn.begin;
}

static void batch_clear(made_batch *made)
{
    yk__batch_clear(&made->batch);
    made->failed = false;
}

/* Takes the batch back from the caller, who may still use it: that is recognised, and an error. */
static void release_held(yk_loader *l)
{
    yk__ending before = yk__object_ending;
    yk__object_ending = (yk__ending){.how = "the loader went on, and a batch is valid until then"};
    batch_clear(&l->held);
    yk__object_ending = before;
}

/* ---- making a batch -------------------------------------------------------------------------------------- */
static int64_t batch_count(const yk_loader *loader, int64_t batch)
{
    int64_t left = loader->samples - batch * loader->options.batch_size;
    return left < loader->options.batch_size ? left : loader->options.batch_size;
}

/* The loaders whose batches this thread is making, the innermost first. A data set, transform or collate may use any
 * other loader, but not the one that called it, which is in the middle of a batch. */
typedef struct making {
    const yk_loader *loader;
    const struct making *outer;
} making;
static _Thread_local const making *being_made;

static bool is_free(const char *what, const yk_loader *loader)
{
    for (const making *m = being_made; m; m = m->outer) {
        if (m->loader != loader)
            continue;
        yk__fail(YK_ERR_STATE, "%s: called by the data set, a transform or the collate function of the same loader",
                 what);
        return false;
    }
    return true;
}

/* The dataset indices of a turn's batch. */
static const int64_t *order_of(const yk_loader *l, const yk__turn *turn)
{
    return l->order + turn->rank * l->samples + turn->batch * l->options.batch_size;
}

/* Makes a batch on this thread, whose record is empty before and after; a failure goes into `made`. */
static void make_batch(yk_loader *loader, yk__data_worker *data, int64_t number, made_batch *made)
{
    yk__turn turn = yk__turns_at(&loader->turns, number);
    *made = (made_batch){0};
    yk__batch_plan plan = {.pipeline = &loader->pipeline,
                           .seed = loader->options.seed,
                           .epoch = loader->epoch,
                           .count = batch_count(loader, turn.batch),
                           .order = order_of(loader, &turn),
                           .abort = &loader->abort,
                           .collate = loader->options.collate,
                           .collate_user = loader->options.collate_user,
                           .pinned = loader->pinned,
                           .on_error = loader->options.on_error,
                           .warnings = &loader->warnings};
    making own = {loader, being_made};
    being_made = &own;
    yk_status status = yk__batch_make(&plan, data, &made->batch);
    being_made = own.outer;
    if (!status) {
        return;
    }
    batch_clear(made);
    made->failed = true;
    yk__error_take(&made->error);
}

/* ---- workers --------------------------------------------------------------------------------------------- */
static void *worker_main(void *argument)
{
    worker *w = argument;
    yk_loader *l = w->loader;
    pthread_mutex_lock(&l->lock);
    while (!l->stopping) {
        if (l->claimed >= l->batches || l->claimed - l->taken >= l->slot_count) {
            pthread_cond_wait(&l->work, &l->lock);
            continue;
        }
        int64_t batch = l->claimed++;
        l->busy++;
        pthread_mutex_unlock(&l->lock);
        made_batch made;
        make_batch(l, &w->data, batch, &made);
        pthread_mutex_lock(&l->lock);
        l->busy--;
        slot *s = &l->slots[batch % l->slot_count];
        s->made = made;
        s->ready = true;
        if (made.failed)
            l->claimed = l->batches > l->claimed ? l->batches : l->claimed; /* what comes after is not wanted */
        pthread_cond_signal(&l->ready);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

static yk_status start_workers(yk_loader *l)
{
    yk_status status = YK_OK;
    while (l->running < l->options.workers && !status) {
        worker *w = &l->workers[l->running];
        int code = yk__thread_create(&w->thread, worker_main, w);
        if (code)
            status = yk__fail(YK_ERR_IO, "loader: worker thread %d of %d cannot be started: %s", l->running,
                              l->options.workers, strerror(code));
        else
            l->running++;
    }
    return status;
}

/* Takes back everything made or being made. After it no worker is busy, and none has anything to claim. */
static void cancel(yk_loader *l)
{
    pthread_mutex_lock(&l->lock);
    atomic_store(&l->abort, true);
    l->claimed = l->taken = l->batches;
    while (l->busy)
        pthread_cond_wait(&l->ready, &l->lock);
    atomic_store(&l->abort, false);
    for (int64_t i = 0; i < l->slot_count; i++) {
        batch_clear(&l->slots[i].made);
        l->slots[i].ready = false;
    }
    pthread_mutex_unlock(&l->lock);
    batch_clear(&l->ahead);
    l->has_ahead = false;
    release_held(l);
}

/* After cancel. What the workers look at changes under the lock, all at once. */
static void go_on_from(yk_loader *l, int64_t batch)
{
    pthread_mutex_lock(&l->lock);
    l->samples = yk__sampler_samples(&l->sampler);
    l->turns.origin = batch;
    l->turns.batches = yk__sampler_batches(&l->sampler);
    l->batches = yk__turns_count(&l->turns);
    l->claimed = l->taken = 0;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
}

/* ---- the loader ------------------------------------------------------------------------------------------ */
static void loader_destroy(void *object)
{
    yk_loader *l = object;
    if (l->slots) {
        cancel(l);
        pthread_mutex_lock(&l->lock);
        l->stopping = true;
        pthread_cond_broadcast(&l->work);
        pthread_mutex_unlock(&l->lock);
    }
    for (int i = 0; i < l->running; i++)
        pthread_join(l->workers[i].thread, NULL);
    for (int i = 0; l->workers && (i < l->options.workers || i == 0); i++)
        yk__data_worker_clear(&l->workers[i].data);
    yk__pinned_destroy(l->pinned);
    pthread_cond_destroy(&l->ready);
    pthread_cond_destroy(&l->work);
    pthread_mutex_destroy(&l->lock);
    yk__pipeline_clear(&l->pipeline);
    free(l->workers);
    free(l->slots);
    free(l->part);
    free(l->all);
    free(l->why);
    yk_object_release(l->dataset);
    yk__object_free(l);
}

static const yk__type loader_type = {"loader", loader_destroy};

/* That of yk_init_process_group; before it, the one that it will have. */
static yk_status find_rank(const char *name, yk_loader_options *o)
{
    yk__rank_info info;
    if (yk__job_rank_get(&o->rank, &o->world_size))
        return YK_OK;
    yk_status status = yk__rank_info_read(&info);
    if (status)
        yk__error_prefix("loader of %s", name);
    o->rank = info.rank;
    o->world_size = info.world_size;
    return status;
}

static yk_status check_options(const char *name, yk_loader_options *o)
{
    if (o->batch_size == YK_NOT_GIVEN)
        return yk__fail(YK_ERR_ARGUMENT, "loader of %s: batch_size was not given, and has no default", name);
    char what[300];
    snprintf(what, sizeof(what), "loader of %s", name);
    if (yk__check_integer(what, "batch_size", o->batch_size, 1, YK__MOST_BATCH) ||
        yk__check_integer(what, "workers", o->workers, 0, MOST_WORKERS) ||
        (o->prefetch != YK_NOT_GIVEN && yk__check_integer(what, "prefetch", o->prefetch, 1, MOST_PREFETCH)))
        return YK_ERR_ARGUMENT;
    if (o->on_error != YK_FAIL && o->on_error != YK_SKIP)
        return yk__fail(YK_ERR_ARGUMENT, "loader of %s: on_error is %d, expected YK_FAIL or YK_SKIP", name,
                        (int)o->on_error);
    if (o->prefetch == YK_NOT_GIVEN)
        o->prefetch = 2 * o->workers;
    if (o->distributed && o->world_size == YK_NOT_GIVEN && o->rank == YK_NOT_GIVEN && find_rank(name, o))
        return yk__error_code();
    if (yk__device_check(o->device)) {
        if (o->device.type != YK_CPU || o->device.index) /* where cpu:0 is not there, the environment is wrong */
            yk__error_prefix("loader of %s", name);
        return yk__error_code();
    }
    if (o->world_size == YK_NOT_GIVEN && o->rank == YK_NOT_GIVEN) {
        o->world_size = 1;
        o->rank = 0;
    }
    if (o->world_size == YK_NOT_GIVEN || o->rank == YK_NOT_GIVEN)
        return yk__fail(YK_ERR_ARGUMENT, "loader of %s: %s was not given, but %s was", name,
                        o->rank == YK_NOT_GIVEN ? "rank" : "world_size",
                        o->rank == YK_NOT_GIVEN ? "world_size" : "rank");
    if (o->world_size < 1 || o->rank < 0 || o->rank >= o->world_size)
        return yk__fail(YK_ERR_ARGUMENT, "loader of %s: rank %d with world_size %d: expected 0 <= rank < world_size",
                        name, o->rank, o->world_size);
    return YK_OK;
}

static yk__sampler whole_epoch(const yk_loader *l)
{
    return (yk__sampler){.length = l->dataset->table.length,
                         .batch_size = l->options.batch_size,
                         .rank = l->options.rank,
                         .world = l->options.world_size,
                         .drop_last = l->options.drop_last,
                         .no_padding = !l->options.padding};
}

static yk_status allocate(yk_loader *l)
{
    l->sampler = whole_epoch(l);
    l->samples = yk__sampler_samples(&l->sampler);
    l->turns = (yk__turns){.ranks = 1, .accumulate = 1, .batches = yk__sampler_batches(&l->sampler)};
    l->batches = yk__turns_count(&l->turns);
    l->slot_count = l->options.prefetch ? l->options.prefetch : 1;
    l->all = yk__calloc((size_t)l->sampler.length, sizeof(*l->all));
    l->slots = l->all ? yk__calloc((size_t)l->slot_count, sizeof(*l->slots)) : NULL;
    l->workers =
        l->slots ? yk__calloc((size_t)(l->options.workers ? l->options.workers : 1), sizeof(*l->workers)) : NULL;
    if (l->workers && l->sampler.world > 1)
        l->part = yk__calloc((size_t)l->samples, sizeof(*l->part));
    if (!l->workers || (l->sampler.world > 1 && !l->part))
        return YK_ERR_MEMORY;
    for (int i = 0; i < l->options.workers; i++)
        l->workers[i].loader = l;
    const yk__backend *backend = yk__backend_of(l->options.device);
    if (!backend->host_memory && !(l->pinned = yk__pinned_create(l->options.device)))
        return YK_ERR_MEMORY;
    return yk__pipeline_init(&l->pipeline, l->dataset, l->options.dtype);
}

yk_loader *yk_loader_create(yk_dataset *dataset, const yk_loader_options *options)
{
    YK__LIVE(dataset);
    if (!dataset) {
        if (!yk__error_code())
            yk__fail(YK_ERR_ARGUMENT, "loader_create: the data set is NULL");
        return NULL;
    }
    YK__OWN_RECORD;
    yk_loader_options checked;
    if (!yk__scope_check("loader_create") || YK__OPTIONS_TAKE("loader_create", yk_loader_options, options, &checked) ||
        check_options(dataset->table.name, &checked))
        return NULL;
    yk_loader *l = yk__object_new(&loader_type, sizeof(*l));
    if (!l)
        return NULL;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->work, NULL);
    pthread_cond_init(&l->ready, NULL);
    l->dataset = yk_dataset_retain(dataset);
    l->options = checked;
    l->over = l->fresh = true;
    atomic_store(&l->warnings, 10);
    if (allocate(l)) {
        loader_destroy(l);
        return NULL;
    }
    l->claimed = l->taken = l->batches;
    return yk__scope_own(l);
}

yk_loader *yk_loader_retain(yk_loader *loader)
{
    return yk_object_retain(loader);
}

void yk_loader_release(yk_loader *loader)
{
    yk_object_release(loader);
}

int64_t yk_loader_length(const yk_loader *loader)
{
    YK__LIVE(loader);
    yk__sampler whole = loader ? whole_epoch(loader) : (yk__sampler){.batch_size = 1, .world = 1};
    return yk__sampler_batches(&whole);
}

int64_t yk_loader_samples(const yk_loader *loader)
{
    YK__LIVE(loader);
    if (!loader)
        return 0;
    yk__sampler whole = whole_epoch(loader);
    int64_t full = yk__sampler_batches(&whole) * whole.batch_size, samples = yk__sampler_samples(&whole);
    return full < samples ? full : samples;
}

int64_t yk_loader_skipped(const yk_loader *loader)
{
    YK__LIVE(loader);
    return loader ? loader->skipped : 0;
}

const char *yk_loader_skipped_message(const yk_loader *loader)
{
    YK__LIVE(loader);
    return loader ? loader->why : NULL;
}

int64_t yk_loader_left(const yk_loader *loader)
{
    YK__LIVE(loader);
    return !loader || loader->over ? 0 : loader->turns.batches - next_batch(loader);
}

/* The epoch's order: see yk_loader_options. */
static void set_order(yk_loader *l)
{
    const yk__sampler *s = &l->sampler;
    if (l->options.shuffle) {
        yk__stream stream = {.key = l->options.seed, .purpose = YK__RANDOM_SHUFFLE, .epoch = (uint32_t)l->epoch};
        yk__random_permutation(stream, l->all, s->length);
    } else {
        for (int64_t i = 0; i < s->length; i++)
            l->all[i] = i;
    }
    l->order = l->part ? l->part : l->all + s->start;
    yk__sampler one = *s;
    int64_t samples = yk__sampler_samples(s), *part = l->part;
    for (int k = 0; part && k < l->turns.ranks; k++, one.rank++)
        for (int64_t i = 0; i < samples; i++)
            *part++ = l->all[yk__sampler_index(&one, i)];
}

static yk_status check_epoch(const char *function, int64_t epoch)
{
    if (epoch >= 0 && epoch <= UINT32_MAX)
        return YK_OK;
    return yk__fail(YK_ERR_ARGUMENT, "%s: epoch %lld is outside [0, 2^32)", function, (long long)epoch);
}

/* Goes to a batch of the epoch that begins at position `start` of its order. */
static void start_at(yk_loader *l, int64_t epoch, int64_t start, int64_t batch)
{
    cancel(l);
    l->over = true;
    l->fresh = false;
    l->restored = false;
    if (check_epoch("loader_start", epoch))
        return;
    l->epoch = epoch;
    l->next_epoch = epoch + 1;
    l->skipped = 0;
    free(l->why);
    l->why = NULL;
    l->sampler.start = start;
    set_order(l);
    if (l->running < l->options.workers && start_workers(l))
        return;
    l->over = false;
    go_on_from(l, batch);
}

/* The parts of these ranks, from the loader's next start on. */
static yk_status set_share(yk_loader *l, int first, int ranks, int world, int64_t accumulate)
{
    yk__sampler sampler = whole_epoch(l);
    sampler.rank = first;
    sampler.world = world;
    int64_t *part = NULL;
    if (world > 1 && !(part = yk__calloc((size_t)(yk__sampler_samples(&sampler) * ranks), sizeof(*part))))
        return YK_ERR_MEMORY;
    pthread_mutex_lock(&l->lock);
    free(l->part);
    l->part = part;
    l->options.rank = first;
    l->options.world_size = world;
    l->sampler = sampler;
    l->samples = yk__sampler_samples(&sampler);
    l->turns = (yk__turns){.ranks = ranks, .accumulate = accumulate, .batches = yk__sampler_batches(&sampler)};
    l->batches = yk__turns_count(&l->turns);
    l->claimed = l->taken = l->batches; /* until it is started */
    pthread_mutex_unlock(&l->lock);
    return YK_OK;
}

yk_status yk__loader_share(const char *what, yk_loader *l, int first, int ranks, int world, int64_t accumulate)
{
    const char *name = l->dataset->table.name;
    if (!is_free(what, l))
        return YK_ERR_STATE;
    if (!l->fresh)
        return yk__fail(YK_ERR_STATE,
                        "%s: the loader of %s has begun an epoch, of batches for other ranks; hand it over before it "
                        "is started or its state is set",
                        what, name);
    if (!l->options.padding && !l->options.drop_last && world > 1)
        return yk__fail(YK_ERR_ARGUMENT,
                        "%s: the loader of %s has padding off, so the %d ranks' numbers of batches may differ; leave "
                        "padding on, or set drop_last",
                        what, name, world);
    return set_share(l, first, ranks, world, accumulate);
}

yk_status yk__loader_share_anew(yk_loader *l, int first, int ranks)
{
    bool over = l->over, restored = l->restored;
    int64_t epoch = l->epoch, start = l->sampler.start, batch = next_batch(l), skipped = l->skipped;
    char *why = l->why;
    l->why = NULL;
    cancel(l);
    yk_status status = set_share(l, first, ranks, l->options.world_size, l->turns.accumulate);
    if (!status && !over) {
        start_at(l, epoch, start, batch);
        l->restored = restored;
        status = l->over ? yk__error_code() : YK_OK;
    }
    l->skipped = skipped;
    l->why = why;
    return status;
}

yk__turn yk__loader_turn(const yk_loader *l)
{
    return yk__turns_at(&l->turns, next_given(l) - 1);
}

void yk_loader_start(yk_loader *l, int64_t epoch)
{
    YK__OWN_RECORD;
    YK__LIVE(l);
    if (!yk__is_there("loader_start", "loader", l) || !is_free("loader_start", l))
        return;
    if (epoch == YK_NEXT_EPOCH && l->restored && yk_loader_left(l) > 0)
        l->restored = false;
    else
        start_at(l, epoch == YK_NEXT_EPOCH ? l->next_epoch : epoch, 0, 0);
}

yk_status yk_loader_seek(yk_loader *l, int64_t batch)
{
    YK__LIVE(l);
    if (!l)
        return yk__error_code() ? yk__error_code() : yk__fail(YK_ERR_ARGUMENT, "loader_seek: the loader is NULL");
    if (!is_free("loader_seek", l))
        return YK_ERR_STATE;
    if (l->over)
        return yk__fail(YK_ERR_STATE, "loader_seek: no epoch was started");
    if (batch < 0 || batch > l->turns.batches)
        return yk__fail(YK_ERR_ARGUMENT, "loader_seek: batch %lld is outside [0, %lld]", (long long)batch,
                        (long long)l->turns.batches);
    cancel(l);
    l->fresh = false;
    go_on_from(l, batch);
    return YK_OK;
}

yk_loader_state yk_loader_get_state(const yk_loader *l)
{
    YK__LIVE(l);
    if (!l)
        return (yk_loader_state){0};
    const yk_loader_options *o = &l->options;
    return (yk_loader_state){.epoch = l->epoch,
                             .start = l->over ? 0 : l->sampler.start,
                             .batch = l->over ? 0 : next_batch(l),
                             .dataset_length = l->dataset->table.length,
                             .batch_size = o->batch_size,
                             .seed = o->seed,
                             .shuffle = o->shuffle,
                             .drop_last = o->drop_last,
                             .rank = o->rank,
                             .world_size = o->world_size};
}

/* Fails if the state is of a loader with another order, and so with other samples in the rest of the epoch. */
static yk_status check_same(const yk_loader *l, const yk_loader_state *state)
{
    yk_loader_state own = yk_loader_get_state(l);
    const struct {
        const char *name;
        int64_t saved, own;
    } same[] = {{"samples in the data set", state->dataset_length, own.dataset_length},
                {"seed", (int64_t)state->seed, (int64_t)own.seed},
                {"shuffle", state->shuffle, own.shuffle},
                {"drop_last", state->drop_last, own.drop_last}};
    for (size_t i = 0; i < sizeof(same) / sizeof(*same); i++) {
        if (same[i].saved != same[i].own)
            return yk__fail(
                YK_ERR_ARGUMENT,
                "loader of %s: %s is %lld, but it was %lld where the state is from: other batches would follow",
                l->dataset->table.name, same[i].name, (long long)same[i].own, (long long)same[i].saved);
    }
    return YK_OK;
}

yk_status yk_loader_set_state(yk_loader *l, const yk_loader_state *state)
{
    YK__OWN_RECORD;
    YK__LIVE(l);
    if (!l || !state)
        return yk__fail(YK_ERR_ARGUMENT, "loader_set_state: the %s is NULL", l ? "state" : "loader");
    yk_status status = is_free("loader_set_state", l) ? check_same(l, state) : YK_ERR_STATE;
    if (!status)
        status = check_epoch("loader_set_state", state->epoch);
    if (status)
        return status;
    if (state->batch_size < 1 || state->batch_size > YK__MOST_BATCH || state->world_size < 1)
        return yk__fail(YK_ERR_ARGUMENT, "loader_set_state: batches of %lld on %d ranks", (long long)state->batch_size,
                        state->world_size);
    yk__sampler saved = whole_epoch(l);
    saved.start = state->start;
    saved.batch_size = state->batch_size;
    saved.world = state->world_size;
    saved.rank = 0; /* no rank has more */
    if (state->start < 0 || state->start > saved.length)
        return yk__fail(YK_ERR_ARGUMENT, "loader_set_state: start %lld is outside [0, %lld]", (long long)state->start,
                        (long long)saved.length);
    int64_t batches = yk__sampler_batches(&saved);
    if (state->batch < 0 || state->batch > batches)
        return yk__fail(YK_ERR_ARGUMENT, "loader_set_state: batch %lld is outside [0, %lld]", (long long)state->batch,
                        (long long)batches);
    if (saved.batch_size != l->options.batch_size || saved.world != l->options.world_size) {
        /* An epoch at its end stays there, whatever drop_last left out. */
        start_at(l, state->epoch, state->batch == batches ? saved.length : yk__sampler_taken(&saved, state->batch), 0);
    } else {
        saved.rank = l->options.rank;
        int64_t own = yk__sampler_batches(&saved); /* without padding a rank may have one batch less */
        start_at(l, state->epoch, state->start, state->batch < own ? state->batch : own);
    }
    l->restored = !l->over;
    return l->over ? yk__error_code() : YK_OK;
}

/* The batch at l->taken from its slot. */
static void wait_for_batch(yk_loader *l, made_batch *made)
{
    pthread_mutex_lock(&l->lock);
    slot *s = &l->slots[l->taken % l->slot_count];
    while (!s->ready)
        pthread_cond_wait(&l->ready, &l->lock);
    *made = s->made;
    s->made = (made_batch){0};
    s->ready = false;
    l->taken++;
    pthread_cond_signal(&l->work);
    pthread_mutex_unlock(&l->lock);
}

static bool batch_is_ready(yk_loader *l)
{
    pthread_mutex_lock(&l->lock);
    bool ready = l->taken < l->batches && l->slots[l->taken % l->slot_count].ready;
    pthread_mutex_unlock(&l->lock);
    return ready;
}

/* Tensor i of a batch on the options' device. */
static yk_tensor *bring_tensor(const yk_loader *l, const yk__batch *batch, int i)
{
    if (i == 0 && batch->crops)
        return yk__pinned_augment(l->pinned, &l->pipeline, batch->tensors[0], batch->crops);
    return l->pinned ? yk__pinned_upload(l->pinned, batch->tensors[i])
                     : yk__raw_to(batch->tensors[i], l->options.device);
}

/* The tensors of a batch on the options' device: their copies are queued. What fails goes into `made`. */
static void bring_to_device(const yk_loader *l, made_batch *made)
{
    YK__OWN_RECORD;
    yk__batch *batch = &made->batch;
    if (yk_device_equal(l->options.device, (yk_device){0})) /* they are made there */
        return;
    for (int i = 0; i < batch->count && !made->failed; i++) {
        yk_tensor *there = bring_tensor(l, batch, i);
        if (there) {
            yk_tensor_release(batch->tensors[i]);
            batch->tensors[i] = there;
            yk__object_set_maker(there, "loader_next");
        } else {
            batch_clear(made);
            made->failed = true;
            yk__error_take(&made->error);
        }
    }
    yk_tensor_release(batch->crops);
    batch->crops = NULL;
}

/* The batch at l->taken, made here where there are no workers, on the options' device. */
static void take_batch(yk_loader *l, made_batch *made)
{
    if (l->options.workers)
        wait_for_batch(l, made);
    else
        make_batch(l, &l->workers[0].data, l->taken++, made);
    bring_to_device(l, made);
}

/* The next batch to l->held. On a device the one behind it is on its way when this returns. */
static void take_next(yk_loader *l)
{
    if (!l->pinned) {
        take_batch(l, &l->held);
        return;
    }
    yk_status status = yk__pinned_hold_back(l->pinned);
    if (l->has_ahead)
        l->held = l->ahead;
    else if (!status)
        take_batch(l, &l->held);
    l->ahead = (made_batch){0};
    l->has_ahead = false;
    if (!status && !l->held.failed)
        status = yk__pinned_await(l->pinned);
    if (status) {
        batch_clear(&l->held);
        l->held.failed = true;
        yk__error_take(&l->held.error);
    }
    if (!l->held.failed && l->options.workers && batch_is_ready(l)) {
        take_batch(l, &l->ahead);
        l->has_ahead = true;
    }
}

static bool batch_next(yk_loader *l, yk_batch *batch)
{
    release_held(l);
    l->restored = false;
    if (l->fresh)
        start_at(l, l->next_epoch, 0, 0);
    int64_t number = next_given(l);
    if (l->over || number == l->batches)
        return false;
    yk__turn turn = yk__turns_at(&l->turns, number);
    yk__sampler of_rank = l->sampler;
    of_rank.rank += turn.rank;
    take_next(l);
    if (l->held.failed) {
        cancel(l); /* no worker asks the data set for more once the caller knows */
        yk__error_put(&l->held.error);
        l->over = true;
        return false;
    }
    yk__batch *held = &l->held.batch;
    if (!l->why) {
        l->why = held->why;
        held->why = NULL;
    }
    l->skipped += held->skipped;
    *batch = (yk_batch){.input = held->tensors[0],
                        .target = held->tensors[1],
                        .n_tensors = held->count,
                        .index = turn.batch,
                        .count = batch_count(l, turn.batch),
                        .padding = yk__sampler_padding(&of_rank, turn.batch),
                        .samples = held->samples ? held->samples : order_of(l, &turn),
                        .skipped = held->skipped};
    memcpy(batch->tensors, held->tensors, sizeof(batch->tensors));
    return true;
}

bool yk_loader_next(yk_loader *l, yk_batch *batch)
{
    static const yk__page_operation load = {.what = YK__WHAT_LOAD, .kind = "load", .peer = -1, .tag = -1};
    YK__OWN_RECORD;
    YK__LIVE(l);
    if (!yk__is_there("loader_next", "batch", batch))
        return false;
    *batch = (yk_batch){0};
    if (!yk__is_there("loader_next", "loader", l) || !is_free("loader_next", l))
        return false;
    yk__page_operation shown = load;
    shown.began = yk__progress_phase(YK__PHASE_LOADING);
    shown.number = ++l->loads;
    shown.count = l->options.batch_size;
    int entry = yk__progress_begin(&shown);
    bool there = batch_next(l, batch);
    yk__progress_end(entry);
    (void)yk__progress_phase(YK__PHASE_NONE);
    return there;
}
