/*
 * loader.c - a loader's options, making and ending one, and its batches for the caller. Layer: data.
 *
 * Threads make batches ahead and put them into slots: Note [Order of batches] in loader_workers.c. Where an epoch
 * stands is loader_position.c's; a batch comes to a device in loader_device.c.
 */
#include <stdlib.h>
#include <string.h>

#include "base/events.h"
#include "data/loader.h"
#include "host/progress.h"
#include "host/rank_info.h"
#include "tensor/tensor.h"

/* Any numbers far beyond what helps: larger ones are taken for mistakes. 1,024 is also the largest thread count of a
 * CPU device. */
enum { MOST_WORKERS = 1024, MOST_PREFETCH = 1 << 16 };

static void loader_destroy(void *object)
{
    yk_loader *l = object;
    if (l->slots) {
        yk__loader_cancel(l);
        pthread_mutex_lock(&l->lock);
        l->stopping = true;
        pthread_cond_broadcast(&l->work);
        pthread_mutex_unlock(&l->lock);
    }
    for (int i = 0; i < l->running; i++)
        pthread_join(l->workers[i].thread, NULL);
    for (int i = 0; l->workers && (i < l->options.workers || i == 0); i++)
        yk__data_worker_clear(&l->workers[i].data);
    yk__loader_close_streams(l);
    free(l->streams);
    yk__pinned_destroy(l->pinned);
    pthread_cond_destroy(&l->ready);
    pthread_cond_destroy(&l->work);
    pthread_mutex_destroy(&l->lock);
    yk__pipeline_clear(&l->pipeline);
    free(l->workers);
    free(l->slots);
    free(l->part);
    yk_object_release(l->options.sampler);
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

/* Alphas are Beta's, or 0. Larger ones than most_alpha are taken for mistakes: they draw 0.5 always. */
static yk_status check_mix(const char *what, const yk_loader_options *o)
{
    const double most_alpha = 1e6;
    if (yk__check_number(what, "mixup", o->mixup, 0, most_alpha) ||
        yk__check_number(what, "cutmix", o->cutmix, 0, most_alpha) ||
        yk__check_integer(what, "num_classes", o->num_classes, 0, INT32_MAX))
        return yk__error_code();
    if (o->collate && (o->mixup > 0 || o->cutmix > 0))
        return yk__fail(YK_ERR_ARGUMENT, "%s: %s mixes batches that the loader stacks, and collate makes its own", what,
                        o->mixup > 0 ? "mixup" : "cutmix");
    return YK_OK;
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
    if (check_mix(what, o))
        return yk__error_code();
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

/* A sampler that was freed is an error, and so is one beside shuffle, or for another data set. */
static yk_status check_sampler(const yk_dataset *dataset, yk_loader_options *o)
{
    if (yk__is_freed(o->sampler))
        return yk__fail_freed("yk_loader_create", o->sampler);
    if (o->sampler && o->shuffle)
        return yk__fail(YK_ERR_ARGUMENT, "loader of %s: a sampler gives the order, and shuffle another; leave out one",
                        dataset->table.name);
    return o->sampler ? yk__sampler_check(o->sampler, dataset) : YK_OK;
}

static yk_status allocate(yk_loader *l)
{
    l->sampler = yk__loader_whole_epoch(l);
    l->samples = yk__sampler_samples(&l->sampler);
    l->turns = (yk__turns){.ranks = 1, .accumulate = 1, .batches = yk__sampler_batches(&l->sampler)};
    l->batches = yk__turns_count(&l->turns);
    l->slot_count = l->options.prefetch ? l->options.prefetch : 1;
    l->all = yk__calloc((size_t)l->sampler.length, sizeof(*l->all));
    l->slots = l->all ? yk__calloc((size_t)l->slot_count, sizeof(*l->slots)) : NULL;
    l->workers =
        l->slots ? yk__calloc((size_t)(l->options.workers ? l->options.workers : 1), sizeof(*l->workers)) : NULL;
    if (l->workers && l->stream_count && !(l->streams = yk__calloc((size_t)l->stream_count, sizeof(*l->streams))))
        return YK_ERR_MEMORY;
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
        check_options(dataset->table.name, &checked) || check_sampler(dataset, &checked) ||
        yk__loader_check_iterable(dataset, &checked))
        return NULL;
    yk_loader *l = yk__object_new(&loader_type, sizeof(*l));
    if (!l)
        return NULL;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->work, NULL);
    pthread_cond_init(&l->ready, NULL);
    l->dataset = yk_dataset_retain(dataset);
    l->options = checked;
    l->options.sampler = yk_sampler_retain(checked.sampler);
    const double least_alpha = 1e-6; /* below, a batch would be mixed by 0 or 1 */
    l->mix = (yk__mix){.mixup = checked.mixup < least_alpha ? 0 : checked.mixup,
                       .cutmix = checked.cutmix < least_alpha ? 0 : checked.cutmix,
                       .classes = checked.num_classes ? checked.num_classes : dataset->table.classes};
    l->stream_count = yk__dataset_streams(dataset);
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
    yk__sampler whole = loader ? yk__loader_whole_epoch(loader) : (yk__sampler){.batch_size = 1, .world = 1};
    if (loader && loader->streams)
        return -1;
    return yk__sampler_batches(&whole);
}

int64_t yk_loader_samples(const yk_loader *loader)
{
    YK__LIVE(loader);
    if (!loader || loader->streams)
        return loader ? -1 : 0;
    yk__sampler whole = yk__loader_whole_epoch(loader);
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

static bool batch_next(yk_loader *l, yk_batch *batch)
{
    yk__loader_release_held(l);
    l->restored = false;
    if (l->fresh)
        yk__loader_start_at(l, l->next_epoch, 0, 0);
    int64_t number = yk__loader_next_given(l);
    if (l->over || number == l->batches)
        return false;
    yk__turn turn = yk__turns_at(&l->turns, number);
    yk__sampler of_rank = l->sampler;
    of_rank.rank += turn.rank;
    if (!l->streams)
        yk__loader_take(l);
    else if (!yk__loader_take_turn(l))
        return false;
    if (l->held.failed) {
        yk__loader_cancel(l); /* no worker asks the data set for more once the caller knows */
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
                        .index = l->streams ? l->given++ : turn.batch,
                        .count = l->streams ? held->rows : yk__loader_batch_count(l, turn.batch),
                        .padding = l->streams ? 0 : yk__sampler_padding(&of_rank, turn.batch),
                        .samples = held->samples ? held->samples : yk__loader_order_of(l, &turn),
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
    if (!yk__is_there("loader_next", "loader", l) || !yk__loader_is_idle("loader_next", l))
        return false;
    yk__page_operation shown = load;
    shown.began = yk__progress_phase(YK__PHASE_LOADING);
    shown.number = ++l->loads;
    shown.count = l->options.batch_size;
    YK__EVENT_OF(YK__EVENT_LOAD, "loader_next", shown.number, shown.count, -1);
    int entry = yk__progress_begin(&shown);
    bool there = batch_next(l, batch);
    yk__progress_end_at(entry, yk__progress_phase(YK__PHASE_NONE));
    return there;
}
