/*
 * loader_streams.c - a loader's batches from an iterable set. Layer: data.
 *
 * Note [Turns of streams]
 * An epoch is a row of turns, of which turn t is stream t % streams': it is the next batch of that stream, or none once
 * that has ended. The caller passes over turns without a batch, and the epoch ends with the stream that ends last.
 * Turns are claimed, made and taken as the batches of Note [Order of batches] are, but for one thing: a turn is claimed
 * when its stream's turn before it is made. So one worker at a time is in an iterator, and each makes the samples that
 * it would make alone: the order depends on the number of streams, not on that of workers.
 *
 *   streams of 3, 1 and 2 batches:  a0 b0 c0 a1 -- c1 a2 -- -- -- (b and c are passed over; a ends last)
 *
 * A position is a number of batches. To go there is to open the streams anew and to pass over so many.
 */
#include "data/loader.h"

yk_status yk__loader_check_iterable(const yk_dataset *dataset, const yk_loader_options *o)
{
    if (!yk__is_iterable(dataset))
        return YK_OK;
    const char *name = o->shuffle               ? "shuffle"
                       : o->sampler             ? "sampler"
                       : o->on_error != YK_FAIL ? "on_error = YK_SKIP"
                       : !o->padding            ? "padding = false"
                                                : NULL;
    if (name)
        return yk__fail(YK_ERR_ARGUMENT,
                        "loader of %s: %s is for sets with indices, and this one is iterable: leave it out",
                        dataset->table.name, name);
    return YK_OK;
}

void yk__loader_close_streams(yk_loader *l)
{
    for (int i = 0; l->streams && i < l->stream_count; i++)
        yk__data_stream_close(l->dataset, &l->streams[i]);
}

/* Passes over `batches` batches of open streams. */
static yk_status pass_over(yk_loader *l, int64_t batches, int64_t *turn)
{
    int ended = 0;
    while (l->given < batches) {
        yk__data_stream *s = &l->streams[*turn % l->stream_count];
        int64_t size = l->options.batch_size, skipped = 0;
        if (!s->ended && yk__pipeline_skip(&l->pipeline, &l->workers[0].data, s, size, &skipped))
            return yk__error_code();
        if (skipped == size || (skipped && !l->options.drop_last))
            l->given++;
        else if (!s->empty)
            ended++;
        s->empty |= skipped == 0 || (skipped < size && l->options.drop_last);
        if (ended == l->stream_count && l->given < batches)
            return yk__fail(YK_ERR_ARGUMENT, "loader of %s: batch %lld of epoch %lld, of which rank %d has %lld",
                            l->dataset->table.name, (long long)batches, (long long)l->epoch, l->options.rank,
                            (long long)l->given);
        ++*turn;
    }
    return YK_OK;
}

yk_status yk__loader_open_streams(yk_loader *l, int64_t batches, int64_t *turn)
{
    const yk_loader_options *o = &l->options;
    yk_status status = YK_OK;
    yk__loader_close_streams(l);
    l->empty = l->passed = 0;
    l->given = 0;
    l->finished = false;
    *turn = 0;
    for (int i = 0; i < l->stream_count && !status; i++)
        status = yk__data_stream_open(l->dataset,
                                      &(yk_iterable_part){.stream = i,
                                                          .streams = l->stream_count,
                                                          .rank = o->rank,
                                                          .ranks = o->world_size,
                                                          .epoch = l->epoch,
                                                          .seed = o->seed},
                                      &l->streams[i]);
    if (!status)
        status = pass_over(l, batches, turn);
    for (int i = 0; i < l->stream_count; i++)
        l->streams[i].empty = false; /* the turns to come tell it again */
    return status;
}

yk__data_stream *yk__loader_stream(const yk_loader *l, int64_t number)
{
    return l->streams ? &l->streams[(l->turns.origin + number) % l->stream_count] : NULL;
}

bool yk__loader_may_claim(const yk_loader *l)
{
    return !l->streams || (l->empty < l->stream_count && !yk__loader_stream(l, l->claimed)->busy);
}

void yk__loader_begin_turn(yk_loader *l, int64_t number)
{
    if (l->streams)
        yk__loader_stream(l, number)->busy = true;
}

void yk__loader_end_turn(yk_loader *l, int64_t number, const yk__made_batch *made)
{
    yk__data_stream *s = yk__loader_stream(l, number);
    if (!s)
        return;
    s->busy = false;
    if (!made->failed && !made->batch.count && !s->empty) {
        s->empty = true;
        l->empty++;
    }
    pthread_cond_broadcast(&l->work);
}

bool yk__loader_take_turn(yk_loader *l)
{
    while (!l->finished) {
        yk__data_stream *s = yk__loader_stream(l, yk__loader_next_given(l));
        yk__loader_take(l);
        if (l->held.failed || l->held.batch.count)
            return true;
        l->passed += !s->passed;
        s->passed = true;
        l->finished = l->passed == l->stream_count;
    }
    return false;
}
