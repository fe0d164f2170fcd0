/*
 * keyspace.h - the keys and values of one store, and the waiters for them. Not locked: its owner does that. Layer: net.
 */
#ifndef YOKE_NET_KEYSPACE_H
#define YOKE_NET_KEYSPACE_H

#include <string.h>

#include "base/core.h"

typedef struct yk__bytes {
    const unsigned char *data;
    size_t size;
} yk__bytes;
static inline yk__bytes yk__text_bytes(const char *text)
{
    return (yk__bytes){(const unsigned char *)text, strlen(text)};
}

struct yk__entry;

/*
 * A waiter until all `count` keys are there, or, with `watches`, until the one key has another value than `old`
 * (old.data NULL: until it is there). The keys and `old` are borrowed until `ready` was called or the wait was
 * cancelled. Filled by the caller up to `user`; the rest is private.
 */
typedef struct yk__waiter {
    const yk__bytes *keys;
    size_t count;
    bool watches;
    yk__bytes old;
    /* Called from the change that ends the wait, the waiter no longer waiting. Must not change the keyspace. */
    void (*ready)(struct yk__waiter *waiter);
    void *user;
    size_t position;      /* private: of the missing key that it stands at */
    struct yk__entry *at; /* private: NULL when it is not waiting */
    struct yk__waiter *previous, *next;
} yk__waiter;

typedef struct yk__keyspace {
    struct yk__entry **slots;
    size_t slot_count; /* a power of two, or 0 */
    size_t entries;    /* in the slots: keys that are there, and missing ones that are waited for */
    size_t keys;       /* in the table */
    /* Called with every change of a key, behind it; value NULL: it was deleted. Must not change the keyspace. NULL: not
     * called. */
    void (*noted)(void *argument, yk__bytes key, const yk__bytes *value);
    void *argument;
} yk__keyspace;

void yk__keyspace_clear(yk__keyspace *space); /* nobody may be waiting */
/* A description of what is wrong with the table and its waiters, NULL for nothing. Looks at every entry; sanitized
 * builds call it when the table grows and when it is cleared. */
const char *yk__keyspace_check(const yk__keyspace *space);
/* NULL when the key is not there. The value is valid until the next change. */
const yk__bytes *yk__keyspace_get(const yk__keyspace *space, yk__bytes key);
yk_status yk__keyspace_set(yk__keyspace *space, yk__bytes key, yk__bytes value);
/* Room for why an addition failed; longer text is cut. */
enum { YK__ADD_WHY = 160 };
/* Gives the reason in `why`, and no record, when the value is no number or the sum none of 64 bits. */
yk_status yk__keyspace_add(yk__keyspace *space, yk__bytes key, int64_t amount, int64_t *sum, char why[YK__ADD_WHY]);
/* See yk_store_compare_set. */
yk_status yk__keyspace_compare_set(yk__keyspace *space, yk__bytes key, yk__bytes expected, yk__bytes desired,
                                   bool *swapped);
bool yk__keyspace_delete(yk__keyspace *space, yk__bytes key);
/* Calls `visit` for each key that begins with the prefix, in no order; it must not change the keyspace. */
void yk__keyspace_visit(const yk__keyspace *space, yk__bytes prefix,
                        void (*visit)(void *argument, yk__bytes key, const yk__bytes *value), void *argument);
int64_t yk__keyspace_count(const yk__keyspace *space, yk__bytes prefix);
/* True when there is nothing to wait for. Otherwise the waiter waits, or, without memory, *status is an error. */
bool yk__keyspace_wait(yk__keyspace *space, yk__waiter *waiter, yk_status *status);
void yk__keyspace_cancel(yk__keyspace *space, yk__waiter *waiter); /* not waiting is allowed */

#endif
