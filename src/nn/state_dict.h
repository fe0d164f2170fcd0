/*
 * state_dict.h - ordered lists of named tensors, from the inside. Layer: nn.
 *
 * The library reads lists that it holds by the functions here: those of yoke/nn.h look first whether the list was
 * freed, which is for the doors of the library.
 */
#ifndef YOKE_NN_STATE_DICT_H
#define YOKE_NN_STATE_DICT_H

#include <yoke/nn.h>

#include "base/core.h"
#include "base/name_table.h"

typedef struct yk__dict_entry {
    char *name;
    yk_tensor *tensor;
} yk__dict_entry;

/* An entry of a file that became no tensor here, with what it is. */
typedef struct yk__missing_entry {
    char *name, *what;
} yk__missing_entry;

typedef yk_status (*yk__fill_fn)(void *owner, int64_t i, const yk_tensor *saved, yk_tensor *to);

struct yk_state_dict {
    yk__object object;
    yk__dict_entry *entries;
    int64_t count, capacity;
    yk__name_table names;
    yk__missing_entry *left_out;
    size_t left_out_count, left_out_room;
    yk__name_table left_out_names;
    yk__fill_fn fill; /* NULL: all tensors are here */
    void *owner;
};

static inline int64_t yk__state_dict_count(const yk_state_dict *dict)
{
    return dict ? dict->count : 0;
}

/* NULL where there is no entry i. */
static inline yk_tensor *yk__state_dict_at(const yk_state_dict *dict, int64_t i)
{
    return dict && i >= 0 && i < dict->count ? dict->entries[i].tensor : NULL;
}

static inline const char *yk__state_dict_name(const yk_state_dict *dict, int64_t i)
{
    return dict && i >= 0 && i < dict->count ? dict->entries[i].name : NULL;
}

/* yk_state_dict_find that also understands the name with a leading "module." more or less. */
int64_t yk__state_dict_find_module(const yk_state_dict *dict, const char *name);

/* A state dict, and a list of parameters, that no scope owns. */
yk_state_dict *yk__state_dict_new(void);
yk_parameters *yk__parameters_new(void);
/* A list of parameters is a state dict inside. */
static inline yk_state_dict *yk__parameters_list(const yk_parameters *parameters)
{
    return (yk_state_dict *)parameters;
}

/*
 * A dict may hold a tensor without memory (data NULL) in place of one that is still where it was saved; `fill` then
 * copies entry i, which is like `saved`, to `to` of the same shape. The dict holds one reference to `owner`, which is
 * given to `fill`.
 */
void yk__state_dict_defer(yk_state_dict *dict, yk__fill_fn fill, void *owner);
bool yk__state_dict_deferred(const yk_state_dict *dict, int64_t i);
/* Copies entry i to a tensor of its shape, wherever it is. */
yk_status yk__state_dict_copy(const yk_state_dict *dict, int64_t i, yk_tensor *to);

/* Notes an entry of a file that was left out, and what it was (yk_state_dict_left_out); and the name and text of number
 * i of these, NULL where there are fewer. */
yk_status yk__state_dict_leave_out(yk_state_dict *dict, const char *name, const char *what);
const char *yk__state_dict_left_out_at(const yk_state_dict *dict, size_t i, const char **what);

static inline int64_t yk__parameters_count(const yk_parameters *parameters)
{
    return yk__state_dict_count(yk__parameters_list(parameters));
}

static inline yk_tensor *yk__parameters_at(const yk_parameters *parameters, int64_t i)
{
    return yk__state_dict_at(yk__parameters_list(parameters), i);
}

static inline const char *yk__parameters_name(const yk_parameters *parameters, int64_t i)
{
    return yk__state_dict_name(yk__parameters_list(parameters), i);
}

#endif
