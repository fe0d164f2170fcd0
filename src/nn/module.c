/*
 * module.c - the module tree: making, adding, walking. Layer: nn.
 *
 * Invariants: names are unique within a module across parameters, buffers and children and hold no dot; the tree has
 * no cycle, though a module or a tensor may stand in it twice; a module's tensors stay the same objects for its life.
 */
#include <stdlib.h>
#include <string.h>

#include "base/invariant.h"
#include "base/log.h"
#include "nn/module.h"

/* ---- making ------------------------------------------------------------------------------------------------------ */

static void entries_clear(yk__entries *entries)
{
    for (int64_t i = 0; i < entries->count; i++) {
        free(entries->items[i].name);
        yk_object_release(entries->items[i].object);
    }
    free(entries->items);
}

static void module_destroy(void *object)
{
    yk_module *m = object;
    if (m->cls->destroy && !m->original && !m->kept)
        m->cls->destroy(m);
    entries_clear(&m->children);
    entries_clear(&m->parameters);
    entries_clear(&m->buffers);
    free(m->hooks);
    free(m->data);
    yk_object_release(m->original);
    yk_object_release(m->kept);
    yk__object_free(m);
}

static const yk__type module_type = {"module", module_destroy};

yk_module *yk_module_create(const yk_module_class *cls)
{
    if (!cls || !cls->name || !(cls->forward || cls->forward_list)) {
        yk__fail(YK_ERR_ARGUMENT, "module_create: %s",
                 cls ? "the class needs a name and a forward" : "the class is NULL");
        return NULL;
    }
    if (!yk__scope_check(cls->name))
        return NULL;
    void *data = yk__calloc(1, cls->data_size);
    yk_module *m = data ? yk__object_new(&module_type, sizeof(*m)) : NULL;
    if (!m) {
        free(data);
        return NULL;
    }
    m->data = data;
    m->cls = cls;
    m->shown_name = cls->name;
    m->training = true;
    return yk__scope_own(m);
}

static yk_status names_copy(yk__entries *to, const yk__entries *from)
{
    to->items = yk__calloc((size_t)from->count, sizeof(*to->items));
    if (!to->items)
        return YK_ERR_MEMORY;
    for (int64_t i = 0; i < from->count; i++) {
        to->items[i] = (yk__entry){.name = yk__strdup(from->items[i].name), .temporary = from->items[i].temporary};
        if (!to->items[i].name)
            return YK_ERR_MEMORY;
        to->count = i + 1;
    }
    return YK_OK;
}

yk_module *yk__module_replica_make(yk_module *m)
{
    void *data = yk__calloc(1, m->cls->data_size);
    yk_module *replica = data ? yk__object_new(&module_type, sizeof(*replica)) : NULL;
    if (!replica) {
        free(data);
        return NULL;
    }
    replica->data = data;
    replica->cls = m->cls;
    replica->parametrized = m->parametrized;
    replica->shown_name = m->shown_name;
    replica->original = yk_module_retain(m);
    if (!names_copy(&replica->parameters, &m->parameters) && !names_copy(&replica->buffers, &m->buffers) &&
        !names_copy(&replica->children, &m->children))
        return replica;
    yk_module_release(replica);
    return NULL;
}

yk_status yk__module_replica_update(yk_module *replica, const yk_module *m, yk__counterpart find, const void *tree)
{
    replica->training = m->training;
    memcpy(replica->data, m->data, m->cls->data_size);
    void **words = replica->data;
    for (size_t i = 0; i < m->cls->data_size / sizeof(*words); i++) {
        void *counterpart = words[i] ? find(tree, words[i]) : NULL;
        if (counterpart)
            words[i] = counterpart;
    }
    return yk__module_hooks_copy(replica, m);
}

void *yk_module_data(yk_module *m)
{
    YK__LIVE(m);
    return m ? m->data : NULL;
}

const yk_module_class *yk_module_class_of(const yk_module *m)
{
    YK__LIVE(m);
    return m ? m->cls : NULL;
}

