/*
 * yoke/profiler.h - what a program does, moment by moment: a trace of its operations, communication and loading.
 *
 * Layer: host. While a trace is recorded, each thread notes what it begins and ends in memory of its own; nothing is
 * written before the end. While none is, the hooks cost nothing that can be measured. What is written is a file of JSON
 * that chrome://tracing and https://ui.perfetto.dev open, and that `yoke trace report` adds up (docs/monitoring.md).
 * PyTorch: torch.profiler.
 */
#ifndef YOKE_PROFILER_H
#define YOKE_PROFILER_H

#include <yoke/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct yk_profiler_options {
    bool with_shapes YK_DEFAULT(true);  /* sizes of the inputs of operations (record_shapes) */
    bool with_memory YK_DEFAULT(false); /* bytes in use on the device, at each operation (profile_memory) */
    /* Steps of optimizers that go by before the recording begins, and how many it has; active 0: until it is stopped.
     */
    int64_t wait YK_DEFAULT(0), active YK_DEFAULT(0);
    /* Bytes that the recording may take, at least 1 MiB. When they are used up, threads write over the oldest of what
     * they have noted; an event takes 64 bytes, with shapes 128. */
    int64_t memory YK_DEFAULT(256 << 20);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_profiler_options;
#define yk_profiler_options_DEFAULTS .yk__mark = YK__MARK, .with_shapes = true, .memory = 256 << 20

/*
 * Begins to record what all threads of this process do. YK_ERR_STATE where a recording is under way, also that of
 * `yoke run --trace` or `yoke trace`. Any thread.
 */
YK_API yk_status yk_profiler_start(const yk_profiler_options *options) YK_MUST_CHECK;
/*
 * Ends the recording, and writes it to `file`; NULL: to nowhere. YK_ERR_STATE where none is under way, YK_ERR_IO where
 * the file cannot be written: the recording is over then, too. What an operation still does at the moment of the call
 * is left out.
 */
YK_API yk_status yk_profiler_stop(const char *file) YK_MUST_CHECK;
/* True while a recording is under way. */
YK_API bool yk_profiler_enabled(void);
/*
 * From begin to end this thread does something that has a name: "augment". Ranges may stand in each other, 32 deep;
 * names are copied, and cut after 51 bytes. Nothing happens while nothing is recorded. PyTorch: record_function.
 */
YK_API void yk_profiler_range_begin(const char *name);
YK_API void yk_profiler_range_end(void);

#ifdef __cplusplus
}
#endif

#endif
