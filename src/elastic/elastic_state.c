/*
 * elastic_state.c - what a run has changed since its begin, from the memory of one member to others. Layer: elastic.
 *
 * The state is that before a step. It is taken whole into one piece of memory, and used only when it has come whole: a
 * member that loses the others meanwhile still has its own. Numbers are little-endian, as all of a wire's:
 *
 *   u64 steps and actions done, u64 bits of the last loss, the generators, the loader's position
 *   what the run's time went into
 *   u64 time of the schedule + 1 (0: none), u8 1 and the scaler's numbers (0: none)
 *   parameters, then buffers, in their order: the elements
 *   u32 tensors of the optimizer's state; each: name, u8 dtype, u8 dimensions, u64 each, the elements
 *   u64 bytes of the program's own, and those
 */
#include "elastic/elastic_job.h"

#include <stdlib.h>
#include <string.h>

#include "base/xxh3.h"
#include "net/wire.h"
#include "nn/state_dict.h"
#include "tensor/host_tensor.h"

/* ---- packing ----------------------------------------------------------------------------------------------------- */

static yk_status put_tensor(yk__wire *w, yk_tensor *x)
{
    yk_tensor *here = yk__host_zeros(x->ndim, x->shape, (yk_dtype)x->dtype);
    yk_status status = here ? yk__raw_copy(here, x) : yk__error_code();
    if (!status)
        yk__wire_put(w, here->data, (size_t)x->numel * yk_dtype_size((yk_dtype)x->dtype));
    yk_tensor_release(here);
    return status;
}

static yk_status put_optimizer(yk__wire *w, const yk_optimizer *o)
{
    yk_scope scope = yk_scope_begin();
    yk_state_dict *all = yk_optimizer_state_dict(o);
    yk_status status = all ? YK_OK : yk__error_code();
    int64_t count = all ? yk__state_dict_count(all) : 0;
    yk__wire_put_u32(w, (uint32_t)count);
    for (int64_t i = 0; i < count && !status; i++) {
        yk_tensor *x = yk__state_dict_at(all, i);
        const char *name = yk__state_dict_name(all, i);
        yk__wire_put_value(w, name, strlen(name));
        yk__wire_put_u8(w, (unsigned)x->dtype);
        yk__wire_put_u8(w, (unsigned)x->ndim);
        for (int d = 0; d < x->ndim; d++)
            yk__wire_put_u64(w, (uint64_t)x->shape[d]);
        status = put_tensor(w, x);
    }
    yk_scope_end(scope);
    return status;
}

yk_status yk__elastic_pack(yk_elastic *e, yk__wire *w)
{
    const yk__reducer *r = e->reducer;
    yk_loader_state loader = yk_loader_get_state(e->loader);
    yk_grad_scaler_state scaler = {0};
    double spent[YK__TIMES];
    memcpy(spent, e->times.spent, sizeof(spent));
    spent[YK__TIME_CHANGES] += yk__now() - e->times.mark; /* of the change that is under way */
    uint64_t loss;
    memcpy(&loss, &e->loss, sizeof(loss));
    yk__wire_put_u64(w, (uint64_t)e->position);
    yk__wire_put_u64(w, loss);
    yk__wire_put(w, e->generators, (size_t)e->virtual_ranks * sizeof(*e->generators));
    yk__wire_put(w, &loader, sizeof(loader));
    yk__wire_put(w, spent, sizeof(spent));
    yk__wire_put_u64(w, e->schedule ? (uint64_t)yk_schedule_time(e->schedule) + 1 : 0);
    if (e->scaler)
        scaler = yk_grad_scaler_get_state(e->scaler);
    yk__wire_put_u8(w, e->scaler != NULL);
    yk__wire_put(w, &scaler, sizeof(scaler));
    yk_status status = YK_OK;
    for (int i = 0; i < r->count && !status; i++)
        status = put_tensor(w, r->parameters[i].x);
    for (int i = 0; i < r->n_buffers && !status; i++)
        status = put_tensor(w, r->buffers[i]);
    if (!status)
        status = put_optimizer(w, e->optimizer);
    yk__wire_put_u64(w, e->own_bytes);
    yk__wire_put(w, e->own_start, e->own_bytes);
    return status ? status : w->failed ? yk__fail(YK_ERR_MEMORY, "elastic: no memory for the state of the run") : YK_OK;
}

/* The bytes of x in C order, or as they lie where that is allowed and it can be. */
static yk_status digest_tensor(XXH3_state_t *all, yk_tensor *x, bool in_c_order)
{
    bool as_it_lies = yk__device_of(x).type == YK_CPU && (yk__in_c_order(x) || (!in_c_order && yk__is_dense(x)));
    yk_tensor *here = as_it_lies ? yk_tensor_retain(x) : yk__host_zeros(x->ndim, x->shape, (yk_dtype)x->dtype);
    yk_status status = !here ? yk__error_code() : as_it_lies ? YK_OK : yk__raw_copy(here, x);
    if (!status && !in_c_order)
        yk__xxh3_update(all, here->stride, (size_t)here->ndim * sizeof(*here->stride));
    if (!status)
        yk__xxh3_update(all, here->data, (size_t)x->numel * yk_dtype_size((yk_dtype)x->dtype));
    yk_tensor_release(here);
    return status;
}

