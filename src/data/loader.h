/*
 * loader.h - the loader from the inside: what loader.c, loader_workers.c, loader_position.c and loader_device.c share.
 * Layer: data.
 */
#ifndef YOKE_DATA_LOADER_H
#define YOKE_DATA_LOADER_H

#include <pthread.h>

#include "base/thread.h"
#include "data/dataset.h"
#include "data/sampler.h"

typedef struct yk__made_batch {
    yk__batch batch;
    bool failed;
    yk_error error;
} yk__made_batch;

typedef struct yk__batch_slot {
    bool ready;
    yk__made_batch made;
} yk__batch_slot;

typedef struct yk__loader_worker {
    yk_loader *loader;
    pthread_t thread;
    yk__data_worker data;
} yk__loader_worker;

struct yk_loader {
    yk__object object;
    yk_dataset *dataset;
    yk_loader_options options;
    yk__pipeline pipeline;
    yk__mix mix;          /* of the options */
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
    yk__batch_slot *slots;
    int64_t slot_count, claimed, taken;
    int busy; /* workers that are making a batch */
    bool stopping;
    atomic_bool abort;
    bool over;  /* nothing to give until the next start: not started, or failed */
    bool fresh; /* never started: next does it */

    atomic_int warnings; /* how many more skipped samples are logged */
    /* The streams of an iterable set, else NULL: Note [Turns of streams] in loader_streams.c. */
    yk__data_stream *streams;
    int stream_count;
    int empty;       /* streams that left a turn without a batch; under `lock` */
    int passed;      /* of them, those that the caller has seen */
    int64_t given;   /* batches of this epoch */
    bool finished;   /* the caller has seen all of them end */
    int64_t skipped; /* in the batches given of this epoch */
    char *why;       /* the error of the first of them, or NULL */

    yk__loader_worker *workers; /* options.workers of them; one, without a thread, for workers = 0 */
    int running;                /* threads */
    yk__made_batch held;        /* what the caller has */

    yk__pinned *pinned;   /* NULL: the device's memory is the host's */
    yk__made_batch ahead; /* on its way to the device */
    bool has_ahead;
};

/* ---- batches made ahead (loader_workers.c) ---- */
void yk__made_batch_clear(yk__made_batch *made);
/* The samples of a batch. */
int64_t yk__loader_batch_count(const yk_loader *loader, int64_t batch);
/* False, with an error, where the data set, a transform or the collate function of this loader calls it: the loader is
 * in the middle of a batch. */
bool yk__loader_is_idle(const char *what, const yk_loader *loader);
/* The dataset indices of a turn's batch. */
const int64_t *yk__loader_order_of(const yk_loader *l, const yk__turn *turn);
/* Makes a batch on this thread, whose record is empty before and after; a failure goes into `made`. */
void yk__loader_make_batch(yk_loader *loader, yk__data_worker *data, int64_t number, yk__made_batch *made);
yk_status yk__loader_start_workers(yk_loader *l);
/* Takes the batch back from the caller, who may still use it: that is recognised, and an error. */
void yk__loader_release_held(yk_loader *l);
/* Takes back everything made or being made. After it no worker is busy, and none has anything to claim. */
void yk__loader_cancel(yk_loader *l);
/* After cancel. What the workers look at changes under the lock, all at once. */
void yk__loader_go_on_from(yk_loader *l, int64_t batch);
/* The batch at l->taken from its slot. */
void yk__loader_wait(yk_loader *l, yk__made_batch *made);
/* True if the batch at l->taken is in its slot. */
bool yk__loader_is_ready(yk_loader *l);

/* ---- iterable sets (loader_streams.c) ---- */
/* Fails, in the loader's name, for options that an iterable set has no meaning for. */
yk_status yk__loader_check_iterable(const yk_dataset *dataset, const yk_loader_options *o);
/* Opens the epoch's streams anew and passes over `batches`; the turn that comes next goes to *turn. */
yk_status yk__loader_open_streams(yk_loader *l, int64_t batches, int64_t *turn);
void yk__loader_close_streams(yk_loader *l);
/* The stream whose turn it is, for the batch that is given as number `number`; NULL of a set with indices. */
yk__data_stream *yk__loader_stream(const yk_loader *l, int64_t number);
/* Under the lock: a worker may make batch number `l->claimed`; it begins; it is done. */
bool yk__loader_may_claim(const yk_loader *l);
void yk__loader_begin_turn(yk_loader *l, int64_t number);
void yk__loader_end_turn(yk_loader *l, int64_t number, const yk__made_batch *made);
/* Takes turns until one has a batch, or an error, in l->held; false at the epoch's end. */
bool yk__loader_take_turn(yk_loader *l);

/* ---- where an epoch stands (loader_position.c) ---- */
/* The number of the batch that the caller gets next, of all that are given. */
int64_t yk__loader_next_given(const yk_loader *l);
/* The batch of each rank's part that comes next; of several ranks, in the middle of a step, its first one. */
int64_t yk__loader_next_batch(const yk_loader *l);
/* The sampler of an epoch from its beginning, for the options' rank. */
yk__sampler yk__loader_whole_epoch(const yk_loader *l);
/* Goes to a batch of the epoch that begins at position `start` of its order. */
void yk__loader_start_at(yk_loader *l, int64_t epoch, int64_t start, int64_t batch);

/* ---- batches on a device (loader_device.c) ---- */
/* The next batch to l->held. On a device the one behind it is on its way when this returns. */
void yk__loader_take(yk_loader *l);

#endif
