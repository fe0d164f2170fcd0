/* fuzz_tar.c - tar archives: every member that is told of lies in the archive, and each goes further than the last. */
#include <stdlib.h>
#include <string.h>

#include "data/tar.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static yk__tar tar;
    memset(&tar, 0, sizeof(tar));
    tar.path = "input";
    tar.bytes = bytes;
    tar.size = size;
    unsigned sum = 0;
    for (;;) {
        bool end = false;
        size_t before = tar.at;
        yk_status status = yk__tar_next(&tar, &end);
        if ((status != YK_OK) != (yk_last_error() != NULL))
            abort();
        if (status || end)
            break;
        if (tar.at <= before || tar.at > size || tar.data < bytes || tar.length > size - (size_t)(tar.data - bytes) ||
            !memchr(tar.name, 0, sizeof(tar.name)))
            abort();
        for (size_t i = 0; i < tar.length; i++)
            sum += tar.data[i];
    }
    yk_clear_error();
    if (sum > 255 * size) /* no byte is in two members */
        abort();
    return 0;
}