bool yk__module_usable(const char *what, const yk_module *m)
{
    if (!yk__is_there(what, "module", m))
        return false;
    if (m->incomplete)
        yk__fail(YK_ERR_STATE, "%s: the module %s is incomplete: something could not be added to it", what,
                 m->shown_name);
    return !m->incomplete;
}

yk_module *yk_module_check(yk_module *m)
{
    YK__LIVE(m);
    if (!yk__module_usable("module_check", m))
        return NULL;
    YK__ASSERT_SOUND(yk__module_tree_check(m));
    return m;
}

/* ---- adding ------------------------------------------------------------------------------------------------------ */

static yk__entry *entry_find(const yk__entries *entries, const char *name, size_t length)
{
    for (int64_t i = 0; i < entries->count; i++) {
        if (strncmp(entries->items[i].name, name, length) == 0 && !entries->items[i].name[length])
            return &entries->items[i];
    }
    return NULL;
}

static bool is_name(const yk_module *m, const char *name)
{
    if (name && *name && !strchr(name, '.'))
        return true;
    yk__fail(YK_ERR_ARGUMENT, "%s: \"%s\" is not a name for a part: it must not be empty or hold a dot", m->shown_name,
             name ? name : "");
    return false;
}

/* A module keeps pointers to its parts in its data: those to a part that is replaced follow. */
void yk__module_point(yk_module *m, const void *old, void *part)
{
    void **words = m->data;
    for (size_t i = 0; i < m->cls->data_size / sizeof(*words); i++) {
        if (words[i] == old)
            words[i] = part;
    }
}

/* Takes what has this name out of a list that the new part does not belong to. */
static void remove_entry(yk_module *m, yk__entries *entries, const char *name)
{
    yk__entry *entry = entry_find(entries, name, strlen(name));
    if (!entry)
        return;
    yk__module_point(m, entry->object, NULL); /* a part of another kind is no pointer to this one */
    yk_object_release(entry->object);
    free(entry->name);
    memmove(entry, entry + 1, (size_t)(entries->items + --entries->count - entry) * sizeof(*entry));
}

void yk__module_remove_child(yk_module *m, const char *name)
{
    remove_entry(m, &m->children, name);
}

/* Takes over the reference to object. A part of that name is replaced, at its position in the order if it is of that
 * kind. */
static bool entry_add(yk_module *m, yk__entries *entries, const char *name, void *object, bool temporary)
{
    bool named = is_name(m, name);
    yk__entry *there = named ? entry_find(entries, name, strlen(name)) : NULL;
    if (there) {
        void *old = there->object;
        there->object = object;
        there->temporary = temporary;
        yk__module_point(m, old, object);
        yk_object_release(old);
        return true;
    }
    char *copy = named ? yk__strdup(name) : NULL;
    yk__entry *items = copy ? yk__realloc(entries->items, (size_t)(entries->count + 1) * sizeof(*items)) : NULL;
    if (!items) {
        free(copy);
        yk_object_release(object);
        m->incomplete = true;
        return false;
    }
    entries->items = items;
    yk__entries *all[] = {&m->parameters, &m->buffers, &m->children};
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        remove_entry(m, all[i], name);
    items[entries->count++] = (yk__entry){copy, object, temporary};
    /* The check is made at every doubling: it compares all names with one another. */
    YK__ASSERT_SOUND(entries->count & (entries->count - 1) ? NULL : yk__module_parts_check(m));
    return true;
}

static bool contains(const yk_module *tree, const yk_module *m)
{
    if (tree == m)
        return true;
    for (int64_t i = 0; i < tree->children.count; i++) {
        if (contains(tree->children.items[i].object, m))
            return true;
    }
    return false;
}

/* True if `part` can be added to m. A missing one leaves m incomplete, and so a silent NULL is an error here. */
static bool addable(yk_module *m, const char *name, const void *part)
{
    if (!yk__is_there("module_add", "module", m))
        return false;
    if (!part) {
        yk__fail(YK_ERR_ARGUMENT, "%s: \"%s\" is NULL", m->shown_name, name ? name : "");
        m->incomplete = true;
    }
    return part && yk__module_usable("module_add", m);
}

