/*
 * shards.h - what the files of yk_shards and yk_shard_list_dataset share: names of archives (shards_names.c), the
 * fields of a sample with their decoders (shards_fields.c), and the walk over archives (shards_read.c). Layer: data.
 */
#ifndef YOKE_DATA_SHARDS_H
#define YOKE_DATA_SHARDS_H

#include "data/dataset.h"
#include "data/tar.h"

/* ---- names of archives ----------------------------------------------------------------------------------- */
typedef struct yk__shards_names {
    char **items;
    int64_t count, capacity;
} yk__shards_names;
/* Finds the names that a pattern with braces means, or the archives of a folder, sorted; all are files that are there.
 * On failure the names so far are to be cleared, too. */
yk_status yk__shards_names_find(yk__shards_names *names, const char *pattern);
void yk__shards_names_clear(yk__shards_names *names);

/* ---- fields of a sample ---------------------------------------------------------------------------------- */
typedef enum yk__shards_decoder {
    YK__SHARDS_PICTURE,
    YK__SHARDS_INTEGER,
    YK__SHARDS_BYTES,
    YK__SHARDS_NPY
} yk__shards_decoder;

enum { YK__SHARDS_EXTENSION = 64 /* bytes, its end included */, YK__SHARDS_CHOICES = 64 };

/* One extension by which a field is found. */
typedef struct yk__shards_choice {
    int field;
    char extension[YK__SHARDS_EXTENSION];
    yk__shards_decoder decoder;
} yk__shards_choice;

typedef struct yk__shards_fields {
    char *texts[YK_SAMPLE_TENSORS]; /* as given */
    int count;
    yk__shards_choice choices[YK__SHARDS_CHOICES]; /* in the options' order */
    int n_choices;
} yk__shards_fields;
/* Reads the options' fields, up to the first NULL; pictures and their classes where that is the first. On failure the
 * fields so far are to be cleared, too. */
yk_status yk__shards_fields_take(yk__shards_fields *fields, const char *const texts[YK_SAMPLE_TENSORS]);
void yk__shards_fields_clear(yk__shards_fields *fields);
/* True if the input is a picture, in all samples. */
bool yk__shards_of_pictures(const yk__shards_fields *fields);
/* A whole number as text, with white space around. Errors do not name it. */
yk_status yk__shards_integer(const unsigned char *data, size_t length, int64_t *number);
/* Makes tensor `choice->field` of the sample from a member's bytes. Errors name neither. */
yk_status yk__shards_decode(const yk__shards_choice *choice, const unsigned char *data, size_t length,
                            yk_sample *sample);

/* ---- the walk over archives ------------------------------------------------------------------------------ */
/* A mapped archive. */
typedef struct yk__shard {
    yk__mapping file;
    const char *path;
    int holders; /* spots in it, and the walk */
} yk__shard;

/* The members of a sample, by field: Note [Places in shards]. */
typedef struct yk__shards_spot {
    yk__shard *from; /* held */
    size_t header;   /* of its first member */
    char *key;
    struct {
        const unsigned char *data;
        size_t length;
        int choice; /* -1: there is none */
    } fields[YK_SAMPLE_TENSORS];
} yk__shards_spot;
void yk__shards_spot_clear(yk__shards_spot *spot);
/* Makes all tensors of a sample. Errors name the archive and the member. */
yk_status yk__shards_spot_decode(const yk__shards_fields *fields, const yk__shards_spot *spot, yk_sample *sample);

/* Filled with the first four, and zeros. One thread at a time is in a walk and clears its spots. */
typedef struct yk__shards_walk {
    const yk__shards_names *files;
    const yk__shards_fields *fields;
    const int64_t *order; /* of the files; NULL: their own */
    int64_t count, at;    /* how many of that order, and the next of them */
    yk__shard *open;
    yk__tar tar;
    bool pending; /* the tar's member is one that was not used yet */
} yk__shards_walk;
/* The next sample, whole, to *spot, of the caller's; or *end is set. */
yk_status yk__shards_walk_next(yk__shards_walk *walk, yk__shards_spot *spot, bool *end);
void yk__shards_walk_clear(yk__shards_walk *walk);

#endif
