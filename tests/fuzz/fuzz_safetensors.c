/*
 * fuzz_safetensors.c - libFuzzer on the safetensors parser: whatever the bytes, no crash and no leak, and what is
 * accepted keeps the parser's promise: ranges in order, without holes, of the size that shape and dtype ask for.
 */
#include <stdlib.h>

#include "base/core.h"
#include "checkpoint/formats/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void check(const yk__safetensors *parsed, uint64_t data_size)
{
    uint64_t place = 0;
    for (size_t i = 0; i < parsed->count; i++) {
        const yk__safetensor *t = &parsed->tensors[i];
        uint64_t count = 1;
        if (t->ndim < 0 || t->ndim > YK_MAX_DIMS)
            abort();
        for (int d = 0; d < t->ndim; d++)
            count *= (uint64_t)t->shape[d];
        if (t->begin != place || (!t->foreign && t->end - t->begin != count * yk_dtype_size(t->dtype)))
            abort();
        if (t->foreign)
            free(yk__safetensors_left_out(t));
        place = t->end;
    }
    if (place != data_size)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    size_t header_size;
    yk__safetensors parsed;
    if (!yk__safetensors_length("fuzz", bytes, size, &header_size)) {
        uint64_t data_size = size - YK__SAFETENSORS_PREFIX - header_size;
        const char *header = (const char *)bytes + YK__SAFETENSORS_PREFIX;
        if (!yk__safetensors_parse("fuzz", header, header_size, data_size, &parsed)) {
            check(&parsed, data_size);
            yk__safetensors_clear(&parsed);
        }
    }
    yk_clear_error();
    return 0;
}
