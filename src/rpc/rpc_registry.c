/*
 * rpc_registry.c - the functions and classes that this process offers. Layer: rpc.
 *
 * Invariant: entries are only added, before or while calls run; a name stands for one thing.
 */
#include <stdlib.h>
#include <string.h>

#include "rpc/dist_autograd.h"
#include "rpc/dist_optim.h"
#include "rpc/param_server.h"
#include "rpc/rpc_agent.h"
#include "rpc/rpc_publish.h"

typedef struct entry {
    const char *name; /* a copy */
    yk_rpc_fn fn;
    const yk_rpc_class *cls; /* NULL: a function */
} entry;

/* The registered functions and classes. They outlive yk_rpc_shutdown: a worker may be made again. */
static struct {
    pthread_mutex_t lock;
    entry *entries;
    size_t count;
} registry = {.lock = PTHREAD_MUTEX_INITIALIZER};

static yk_status entry_add(const char *what, const char *name, yk_rpc_fn fn, const yk_rpc_class *cls)
{
    yk_status status = yk__rpc_name_check(what, cls ? "class" : "function", name);
    if (status)
        return status;
    pthread_mutex_lock(&registry.lock);
    for (size_t i = 0; i < registry.count; i++) {
        const entry *e = &registry.entries[i];
        if (strcmp(e->name, name) != 0)
            continue;
        if (e->fn != fn || e->cls != cls)
            status = yk__fail(YK_ERR_ARGUMENT, "%s: '%s' is the name of another %s already", what, name,
                              e->cls ? "class" : "function");
        pthread_mutex_unlock(&registry.lock);
        return status;
    }
    char *copy = yk__strdup(name);
    entry *entries = copy ? yk__realloc(registry.entries, (registry.count + 1) * sizeof(*entries)) : NULL;
    if (entries) {
        registry.entries = entries;
        entries[registry.count++] = (entry){copy, fn, cls};
    } else {
        free(copy);
        status = yk__error_code();
    }
    pthread_mutex_unlock(&registry.lock);
    return status;
}

yk_status yk_rpc_register(const char *name, yk_rpc_fn fn)
{
    if (!fn)
        return yk__fail(YK_ERR_ARGUMENT, "rpc_register: the function is NULL");
    return entry_add("rpc_register", name, fn, NULL);
}

yk_status yk_rpc_register_class(const yk_rpc_class *cls)
{
    if (!cls || !cls->methods || !cls->create)
        return yk__fail(YK_ERR_ARGUMENT, "rpc_register_class: %s is NULL",
                        !cls           ? "the class"
                        : !cls->create ? "the class's create"
                                       : "the class's array of methods");
    if (!cls->save != !cls->load)
        return yk__fail(YK_ERR_ARGUMENT, "rpc_register_class: the class has %s; they go together",
                        cls->save ? "save, and no load" : "load, and no save");
    if (cls->save && !(cls->save_every >= 0))
        return yk__fail(YK_ERR_ARGUMENT, "rpc_register_class: save_every is %g, and seconds are wanted",
                        cls->save_every);
    if (cls->save && cls->concurrent && cls->save_every == 0)
        return yk__fail(YK_ERR_ARGUMENT, "rpc_register_class: a concurrent class cannot save after each method; its "
                                         "save_every has to be above 0");
    for (const yk_rpc_method *m = cls->methods; m->name; m++) {
        yk_status status = yk__rpc_name_check("rpc_register_class", "method", m->name);
        if (status || !m->fn)
            return status ? status
                          : yk__fail(YK_ERR_ARGUMENT, "rpc_register_class: the method '%s' has no function", m->name);
    }
    return entry_add("rpc_register_class", cls->name, NULL, cls);
}

/* The functions and classes that every worker has for the library's own calls. */
static entry builtin_find(const char *name)
{
    static const yk_rpc_class *const classes[] = {&yk__dist_context_class, &yk__dist_optimizer_class,
                                                  &yk__remote_module_class, &yk__server_class};
    for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++)
        if (strcmp(classes[i]->name, name) == 0)
            return (entry){classes[i]->name, NULL, classes[i]};
    yk_rpc_fn fn = yk__dist_function(name);
    fn = fn ? fn : yk__publish_function(name);
    return (entry){fn ? name : NULL, fn, NULL};
}

static entry entry_find(const char *name)
{
    entry found = builtin_find(name);
    pthread_mutex_lock(&registry.lock);
    for (size_t i = 0; i < registry.count && !found.name; i++)
        if (strcmp(registry.entries[i].name, name) == 0)
            found = registry.entries[i];
    pthread_mutex_unlock(&registry.lock);
    return found;
}

yk_rpc_fn yk__rpc_function(const char *name)
{
    return entry_find(name).fn;
}

const yk_rpc_class *yk__rpc_class_of(const char *name)
{
    return entry_find(name).cls;
}

yk_rpc_fn yk__rpc_method_of(const yk_rpc_class *cls, const char *name)
{
    for (const yk_rpc_method *m = cls->methods; m->name; m++)
        if (strcmp(m->name, name) == 0)
            return m->fn;
    return NULL;
}

const char *yk__rpc_suggest(const yk_rpc_class *cls, const char *name, char text[400])
{
    enum { SHOWN = 64 };
    const char *names[SHOWN];
    size_t count = 0;
    pthread_mutex_lock(&registry.lock);
    if (cls)
        for (const yk_rpc_method *m = cls->methods; m->name && count < SHOWN; m++)
            names[count++] = m->name;
    else
        for (size_t i = 0; i < registry.count && count < SHOWN; i++)
            names[count++] = registry.entries[i].name;
    pthread_mutex_unlock(&registry.lock); /* the names stay */
    const char *nearest = yk__nearest(name, names, count);
    if (nearest) {
        snprintf(text, 400, "; did you mean '%s'?", nearest);
        return text;
    }
    int length = snprintf(text, 400, count ? "; it has " : "; it has none");
    for (size_t i = 0; i < count && length < 300; i++)
        length += snprintf(text + length, (size_t)(400 - length), "%s'%.60s'", i ? ", " : "", names[i]);
    return text;
}