yk_status yk__elastic_digest(yk_elastic *e, bool in_c_order, uint64_t *digest)
{
    const yk__reducer *r = e->reducer;
    XXH3_state_t all;
    XXH3_64bits_reset(&all);
    for (int v = 0; v < e->virtual_ranks; v++) {
        yk__xxh3_update(&all, &e->generators[v].seed, sizeof(e->generators[v].seed));
        yk__xxh3_update(&all, &e->generators[v].calls, sizeof(e->generators[v].calls));
    }
    yk_status status = YK_OK;
    for (int i = 0; i < r->count + r->n_buffers && !status; i++)
        status = digest_tensor(&all, i < r->count ? r->parameters[i].x : r->buffers[i - r->count], in_c_order);
    *digest = XXH3_64bits_digest(&all);
    return status;
}

/* ---- unpacking --------------------------------------------------------------------------------------------------- */

static yk_status take_tensor(yk__reader *from, yk_tensor *x)
{
    const unsigned char *bytes = yk__read_bytes(from, (size_t)x->numel * yk_dtype_size((yk_dtype)x->dtype));
    yk_tensor *here = bytes ? yk__host_zeros(x->ndim, x->shape, (yk_dtype)x->dtype) : NULL;
    if (!bytes)
        return YK_OK; /* said once, at the end */
    if (!here)
        return yk__error_code();
    memcpy(here->data, bytes, (size_t)x->numel * yk_dtype_size((yk_dtype)x->dtype));
    yk_status status = yk__raw_copy(x, here);
    yk_tensor_release(here);
    yk__bump_version(x);
    yk__note_exchanged(x);
    return status;
}

static yk_status take_optimizer(yk__reader *from, yk_optimizer *o)
{
    yk_scope scope = yk_scope_begin();
    yk_state_dict *all = yk_state_dict_create();
    uint32_t count = yk__read_u32(from);
    yk_status status = all ? YK_OK : yk__error_code();
    for (uint32_t i = 0; i < count && !status && !from->bad; i++) {
        char name[400];
        int64_t shape[YK_MAX_DIMS], numel = 1;
        uint32_t length = yk__read_u32(from);
        const unsigned char *text = yk__read_bytes(from, length);
        snprintf(name, sizeof(name), "%.*s", text ? (int)length : 0, text ? (const char *)text : "");
        yk_dtype dtype = (yk_dtype)yk__read_u8(from);
        int ndim = (int)yk__read_u8(from);
        for (int d = 0; d < ndim && d < YK_MAX_DIMS; d++)
            numel *= shape[d] = (int64_t)yk__read_u64(from);
        const unsigned char *bytes = yk__read_bytes(from, (size_t)numel * yk_dtype_size(dtype));
        yk_tensor *x = bytes ? yk__scope_own(yk__host_zeros(ndim, shape, dtype)) : NULL;
        if (x)
            memcpy(x->data, bytes, (size_t)numel * yk_dtype_size(dtype));
        status = x ? yk_state_dict_add(all, name, x) : yk__error_code();
    }
    if (!status && !from->bad)
        status = yk_optimizer_load_state_dict(o, all);
    yk_scope_end(scope);
    return status;
}

static void take_bytes(yk__reader *from, void *to, size_t size)
{
    const unsigned char *bytes = yk__read_bytes(from, size);
    if (bytes && size)
        memcpy(to, bytes, size);
}

yk_status yk__elastic_unpack(yk_elastic *e, const void *data, size_t size)
{
    const yk__reducer *r = e->reducer;
    yk__reader from = {.at = data, .end = (const unsigned char *)data + size};
    yk_loader_state loader = {0};
    yk_grad_scaler_state scaler;
    double spent[YK__TIMES] = {0};
    int64_t position = (int64_t)yk__read_u64(&from);
    uint64_t loss = yk__read_u64(&from);
    take_bytes(&from, e->generators, (size_t)e->virtual_ranks * sizeof(*e->generators));
    take_bytes(&from, &loader, sizeof(loader));
    take_bytes(&from, spent, sizeof(spent));
    uint64_t time = yk__read_u64(&from);
    bool scaled = yk__read_u8(&from);
    take_bytes(&from, &scaler, sizeof(scaler));
    yk_status status = YK_OK;
    for (int i = 0; i < r->count && !status; i++)
        status = take_tensor(&from, r->parameters[i].x);
    for (int i = 0; i < r->n_buffers && !status; i++)
        status = take_tensor(&from, r->buffers[i]);
    if (!status && time && e->schedule && !from.bad)
        status = yk_schedule_set_time(e->schedule, (int64_t)time - 1);
    if (!status && scaled && e->scaler && !from.bad)
        status = yk_grad_scaler_set_state(e->scaler, &scaler);
    if (!status)
        status = take_optimizer(&from, e->optimizer);
    bool own = yk__read_u64(&from) == e->own_bytes;
    if (own)
        take_bytes(&from, e->own_start, e->own_bytes);
    if (!status && (!own || !yk__read_finished(&from)))
        return yk__fail(YK_ERR_FORMAT,
                        "elastic: the state of %zu bytes that came from another member is of another "
                        "model, optimizer or program",
                        size);
    if (status)
        return status;
    if (e->own_bytes)
        memcpy(e->own, e->own_start, e->own_bytes);
    memcpy(&e->loss, &loss, sizeof(loss));
    yk_random_set_state(e->generators[0]);
    e->position = position;
    e->loader_start = loader;
    memcpy(e->times.spent, spent, sizeof(spent));
    yk__elastic_times_show(e);
    return yk_loader_set_state(e->loader, &loader);
}
