/*
 * module_check.c - the invariants of a tree of modules. Layer: nn.
 */
#include <inttypes.h>
#include <string.h>

#include "base/invariant.h"
#include "nn/module.h"

/* A module and those around it. */
typedef struct path {
    const yk_module *m;
    const struct path *parent;
} path;

/* The lists that lists_of gives. */
enum { LISTS = 3 };

static void lists_of(const yk_module *m, const yk__entries *lists[LISTS])
{
    lists[0] = &m->parameters, lists[1] = &m->buffers, lists[2] = &m->children;
}

static int64_t count_of(const yk_module *m, const char *name)
{
    const yk__entries *lists[LISTS];
    int64_t count = 0;
    lists_of(m, lists);
    for (int l = 0; l < LISTS; l++)
        for (int64_t i = 0; i < lists[l]->count; i++)
            count += lists[l]->items[i].name && strcmp(lists[l]->items[i].name, name) == 0;
    return count;
}

static const char *check_entry(const yk_module *m, const yk__entry *entry)
{
    if (!entry->name || !*entry->name || strchr(entry->name, '.'))
        return yk__broken("%s: a part has the name \"%s\"", m->shown_name, entry->name ? entry->name : "(NULL)");
    if (count_of(m, entry->name) != 1)
        return yk__broken("%s: %" PRId64 " parts have the name \"%s\"", m->shown_name, count_of(m, entry->name),
                          entry->name);
    if (!entry->object && !m->original) /* a replica has names before it has tensors */
        return yk__broken("%s: \"%s\" is NULL", m->shown_name, entry->name);
    if (yk__is_freed(entry->object))
        return yk__broken("%s: \"%s\" was freed", m->shown_name, entry->name);
    return NULL;
}

static const char *check_parameter(const yk_module *m, const yk__entry *entry)
{
    const yk_tensor *x = entry->object;
    if (!x || m->original || (yk_is_leaf(x) && yk_dtype_is_floating((yk_dtype)x->dtype)))
        return NULL;
    return yk__broken("%s: parameter \"%s\" is of %s and made by %s", m->shown_name, entry->name,
                      yk_dtype_name((yk_dtype)x->dtype), yk_is_leaf(x) ? "nothing" : yk_grad_fn_name(x));
}

const char *yk__module_parts_check(const yk_module *m)
{
    const yk__entries *lists[LISTS];
    const char *wrong = NULL;
    lists_of(m, lists);
    for (int l = 0; l < LISTS; l++)
        for (int64_t i = 0; i < lists[l]->count && !wrong; i++)
            wrong = check_entry(m, &lists[l]->items[i]);
    for (int64_t i = 0; i < m->parameters.count && !wrong; i++)
        wrong = check_parameter(m, &m->parameters.items[i]);
    if (!wrong && m->original &&
        (m->parameters.count != m->original->parameters.count || m->buffers.count != m->original->buffers.count ||
         m->children.count != m->original->children.count))
        wrong = yk__broken("%s: a replica has %" PRId64 " parameters, %" PRId64 " buffers and %" PRId64
                           " children, the original %" PRId64 ", %" PRId64 " and %" PRId64,
                           m->shown_name, m->parameters.count, m->buffers.count, m->children.count,
                           m->original->parameters.count, m->original->buffers.count, m->original->children.count);
    return wrong;
}

static const char *check_tree(const path *at)
{
    for (const path *above = at->parent; above; above = above->parent)
        if (above->m == at->m)
            return yk__broken("%s contains itself", at->m->shown_name);
    const char *wrong = yk__module_parts_check(at->m);
    for (int64_t i = 0; i < at->m->children.count && !wrong; i++) {
        const path below = {at->m->children.items[i].object, at};
        wrong = below.m ? check_tree(&below) : NULL;
    }
    return wrong;
}

const char *yk__module_tree_check(const yk_module *m)
{
    return check_tree(&(path){m, NULL});
}
