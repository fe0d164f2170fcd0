/*
 * state_dict.c - ordered lists of named tensors. Layer: nn.
 *
 * Entries stand in the order of adding; a table of their positions finds names.
 */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "nn/module.h"

static void dict_destroy(void *object)
{
    yk_state_dict *dict = object;
    for (int64_t i = 0; i < dict->count; i++) {
        free(dict->entries[i].name);
        yk_tensor_release(dict->entries[i].tensor);
    }
    for (size_t i = 0; i < dict->left_out_count; i++) {
        free(dict->left_out[i].name);
        free(dict->left_out[i].what);
    }
    free(dict->left_out);
    yk__name_clear(&dict->left_out_names);
    yk_object_release(dict->owner);
    free(dict->entries);
    yk__name_clear(&dict->names);
    yk__object_free(dict);
}

static const yk__type dict_type = {"state_dict", dict_destroy};
static const yk__type parameters_type = {"parameters", dict_destroy};

static uint32_t hash_name(const char *name)
{
    return yk__name_hash(name, strlen(name));
}

static bool same_name(const void *owner, uint32_t index, const void *name)
{
    const yk_state_dict *dict = owner;
    return strcmp(dict->entries[index].name, name) == 0;
}

yk_state_dict *yk__state_dict_new(void)
{
    return yk__object_new(&dict_type, sizeof(yk_state_dict));
}

yk_state_dict *yk_state_dict_create(void)
{
    return yk__scope_own(yk__state_dict_new());
}

static yk_status grow(yk_state_dict *dict)
{
    int64_t capacity = dict->capacity ? 2 * dict->capacity : 16;
    yk__dict_entry *entries = yk__realloc(dict->entries, (size_t)capacity * sizeof(*entries));
    if (!entries)
        return YK_ERR_MEMORY;
    dict->entries = entries;
    dict->capacity = capacity;
    return YK_OK;
}

yk_status yk_state_dict_add(yk_state_dict *dict, const char *name, yk_tensor *x)
{
    YK__LIVE(dict);
    YK__LIVE(x);
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
    if (!copy || yk__name_add(&dict->names, hash_name(name), (uint32_t)dict->count)) {
        free(copy);
        return YK_ERR_MEMORY;
    }
    dict->entries[dict->count++] = (yk__dict_entry){copy, yk_tensor_retain(x)};
    return YK_OK;
}

int64_t yk_state_dict_count(const yk_state_dict *dict)
{
    YK__LIVE(dict);
    return dict ? dict->count : 0;
}

yk_tensor *yk_state_dict_at(const yk_state_dict *dict, int64_t i)
{
    YK__LIVE(dict);
    return dict && i >= 0 && i < dict->count ? dict->entries[i].tensor : NULL;
}

const char *yk_state_dict_name(const yk_state_dict *dict, int64_t i)
{
    YK__LIVE(dict);
    return dict && i >= 0 && i < dict->count ? dict->entries[i].name : NULL;
}

