/*
 * rpc_devices.c - the devices to which the tensors of a call go: Note [Device maps]. Layer: rpc.
 *
 * Invariant: the maps are set before the worker has joined, and stay until it has ended; names in them are owned.
 */
#include <stdlib.h>
#include <string.h>

#include "device/table.h"
#include "rpc/rpc_devices.h"
#include "tensor/host_tensor.h"
#include "tensor/tensor.h"

static const char everybody[] = "*";

/* ---- the maps of this worker ------------------------------------------------------------------------------------- */

/* A map of the options that an earlier one contradicts. */
static yk_status map_check(const yk_rpc_device_map *maps, int i)
{
    static const char what[] = "rpc_init: device_maps";
    const yk_rpc_device_map *m = &maps[i];
    char from[16], to[16], other[16];
    if (strcmp(m->worker, everybody) != 0 && yk__rpc_name_check("rpc_init: device_maps", "worker", m->worker))
        return yk__error_code();
    if (yk__device_check(m->from)) {
        yk__error_prefix("%s[%d].from", what, i);
        return yk__error_code();
    }
    if (m->to.type < 0 || m->to.type >= YK__DEVICE_TYPES || m->to.index < 0)
        return yk__fail(YK_ERR_ARGUMENT, "%s[%d].to, at worker '%s', is no device (type %d, index %d)", what, i,
                        m->worker, m->to.type, m->to.index);
    yk_device_format(m->from, from);
    yk_device_format(m->to, to);
    int same = 0;
    for (int j = 0; j < i; j++) {
        if (strcmp(maps[j].worker, m->worker) != 0)
            continue;
        same++;
        if (yk_device_equal(maps[j].from, m->from))
            return yk__fail(YK_ERR_ARGUMENT, "%s: %s goes to both %s and %s of worker '%s'", what, from,
                            yk_device_format(maps[j].to, other), to, m->worker);
        if (yk_device_equal(maps[j].to, m->to))
            return yk__fail(YK_ERR_ARGUMENT,
                            "%s: both %s and %s go to %s of worker '%s', from which there would be no way back", what,
                            yk_device_format(maps[j].from, other), from, to, m->worker);
    }
    if (same >= YK__RPC_MOST_WAYS)
        return yk__fail(YK_ERR_ARGUMENT, "%s: more than %d devices for worker '%s'", what, YK__RPC_MOST_WAYS,
                        m->worker);
    return YK_OK;
}

yk_status yk__devices_keep(const yk_rpc_device_map *maps)
{
    int count = 0;
    for (; maps && maps[count].worker; count++)
        if (map_check(maps, count))
            return yk__error_code();
    if (!count)
        return YK_OK;
    yk__rpc.device_maps = yk__calloc((size_t)count + 1, sizeof(*maps));
    if (!yk__rpc.device_maps)
        return YK_ERR_MEMORY;
    for (int i = 0; i < count; i++) {
        yk__rpc.device_maps[i] = maps[i];
        if (!(yk__rpc.device_maps[i].worker = yk__strdup(maps[i].worker)))
            return YK_ERR_MEMORY;
    }
    return YK_OK;
}

void yk__devices_clear(void)
{
    for (yk_rpc_device_map *m = yk__rpc.device_maps; m && m->worker; m++)
        free((char *)(uintptr_t)m->worker);
    free(yk__rpc.device_maps);
    yk__rpc.device_maps = NULL;
}

/* Adds a way unless there is one from the same device, or, of a map, to the same. */
static void way_add(yk__rpc_devices *d, yk_device from, yk_device to, bool one_to_one)
{
    for (int i = 0; i < d->count; i++)
        if (yk_device_equal(d->ways[i].from, from) || (one_to_one && yk_device_equal(d->ways[i].to, to)))
            return;
    if (d->count < 4 * YK__RPC_MOST_WAYS)
        d->ways[d->count++] = (struct yk__rpc_way){from, to};
}

/* Adds the ways of this worker's own map for a worker, those of its name first. */
static void ways_add_own(yk__rpc_devices *d, const char *worker, bool one_to_one)
{
    const char *const names[] = {worker, everybody};
    for (int i = 0; i < 2; i++)
        for (const yk_rpc_device_map *m = yk__rpc.device_maps; m && m->worker; m++)
            if (strcmp(m->worker, names[i]) == 0)
                way_add(d, m->from, m->to, one_to_one);
}

/* ---- where a tensor goes ----------------------------------------------------------------------------------------- */

/* Tests may have tensors without options on a GPU: then those go as tensors of cpu:0 do, and arrive there. */
static bool are_all_for_the_host(bool own)
{
    return own || yk__default_device_type != YK_CPU;
}

