/*
 * state_dict.c - ordered lists of named tensors. Layer: nn.
 *
 * Entries stand in the order of adding; a hash table of their places finds names. Invariant: slots holds, for every
 * entry, its place plus one, at most half full; 0 is empty.
 */
#include <stdlib.h>
#include <string.h>

#include "nn/module.h"

typedef struct dict_entry {
    char *name;
    yk_tensor *tensor;
    uint64_t hash;
} dict_entry;

struct yk_state_dict {
    yk__object object;
    dict_entry *entries;
    int64_t count, capacity;
    int64_t *slots;
    uint64_t slot_mask;
    yk__fill_fn fill; /* NULL: all tensors are here */
    void *owner;
};

static void dict_destroy(void *object)
{
    yk_state_dict *dict = object;
    for (int64_t i = 0; i < dict->count; i++) {
        free(dict->entries[i].name);
        yk_tensor_release(dict->entries[i].tensor);
    }
    yk_object_release(dict->owner);
    free(dict->entries);
    free(dict->slots);
    free(dict);
}

static const yk__type dict_type = {"state_dict", dict_destroy};

/* FNV-1a. */
static uint64_t hash_name(const char *name)
{
    uint64_t hash = 0xCBF29CE484222325u;
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 0x100000001B3u;
    return hash;
}

yk_state_dict *yk__state_dict_new(void)
{
    yk_state_dict *dict = yk__calloc(1, sizeof(*dict));
    if (dict)
        yk__object_init(&dict->object, &dict_type);
    return dict;
}

yk_state_dict *yk_state_dict_create(void)
{
    return yk__scope_own(yk__state_dict_new());
}

static void place(yk_state_dict *dict, int64_t i)
{
    uint64_t slot = dict->entries[i].hash & dict->slot_mask;
    while (dict->slots[slot])
        slot = (slot + 1) & dict->slot_mask;
    dict->slots[slot] = i + 1;
}

static yk_status grow(yk_state_dict *dict)
{
    int64_t capacity = dict->capacity ? 2 * dict->capacity : 16;
    dict_entry *entries = yk__realloc(dict->entries, (size_t)capacity * sizeof(*entries));
    if (!entries)
        return YK_ERR_MEMORY;
    dict->entries = entries;
    int64_t *slots = yk__calloc(2 * (size_t)capacity, sizeof(*slots));
    if (!slots)
        return YK_ERR_MEMORY;
    free(dict->slots);
    dict->slots = slots;
    dict->slot_mask = 2 * (uint64_t)capacity - 1;
    dict->capacity = capacity;
    for (int64_t i = 0; i < dict->count; i++)
        place(dict, i);
    return YK_OK;
}

yk_status yk_state_dict_add(yk_state_dict *dict, const char *name, yk_tensor *x)
{
    if (!dict || !name || !x)
        return yk__fail(YK_ERR_ARGUMENT, "state_dict_add: the %s is NULL", !dict ? "list" : !name ? "name" : "tensor");
    if (yk_state_dict_find(dict, name) >= 0)
        return yk__fail(YK_ERR_ARGUMENT, "state_dict_add: there is a tensor \"%s\" already", name);
    if (dict->count == dict->capacity) {
        yk_status status = grow(dict);
        if (status)
            return status;
    }
    char *copy = yk__strdup(name);
    if (!copy)
        return YK_ERR_MEMORY;
    dict->entries[dict->count] = (dict_entry){copy, yk_tensor_retain(x), hash_name(name)};
    place(dict, dict->count++);
    return YK_OK;
}

int64_t yk_state_dict_count(const yk_state_dict *dict)
{
    return dict ? dict->count : 0;
}

yk_tensor *yk_state_dict_at(const yk_state_dict *dict, int64_t i)
{
    return dict && i >= 0 && i < dict->count ? dict->entries[i].tensor : NULL;
}

const char *yk_state_dict_name(const yk_state_dict *dict, int64_t i)
{
    return dict && i >= 0 && i < dict->count ? dict->entries[i].name : NULL;
}

int64_t yk_state_dict_find(const yk_state_dict *dict, const char *name)
{
    if (!dict || !name || !dict->count)
        return -1;
    uint64_t hash = hash_name(name);
    for (uint64_t slot = hash & dict->slot_mask; dict->slots[slot]; slot = (slot + 1) & dict->slot_mask) {
        const dict_entry *entry = &dict->entries[dict->slots[slot] - 1];
        if (entry->hash == hash && strcmp(entry->name, name) == 0)
            return dict->slots[slot] - 1;
    }
    return -1;
}

int64_t yk__state_dict_find_module(const yk_state_dict *dict, const char *name)
{
    static const char prefix[] = "module.";
    int64_t at = yk_state_dict_find(dict, name);
    if (at >= 0 || !name)
        return at;
    if (strncmp(name, prefix, sizeof(prefix) - 1) == 0)
        return yk_state_dict_find(dict, name + sizeof(prefix) - 1);
    char longer[512];
    int length = snprintf(longer, sizeof(longer), "%s%s", prefix, name);
    return length < (int)sizeof(longer) ? yk_state_dict_find(dict, longer) : -1;
}

yk_tensor *yk_state_dict_get(const yk_state_dict *dict, const char *name)
{
    if (!dict || !name)
        return NULL;
    int64_t i = yk_state_dict_find(dict, name);
    if (i >= 0)
        return dict->entries[i].tensor;
    const char **names = yk__calloc((size_t)dict->count, sizeof(*names));
    if (!names)
        return NULL;
    for (i = 0; i < dict->count; i++)
        names[i] = dict->entries[i].name;
    const char *nearest = yk__nearest(name, names, (size_t)dict->count);
    yk__fail(YK_ERR_NOT_FOUND, "there is no tensor \"%s\" among %lld%s%s%s", name, (long long)dict->count,
             nearest ? "; did you mean \"" : "", nearest ? nearest : "", nearest ? "\"?" : "");
    free(names);
    return NULL;
}

yk_state_dict *yk_state_dict_retain(yk_state_dict *dict)
{
    return yk_object_retain(dict);
}

void yk_state_dict_release(yk_state_dict *dict)
{
    yk_object_release(dict);
}

/* ---- tensors that are elsewhere ---------------------------------------------------------------------------------- */
void yk__state_dict_defer(yk_state_dict *dict, yk__fill_fn fill, void *owner)
{
    dict->fill = fill;
    dict->owner = yk_object_retain(owner);
}

bool yk__state_dict_deferred(const yk_state_dict *dict, int64_t i)
{
    const yk_tensor *x = dict->fill ? yk_state_dict_at(dict, i) : NULL;
    return x && x->numel && !x->data;
}

yk_status yk__state_dict_copy(const yk_state_dict *dict, int64_t i, yk_tensor *to)
{
    if (yk__state_dict_deferred(dict, i))
        return dict->fill(dict->owner, i, dict->entries[i].tensor, to);
    return yk__raw_copy(to, yk_state_dict_at(dict, i));
}
