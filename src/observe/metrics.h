/*
 * metrics.h - a snapshot in Prometheus' text format. Layer: observe.
 *
 * What is not known is left out, and never a 0. Texts are escaped. Source: the exposition format 0.0.4.
 */
#ifndef YOKE_OBSERVE_METRICS_H
#define YOKE_OBSERVE_METRICS_H

#include <stdio.h>

#include "observe/dcgm_fields.h"
#include "observe/snapshot.h"

/* MOST_RANKS_SERVED: ranks in one answer, of all runs; MOST_COUNTERS_SERVED: of each, counters that parts of yoke have
 * made (rank_page.h). What is left out is counted (yoke_monitor_left_out). */
enum { YK__MOST_RANKS_SERVED = 1024, YK__MOST_COUNTERS_SERVED = 16 };

typedef enum yk__host_label {
    YK__HOST_LABEL_OLD, /* Hostname, as in all dcgm-exporters up to 4.8.2 */
    YK__HOST_LABEL_NEW, /* hostname, as in those after it */
    YK__HOST_LABEL_BOTH
} yk__host_label;

typedef struct yk__metrics_options {
    const char *host; /* NULL: no label of the host */
    yk__host_label label;
    const yk__dcgm_collectors *collectors;
} yk__metrics_options;

/* DCGM_FI_*: the GPUs, as dcgm-exporter has them. */
void yk__metrics_dcgm(FILE *to, const yk__snapshot *snapshot, const yk__metrics_options *options);
/* yoke_*: runs, ranks, and the monitor itself (docs/monitoring.md). */
void yk__metrics_yoke(FILE *to, const yk__snapshot *snapshot, const yk__metrics_options *options);

/* ,NAME="VALUE" with the value escaped; without the comma where `first`. */
void yk__metrics_label(FILE *to, bool first, const char *name, const char *value);
/* # HELP and # TYPE. */
void yk__metrics_family(FILE *to, const char *name, const char *type, const char *help);

#endif