static void devices_begin(yk__rpc_devices *d, bool itself, bool back, const char *peer)
{
    d->itself = itself;
    d->back = back;
    d->count = 0;
    snprintf(d->peer, sizeof(d->peer), "%s", peer);
}

const yk__rpc_devices *yk__devices_of_callee(yk__rpc_devices *d, const yk__rpc_member *m, bool own)
{
    if (are_all_for_the_host(own))
        return NULL;
    devices_begin(d, m->index == yk__rpc.index, false, m->name);
    ways_add_own(d, m->name, true);
    return d;
}

const yk__rpc_devices *yk__devices_of_caller(yk__rpc_devices *d, const yk_call *call)
{
    const char *cls = call->object && call->object->cls ? call->object->cls->name : "";
    if (are_all_for_the_host(strncmp(call->name, "yoke.", 5) == 0 || strncmp(cls, "yoke.", 5) == 0))
        return NULL;
    devices_begin(d, call->local != NULL, true, call->caller_name);
    const yk__rpc_link *link = call->link;
    for (int i = 0; link && i < link->way_count; i++)
        way_add(d, link->ways[i].to, link->ways[i].from, true);
    ways_add_own(d, call->caller_name, false);
    return d;
}

yk_status yk__devices_find(const yk__rpc_devices *d, const yk_tensor *x, yk_device *to)
{
    yk_device device = yk_tensor_device(x);
    *to = (yk_device){YK_CPU, 0};
    if (!d)
        return YK_OK;
    if (d->itself) {
        *to = device;
        return YK_OK;
    }
    for (int i = 0; i < d->count; i++)
        if (yk_device_equal(d->ways[i].from, device)) {
            *to = d->ways[i].to;
            return YK_OK;
        }
    if (device.type == YK_CPU)
        return YK_OK;
    char name[16];
    yk_device_format(device, name);
    return yk__fail(YK_ERR_ARGUMENT,
                    d->back
                        ? "a tensor on %s has no device at worker '%s', which called: its device_maps (of rpc_init) "
                          "lead from none of its devices to this one, and this worker's say nothing of it; a copy "
                          "on a CPU (yk_to) is sent as it is"
                        : "a tensor on %s has no device at worker '%s': device_maps of rpc_init says to which it "
                          "goes; a copy on a CPU (yk_to) is sent as it is",
                    name, d->peer);
}

yk_tensor *yk__devices_bring(yk_tensor *x, yk_device device)
{
    if (!x || yk_device_equal(device, (yk_device){YK_CPU, 0}))
        return x;
    char name[16];
    yk_scope scope = yk_scope_begin();
    bool recorded = yk_no_grad_begin();
    yk_tensor *there = yk__device_check(device) ? NULL : yk_tensor_retain(yk_to(x, device));
    if (!there)
        yk__error_prefix("a tensor for %s of this worker, by the device_maps of another",
                         yk_device_format(device, name));
    yk_no_grad_end(recorded);
    yk_scope_end(scope);
    yk_tensor_release(x);
    return there;
}

/* ---- on the wire ------------------------------------------------------------------------------------------------- */

void yk__device_put(yk__wire *out, yk_device device)
{
    yk__wire_put_u8(out, (unsigned)device.type);
    yk__wire_put_u16(out, (unsigned)device.index);
}

yk_device yk__device_read(yk__reader *r)
{
    unsigned type = yk__read_u8(r), index = yk__read_u16(r);
    if (type >= YK__DEVICE_TYPES || index > INT16_MAX)
        r->bad = true;
    return r->bad ? (yk_device){YK_CPU, 0} : (yk_device){(int16_t)type, (int16_t)index};
}

void yk__devices_put(yk__wire *out, const yk__rpc_member *m)
{
    yk__rpc_devices d;
    devices_begin(&d, false, false, m->name);
    ways_add_own(&d, m->name, true);
    yk__wire_put_u8(out, (unsigned)d.count);
    for (int i = 0; i < d.count; i++) {
        yk__device_put(out, d.ways[i].from);
        yk__device_put(out, d.ways[i].to);
    }
}

bool yk__devices_read(yk__reader *r, yk__rpc_link *link)
{
    int count = (int)yk__read_u8(r);
    if (r->bad || count > 2 * YK__RPC_MOST_WAYS)
        return false;
    free(link->ways);
    link->way_count = 0;
    link->ways = count ? calloc((size_t)count, sizeof(*link->ways)) : NULL;
    if (count && !link->ways)
        return false;
    for (int i = 0; i < count; i++) {
        link->ways[i].from = yk__device_read(r);
        link->ways[i].to = yk__device_read(r);
    }
    link->way_count = r->bad ? 0 : count;
    return !r->bad;
}