yk_module *yk_module_add(yk_module *parent, const char *name, yk_module *child)
{
    YK__LIVE(parent);
    YK__LIVE(child);
    if (!addable(parent, name, child))
        return NULL;
    bool cycle = contains(child, parent);
    if (cycle)
        yk__fail(YK_ERR_ARGUMENT, "%s: \"%s\" would contain itself", parent->shown_name, name ? name : "");
    if (cycle || !yk__module_usable(parent->shown_name, child)) {
        parent->incomplete = true;
        return NULL;
    }
    return entry_add(parent, &parent->children, name, yk_module_retain(child), false) ? child : NULL;
}

static bool becomes_parameter(const yk_module *m, const char *name, yk_tensor *x)
{
    if (yk_is_leaf(x))
        return yk_set_requires_grad(x, true) == YK_OK;
    yk__fail(YK_ERR_ARGUMENT, "%s: \"%s\" was made by %s; a parameter must be a leaf: use yk_detach", m->shown_name,
             name ? name : "", yk_grad_fn_name(x));
    return false;
}

yk_tensor *yk__module_take_parameter(yk_module *m, const char *name, yk_tensor *x)
{
    if (!addable(m, name, x) || !becomes_parameter(m, name, x)) {
        if (m)
            m->incomplete = true;
        yk_tensor_release(x);
        return NULL;
    }
    return entry_add(m, &m->parameters, name, x, false) ? x : NULL;
}

static yk_tensor *add_buffer(yk_module *m, const char *name, yk_tensor *x, bool temporary)
{
    if (!addable(m, name, x)) {
        yk_tensor_release(x);
        return NULL;
    }
    return entry_add(m, &m->buffers, name, x, temporary) ? x : NULL;
}

yk_tensor *yk__module_take_buffer(yk_module *m, const char *name, yk_tensor *x)
{
    return add_buffer(m, name, x, false);
}

yk_tensor *yk_module_add_parameter(yk_module *m, const char *name, yk_tensor *x)
{
    YK__LIVE(m);
    YK__LIVE(x);
    return yk__module_take_parameter(m, name, yk_tensor_retain(x));
}

yk_tensor *yk_module_add_buffer(yk_module *m, const char *name, yk_tensor *x)
{
    YK__LIVE(m);
    YK__LIVE(x);
    return add_buffer(m, name, yk_tensor_retain(x), false);
}

yk_tensor *yk_module_add_temporary_buffer(yk_module *m, const char *name, yk_tensor *x)
{
    YK__LIVE(m);
    YK__LIVE(x);
    return add_buffer(m, name, yk_tensor_retain(x), true);
}

yk_tensor *yk__module_tensor(const char *what, int ndim, const int64_t *shape, yk_dtype dtype)
{
    return yk__tensor_from_options(what, ndim, shape, YK_OPTIONS(yk_tensor_options, .dtype = dtype));
}

/* ---- modes ------------------------------------------------------------------------------------------------------- */

void yk_module_train(yk_module *m, bool training)
{
    YK__LIVE(m);
    if (!yk__is_there("module_train", "module", m))
        return;
    m->training = training;
    for (int64_t i = 0; i < m->children.count; i++)
        yk_module_train(m->children.items[i].object, training);
}

void yk_module_eval(yk_module *m)
{
    yk_module_train(m, false);
}

bool yk_module_is_training(const yk_module *m)
{
    YK__LIVE(m);
    return m && m->training;
}

/* ---- walking ----------------------------------------------------------------------------------------------------- */

int64_t yk_module_child_count(const yk_module *m)
{
    YK__LIVE(m);
    return m ? m->children.count : 0;
}

yk_module *yk_module_child(const yk_module *m, int64_t i)
{
    YK__LIVE(m);
    return m && i >= 0 && i < m->children.count ? m->children.items[i].object : NULL;
}

const char *yk_module_child_name(const yk_module *m, int64_t i)
{
    YK__LIVE(m);
    return m && i >= 0 && i < m->children.count ? m->children.items[i].name : NULL;
}

