/*
 * module_twin.c - another tree of modules like one that is there, and yk_module_copy, whose tensors are its own.
 * Layer: nn.
 *
 * A part that stands in the tree twice has one twin. A module's data is copied as it is, and pointers in it to a part
 * become pointers to the part's twin; what else it points to stays the original's, which the twin therefore retains.
 */
#include <stdlib.h>
#include <string.h>

#include "nn/module_twin.h"

#include "tensor/tensor.h"

void *yk__twin_find(const void *twins, const void *original)
{
    const yk__twins *t = twins;
    for (int64_t i = 0; i < t->count; i++) {
        if (t->items[i].original == original)
            return t->items[i].object;
    }
    return NULL;
}

/* Takes over the reference to `object`; NULL: it could not be made. */
static void *twin_add(yk__twins *t, void *original, void *object)
{
    if (object && t->count == t->capacity) {
        int64_t capacity = t->capacity ? 2 * t->capacity : 32;
        yk__twin *items = yk__realloc(t->items, (size_t)capacity * sizeof(*items));
        if (!items) {
            yk_object_release(object);
            return NULL;
        }
        t->items = items;
        t->capacity = capacity;
    }
    if (object)
        t->items[t->count++] = (yk__twin){original, object};
    return object;
}

/* Fills the places of a replica's tensors. */
static yk_status twin_tensors(yk__twins *t, yk__entries *to, const yk__entries *from, yk__twin_of_tensor make)
{
    for (int64_t i = 0; i < from->count; i++) {
        yk_tensor *x = from->items[i].object, *old = yk__twin_find(t, x);
        to->items[i].object = yk_object_retain(old ? old : twin_add(t, x, make(t, x)));
        if (!to->items[i].object)
            return yk__error_code();
    }
    return YK_OK;
}

/* Makes the twins of a module and all below it; their data is still empty. */
static yk_module *twin_module(yk__twins *t, yk_module *m)
{
    yk_module *made = twin_add(t, m, yk__module_replica_make(m));
    if (!made)
        return NULL;
    if (twin_tensors(t, &made->parameters, &m->parameters, t->parameter) ||
        twin_tensors(t, &made->buffers, &m->buffers, t->buffer))
        return NULL;
    for (int64_t i = 0; i < m->children.count; i++) {
        yk_module *child = m->children.items[i].object, *old = yk__twin_find(t, child);
        made->children.items[i].object = yk_object_retain(old ? old : twin_module(t, child));
        if (!made->children.items[i].object)
            return NULL;
    }
    return made;
}

/* Gives the modules mode, hooks and data. */
static yk_status twins_update(const yk__twins *t)
{
    yk_status status = YK_OK;
    for (int64_t i = 0; i < t->count && !status; i++) {
        if (((yk__object *)t->items[i].object)->type != ((yk__object *)t->items[0].object)->type)
            continue; /* a tensor */
        yk_module *to = t->items[i].object;
        status = yk__module_replica_update(to, t->items[i].original, yk__twin_find, t);
        if (!status && t->copies) {
            to->kept = to->original;
            to->original = NULL;
        }
    }
    return status;
}

yk_module *yk__twins_make(yk__twins *t, yk_module *m)
{
    yk_module *made = twin_module(t, m);
    return made && !twins_update(t) ? made : NULL;
}

void yk__twins_clear(yk__twins *t)
{
    for (int64_t i = t->count; i-- > 0;)
        yk_object_release(t->items[i].object);
    free(t->items);
    *t = (yk__twins){0};
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

/* Memory of its own with the values and the order of x. */
static yk_tensor *tensor_copy(const yk__twins *t, yk_tensor *x)
{
    (void)t;
    yk__operation_name = "module_copy";
    yk_tensor *made = yk__tensor_like(x, (yk_dtype)x->dtype);
    if (made && yk__raw_copy(made, x)) {
        yk_tensor_release(made);
        return NULL;
    }
    return made;
}

static yk_tensor *parameter_copy(const yk__twins *t, yk_tensor *x)
{
    yk_tensor *made = tensor_copy(t, x);
    if (made && yk_set_requires_grad(made, yk__wants_grad(x))) {
        yk_tensor_release(made);
        return NULL;
    }
    return made;
}

yk_module *yk_module_copy(yk_module *m)
{
    YK__LIVE(m);
    if (!yk__module_usable("module_copy", m) || !yk__scope_check("module_copy"))
        return NULL;
    if (strcmp(m->shown_name, "DistributedDataParallel") == 0 || strcmp(m->shown_name, "DataParallel") == 0) {
        yk__fail(YK_ERR_ARGUMENT,
                 "module_copy: the module is a %s, which has threads and memory of its own: copy its "
                 "child \"module\"",
                 m->shown_name);
        return NULL;
    }
    yk__twins t = {.parameter = parameter_copy, .buffer = tensor_copy, .copies = true};
    yk_module *made = yk_module_retain(yk__twins_make(&t, m));
    yk__twins_clear(&t);
    return yk__scope_own(made);
}
