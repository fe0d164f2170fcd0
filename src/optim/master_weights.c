/*
 * master_weights.c - f32 copies of f16 and bf16 parameters, and what others write to a parameter. Layer: optim.
 *
 * A step changes the copy and rounds the parameter from it. Whatever else writes to the parameter (a state dict, an
 * operation in place, a broadcast) moves the version of its memory on, by which the next step notices it. An element of
 * the parameter that is still its copy, rounded, was not written, or was written with the value that it had: its copy
 * stays, so the order in which a model and its optimizer are loaded does not matter. Every other copy becomes the
 * parameter's value. After a collective all copies do: what one rank alone had of precision would let the ranks'
 * parameters drift apart. Copies that were loaded are those of all ranks, and stay where they agree.
 */
#include "nn/state_dict.h"
#include "optim/optimizer.h"

void yk__master_same(yk__optim_state *state, const yk_tensor *x)
{
    state->version = yk__version(x);
    state->exchanged = yk__exchanged(x);
    state->loaded = false;
}

/* Elements of the master weight that do not round to those of x become them. */
static yk_status master_correct(yk_tensor *master, yk_tensor *x)
{
    yk__operation_name = "optimizer";
    yk_tensor *rounded = yk__raw_cast(master, (yk_dtype)x->dtype), *value = yk__raw_cast(x, YK_F32);
    yk_tensor *same = yk__raw_binary("optimizer", YK__EQ, rounded, x, 1);
    yk_tensor *corrected = yk__raw_where(same, master, value);
    yk_status status = corrected ? yk__raw_copy(master, corrected) : yk__error_code();
    yk_tensor_release(rounded);
    yk_tensor_release(value);
    yk_tensor_release(same);
    yk_tensor_release(corrected);
    return status;
}

yk_status yk__master_follow(const yk__optim_group *group, int64_t i)
{
    yk_tensor *x = yk__parameters_at(group->params, i);
    yk__optim_state *state = &group->states[i];
    yk_tensor *master = state->tensors[YK__OPTIM_MASTER];
    if (!master || !yk_device_equal(yk__device_of(master), yk__device_of(x)) ||
        (!state->loaded && state->version == yk__version(x) && state->exchanged == yk__exchanged(x)))
        return YK_OK;
    bool whole = !state->loaded && state->exchanged != yk__exchanged(x);
    yk_status status = whole ? yk__raw_copy(master, x) : master_correct(master, x);
    if (!status) {
        yk__bump_version(master);
        yk__master_same(state, x);
    }
    return status;
}

yk_status yk__optimizer_follow(const yk_optimizer *o)
{
    yk_status status = YK_OK;
    for (int g = 0; g < o->n_groups; g++) {
        for (int64_t i = 0; i < o->groups[g].count && !status; i++)
            status = o->groups[g].states[i].loaded ? YK_OK : yk__master_follow(&o->groups[g], i);
    }
    return status;
}
