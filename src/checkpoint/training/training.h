/*
 * training.h - a training checkpoint in memory, between the objects of a run and the files. Layer: checkpoint.
 */
#ifndef YOKE_CHECKPOINT_TRAINING_TRAINING_H
#define YOKE_CHECKPOINT_TRAINING_TRAINING_H

#include <stdatomic.h>

#include <jansson.h>

#include <yoke/checkpoint.h>

#include "base/core.h"
#include "checkpoint/shards/shards.h"
#include "optim/schedule_form.h"

/* A training state to be written, or that was read: clear gives everything back. Without a scope. */
typedef struct yk__snapshot {
    yk_state_dict *model, *optimizer; /* optimizer NULL: there is none */
    json_t *state;                    /* state.json without the files and checksums */
    bool mapped;                      /* the tensors may lie in mapped files */
} yk__snapshot;
void yk__snapshot_clear(yk__snapshot *snapshot);

/* ---- training_state.c: objects ---- */
/* The tensors share memory with the objects. */
yk_status yk__snapshot_take(const yk_checkpoint_state *state, yk__snapshot *snapshot);
/* Checks, then changes the objects. The snapshot's optimizer tensors may become the optimizer's, unless mapped. `dir`
 * is for messages. */
yk_status yk__snapshot_apply(const char *dir, yk__snapshot *snapshot, yk_checkpoint_state *state,
                             const yk_checkpoint_options *options, yk_load_report *report);

/* ---- state_check.c ---- */
/* Fails if no run can go on from state.json, as far as that can be told without the run: checks the kinds and ranges of
 * all that is loaded. The error names the file, the key and the value. */
yk_status yk__state_check(const char *dir, const json_t *json);
/* The error of DIR/state.json that PREFIX + KEY is not what is expected there; the prefix ends in '.' or is empty. */
yk_status yk__state_wrong(const char *dir, const char *prefix, const char *key, const json_t *item,
                          const char *expected);

/* ---- snapshot_copy.c: the copy that an asynchronous save writes ---- */
/* The tensors that will be saved, without state.json: the model's tensors, and tensors without memory for those that
 * the optimizer will have once it has stepped every parameter. */
yk_status yk__snapshot_outline(const yk_checkpoint_state *state, yk__snapshot *outline);
/* Memory on the CPU for copies of a snapshot's tensors, or of an outline's. The values are no one's. */
yk_status yk__snapshot_room_like(const yk__snapshot *snapshot, yk__snapshot *room);
/* Makes the system provide the pages of the room, until *stop; the room may be copied to meanwhile. */
void yk__snapshot_populate(const yk__snapshot *room, const atomic_bool *stop);
/* Copies the tensors to the memory of those of `reuse`, by name and where it fits, else to new memory on the CPU.
 * Clears `reuse`. */
yk_status yk__snapshot_copy(yk__snapshot *snapshot, yk__snapshot *reuse);

/* A schedule in state.json (schedule_json.c). NULL without memory, or for one that is nested too deeply, which is an
 * error. */
json_t *yk__schedule_json(const yk__schedule_form *form, int64_t time);
/* The form, for yk__schedule_form_free, of this or an older yoke. NULL and an error: YK_ERR_UNSUPPORTED for a kind that
 * is not known here. */
yk__schedule_form *yk__schedule_from_json(const char *dir, const json_t *schedule);
/* A gradient scaler in state.json (torch_scaler.c). */
json_t *yk__scaler_json(const yk_grad_scaler_state *state);
yk_status yk__scaler_from_json(const char *dir, json_t *json, yk_grad_scaler_state *state);
/* The numbers and flags of an optimizer's group in state.json (training_state.c), by its state dict. */
json_t *yk__group_json(const yk_state_dict *dict, int64_t g);

/* ---- training.c: a folder of checkpoints ---- */
/* The step of "step-00001234", -1 for any other name; the path of a step, which the caller frees. */
int64_t yk__step_of(const char *name);
char *yk__step_path(const char *root, int64_t step);
/* An error where the root is one checkpoint: what would be saved in it is not what the caller means. */
yk_status yk__root_check(const char *root);
/* The steps that have a folder, highest first; the caller frees. A root that is not there has none. */
yk_status yk__steps_list(const char *root, int64_t **steps, size_t *count);

/* Notes the record as what is wrong with a checkpoint, and clears it. */
void yk__pass_over(yk_checkpoint_found *found);

/* ---- training_group.c: several ranks; every rank of options->group calls the first two ---- */
/* Does what yk__snapshot_read does; all ranks have the same snapshot, or all fail. */
yk_status yk__snapshot_read_group(const char *dir, const yk_checkpoint_options *options, const yk_optimizer *optimizer,
                                  yk__snapshot *snapshot);
/* The newest of a root that all ranks can read. */
yk_status yk__snapshot_find_group(const char *root, const yk_checkpoint_options *options, const yk_optimizer *optimizer,
                                  yk__snapshot *snapshot, yk_checkpoint_found *found);
/* Every rank's generator goes into state.json, and rank `rank`'s comes out of it: its own where it was saved, else the
 * seed that all had, or where these differed one of its own made of rank 0's. */
yk_status yk__snapshot_note_random(yk__snapshot *snapshot, const yk_random_state *states, int64_t count);
void yk__snapshot_restore_random(const yk__snapshot *snapshot, int64_t rank);
/* The same of virtual ranks, of which this process computes some: all generators, and then the first as this one's. */
void yk__snapshot_restore_generators(const yk__snapshot *snapshot, yk_random_state *generators, int64_t count);

/* ---- training_files.c: files ---- */
/* Reads and verifies; weights_only reads no optimizer. On failure nothing is left to clear. What is sharded is never
 * mapped. Without options it is for yk__snapshot_apply alone: large tensors are deferred (safetensors.h) but for those
 * that become the state of `optimizer` (may be NULL). */
yk_status yk__snapshot_read(const char *dir, bool weights_only, const yk_read_options *options,
                            const yk_optimizer *optimizer, yk__snapshot *snapshot);
/* Does what yk_checkpoint_verify does. *whole: every byte is as it was saved, whatever the content of state.json. */
yk_status yk__checkpoint_verify(const char *dir, bool *whole);
/* True if state.json is complete and the files have the sizes it says: a first look. Leaves no error. */
bool yk__checkpoint_plausible(const char *dir);
/* Adds state.json with this list of the other files. */
yk_status yk__state_write(yk__folder_files *files, const json_t *state, json_t *names);

/* The places of yk__save.shares. */
enum { YK__SHARE_MODEL, YK__SHARE_OPTIMIZER, YK__SHARES };

/* One save, from the snapshot until it is on the disk; zeros to begin with. */
typedef struct yk__save {
    int64_t step;
    yk__snapshot snapshot;
    yk__share shares[YK__SHARES];
    int share_count; /* YK__SHARES, or one without an optimizer */
} yk__save;
/* The shares of one process that writes all of the snapshot, each set into one file. */
void yk__save_whole(yk__save *save);
/* Writes the folder `dir`: every rank of the group its shares, or (NULL) this process. */
yk_status yk__save_write(yk__save *save, const char *dir, yk_process_group *group);
void yk__save_clear(yk__save *save);

#endif