yk_status yk_module_apply(yk_module *m, yk_status (*fn)(yk_module *m, void *user), void *user)
{
    YK__OWN_RECORD;
    YK__LIVE(m);
    if (!yk__module_usable("module_apply", m))
        return m ? YK_ERR_STATE : yk__fail(YK_ERR_ARGUMENT, "module_apply: the module is NULL");
    if (!fn)
        return yk__fail(YK_ERR_ARGUMENT, "module_apply: the function is NULL");
    for (int64_t i = 0; i < m->children.count; i++) {
        yk_status status = yk_module_apply(m->children.items[i].object, fn, user);
        if (status)
            return status;
    }
    bool failed_before = yk__error_code() != YK_OK;
    yk_status status = fn(m, user);
    if (!status && !failed_before)
        status = yk__error_code(); /* a callback that sets an error has failed, whatever it returns */
    return status ? yk__fail(status, "module_apply: the function failed at %s", m->shown_name) : YK_OK;
}

void yk_module_zero_grad(yk_module *m)
{
    YK__LIVE(m);
    if (!yk__is_there("module_zero_grad", "module", m))
        return;
    for (int64_t i = 0; i < m->parameters.count; i++) {
        yk_status dropped = yk_set_grad(m->parameters.items[i].object, NULL);
        (void)dropped; /* dropping has no way to fail */
    }
    for (int64_t i = 0; i < m->children.count; i++)
        yk_module_zero_grad(m->children.items[i].object);
}

static yk_status set_requires_grad(yk_module *m, void *requires_grad)
{
    for (int64_t i = 0; i < m->parameters.count; i++) {
        yk_status status = yk_set_requires_grad(m->parameters.items[i].object, *(bool *)requires_grad);
        if (status)
            return status;
    }
    return YK_OK;
}

yk_status yk_module_requires_grad(yk_module *m, bool requires_grad)
{
    YK__LIVE(m);
    return yk_module_apply(m, set_requires_grad, &requires_grad);
}

/* "a.b" + "c" = "a.b.c" */
static char *path_join(const char *path, const char *name)
{
    return yk__format("%s%s%s", path, *path ? "." : "", name);
}

static bool listed(const yk_state_dict *dict, const yk_tensor *x)
{
    for (int64_t i = 0; i < yk__state_dict_count(dict); i++) {
        if (yk__state_dict_at(dict, i) == x)
            return true;
    }
    return false;
}

static yk_status collect_entries(const yk__entries *entries, yk__collect what, const char *path, yk_state_dict *dict)
{
    for (int64_t i = 0; i < entries->count; i++) {
        const yk__entry *entry = &entries->items[i];
        if (entry->temporary || (what == YK__PARAMETERS && listed(dict, entry->object)))
            continue;
        char *name = path_join(path, entry->name);
        /* A state dict's tensors share memory with the module's but are not on the tape. */
        yk_tensor *x = what == YK__STATE ? yk__tensor_alias(entry->object) : yk_tensor_retain(entry->object);
        yk_status status = name && x ? yk_state_dict_add(dict, name, x) : YK_ERR_MEMORY;
        yk_tensor_release(x);
        free(name);
        if (status)
            return status;
    }
    return YK_OK;
}

static yk_status collect(yk_module *m, yk__collect what, const char *path, yk_state_dict *dict)
{
    yk_status status = collect_entries(&m->parameters, what, path, dict);
    if (!status && what == YK__STATE)
        status = collect_entries(&m->buffers, what, path, dict);
    for (int64_t i = 0; !status && i < m->children.count; i++) {
        char *below = path_join(path, m->children.items[i].name);
        status = below ? collect(m->children.items[i].object, what, below, dict) : YK_ERR_MEMORY;
        free(below);
    }
    return status;
}

yk_status yk__module_collect(yk_module *m, yk__collect what, yk_state_dict *dict)
{
    return collect(m, what, "", dict);
}

yk_parameters *yk_module_parameters(yk_module *m)
{
    YK__LIVE(m);
    if (!yk__module_usable("module_parameters", m) || !yk__scope_check("module_parameters"))
        return NULL;
    yk_parameters *list = yk__parameters_new();
    if (list && yk__module_collect(m, YK__PARAMETERS, yk__parameters_list(list))) {
        yk_parameters_release(list);
        list = NULL;
    }
    return yk__scope_own(list);
}

