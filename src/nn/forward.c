/*
 * forward.c - running a module: its scope, the path of an error, hooks before and after. Layer: nn.
 *
 * Everything goes through module_run, whatever the number of tensors: what is taken and given is a list, and one tensor
 * for one is the list of one. A hook may remove itself or others, and add new ones, which are called from the next
 * forward on: a walk goes over a copy of the list, and leaves out what is no longer in it.
 */
#include <stdlib.h>
#include <string.h>

#include "host/progress.h"
#include "nn/module.h"

/* The modules whose forward runs on this thread, innermost first: the path of an error. */
typedef struct frame {
    yk_module *module;
    struct frame *up;
    bool named; /* a failure inside has put its path before the record already */
} frame;

static _Thread_local frame *innermost;

/* Appends ".a.b" where `child` stands in the tree of `parent`. */
static bool append_path(const yk_module *parent, const yk_module *child, char *path, size_t size)
{
    size_t used = strlen(path);
    for (int64_t i = 0; i < parent->children.count; i++) {
        const yk__entry *entry = &parent->children.items[i];
        snprintf(path + used, size - used, "%s%s", used ? "." : "", entry->name);
        if (entry->object == child || append_path(entry->object, child, path, size))
            return true;
        path[used] = '\0';
    }
    return false;
}

static void write_path(const frame *f, char *path, size_t size)
{
    if (!f->up)
        return;
    write_path(f->up, path, size);
    if (f->module != f->up->module && !append_path(f->up->module, f->module, path, size)) {
        size_t used = strlen(path); /* run by a module that it is no part of */
        snprintf(path + used, size - used, "%s(%s)", used ? "." : "", f->module->shown_name);
    }
}

static void name_failure(frame *f, bool failed_before)
{
    if (!f->named && !failed_before) {
        char path[300] = "";
        yk__fail(YK_ERR_CALLBACK, "forward of %s returned NULL without an error", f->module->shown_name);
        write_path(f, path, sizeof(path));
        if (path[0])
            yk__error_prefix("%s", path);
    }
    if (f->up)
        f->up->named = true;
}

/* ---- hooks ------------------------------------------------------------------------------------------------------- */

typedef struct module_hook {
    uint64_t id;
    yk_forward_pre_hook before; /* one of the two */
    yk_forward_hook after;
    void *user;
} module_hook;

struct yk__module_hooks {
    int count;
    module_hook items[];
};

static uint64_t hook_add(const char *name, yk_module *m, module_hook hook)
{
    static atomic_ullong ids = 1;
    if (!yk__module_usable(name, m))
        return 0;
    int count = m->hooks ? m->hooks->count : 0;
    yk__module_hooks *grown = yk__realloc(m->hooks, sizeof(*grown) + sizeof(hook) * ((size_t)count + 1));
    if (!grown)
        return 0;
    hook.id = atomic_fetch_add(&ids, 1);
    grown->items[count] = hook;
    grown->count = count + 1;
    m->hooks = grown;
    return hook.id;
}

uint64_t yk_module_register_forward_pre_hook(yk_module *m, yk_forward_pre_hook hook, void *user)
{
    YK__LIVE(m);
    return hook_add("register_forward_pre_hook", m, (module_hook){.before = hook, .user = user});
}

uint64_t yk_module_register_forward_hook(yk_module *m, yk_forward_hook hook, void *user)
{
    YK__LIVE(m);
    return hook_add("register_forward_hook", m, (module_hook){.after = hook, .user = user});
}

yk_status yk__module_hooks_copy(yk_module *replica, const yk_module *m)
{
    if (!m->hooks && !replica->hooks)
        return YK_OK;
    free(replica->hooks);
    replica->hooks = NULL;
    if (!m->hooks)
        return YK_OK;
    size_t bytes = sizeof(*m->hooks) + sizeof(module_hook) * (size_t)m->hooks->count;
    replica->hooks = yk__calloc(1, bytes);
    if (!replica->hooks)
        return YK_ERR_MEMORY;
    memcpy(replica->hooks, m->hooks, bytes);
    return YK_OK;
}

