/*
 * update_bn.c - running statistics of batch norms, computed anew from a loader's batches. Layer: data.
 */
#include <stdlib.h>

#include <yoke/autograd.h>

#include "data/loader.h"
#include "nn/module.h"
#include "tensor/tensor.h"

/* Begins or ends the averaging in a batch norm; the count of them goes to *user. */
typedef struct update {
    bool cumulate;
    int64_t found;
} update;

static yk_status cumulate(yk_module *m, void *user)
{
    update *u = user;
    if (!yk__is_batch_norm(m))
        return YK_OK;
    u->found++;
    return yk__batch_norm_cumulate(m, u->cumulate);
}

/* Writes the mode of each module, in the order of the tree, to modes[] from `at` on (NULL: counts them); returns the
 * position after the last. */
static int64_t modes_save(const yk_module *m, bool *modes, int64_t at)
{
    if (modes)
        modes[at] = m->training;
    at++;
    for (int64_t i = 0; i < m->children.count; i++)
        at = modes_save(m->children.items[i].object, modes, at);
    return at;
}

/* Gives each module the mode that modes_save wrote. */
static int64_t modes_restore(yk_module *m, const bool *modes, int64_t at)
{
    m->training = modes[at++];
    for (int64_t i = 0; i < m->children.count; i++)
        at = modes_restore(m->children.items[i].object, modes, at);
    return at;
}

/* The device of the model's first tensor. */
static yk_device device_of(yk_module *model)
{
    yk_state_dict *state = yk_module_state_dict(model);
    yk_tensor *first = yk__state_dict_at(state, 0);
    return first ? yk__device_of(first) : (yk_device){YK_CPU, 0};
}

static yk_status statistics_run(yk_loader *loader, yk_module *model)
{
    yk_batch batch;
    yk_device device = device_of(model);
    yk_status status = YK_OK;
    for (yk_loader_start(loader, YK_NEXT_EPOCH); !status && yk_loader_next(loader, &batch);) {
        yk_scope step = yk_scope_begin();
        if (!yk_forward(model, yk_to(batch.input, device)))
            status = yk__error_code();
        yk_scope_end(step);
    }
    return status ? status : yk__error_code();
}

yk_status yk_update_bn(yk_loader *loader, yk_module *model)
{
    static const char what[] = "update_bn";
    YK__LIVE(loader);
    YK__LIVE(model);
    YK__OWN_RECORD;
    if (!yk__is_there(what, "loader", loader) || !yk__module_usable(what, model))
        return yk__error_code();
    yk_scope scope = yk_scope_begin();
    bool before = yk_no_grad_begin();
    update begin = {.cumulate = true}, end = {.cumulate = false};
    bool *modes = yk__calloc((size_t)modes_save(model, NULL, 0), sizeof(*modes));
    yk_status status = modes ? yk_module_apply(model, cumulate, &begin) : YK_ERR_MEMORY;
    if (!status && begin.found) {
        modes_save(model, modes, 0);
        yk_module_train(model, true);
        status = statistics_run(loader, model);
        modes_restore(model, modes, 0);
    }
    yk_status ended = modes ? yk_module_apply(model, cumulate, &end) : YK_OK;
    yk_no_grad_end(before);
    yk_scope_end(scope);
    free(modes);
    return status ? status : ended;
}
