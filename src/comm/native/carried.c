/*
 * carried.c - the data of collectives over a carrier (comm/carrier.h) in place of TCP. Layer: comm/native.
 *
 * The ends' addresses are exchanged in the store: each rank's is there before its record, so that who has all records
 * finds all addresses. An operation ends when its data have left: a peer that still waits for them need not wait for
 * this rank's next operation.
 */
#include <stdlib.h>

#include "comm/native/multihost.h"

static void address_key(const yk__comm_join_args *args, int rank, char key[320])
{
    snprintf(key, 320, "%s/carrier/%d", args->name, rank);
}

yk_status yk__native_carrier_open(native *g, const yk__comm_join_args *args)
{
    char key[320];
    const void *address = NULL;
    size_t size = 0;
    yk_status status = args->carrier->open(args->name, g->rank, g->world_size, &g->net->carried, &address, &size);
    if (status)
        return status;
    address_key(args, g->rank, key);
    return yk_store_set(args->store, key, address, size);
}

yk_status yk__native_carrier_connect(native *g, const yk__comm_join_args *args, double until)
{
    char key[320];
    yk_status status = YK_OK;
    for (int r = 0; r < g->world_size && !status; r++) {
        void *address = NULL;
        size_t size = 0;
        double left = until - yk__now();
        if (r == g->rank)
            continue;
        address_key(args, r, key);
        status = yk_store_get(args->store, key, &address, &size, left > 0.01 ? left : 0.01);
        if (!status)
            status = args->carrier->connect(g->net->carried, r, g->net->links[r].near, address, size);
        free(address);
    }
    return status;
}

/* Records what became of a call that moved `n` bytes. */
static void carried_call_record(native *g, int rank, size_t n)
{
    yk__native_link *l = &g->net->links[rank];
    if (n)
        g->net->moved = yk__now();
    else if (g->carrier->is_gone(g->net->carried, rank, l->data_why, sizeof(l->data_why)))
        l->data_gone = true;
}

size_t yk__native_carried_send(native *g, int rank, const char *from, size_t bytes)
{
    size_t n = g->net->links[rank].data_gone ? 0 : g->carrier->send(g->net->carried, rank, from, bytes);
    carried_call_record(g, rank, n);
    return n;
}

size_t yk__native_carried_receive(native *g, int rank, char *to, size_t bytes)
{
    size_t n = g->net->links[rank].data_gone ? 0 : g->carrier->receive(g->net->carried, rank, to, bytes);
    carried_call_record(g, rank, n);
    return n;
}

yk_status yk__native_carried_end(native *g, yk_status status)
{
    yk__native_spin_state spinner = {0};
    if (!g->carrier)
        return status;
    if (status) {
        g->carrier->drop(g->net->carried);
        return status;
    }
    while (!g->carrier->flush(g->net->carried)) {
        if (yk__native_spin(&spinner, false))
            continue;
        g->carrier->flush_behind(g->net->carried);
        break;
    }
    return YK_OK;
}
