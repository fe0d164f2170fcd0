/*
 * grad_hooks.c - functions that backward calls with a tensor's gradient. Layer: autograd.
 */
#include <stdlib.h>
#include <string.h>

#include "autograd/node.h"

static atomic_ullong hook_ids = 1;

const yk__hook *yk__hook_next(const yk__output *output, uint64_t before, uint64_t behind)
{
    for (int i = 0; i < output->n_hooks; i++) {
        const yk__hook *hook = &output->hooks[i];
        if (hook->id > behind)
            return hook->id < before ? hook : NULL;
    }
    return NULL;
}

uint64_t yk__hook_end(void)
{
    return atomic_load(&hook_ids);
}

static uint64_t hook_add(const char *name, yk_tensor *x, yk__hook hook)
{
    if (!yk__is_there(name, "tensor", x))
        return 0;
    int which;
    yk__node *node = yk__gradient_node(x, &which);
    if (!node) {
        yk__fail(YK_ERR_STATE, "%s: the tensor does not require a gradient", name);
        return 0;
    }
    yk__output *output = &node->outputs[which];
    yk__hook *grown = yk__realloc(output->hooks, sizeof(*grown) * (size_t)(output->n_hooks + 1));
    if (!grown)
        return 0;
    hook.id = atomic_fetch_add(&hook_ids, 1);
    output->hooks = grown;
    output->hooks[output->n_hooks++] = hook;
    return hook.id;
}

uint64_t yk_register_hook(yk_tensor *x, yk_grad_hook hook, void *user)
{
    YK__LIVE(x);
    return hook_add("register_hook", x, (yk__hook){.fn = hook, .user = user});
}

uint64_t yk_register_post_accumulate_hook(yk_tensor *x, yk_leaf_hook hook, void *user)
{
    YK__LIVE(x);
    if (x && !yk_is_leaf(x)) {
        yk__fail(YK_ERR_STATE, "register_post_accumulate_hook: the tensor was made by %s; only leaves accumulate",
                 yk_grad_fn_name(x));
        return 0;
    }
    return hook_add("register_post_accumulate_hook", x, (yk__hook){.after = hook, .user = user});
}

yk_status yk_hook_remove(yk_tensor *x, uint64_t id)
{
    YK__LIVE(x);
    const yk__node *accumulator = x && x->leaf_gradient ? x->leaf_gradient->accumulator : NULL;
    yk__output *output = x && x->node ? &x->node->outputs[x->output] : accumulator ? &accumulator->outputs[0] : NULL;
    for (int i = 0; output && i < output->n_hooks; i++) {
        if (output->hooks[i].id != id)
            continue;
        memmove(&output->hooks[i], &output->hooks[i + 1], sizeof(yk__hook) * (size_t)(output->n_hooks - i - 1));
        output->n_hooks--;
        return YK_OK;
    }
    return yk__fail(YK_ERR_NOT_FOUND, "hook_remove: the tensor has no hook %llu", (unsigned long long)id);
}
