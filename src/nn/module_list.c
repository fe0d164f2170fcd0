/*
 * module_list.c - ModuleList and ModuleDict: modules that hold others and do not run them. Layer: nn.
 *
 * The children of a list, and of a Sequential, are called "0", "1", ... in their order.
 */
#include <stdlib.h>
#include <string.h>

#include "nn/module.h"

static yk_tensor *no_forward(yk_module *m, yk_tensor *x)
{
    (void)x;
    yk__fail(YK_ERR_STATE, "%s has no forward: call yk_forward with its children", m->shown_name);
    return NULL;
}

static const yk_module_class list_class = {.name = "ModuleList", .forward = no_forward};
static const yk_module_class dict_class = {.name = "ModuleDict", .forward = no_forward};

bool yk__is_module_list(const yk_module *m)
{
    return m->cls == &list_class;
}

static bool is_list(const yk_module *m)
{
    return yk__is_module_list(m) || yk__is_sequential(m);
}

static const char *number_name(int64_t i, char name[24])
{
    snprintf(name, 24, "%lld", (long long)i);
    return name;
}

yk_module *yk_module_list(yk_module *const *modules, int count)
{
    char name[24];
    if (count > 0 && !yk__is_there("module_list", "array of modules", modules))
        return NULL;
    yk_module *m = yk_module_create(&list_class);
    for (int i = 0; i < count; i++)
        yk_module_add(m, number_name(i, name), modules[i]);
    return yk_module_check(m);
}

yk_module *yk_module_dict(const char *const *names, yk_module *const *modules, int count)
{
    if (count > 0 && (!yk__is_there("module_dict", "array of names", names) ||
                      !yk__is_there("module_dict", "array of modules", modules)))
        return NULL;
    yk_module *m = yk_module_create(&dict_class);
    for (int i = 0; i < count; i++)
        yk_module_add(m, names[i], modules[i]);
    return yk_module_check(m);
}

/* True if m can be used as a list in a call of this name. */
static bool list_check(const char *name, const yk_module *m)
{
    if (!yk__module_usable(name, m))
        return false;
    if (!is_list(m))
        yk__fail(YK_ERR_ARGUMENT, "%s: the module is a %s, expected a ModuleList or a Sequential", name, m->shown_name);
    return is_list(m);
}

yk_module *yk_module_list_insert(yk_module *list, int64_t index, yk_module *child)
{
    char name[24];
    YK__LIVE(list);
    YK__LIVE(child);
    if (!yk__is_there("module_list_insert", "module to insert", child) || !list_check("module_list_insert", list))
        return NULL;
    int64_t count = list->children.count, at = index < 0 ? index + count : index;
    if (at < 0 || at > count) {
        yk__fail(YK_ERR_ARGUMENT, "module_list_insert: index %lld is outside a %s of %lld modules", (long long)index,
                 list->shown_name, (long long)count);
        return NULL;
    }
    /* The child is added behind all and moved to its position; names stay where they are. */
    if (!yk_module_add(list, number_name(count, name), child))
        return NULL;
    yk__entry *items = list->children.items;
    void *object = items[count].object;
    for (int64_t i = count; i > at; i--)
        items[i].object = items[i - 1].object;
    items[at].object = object;
    return child;
}

yk_module *yk_module_list_append(yk_module *list, yk_module *child)
{
    YK__LIVE(list);
    YK__LIVE(child);
    if (!yk__is_there("module_list_append", "module to append", child) || !list_check("module_list_append", list))
        return NULL;
    return yk_module_list_insert(list, list->children.count, child);
}

yk_module *yk_module_list_get(const yk_module *list, int64_t index)
{
    YK__LIVE(list);
    return list && is_list(list) ? yk_module_child(list, index < 0 ? index + list->children.count : index) : NULL;
}
