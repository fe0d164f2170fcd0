/*
 * shards.h - what the files of yk_shards share: names of archives (shards_names.c), and the fields of a sample with
 * their decoders (shards_fields.c). Layer: data.
 */
#ifndef YOKE_DATA_SHARDS_H
#define YOKE_DATA_SHARDS_H

#include "data/dataset.h"

/* ---- names of archives ----------------------------------------------------------------------------------- */
typedef struct yk__shards_names {
    char **items;
    int64_t count, capacity;
} yk__shards_names;
/* What a pattern with braces is expanded to, or the archives of a folder by name; all are files that are there. On
 * failure the names so far are to be cleared, too. */
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
/* Makes tensor `choice->field` of the sample from a member's bytes. Errors name neither. */
yk_status yk__shards_decode(const yk__shards_choice *choice, const unsigned char *data, size_t length,
                            yk_sample *sample);

#endif
