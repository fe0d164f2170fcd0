/*
 * loader_workers.c - the threads that make a loader's batches ahead, and the slots of these. Layer: data.
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
 * A batch gets new tensors each time; the ones given back come out of the device's cache again, so memory is reused
 * unless the caller kept a reference. A failed batch is put into its slot like any other: the caller meets it at its
 * position in the order, whatever came after it.
 *
 * Invariants, under `lock`: taken <= claimed <= batches; slots of batches [taken, claimed) are in use, all others
 * empty. `abort` is read outside the lock, between samples, to leave a batch that nobody will take.
 */
#include <stdlib.h>
#include <string.h>

#include "base/events.h"
#include "data/loader.h"

void yk__made_batch_clear(yk__made_batch *made)
{
    yk__batch_clear(&made->batch);
    made->failed = false;
}

int64_t yk__loader_batch_count(const yk_loader *loader, int64_t batch)
{
    if (loader->streams)
        return loader->options.batch_size;
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

bool yk__loader_is_idle(const char *what, const yk_loader *loader)
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

const int64_t *yk__loader_order_of(const yk_loader *l, const yk__turn *turn)
{
    return l->streams ? NULL : l->order + turn->rank * l->samples + turn->batch * l->options.batch_size;
}

void yk__loader_make_batch(yk_loader *loader, yk__data_worker *data, int64_t number, yk__made_batch *made)
{
    YK__EVENT_OF(YK__EVENT_WORKER, "batch", number + 1, loader->options.batch_size, -1);
    yk__turn turn = yk__turns_at(&loader->turns, number);
    *made = (yk__made_batch){0};
    yk__batch_plan plan = {.pipeline = &loader->pipeline,
                           .seed = loader->options.seed,
                           .epoch = loader->epoch,
                           .count = yk__loader_batch_count(loader, turn.batch),
                           .order = yk__loader_order_of(loader, &turn),
                           .abort = &loader->abort,
                           .collate = loader->options.collate,
                           .collate_user = loader->options.collate_user,
                           .pinned = loader->pinned,
                           .on_error = loader->options.on_error,
                           .warnings = &loader->warnings,
                           .mix = loader->mix.mixup > 0 || loader->mix.cutmix > 0 ? &loader->mix : NULL,
                           .position = loader->sampler.start +
                                       turn.batch * loader->options.batch_size * loader->sampler.world +
                                       loader->sampler.rank + turn.rank,
                           .stream = yk__loader_stream(loader, number),
                           .drop_last = loader->options.drop_last};
    making own = {loader, being_made};
    being_made = &own;
    yk_status status = yk__batch_make(&plan, data, &made->batch);
    being_made = own.outer;
    if (!status) {
        return;
    }
    yk__made_batch_clear(made);
    made->failed = true;
    yk__error_take(&made->error);
}

static void *worker_main(void *argument)
{
    yk__loader_worker *w = argument;
    yk_loader *l = w->loader;
    yk__event_thread_name("loader", NULL);
    pthread_mutex_lock(&l->lock);
    while (!l->stopping) {
        if (l->claimed >= l->batches || l->claimed - l->taken >= l->slot_count || !yk__loader_may_claim(l)) {
            pthread_cond_wait(&l->work, &l->lock);
            continue;
        }
        int64_t batch = l->claimed++;
        l->busy++;
        yk__loader_begin_turn(l, batch);
        pthread_mutex_unlock(&l->lock);
        yk__made_batch made;
        yk__loader_make_batch(l, &w->data, batch, &made);
        pthread_mutex_lock(&l->lock);
        l->busy--;
        yk__loader_end_turn(l, batch, &made);
        yk__batch_slot *s = &l->slots[batch % l->slot_count];
        s->made = made;
        s->ready = true;
        if (made.failed)
            l->claimed = l->batches > l->claimed ? l->batches : l->claimed; /* what comes after is not wanted */
        pthread_cond_signal(&l->ready);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

yk_status yk__loader_start_workers(yk_loader *l)
{
    yk_status status = YK_OK;
    while (l->running < l->options.workers && !status) {
        yk__loader_worker *w = &l->workers[l->running];
        int code = yk__thread_create(&w->thread, worker_main, w);
        if (code)
            status = yk__fail(YK_ERR_IO, "loader: worker thread %d of %d cannot be started: %s", l->running,
                              l->options.workers, strerror(code));
        else
            l->running++;
    }
    return status;
}

void yk__loader_release_held(yk_loader *l)
{
    yk__ending before = yk__object_ending;
    yk__object_ending = (yk__ending){.how = "the loader went on, and a batch is valid until then"};
    yk__made_batch_clear(&l->held);
    yk__object_ending = before;
}

void yk__loader_cancel(yk_loader *l)
{
    pthread_mutex_lock(&l->lock);
    atomic_store(&l->abort, true);
    l->claimed = l->taken = l->batches;
    while (l->busy)
        pthread_cond_wait(&l->ready, &l->lock);
    atomic_store(&l->abort, false);
    for (int64_t i = 0; i < l->slot_count; i++) {
        yk__made_batch_clear(&l->slots[i].made);
        l->slots[i].ready = false;
    }
    pthread_mutex_unlock(&l->lock);
    yk__made_batch_clear(&l->ahead);
    l->has_ahead = false;
    yk__loader_release_held(l);
}

void yk__loader_go_on_from(yk_loader *l, int64_t batch)
{
    pthread_mutex_lock(&l->lock);
    l->samples = yk__sampler_samples(&l->sampler);
    l->turns.origin = batch;
    l->turns.batches = l->streams ? YK__MOST_TURNS : yk__sampler_batches(&l->sampler);
    l->batches = yk__turns_count(&l->turns);
    l->claimed = l->taken = 0;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
}

void yk__loader_wait(yk_loader *l, yk__made_batch *made)
{
    pthread_mutex_lock(&l->lock);
    yk__batch_slot *s = &l->slots[l->taken % l->slot_count];
    while (!s->ready)
        pthread_cond_wait(&l->ready, &l->lock);
    *made = s->made;
    s->made = (yk__made_batch){0};
    s->ready = false;
    l->taken++;
    pthread_cond_signal(&l->work);
    pthread_mutex_unlock(&l->lock);
}

bool yk__loader_is_ready(yk_loader *l)
{
    pthread_mutex_lock(&l->lock);
    bool ready = l->taken < l->batches && l->slots[l->taken % l->slot_count].ready;
    pthread_mutex_unlock(&l->lock);
    return ready;
}
