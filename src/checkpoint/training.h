/*
 * training.h - a training checkpoint in memory, between the objects of a run and the files. Layer: checkpoint.
 */
#ifndef YOKE_CHECKPOINT_TRAINING_H
#define YOKE_CHECKPOINT_TRAINING_H

#include <jansson.h>

#include <yoke/checkpoint.h>

#include "base/core.h"

/* What is written, or was read: clear gives everything back. Without a scope. */
typedef struct yk__snapshot {
    yk_state_dict *model, *optimizer; /* optimizer NULL: there is none */
    json_t *state;                    /* state.json without the files and checksums */
} yk__snapshot;
void yk__snapshot_clear(yk__snapshot *snapshot);

/* ---- training_state.c: objects ---- */
/* The tensors share memory with the objects. */
yk_status yk__snapshot_take(const yk_checkpoint_state *state, yk__snapshot *snapshot);
/* Copies the tensors to new memory on the CPU, or to that of `reuse`, where it fits, whose dicts it takes over. */
yk_status yk__snapshot_copy(yk__snapshot *snapshot, yk__snapshot *reuse);
/* Checks, then changes the objects. The snapshot's optimizer tensors may become the optimizer's. `dir` is for
 * messages. */
yk_status yk__snapshot_apply(const char *dir, yk__snapshot *snapshot, yk_checkpoint_state *state,
                             const yk_checkpoint_options *options, yk_load_report *report);

/* ---- training_files.c: files ---- */
/* Writes the folder `dir` by way of DIR.tmp. */
yk_status yk__snapshot_write(const yk__snapshot *snapshot, const char *dir);
/* Reads and verifies; weights_only reads no optimizer. On failure nothing is left to clear. */
yk_status yk__snapshot_read(const char *dir, bool weights_only, yk_device device, yk__snapshot *snapshot);
/* Whether state.json is whole and the files have the sizes it says: a first look. Leaves no error. */
bool yk__checkpoint_plausible(const char *dir);
/* Removes a folder and the files in it; false where something stays. Sets no error. */
bool yk__folder_remove(const char *dir);

#endif
