/*
 * trace_perfetto.h - a trace (host/trace_file.h) in Perfetto's own form, which is smaller. Layer: observe.
 */
#ifndef YOKE_OBSERVE_TRACE_PERFETTO_H
#define YOKE_OBSERVE_TRACE_PERFETTO_H

#include <stdio.h>

#include "base/core.h"

/* Reads `path`, and writes packets of TrackEvents to `to`. YK_ERR_FORMAT where it is no trace of yoke's. */
yk_status yk__trace_to_perfetto(const char *path, FILE *to) YK_MUST_CHECK;

#endif
