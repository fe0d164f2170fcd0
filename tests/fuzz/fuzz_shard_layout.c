/*
 * fuzz_shard_layout.c - libFuzzer on the list of tensors and parts of an index: whatever the JSON, no crash and no
 * leak, and what is accepted keeps the promise: parts inside their tensors, which together are each element once.
 */
#include <stdlib.h>
#include <string.h>

#include "checkpoint/shards/shards.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

enum { HOLDERS = 4, MOST = 4096 /* elements that are looked at one by one */ };

/* The number of parts that hold the element `i` of a tensor. */
static int holders_of(const yk__whole *t, int64_t i)
{
    int64_t at[YK_MAX_DIMS];
    int count = 0;
    for (int d = t->ndim - 1; d >= 0; d--) {
        at[d] = i % t->shape[d];
        i /= t->shape[d];
    }
    for (size_t p = 0; p < t->count; p++) {
        const yk__box *box = &t->parts[p].box;
        bool inside = true;
        for (int d = 0; d < t->ndim; d++)
            inside &= at[d] >= box->offset[d] && at[d] < box->offset[d] + box->shape[d];
        count += inside;
    }
    return count;
}

static void check(const yk__layout *layout)
{
    for (size_t i = 0; i < layout->count; i++) {
        const yk__whole *t = &layout->tensors[i];
        int64_t count = 1;
        if (t->ndim < 0 || t->ndim > YK_MAX_DIMS || yk__layout_find(layout, t->name) != t)
            abort();
        for (int d = 0; d < t->ndim; d++)
            count *= t->shape[d];
        for (size_t p = 0; p < t->count; p++) {
            if (t->parts[p].holder < 0 || t->parts[p].holder >= HOLDERS)
                abort();
        }
        for (int64_t e = 0; e < count && e < MOST; e++) {
            if (holders_of(t, e) != 1)
                abort();
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    json_t *json = json_loadb((const char *)bytes, size, JSON_REJECT_DUPLICATES, NULL);
    yk__layout read = {0}, spread = {0};
    if (json && !yk__layout_add_json(&read, "fuzz", json, HOLDERS) && !yk__layout_check(&read, "fuzz"))
        check(&read);
    yk_clear_error();
    if (json && !yk__layout_add_json(&spread, "fuzz", json, HOLDERS) && !yk__layout_spread(&spread, HOLDERS) &&
        !yk__layout_check(&spread, "fuzz")) { /* as ranks tell it when they save */
        check(&spread);
        json_t *again = yk__layout_json(&spread);
        if (!again)
            abort();
        json_decref(again);
    }
    yk_clear_error();
    yk__layout_clear(&read);
    yk__layout_clear(&spread);
    json_decref(json);
    return 0;
}
