/*
 * pending.c - freed storages that other queues of the device may still use. Layer: device.
 *
 * A storage that other queues use, too (yk__storage_used_on), is pending until an event after the work that each of
 * them had queued when it was freed has passed.
 */
#include <stdlib.h>

#include "device/memory/cache.h"

/* Puts an event on each queue, after its work so far; the thread that records, whose recording would have them, does so
 * later, and nobody before the release of the recorded work that the block is of. Locked. */
static yk_status pending_mark(const yk__backend *backend, const yk__cache *c, yk__pending *p)
{
    yk_status status = YK_OK;
    for (int q = 0; q < YK__QUEUES && !status && !yk__records_here(c) && !p->pool; q++) {
        if (!(p->unmarked & 1 << q))
            continue;
        status = backend->event_record(p->storage->device.index, (yk__queue)q, &p->events[q]);
        if (!status)
            p->unmarked &= (uint8_t) ~(1 << q);
    }
    return status;
}

/* True if the events of p have passed; waits for them where `wait` is set. Locked. */
static bool pending_passed(const yk__backend *backend, const yk__cache *c, yk__pending *p, bool wait)
{
    bool passed = pending_mark(backend, c, p) == YK_OK && !p->unmarked;
    for (int q = 0; q < YK__QUEUES && passed; q++) {
        if (!p->events[q])
            continue;
        if (wait ? backend->event_wait(p->events[q]) : backend->event_query(p->events[q], &passed))
            passed = false;
        if (!passed)
            return false;
        backend->event_release(p->events[q]);
        p->events[q] = NULL;
    }
    return passed;
}

void yk__pending_settle(const yk__backend *backend, yk__cache *c, bool wait)
{
    if (!c->n_pending || yk__records_here(c))
        return;
    yk_error before;
    yk__error_take(&before);
    size_t kept = 0;
    for (size_t i = 0; i < c->n_pending; i++) {
        yk__pending p = c->pending[i];
        size_t block;
        if (!pending_passed(backend, c, &p, wait))
            c->pending[kept++] = p;
        else
            yk__list_push(backend, c, &c->lists[p.storage->queue][yk__size_class(p.storage->reserved, &block)],
                          p.storage);
    }
    c->n_pending = kept;
    yk_clear_error();
    yk__error_put(&before);
}

bool yk__pending_add(const yk__backend *backend, yk__cache *c, yk__storage *s, yk__memory_pool *pool, uint8_t used_on)
{
    if (c->n_pending == c->pending_room) {
        size_t room = c->pending_room ? 2 * c->pending_room : 16;
        yk__pending *grown = realloc(c->pending, room * sizeof(*grown));
        if (!grown)
            return false;
        c->pending = grown;
        c->pending_room = room;
    }
    yk__pending *p = &c->pending[c->n_pending++];
    *p = (yk__pending){.storage = s, .pool = pool, .unmarked = used_on};
    s->pool = NULL;
    yk_error before;
    yk__error_take(&before);
    yk_status status = pending_mark(backend, c, p); /* else when it is next looked at */
    (void)status;
    yk_clear_error();
    yk__error_put(&before);
    return true;
}

void yk__pending_drop(const yk__backend *backend, yk__cache *c)
{
    for (size_t i = 0; i < c->n_pending; i++) {
        for (int q = 0; q < YK__QUEUES; q++)
            backend->event_release(c->pending[i].events[q]);
        yk__block_free(backend, c, c->pending[i].storage);
    }
    c->n_pending = 0;
}
