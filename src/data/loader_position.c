/*
 * loader_position.c - where a loader is in its epoch: the order of samples, the ranks whose parts it gives, starting,
 * seeking, its state. Layer: data.
 */
#include <stdlib.h>

#include "data/loader.h"

int64_t yk__loader_next_given(const yk_loader *l)
{
    return l->taken - l->has_ahead;
}

int64_t yk__loader_next_batch(const yk_loader *l)
{
    int64_t next = yk__loader_next_given(l);
    if (next >= l->batches)
        return l->turns.batches;
    yk__turn turn = yk__turns_at(&l->turns, next);
    return l->turns.ranks == 1 ? turn.batch : turn.begin;
}

/* Samples of an epoch, of all ranks together. */
static int64_t order_length(const yk_loader *l)
{
    return l->options.sampler ? yk__sampler_count(l->options.sampler) : l->dataset->table.length;
}

yk__sampler yk__loader_whole_epoch(const yk_loader *l)
{
    return (yk__sampler){.length = order_length(l),
                         .batch_size = l->options.batch_size,
                         .rank = l->options.rank,
                         .world = l->options.world_size,
                         .drop_last = l->options.drop_last,
                         .no_padding = !l->options.padding};
}

/* The epoch's order: see yk_loader_options. */
static yk_status set_order(yk_loader *l)
{
    const yk__sampler *s = &l->sampler;
    if (l->options.sampler) {
        if (yk__sampler_order(l->options.sampler, l->dataset, l->options.seed, l->epoch, l->all))
            return yk__error_code();
    } else if (l->options.shuffle) {
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
    return YK_OK;
}

static yk_status check_epoch(const char *function, int64_t epoch)
{
    if (epoch >= 0 && epoch <= UINT32_MAX)
        return YK_OK;
    return yk__fail(YK_ERR_ARGUMENT, "%s: epoch %lld is outside [0, 2^32)", function, (long long)epoch);
}

void yk__loader_start_at(yk_loader *l, int64_t epoch, int64_t start, int64_t batch)
{
    yk__loader_cancel(l);
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
    if (l->streams ? yk__loader_open_streams(l, batch, &batch) : set_order(l))
        return;
    if (l->running < l->options.workers && yk__loader_start_workers(l))
        return;
    l->over = false;
    yk__loader_go_on_from(l, batch);
}

/* The parts of these ranks, from the loader's next start on. */
static yk_status set_share(yk_loader *l, int first, int ranks, int world, int64_t accumulate)
{
    yk__sampler sampler = yk__loader_whole_epoch(l);
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
    if (!yk__loader_is_idle(what, l))
        return YK_ERR_STATE;
    if (!yk__has_indices(what, l->dataset))
        return YK_ERR_ARGUMENT;
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
    int64_t epoch = l->epoch, start = l->sampler.start, batch = yk__loader_next_batch(l), skipped = l->skipped;
    char *why = l->why;
    l->why = NULL;
    yk__loader_cancel(l);
    yk_status status = set_share(l, first, ranks, l->options.world_size, l->turns.accumulate);
    if (!status && !over) {
        yk__loader_start_at(l, epoch, start, batch);
        l->restored = restored;
        status = l->over ? yk__error_code() : YK_OK;
    }
    l->skipped = skipped;
    l->why = why;
    return status;
}

bool yk__loader_has_next(const yk_loader *l)
{
    return l->fresh || (!l->over && yk__loader_next_given(l) < l->batches);
}

yk__turn yk__loader_turn(const yk_loader *l)
{
    return yk__turns_at(&l->turns, yk__loader_next_given(l) - 1);
}

void yk_loader_start(yk_loader *l, int64_t epoch)
{
    YK__OWN_RECORD;
    YK__LIVE(l);
    if (!yk__is_there("loader_start", "loader", l) || !yk__loader_is_idle("loader_start", l))
        return;
    if (epoch == YK_NEXT_EPOCH && l->restored && yk_loader_left(l) != 0)
        l->restored = false;
    else
        yk__loader_start_at(l, epoch == YK_NEXT_EPOCH ? l->next_epoch : epoch, 0, 0);
}

yk_status yk_loader_seek(yk_loader *l, int64_t batch)
{
    YK__LIVE(l);
    if (!l)
        return yk__error_code() ? yk__error_code() : yk__fail(YK_ERR_ARGUMENT, "loader_seek: the loader is NULL");
    if (!yk__loader_is_idle("loader_seek", l))
        return YK_ERR_STATE;
    if (l->over)
        return yk__fail(YK_ERR_STATE, "loader_seek: no epoch was started");
    if (batch < 0 || batch > l->turns.batches)
        return yk__fail(YK_ERR_ARGUMENT, "loader_seek: batch %lld is outside [0, %lld]", (long long)batch,
                        (long long)l->turns.batches);
    if (l->streams) {
        yk__loader_start_at(l, l->epoch, 0, batch);
        return l->over ? yk__error_code() : YK_OK;
    }
    yk__loader_cancel(l);
    l->fresh = false;
    yk__loader_go_on_from(l, batch);
    return YK_OK;
}

yk_loader_state yk_loader_get_state(const yk_loader *l)
{
    YK__LIVE(l);
    if (!l)
        return (yk_loader_state){0};
    const yk_loader_options *o = &l->options;
    int64_t next = l->streams ? l->given : yk__loader_next_batch(l);
    return (yk_loader_state){.epoch = l->epoch + l->finished,
                             .start = l->over ? 0 : l->sampler.start,
                             .batch = l->over || l->finished ? 0 : next,
                             .dataset_length = l->streams ? l->stream_count : order_length(l),
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
    } same[] = {{l->streams           ? "streams of the data set"
                 : l->options.sampler ? "samples of the sampler"
                                      : "samples in the data set",
                 state->dataset_length, own.dataset_length},
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

/* The position of a loader of an iterable set, which has no order that another layout could divide. */
static yk_status set_stream_state(yk_loader *l, const yk_loader_state *state)
{
    const yk_loader_options *o = &l->options;
    if (state->batch_size != o->batch_size || state->world_size != o->world_size)
        return yk__fail(YK_ERR_ARGUMENT,
                        "loader of %s: the state is of batches of %lld on %d ranks, not of %lld on %d, and an iterable "
                        "set is gone on with in the same layout alone",
                        l->dataset->table.name, (long long)state->batch_size, state->world_size,
                        (long long)o->batch_size, o->world_size);
    if (state->batch < 0 || state->batch > YK__MOST_TURNS || state->start)
        return yk__fail(YK_ERR_ARGUMENT,
                        "loader_set_state: batch %lld, start %lld; expected a batch of 0 or more, and "
                        "start 0 for an iterable set",
                        (long long)state->batch, (long long)state->start);
    yk__loader_start_at(l, state->epoch, 0, state->batch);
    l->restored = !l->over;
    return l->over ? yk__error_code() : YK_OK;
}

yk_status yk_loader_set_state(yk_loader *l, const yk_loader_state *state)
{
    YK__OWN_RECORD;
    YK__LIVE(l);
    if (!l || !state)
        return yk__fail(YK_ERR_ARGUMENT, "loader_set_state: the %s is NULL", l ? "state" : "loader");
    yk_status status = yk__loader_is_idle("loader_set_state", l) ? check_same(l, state) : YK_ERR_STATE;
    if (!status)
        status = check_epoch("loader_set_state", state->epoch);
    if (status)
        return status;
    if (state->batch_size < 1 || state->batch_size > YK__MOST_BATCH || state->world_size < 1)
        return yk__fail(YK_ERR_ARGUMENT, "loader_set_state: batches of %lld on %d ranks", (long long)state->batch_size,
                        state->world_size);
    if (l->streams)
        return set_stream_state(l, state);
    yk__sampler saved = yk__loader_whole_epoch(l);
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
        yk__loader_start_at(l, state->epoch,
                            state->batch == batches ? saved.length : yk__sampler_taken(&saved, state->batch), 0);
    } else {
        saved.rank = l->options.rank;
        int64_t own = yk__sampler_batches(&saved); /* without padding a rank may have one batch less */
        yk__loader_start_at(l, state->epoch, state->start, state->batch < own ? state->batch : own);
    }
    l->restored = !l->over;
    return l->over ? yk__error_code() : YK_OK;
}

int64_t yk_loader_left(const yk_loader *loader)
{
    YK__LIVE(loader);
    if (loader && loader->streams && !loader->over)
        return loader->finished ? 0 : -1;
    return !loader || loader->over ? 0 : loader->turns.batches - yk__loader_next_batch(loader);
}
