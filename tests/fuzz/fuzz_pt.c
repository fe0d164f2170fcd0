/*
 * fuzz_pt.c - libFuzzer on the readers of .pt files: whatever the bytes, no crash and no leak, and what is accepted
 * keeps its promises: every tensor's elements can be read, the value can be walked, whose tree is finite and whose
 * names are in proportion to the file, and it can be offered as the state of an optimizer, a schedule and a scaler, and
 * as weights.
 *
 * The first byte chooses: the rest is a file, or (odd) a pickle alone, whose storages are then zeros. Checksums keep
 * most changed files out of the pickle.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/formats/pt.h"
#include "checkpoint/training/torch_state.h"
#include "tensor/tensor.h"
#include "value/value.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static double sum;
static bool attributes;     /* a tensor has some */
static uint64_t text_bytes; /* bytes of names and of the texts under them */

static yk_status touch(const char *name, yk_value *leaf, void *user)
{
    (void)user;
    if (!name || strlen(name) > YK__VALUE_NAME)
        abort();
    text_bytes += strlen(name) + (leaf->kind == YK_VALUE_STRING ? leaf->as.bytes.size : 0);
    if (yk_value_kind_of(leaf) != YK_VALUE_TENSOR)
        return YK_OK;
    attributes = attributes || leaf->attributes;
    const yk_tensor *x = yk_value_as_tensor(leaf);
    int64_t last[YK_MAX_DIMS] = {0}, first[YK_MAX_DIMS] = {0};
    for (int d = 0; d < yk_ndim(x); d++)
        last[d] = yk_size(x, d) - 1;
    if (yk_numel(x))
        sum += yk_get(x, first) + yk_get(x, last);
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

/* Names for the groups' parameters, as many as there are. */
static yk_value *name_parameters(const yk_value *optimizer)
{
    const yk_value *groups = yk_value_get(optimizer, "param_groups");
    yk_value *names = yk_value_list();
    for (int64_t g = 0; g < yk_value_count(groups); g++) {
        int64_t count = yk_value_count(yk_value_get(yk_value_at(groups, g), "params"));
        yk_value *own = yk_value_list();
        yk_status status = yk_value_append(names, own);
        for (int64_t i = 0; i < count && i < 1000 && !status; i++) {
            char name[48];
            snprintf(name, sizeof(name), "p%lld.%lld", (long long)g, (long long)i);
            status = yk_value_append(own, yk_value_string(name));
        }
    }
    return names;
}

/* Offers the value as the rest of a training state; a value that is accepted must be converted back without an error,
 * too. */
static void offer(const yk_value *value)
{
    yk_scope scope = yk_scope_begin();
    const yk_value *optimizer = yk_value_get(value, "optimizer"), *scheduler = yk_value_get(value, "scheduler");
    yk_value *names = name_parameters(optimizer);
    yk_state_dict *dict = yk__optimizer_from_torch(optimizer, names);
    yk_clear_error();
    if (dict && !yk__optimizer_to_torch("adamw", dict, names))
        abort();
    int64_t time, again;
    yk__schedule_form *form = yk__schedule_from_torch(scheduler, &time);
    yk_clear_error();
    if (form) {
        yk_value *rates = yk_value_list();
        yk_value *back = yk__schedule_to_torch(form, time, rates, rates);
        yk__schedule_form *same = back ? yk__schedule_from_torch(back, &again) : NULL;
        if (!same || !yk__schedule_same(same, form) || again != time)
            abort();
        yk__schedule_form_free(same);
        yk__schedule_form_free(form);
    }
    yk_grad_scaler_state state;
    if (yk__scaler_from_torch(yk_value_get(value, "scaler"), &state))
        yk_clear_error();
    yk_scope_end(scope);
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
        value = yk__pt_read(&(yk__source){"fuzz", -1, bytes + 1, size - 1, NULL}, NULL);
    }
    yk_clear_error();
    text_bytes = 0;
    attributes = false;
    if (value && (yk__value_walk(value, touch, NULL) || text_bytes > yk__value_text_most(size)))
        abort();
    if (value)
        offer(value);
    yk_scope scope = yk_scope_begin();
    if (value) {
        (void)yk_value_weights(value, NULL); /* modules, too */
        yk_clear_error();
        yk_value *left_out = yk_value_left_out_list(value);
        yk_value *rest = value->kind == YK_VALUE_LEFT_OUT ? NULL : yk__scope_own(yk__value_without_left_out(value));
        if (!left_out || (rest == value && yk_value_count(left_out) && value->kind != YK_VALUE_TENSOR && !attributes))
            abort();
    }
    yk_scope_end(scope);
    yk_value_release(value);
    yk_clear_error();
    return 0;
}
