/*
 * rebuild.c - a process group that gets other members, in place. Layer: comm.
 *
 * A view is a group of its own below the handle: its name, keys in the store, segment and connections are not those of
 * any view before, so what a process of an old view still writes reaches no memory of the new one.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "comm/group.h"
#include "host/rank_info.h"

yk_store *yk__group_store(yk_process_group *handle)
{
    return handle ? handle->group->store : NULL;
}

bool yk__group_is_whole(yk_process_group *handle)
{
    yk__group *g = handle->group;
    if (!g->state)
        return false;
    YK__OWN_RECORD;
    bool broken = g->backend->check(g->state);
    yk_clear_error();
    return !broken;
}

yk_status yk__group_look(yk_process_group *handle)
{
    const yk__group *g = handle->group;
    if (!g->state)
        return YK_OK;
    return g->backend->look ? g->backend->look(g->state) : g->backend->check(g->state);
}

/* The id of the host. Without shared memory (YOKE_SHARED_MEMORY=0) each rank is a host called after its rank, which is
 * another one now. */
static char *host_id_of(const yk__group *old, int rank)
{
    const char *at = strncmp(old->host_id, "rank", 4) == 0 ? strchr(old->host_id, '@') : NULL;
    return at ? yk__format("rank%d%s", rank, at) : yk__strdup(old->host_id);
}

static yk_status check_view(const yk__group *g, int rank, int world_size, int64_t view)
{
    if (g->rank < 0)
        return yk__fail(YK_ERR_STATE, "process_group_rebuild: this rank is not in the group '%s'", g->name);
    if (world_size < 1 || rank < 0 || rank >= world_size)
        return yk__fail(YK_ERR_ARGUMENT, "process_group_rebuild: rank %d is outside a world of %d", rank, world_size);
    if (view < 1)
        return yk__fail(YK_ERR_ARGUMENT, "process_group_rebuild: view %" PRId64 ": expected a number from 1", view);
    if (world_size > 1 && !g->store)
        return yk__fail(YK_ERR_STATE,
                        "process_group_rebuild: group '%s' was made without a store, in which %d ranks could meet",
                        g->name, world_size);
    if (g->backend->bootstraps || strcmp(g->backend->name, yk__comm_native.name) != 0)
        return yk__fail(YK_ERR_UNSUPPORTED,
                        "process_group_rebuild: group '%s' is of backend '%s'; members may change in 'native' alone",
                        g->name, g->backend->name);
    return YK_OK;
}

yk_status yk_process_group_rebuild(yk_process_group *handle, int rank, int world_size, int64_t view)
{
    return yk__group_rebuild(handle, rank, world_size, view, NULL, NULL);
}

yk_status yk__group_rebuild(yk_process_group *handle, int rank, int world_size, int64_t view,
                            yk_status (*in_vain)(void *of), void *of)
{
    YK__OWN_RECORD;
    yk__group *g = yk__group_of("process_group_rebuild", handle);
    if (!g || yk__group_check_process("process_group_rebuild", g) || check_view(g, rank, world_size, view))
        return yk__error_code();
    yk_process_group *whole = handle ? handle : yk_default_process_group();
    bool is_default = whole == yk_default_process_group();
    char name[260];
    /* The default group may have been joined at another attempt than that of who comes later. */
    snprintf(name, sizeof(name), "%.*s@%" PRId64, is_default ? 5 : (int)strcspn(g->name, "@"),
             is_default ? "world" : g->name, view);
    char *host_id = host_id_of(g, rank);
    yk_process_group *fresh =
        host_id ? yk__group_handle(g->backend, g->store, name, host_id, rank, world_size, g->timeout, g->join_timeout)
                : NULL;
    if (fresh) {
        fresh->group->in_vain = in_vain;
        fresh->group->in_vain_of = of;
    }
    fresh = yk__group_join(fresh, YK__HASH_BASIS, NULL, NULL, NULL);
    if (!fresh) {
        yk__error_prefix("process_group_rebuild");
        return yk__error_code();
    }
    fresh->group->in_vain = NULL;
    whole->group = fresh->group;
    fresh->group = g;
    yk_process_group_release(fresh); /* leaves the old view */
    if (is_default)
        yk__job_rank_set(rank, world_size);
    return YK_OK;
}
