/*
 * cast_policy.c - autocast at an operation: the dtypes that its inputs are cast to. Layer: ops.
 */
#include "ops/cast_policy.h"

/* clang-format off */
#define YK__CAST_ROW(op, cpu, cuda) [YK__CAST_OP_##op] = {#op, {[YK_CPU] = YK__CAST_##cpu, [YK_CUDA] = YK__CAST_##cuda}},
/* clang-format on */
static const struct {
    const char *name;
    uint8_t policy[YK__DEVICE_TYPES];
} lists[YK__CAST_OPS] = {YK__CAST_LISTS(YK__CAST_ROW)};

/* True for a tensor that autocast may cast: integers are not to be rounded, and f64 was asked for. */
static bool eligible(const yk_tensor *x)
{
    return x && !yk__is_freed(x) && (x->dtype == YK_F32 || yk__is_half((yk_dtype)x->dtype));
}

/* The type of the first input's device; false where there is none whose operations this thread casts. */
static bool type_of(int count, yk_tensor *const *inputs, int *type)
{
    for (int i = 0; i < count; i++) {
        if (inputs[i] && !yk__is_freed(inputs[i])) {
            *type = yk__device_of(inputs[i]).type;
            return yk__autocast_types >> *type & 1;
        }
    }
    return false;
}

/* f32 where one of them is, else the region's dtype; the other half is neither. */
static bool widest_of(yk__cast_op op, int count, yk_tensor *const *inputs, yk_dtype lower, yk_dtype *widest)
{
    *widest = lower;
    for (int i = 0; i < count; i++) {
        if (!eligible(inputs[i]) || (yk_dtype)inputs[i]->dtype == lower)
            continue;
        if (inputs[i]->dtype != YK_F32 && *widest != YK_F32) {
            yk__fail(YK_ERR_DTYPE, "%s: a %s tensor under autocast to %s; cast it with yk_cast", lists[op].name,
                     yk_dtype_name((yk_dtype)inputs[i]->dtype), yk_dtype_name(lower));
            return false;
        }
        *widest = YK_F32;
    }
    return true;
}

/* x in the dtype, for the current scope. */
static yk_tensor *cast(yk_tensor *x, yk_dtype dtype)
{
    if (!yk__autocast_keeps(x, dtype))
        return yk_cast(x, dtype);
    yk_tensor *kept = yk__autocast_cached(x, dtype);
    if (kept)
        return yk__scope_own(yk_tensor_retain(kept));
    yk_tensor *made = yk_cast(x, dtype);
    return made && !yk__autocast_keep(x, made) ? made : NULL;
}

void yk__autocast_inputs(yk__cast_op op, int count, yk_tensor **inputs)
{
    int type;
    if (!type_of(count, inputs, &type) || !lists[op].policy[type] || !yk__scope_check(lists[op].name))
        return;
    yk_dtype lower = yk_autocast_dtype((yk_device_type)type), to = YK_F32;
    bool fine = true;
    if (lists[op].policy[type] == YK__CAST_LOWER)
        to = lower;
    else if (lists[op].policy[type] == YK__CAST_WIDEST)
        fine = widest_of(op, count, inputs, lower, &to);
    for (int i = 0; i < count && fine; i++) {
        if (eligible(inputs[i]) && (yk_dtype)inputs[i]->dtype != to)
            fine = (inputs[i] = cast(inputs[i], to)) != NULL;
    }
    for (int i = 0; i < count && !fine; i++) /* an optional one that failed is not one that was not given */
        inputs[i] = NULL;
}

bool yk__autocast_open(yk__cast_call *call, yk__cast_op op, int count, yk_tensor **inputs)
{
    int type;
    if (!type_of(count, inputs, &type) || !lists[op].policy[type] || !yk__scope_check(lists[op].name))
        return false;
    call->scope = yk_scope_begin();
    yk__autocast_inputs(op, count, inputs);
    call->types = yk__autocast_pause();
    return true;
}

yk_tensor *yk__autocast_close(yk__cast_call *call, yk_tensor *out)
{
    yk__autocast_types = call->types;
    out = out ? yk_scope_return(call->scope, out) : NULL;
    yk_scope_end(call->scope);
    return out;
}
