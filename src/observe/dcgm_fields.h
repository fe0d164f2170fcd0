/*
 * dcgm_fields.h - the fields of DCGM by the names, types and help of dcgm-exporter, and its files of collectors. Layer:
 * observe.
 *
 * Such a file has a line FIELD, TYPE, HELP for each metric: TYPE is gauge, counter, histogram, summary or label; a help
 * with a comma stands in quotes; # begins a line that is a comment. Source: dcgm-exporter's etc/default-counters.csv.
 */
#ifndef YOKE_OBSERVE_DCGM_FIELDS_H
#define YOKE_OBSERVE_DCGM_FIELDS_H

#include "observe/gpu_sample.h"

typedef enum yk__dcgm_kind {
    YK__DCGM_INTEGER,
    YK__DCGM_REAL,
    YK__DCGM_DRIVER, /* a text: the driver's version */
    YK__DCGM_NONE    /* known, and not told by NVML or not asked for: never served */
} yk__dcgm_kind;

typedef struct yk__dcgm_field {
    const char *name;
    yk__dcgm_kind kind;
    yk__gpu_value value;     /* of the first two kinds */
    const char *type, *help; /* as in the default file; NULL: it is not in it */
} yk__dcgm_field;

typedef struct yk__dcgm_collector {
    const yk__dcgm_field *field;
    char type[12]; /* "label": the value stands as a label with all metrics */
    char *help;
} yk__dcgm_collector;

typedef struct yk__dcgm_collectors {
    int count;
    yk__dcgm_collector *all;
} yk__dcgm_collectors;

/* Those of a file, or the default for NULL. An error names file and line. Whoever gets them clears them. */
yk_status yk__dcgm_collectors_read(const char *path, yk__dcgm_collectors *collectors) YK_MUST_CHECK;
void yk__dcgm_collectors_clear(yk__dcgm_collectors *collectors);

#endif
