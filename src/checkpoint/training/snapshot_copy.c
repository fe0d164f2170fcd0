/*
 * snapshot_copy.c - the copy of a run's state that an asynchronous save writes: its memory, and the copying.
 * Layer: checkpoint.
 *
 * Note [Fresh memory]
 * A page that the process has not had before costs several times what copying its bytes does: the system clears it, and
 * where the machine is virtual the host may have to find it first. So the memory of a copy is kept from save to save.
 * Before the first one it is made as room for tensors like those that will be saved, and the manager's thread asks the
 * system for its pages: MADV_POPULATE_WRITE changes no byte, so the copying may begin before it is done. The copying
 * goes from the first tensor on, the asking from the last one back.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "checkpoint/training/training.h"
#include "nn/module.h"
#include "optim/optimizer.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

/* PAGE: a multiple of no page is smaller. SMALL: bytes of a tensor that is not worth the asking. PIECE: of one request,
 * some milliseconds, after which it is looked whether to go on. */
enum { PAGE = 4096, SMALL = 64 << 10, PIECE = 32 << 20 };

/* ---- room -------------------------------------------------------------------------------------------------------- */

/* One reference to a tensor for the values of x on the CPU, in the same order in memory where x is dense. */
static yk_tensor *room_for(const yk_tensor *x)
{
    return yk__tensor_new(x->ndim, x->shape, yk__is_dense(x) ? x->stride : NULL, (yk_dtype)x->dtype, (yk_device){0});
}

/* One reference; NULL where `dict` is, or with an error. */
static yk_state_dict *room_like(const yk_state_dict *dict)
{
    yk_state_dict *room = dict ? yk__state_dict_new() : NULL;
    for (int64_t i = 0; room && i < yk__state_dict_count(dict); i++) {
        yk_tensor *x = room_for(yk__state_dict_at(dict, i));
        yk_status status = yk_state_dict_add(room, yk__state_dict_name(dict, i), x);
        yk_tensor_release(x);
        if (status) {
            yk_state_dict_release(room);
            return NULL;
        }
    }
    return room;
}

yk_status yk__snapshot_room_like(const yk__snapshot *snapshot, yk__snapshot *room)
{
    *room = (yk__snapshot){.model = room_like(snapshot->model), .optimizer = room_like(snapshot->optimizer)};
    if ((room->model || !snapshot->model) && (room->optimizer || !snapshot->optimizer))
        return YK_OK;
    yk__snapshot_clear(room);
    return yk__error_code();
}

yk_status yk__snapshot_outline(const yk_checkpoint_state *state, yk__snapshot *outline)
{
    yk_scope scope = yk_scope_begin();
    *outline = (yk__snapshot){.model = yk_state_dict_retain(yk_module_state_dict(state->model)),
                              .optimizer = state->optimizer ? yk__optimizer_state_outline(state->optimizer) : NULL};
    yk_scope_end(scope);
    if (outline->model && (outline->optimizer || !state->optimizer))
        return YK_OK;
    yk__snapshot_clear(outline);
    return yk__error_code();
}

/* It is advice: a system that does not know it provides the pages when they are written to. */
static void populate(const yk_state_dict *dict, const atomic_bool *stop)
{
    for (int64_t i = yk__state_dict_count(dict); i-- > 0;) {
        const yk_tensor *x = yk__state_dict_at(dict, i);
        size_t bytes = (size_t)x->numel * yk_dtype_size((yk_dtype)x->dtype);
        char *begin = (char *)((uintptr_t)x->data & -(uintptr_t)PAGE); /* NOLINT: the page that the first byte is in */
        size_t left = bytes >= SMALL ? ((size_t)((char *)x->data - begin) + bytes + PAGE - 1) & -(size_t)PAGE : 0;
        while (left && !atomic_load(stop)) {
            size_t piece = left < PIECE ? left : PIECE;
            left -= piece;
            if (madvise(begin + left, piece, MADV_POPULATE_WRITE) < 0)
                return;
        }
    }
}

void yk__snapshot_populate(const yk__snapshot *room, const atomic_bool *stop)
{
    populate(room->optimizer, stop);
    populate(room->model, stop);
}

/* ---- the copy ---------------------------------------------------------------------------------------------------- */

/* One reference to a copy of x on the CPU: in the memory of `reuse`, where that fits. */
static yk_tensor *copy_tensor(yk_tensor *x, yk_tensor *reuse)
{
    bool fits = reuse && reuse->dtype == x->dtype && yk_same_shape(reuse, x) && yk__same_strides(reuse, x);
    yk_tensor *to = fits ? yk_tensor_retain(reuse) : room_for(x);
    if (!to || x->numel == 0)
        return to;
    const yk__backend *backend = yk__backend_for(x);
    yk_status status = YK_OK;
    if (backend && backend->host_memory && yk__is_dense(x) && yk__same_strides(to, x))
        memcpy(to->data, x->data, (size_t)x->numel * yk_dtype_size((yk_dtype)x->dtype));
    else
        status = yk__raw_copy(to, x);
    if (!status)
        return to;
    yk_tensor_release(to);
    return NULL;
}

/* Puts copies in place of *dict's tensors. */
static yk_status copy_dict(yk_state_dict **dict, const yk_state_dict *reuse)
{
    yk_state_dict *copies = *dict ? yk__state_dict_new() : NULL;
    yk_status status = *dict && !copies ? YK_ERR_MEMORY : YK_OK;
    for (int64_t i = 0; i < yk__state_dict_count(*dict) && !status; i++) {
        const char *name = yk__state_dict_name(*dict, i);
        int64_t at = reuse ? yk_state_dict_find(reuse, name) : -1;
        yk_tensor *copy = copy_tensor(yk__state_dict_at(*dict, i), at < 0 ? NULL : yk__state_dict_at(reuse, at));
        status = yk_state_dict_add(copies, name, copy);
        yk_tensor_release(copy);
    }
    if (status) {
        yk_state_dict_release(copies);
        return status;
    }
    yk_state_dict_release(*dict);
    *dict = copies;
    return YK_OK;
}

yk_status yk__snapshot_copy(yk__snapshot *snapshot, yk__snapshot *reuse)
{
    yk_status status = copy_dict(&snapshot->model, reuse->model);
    if (!status)
        status = copy_dict(&snapshot->optimizer, reuse->optimizer);
    yk__snapshot_clear(reuse);
    return status;
}
