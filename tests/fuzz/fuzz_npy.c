/*
 * fuzz_npy.c - libFuzzer on NumPy's arrays: whatever the bytes, no crash and no leak, and an array that is read has as
 * many bytes of elements as the file had behind its header.
 */
#include <stdlib.h>

#include <yoke/checkpoint.h>

#include "checkpoint/formats/npy.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = yk__npy_read(&(yk__source){.path = "fuzz", .fd = -1, .bytes = bytes, .size = size});
    if (x && (uint64_t)yk_numel(x) > size)
        abort();
    if (!x && !yk_last_error())
        abort();
    yk_clear_error();
    yk_scope_end(scope);
    return 0;
}
