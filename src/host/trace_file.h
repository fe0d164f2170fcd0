/*
 * trace_file.h - the events that were recorded, as a file: Chrome's JSON, one event a line, and several such files as
 * one. Layer: host.
 *
 * Note [Files of traces]
 * The first line is the head: {"displayTimeUnit":"ms","otherData":{"yoke_trace":1,"ranks":[...]},"traceEvents":[
 * then one event a line, each but the last with a comma behind it, and a last line: ]}
 * A rank of the head has the numbers that bring its times to those of others: "base_ns", CLOCK_MONOTONIC of its host at
 * ts 0; "real_ns", CLOCK_REALTIME then; "machine", the same word for processes with one clock; "to_rank0_ns", what is
 * to be added to its host's clock for that of rank 0's host, with "error_ns", null where nobody knows it; and
 * "lost", the events that newer ones have replaced. An event begins with "ts", in microseconds with three decimals: so
 * a merge can move it without reading the rest. Events of a thread nest: what overlapped the end of what is around it
 * would be cut there.
 */
#ifndef YOKE_HOST_TRACE_FILE_H
#define YOKE_HOST_TRACE_FILE_H

#include "base/core.h"

/* The clock of this process's host against that of rank 0's. */
typedef struct yk__trace_clock {
    bool known;
    int64_t to_rank0_ns, error_ns;
} yk__trace_clock;
/* A word that processes have in common whose CLOCK_MONOTONIC is one: of the machine, and of the namespace of time. */
enum { YK__TRACE_CLOCK_NAME = 256 };
void yk__trace_clock_name(char name[YK__TRACE_CLOCK_NAME]);
void yk__trace_clock_set(yk__trace_clock clock);
yk__trace_clock yk__trace_clock_get(void);

/* Writes the recording, which was stopped (base/events.h), as a file of one rank. */
yk_status yk__trace_write_events(FILE *to) YK_MUST_CHECK;
/* The same into a new file, in place of the one that is there; a link is followed. */
yk_status yk__trace_save(const char *path) YK_MUST_CHECK;

/* A new file with what `body` writes; whoever fails leaves the old one. */
yk_status yk__trace_save_with(const char *path, yk_status (*body)(void *argument, FILE *to),
                              void *argument) YK_MUST_CHECK;

/* Writes all events of the files to one, on the clock of the host of the lowest rank, with arrows between ranks
 * (trace_merge.c). The files stay open. `clocks`: for each file that of its host against one host's for all, as it was
 * measured at the end; NULL: as the files say. */
yk_status yk__trace_merge(FILE *const *from, const char *const *names, const yk__trace_clock *clocks, int count,
                          FILE *to) YK_MUST_CHECK;
yk_status yk__trace_merge_save(FILE *const *from, const char *const *names, const yk__trace_clock *clocks, int count,
                               const char *path) YK_MUST_CHECK;

#endif
