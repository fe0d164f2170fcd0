/*
 * pt.h - the two forms of a .pt file, between their readers. Layer: checkpoint.
 */
#ifndef YOKE_CHECKPOINT_FORMATS_PT_H
#define YOKE_CHECKPOINT_FORMATS_PT_H

#include "checkpoint/formats/pickle.h"
#include "checkpoint/formats/zip.h"

/* Reads one storage, whose data are at `offset`, for both readers: takes memory on the device and has `fill` fill it,
 * with the checksum that it wants; or, of a mapped file, takes its own memory and has `fill` check it alone (`to` is
 * NULL then). Checks booleans. */
typedef yk_status (*yk__pt_fill)(void *context, void *to, size_t size);
yk_status yk__pt_read_storage(const yk__source *source, yk__storage_record *record, const yk_pt_options *options,
                              uint64_t offset, yk__pt_fill fill, void *context);

/* One reference to what a file or block of memory holds; for a fuzzer too. */
yk_value *yk__pt_read(const yk__source *source, const yk_pt_options *options);
/* The form before PyTorch 1.6 (pt_legacy.c). */
yk_value *yk__pt_read_legacy(const yk__source *source, const yk_pt_options *options);
bool yk__pt_is_legacy(const yk__source *source);

#endif
