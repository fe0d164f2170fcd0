/*
 * fuzz_pt.c - libFuzzer on the readers of .pt files: whatever the bytes, no crash and no leak, and what is accepted
 * keeps its promises: every tensor's elements can be read, and the value can be walked, whose tree is finite.
 *
 * The first byte chooses: the rest is a file, or (odd) a pickle alone, whose storages are then zeros. Checksums keep
 * most changed files out of the pickle.
 */
#include <stdlib.h>
#include <string.h>

#include "checkpoint/pt.h"
#include "checkpoint/value.h"
#include "tensor/tensor.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static yk_status touch(const char *name, yk_value *leaf, void *user)
{
    double *sum = user;
    if (!name)
        abort();
    if (yk_value_kind_of(leaf) != YK_VALUE_TENSOR)
        return YK_OK;
    const yk_tensor *x = yk_value_as_tensor(leaf);
    int64_t last[YK_MAX_DIMS] = {0}, first[YK_MAX_DIMS] = {0};
    for (int d = 0; d < yk_ndim(x); d++)
        last[d] = yk_size(x, d) - 1;
    if (yk_numel(x))
        *sum += yk_get(x, first) + yk_get(x, last);
    return yk_last_error() ? YK_ERR_INTERNAL : YK_OK;
}

/* Zeros for every storage, in all at most a megabyte. */
static bool fill_storages(yk__pickle *p)
{
    uint64_t total = 0;
    for (size_t i = 0; i < p->storage_count; i++) {
        total += p->storages[i].bytes;
        if (p->storages[i].bytes > 1 << 20 || total > 1 << 20)
            return false;
        p->storages[i].storage = yk__storage_create((yk_device){0}, (size_t)p->storages[i].bytes);
        if (!p->storages[i].storage)
            return false;
        memset(p->storages[i].storage->data, 0, (size_t)p->storages[i].bytes);
    }
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    if (!size)
        return 0;
    yk_value *value = NULL;
    if (bytes[0] % 2) {
        yk__pickle p;
        if (!yk__pickle_run(&p, "fuzz", "data.pkl", bytes + 1, size - 1, 0) && fill_storages(&p))
            value = yk__pickle_value(&p);
        yk__pickle_clear(&p);
    } else {
        value = yk__pt_read(&(yk__source){"fuzz", -1, bytes + 1, size - 1}, (yk_device){0});
    }
    yk_clear_error();
    double sum = 0;
    if (value && yk__value_walk(value, touch, &sum))
        abort();
    yk_value_release(value);
    yk_clear_error();
    return 0;
}