int64_t yk_module_parameter_count(yk_module *m)
{
    YK__LIVE(m);
    YK__QUESTION;
    if (!yk__module_usable("module_parameter_count", m))
        return 0;
    yk_parameters *list = yk__parameters_new();
    int64_t numbers = 0;
    if (list && !yk__module_collect(m, YK__PARAMETERS, yk__parameters_list(list))) {
        for (int64_t i = 0; i < yk__parameters_count(list); i++)
            numbers += yk_numel(yk__parameters_at(list, i));
    }
    yk_parameters_release(list);
    return numbers;
}

/* The module at the first `length` characters of a dotted path. */
static yk_module *descend(yk_module *m, const char *path, size_t length)
{
    while (m && length) {
        const char *dot = memchr(path, '.', length);
        size_t part = dot ? (size_t)(dot - path) : length;
        yk__entry *entry = entry_find(&m->children, path, part);
        m = entry ? entry->object : NULL;
        size_t past = part + (dot != NULL);
        path += past;
        length -= past;
    }
    return m;
}

static yk_status collect_paths(yk_module *m, const char *path, const char ***names, size_t *count)
{
    for (int64_t i = 0; i < m->children.count; i++) {
        char *below = path_join(path, m->children.items[i].name);
        const char **grown = below ? yk__realloc(*names, (*count + 1) * sizeof(**names)) : NULL;
        if (!grown) {
            free(below);
            return YK_ERR_MEMORY;
        }
        *names = grown;
        grown[(*count)++] = below;
        yk_status status = collect_paths(m->children.items[i].object, below, names, count);
        if (status)
            return status;
    }
    return YK_OK;
}

/* Questions leave no record: the nearest name goes to the log. */
static void log_not_found(const yk_module *m, const char *kind, const char *name, const char *const *names,
                          size_t count)
{
    const char *nearest = yk__nearest(name, names, count);
    yk__log(YK_LOG_INFO, "%s: there is no %s \"%s\"%s%s%s", m->shown_name, kind, name,
            nearest ? "; did you mean \"" : "", nearest ? nearest : "", nearest ? "\"?" : "");
}

yk_tensor *yk_module_get(yk_module *m, const char *name)
{
    YK__LIVE(m);
    YK__QUESTION;
    if (!name || !yk__module_usable("module_get", m))
        return NULL;
    const char *dot = strrchr(name, '.'), *last = dot ? dot + 1 : name;
    yk_module *owner = descend(m, name, dot ? (size_t)(dot - name) : 0);
    yk__entry *entry = owner ? entry_find(&owner->parameters, last, strlen(last)) : NULL;
    if (!entry && owner)
        entry = entry_find(&owner->buffers, last, strlen(last));
    if (entry && !yk__is_stand_in(owner, last))
        return entry->object;
    yk_state_dict *all = yk__state_dict_new();
    if (all && !yk__module_collect(m, YK__STATE, all)) {
        int64_t count = yk__state_dict_count(all);
        const char **names = yk__calloc((size_t)count, sizeof(*names));
        for (int64_t i = 0; names && i < count; i++)
            names[i] = yk__state_dict_name(all, i);
        if (names)
            log_not_found(m, "parameter or buffer", name, names, (size_t)count);
        free(names);
    }
    yk_state_dict_release(all);
    return NULL;
}

yk_module *yk_module_get_module(yk_module *m, const char *path)
{
    YK__LIVE(m);
    YK__QUESTION;
    if (!path || !yk__module_usable("module_get_module", m))
        return NULL;
    yk_module *found = descend(m, path, strlen(path));
    if (found)
        return found;
    const char **names = NULL;
    size_t count = 0;
    if (!collect_paths(m, "", &names, &count))
        log_not_found(m, "module", path, names, count);
    for (size_t i = 0; i < count; i++)
        free((char *)(uintptr_t)names[i]);
    free(names);
    return NULL;
}

yk_module *yk_module_retain(yk_module *m)
{
    return yk_object_retain(m);
}

void yk_module_release(yk_module *m)
{
    yk_object_release(m);
}
