/*
 * saver.h - the checkpoints of a run: when they are due, and where a run goes on. Layer: cli.
 */
#ifndef YOKE_CLI_TRAIN_SAVER_H
#define YOKE_CLI_TRAIN_SAVER_H

#include <yoke/checkpoint.h>

typedef struct saver {
    const char *root;               /* NULL: this run has no checkpoints */
    yk_checkpoint_manager *manager; /* NULL: one is made for the next checkpoint */
    yk_checkpoint_manager_options options;
    int64_t every_steps;        /* 0: not by steps */
    double every_seconds;       /* 0: not by time */
    double last;                /* when the last one was begun */
    bool late;                  /* every_seconds have passed, as all ranks know it: the caller's, from saver_late */
    yk_process_group *group;    /* NULL: one process */
    int rank;                   /* 0 prints */
    int64_t saved;              /* its step, or the one that the run went on from; -1 before there is one */
    yk_checkpoint_state *state; /* of the run: the caller keeps epoch and step right */
} saver;

/* "500" (steps) or "30s" (seconds) into the saver; false for anything else. */
bool saver_parse_every(saver *s, const char *text);
/*
 * Opens the folder of checkpoints. With `resume` it loads the newest valid one into the state and says so on stdout
 * (what was broken on stderr); a folder without any begins a new run. Without `resume`, a folder that has checkpoints
 * is an error. With a group every rank makes each call here but saver_late and saver_due, and all fail or none; rank 0
 * alone reads and writes files.
 */
yk_status saver_open(saver *s, const char *root, const yk_checkpoint_manager_options *options, bool resume);
/* Opens the folder in a process that joins a run under way, whose state it has from the others. */
void saver_join(saver *s, const char *root, const yk_checkpoint_manager_options *options);
/* The ranks of the group are others than before. What this process is writing is completed; the next checkpoint is that
 * of the new ranks. */
void saver_renew(saver *s);
void saver_close(saver *s);
bool saver_resumed(const saver *s);
/* True if the seconds of --save-every have passed on this process. */
bool saver_late(const saver *s);
/* True if saver_save should be called after this step: the same on all ranks. */
bool saver_due(const saver *s);
/* Saves the state unless this step is saved already. An error that is there already becomes that of all ranks. */
yk_status saver_save(saver *s);
/* Waits until what was saved is on the disk. */
yk_status saver_finish(saver *s);

#endif