int64_t yk_state_dict_find(const yk_state_dict *dict, const char *name)
{
    YK__LIVE(dict);
    if (!dict || !name)
        return -1;
    uint32_t at = yk__name_find(&dict->names, hash_name(name), same_name, dict, name);
    return at == UINT32_MAX ? -1 : (int64_t)at;
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
    YK__LIVE(dict);
    YK__QUESTION;
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
    yk__log(YK_LOG_INFO, "there is no tensor \"%s\" among %lld%s%s%s", name, (long long)dict->count,
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

/* ---- what a file had and the dict has not ------------------------------------------------------------------------ */

static bool same_left_out(const void *owner, uint32_t index, const void *name)
{
    const yk_state_dict *dict = owner;
    return strcmp(dict->left_out[index].name, name) == 0;
}

yk_status yk__state_dict_leave_out(yk_state_dict *dict, const char *name, const char *what)
{
    if (dict->left_out_count == dict->left_out_room) {
        size_t room = dict->left_out_room ? 2 * dict->left_out_room : 8;
        yk__missing_entry *grown = yk__realloc(dict->left_out, room * sizeof(*grown));
        if (!grown)
            return YK_ERR_MEMORY;
        dict->left_out = grown;
        dict->left_out_room = room;
    }
    yk__missing_entry *entry = &dict->left_out[dict->left_out_count];
    *entry = (yk__missing_entry){yk__strdup(name), yk__strdup(what)};
    if (entry->name && entry->what &&
        !yk__name_add(&dict->left_out_names, hash_name(name), (uint32_t)dict->left_out_count)) {
        dict->left_out_count++;
        return YK_OK;
    }
    free(entry->name);
    free(entry->what);
    return YK_ERR_MEMORY;
}

const char *yk__state_dict_left_out_at(const yk_state_dict *dict, size_t i, const char **what)
{
    *what = i < dict->left_out_count ? dict->left_out[i].what : NULL;
    return i < dict->left_out_count ? dict->left_out[i].name : NULL;
}

static const char *find_left_out(const yk_state_dict *dict, const char *name)
{
    uint32_t at = yk__name_find(&dict->left_out_names, hash_name(name), same_left_out, dict, name);
    return at == UINT32_MAX ? NULL : dict->left_out[at].what;
}

const char *yk_state_dict_left_out(const yk_state_dict *dict, const char *name)
{
    static const char prefix[] = "module.";
    YK__LIVE(dict);
    if (!dict || !name)
        return NULL;
    const char *what = find_left_out(dict, name);
    if (what)
        return what;
    if (strncmp(name, prefix, sizeof(prefix) - 1) == 0)
        return find_left_out(dict, name + sizeof(prefix) - 1);
    char longer[512];
    int length = snprintf(longer, sizeof(longer), "%s%s", prefix, name);
    return length < (int)sizeof(longer) ? find_left_out(dict, longer) : NULL;
}

/* ---- lists of parameters ----------------------------------------------------------------------------------------- */
yk_parameters *yk__parameters_new(void)
{
    return yk__object_new(&parameters_type, sizeof(yk_state_dict));
}

yk_parameters *yk_parameters_create(void)
{
    return yk__scope_own(yk__parameters_new());
}

yk_status yk_parameters_add(yk_parameters *parameters, const char *name, yk_tensor *x)
{
    YK__LIVE(parameters);
    YK__LIVE(x);
    if (!parameters || !name || !x)
        return yk__error_code() ? yk__error_code()
                                : yk__fail(YK_ERR_ARGUMENT, "parameters_add: the %s is NULL",
                                           !parameters ? "list"
                                           : !name     ? "name"
                                                       : "tensor");
    if (!yk_is_leaf(x))
        return yk__fail(YK_ERR_ARGUMENT, "parameters_add: \"%s\" was made by %s and is no leaf", name,
                        yk_grad_fn_name(x));
    return yk_state_dict_add(yk__parameters_list(parameters), name, x);
}

int64_t yk_parameters_count(const yk_parameters *parameters)
{
    YK__LIVE(parameters);
    return parameters ? yk__parameters_list(parameters)->count : 0;
}

yk_tensor *yk_parameters_at(const yk_parameters *parameters, int64_t i)
{
    YK__LIVE(parameters);
    return yk__state_dict_at(yk__parameters_list(parameters), i);
}

const char *yk_parameters_name(const yk_parameters *parameters, int64_t i)
{
    YK__LIVE(parameters);
    return yk__state_dict_name(yk__parameters_list(parameters), i);
}

yk_parameters *yk_parameters_retain(yk_parameters *parameters)
{
    return yk_object_retain(parameters);
}

void yk_parameters_release(yk_parameters *parameters)
{
    yk_object_release(parameters);
}

/* ---- tensors that are elsewhere ---------------------------------------------------------------------------------- */
void yk__state_dict_defer(yk_state_dict *dict, yk__fill_fn fill, void *owner)
{
    dict->fill = fill;
    dict->owner = yk_object_retain(owner);
}

bool yk__state_dict_deferred(const yk_state_dict *dict, int64_t i)
{
    const yk_tensor *x = dict->fill ? yk__state_dict_at(dict, i) : NULL;
    return x && x->numel && !x->data;
}

yk_status yk__state_dict_copy(const yk_state_dict *dict, int64_t i, yk_tensor *to)
{
    if (yk__state_dict_deferred(dict, i))
        return dict->fill(dict->owner, i, dict->entries[i].tensor, to);
    return yk__raw_copy(to, yk__state_dict_at(dict, i));
}