static module_hook *hook_find(yk_module *m, uint64_t id)
{
    for (int i = 0; m && m->hooks && i < m->hooks->count; i++) {
        if (m->hooks->items[i].id == id)
            return &m->hooks->items[i];
    }
    return NULL;
}

yk_status yk_module_hook_remove(yk_module *m, uint64_t id)
{
    YK__LIVE(m);
    module_hook *hook = hook_find(m, id);
    if (!hook)
        return yk__fail(YK_ERR_NOT_FOUND, "module_hook_remove: %s has no hook %llu", m ? m->shown_name : "NULL",
                        (unsigned long long)id);
    module_hook *end = m->hooks->items + m->hooks->count--;
    memmove(hook, hook + 1, sizeof(*hook) * (size_t)(end - hook - 1));
    if (m->hooks->count == 0) {
        free(m->hooks);
        m->hooks = NULL;
    }
    return YK_OK;
}

/* The inputs and outputs of one call of a module. */
typedef struct call {
    yk_tensor *const *inputs;
    yk_tensor **outputs;
    int n_inputs, n_outputs;
} call;

/* The hooks of one side; `inputs` is a copy that those before may write. */
static yk_status run_hooks(yk_module *m, bool before, yk_tensor **inputs, const call *c)
{
    if (!m->hooks)
        return YK_OK;
    size_t bytes = sizeof(*m->hooks) + sizeof(module_hook) * (size_t)m->hooks->count;
    yk__module_hooks *walk = yk__calloc(1, bytes);
    if (!walk)
        return YK_ERR_MEMORY;
    memcpy(walk, m->hooks, bytes);
    yk_status status = YK_OK;
    for (int i = 0; i < walk->count && !status; i++) {
        const module_hook *hook = &walk->items[i];
        if ((before ? !hook->before : !hook->after) || !hook_find(m, hook->id))
            continue;
        status = before ? hook->before(m, inputs, c->n_inputs, hook->user)
                        : hook->after(m, c->inputs, c->n_inputs, c->outputs, c->n_outputs, hook->user);
        if (yk__error_code())
            status = yk__error_code();
        else if (status)
            yk__fail(status, "a forward hook of %s failed with status %d and no message", m->shown_name, (int)status);
    }
    free(walk);
    return status;
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

static yk_status run_plain(yk_module *m, yk__module_body body, void *user, const call *c)
{
    const yk_module_class *cls = m->cls;
    if (body) {
        c->outputs[0] = body(m, c->inputs[0], user);
        return YK_OK;
    }
    if (cls->forward && c->n_inputs == 1 && c->n_outputs == 1) {
        c->outputs[0] = cls->forward(m, c->inputs[0]);
        return YK_OK;
    }
    if (!cls->forward_list)
        return yk__fail(YK_ERR_ARGUMENT, "forward of %s: it takes one tensor and gives one, not %d for %d", cls->name,
                        c->n_inputs, c->n_outputs);
    return cls->forward_list(m, c->inputs, c->n_inputs, c->outputs, c->n_outputs);
}

static yk_status run_class(yk_module *m, yk__module_body body, void *user, const call *c)
{
    if (!m->parametrized)
        return run_plain(m, body, user, c);
    yk_status status = yk__parametrized_begin(m);
    if (status)
        return status;
    status = run_plain(m, body, user, c);
    yk__parametrized_end(m);
    return status;
}

/* True if all outputs are there. */
static bool is_complete(const call *c)
{
    int made = 0;
    while (made < c->n_outputs && c->outputs[made])
        made++;
    return made == c->n_outputs;
}

/* The forward with the hooks around it. */
static yk_status run_hooked(yk_module *m, yk__module_body body, void *user, call *c)
{
    yk_tensor *few[8], **inputs = few;
    if (c->n_inputs > 8 && !(inputs = yk__calloc((size_t)c->n_inputs, sizeof(*inputs))))
        return YK_ERR_MEMORY;
    if (c->n_inputs)
        memcpy(inputs, c->inputs, sizeof(*inputs) * (size_t)c->n_inputs);
    c->inputs = inputs;
    yk_status status = run_hooks(m, true, inputs, c);
    if (!status)
        status = run_class(m, body, user, c);
    if (!status && is_complete(c))
        status = run_hooks(m, false, inputs, c);
    if (inputs != few)
        free(inputs);
    return status;
}

/* Runs m; outputs[] are references of the caller's, or all NULL with an error. */
static yk_status module_run(yk_module *m, yk__module_body body, void *user, call *c)
{
    if (!yk__module_usable("forward", m))
        return yk__error_code();
    bool failed_before = yk__error_code() != YK_OK;
    yk_scope scope = yk_scope_begin();
    if (scope.depth == 0)
        return yk__error_code();
    frame f = {.module = m, .up = innermost};
    innermost = &f;
    yk_status status = m->hooks ? run_hooked(m, body, user, c) : run_class(m, body, user, c);
    innermost = f.up;
    bool complete = !status && is_complete(c);
    for (int i = 0; i < c->n_outputs; i++)
        c->outputs[i] = complete ? yk_tensor_retain(c->outputs[i]) : NULL;
    yk_scope_end(scope);
    if (complete)
        return YK_OK;
    name_failure(&f, failed_before);
    return yk__error_code();
}

yk_tensor *yk__module_run(yk_module *m, yk__module_body body, yk_tensor *x, void *user)
{
    yk_tensor *out = NULL;
    call c = {.inputs = &x, .outputs = &out, .n_inputs = 1, .n_outputs = 1};
    if (x)
        module_run(m, body, user, &c);
    return out;
}

yk_tensor *yk__forward(yk_module *m, yk_tensor *x)
{
    return yk__module_run(m, NULL, x, NULL);
}

yk_tensor *yk__forward_part(yk_module *part, yk_tensor *x)
{
    return yk__scope_own(yk__forward(part, x));
}

yk_tensor *yk_forward(yk_module *m, yk_tensor *x)
{
    YK__OWN_RECORD;
    YK__LIVE(m);
    YK__LIVE(x);
    (void)yk__progress_phase(YK__PHASE_FORWARD);
    return yk__is_there("forward", "module", m) && yk__is_there("forward", "tensor", x) && yk__scope_check("forward")
               ? yk__scope_own(yk__forward(m, x))
               : NULL;
}

yk_status yk_forward_list(yk_module *m, yk_tensor *const *inputs, int n_inputs, yk_tensor **outputs, int n_outputs)
{
    for (int i = 0; i < n_outputs && outputs; i++)
        outputs[i] = NULL;
    YK__LIVE(m);
    for (int i = 0; i < n_inputs && inputs; i++) {
        if (yk__is_freed(inputs[i]))
            return yk__fail_freed(__func__, inputs[i]);
        if (!inputs[i] && yk__error_is_fresh()) /* it could not be made */
            return yk__error_code();
    }
    YK__OWN_RECORD;
    if (!m || n_inputs < 0 || n_outputs < 1)
        return yk__fail(YK_ERR_ARGUMENT, "forward_list: %s: %d inputs, %d outputs", m ? m->shown_name : "NULL",
                        n_inputs, n_outputs);
    if ((n_inputs && !yk__is_there("forward_list", "array of inputs", inputs)) ||
        !yk__is_there("forward_list", "array of outputs", outputs))
        return YK_ERR_ARGUMENT;
    (void)yk__progress_phase(YK__PHASE_FORWARD);
    if (!yk__scope_reserve("forward", (size_t)n_outputs))
        return yk__error_code();
    call c = {.inputs = inputs, .outputs = outputs, .n_inputs = n_inputs, .n_outputs = n_outputs};
    yk_status status = module_run(m, NULL, NULL, &c);
    for (int i = 0; !status && i < n_outputs; i++)
        outputs[i] = yk__scope_own(outputs[i]);
    return status;
}
