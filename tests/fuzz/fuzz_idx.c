/* fuzz_idx.c - IDX files, plain and gzip. The first byte picks images or labels; the rest is the file. */
#include <stdlib.h>

#include "data/dataset.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    if (size < 1)
        return 0;
    int ndim = bytes[0] & 1 ? 1 : 3;
    yk__idx idx;
    yk_status status = yk__idx_parse("input", bytes + 1, size - 1, ndim, &idx);
    if ((status != YK_OK) != (yk_last_error() != NULL))
        abort();
    if (status) {
        if (idx.owned)
            abort();
        yk_clear_error();
        return 0;
    }
    size_t count = 1;
    for (int d = 0; d < ndim; d++)
        count *= (size_t)idx.shape[d];
    unsigned sum = 0;
    for (size_t i = 0; i < count; i++) /* all that is claimed can be read */
        sum += idx.data[i];
    if (sum > 255 * count)
        abort();
    free(idx.owned);
    return 0;
}
