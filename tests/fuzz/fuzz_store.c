/*
 * fuzz_store.c - what a TCP store's server does with the bytes of a peer. The first byte picks whether they come from a
 * stranger or from a member, and into which pieces they are cut; a second member waits for keys meanwhile.
 */
#include <stdlib.h>

#include "net/store_session.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void require(bool holds)
{
    if (!holds)
        abort();
}

/* A member that waits for the key "k", which the peer may set, and one that watches it. */
static void start_waiter(yk__session *s, yk__keyspace *space, const yk__identity *identity, bool watches)
{
    static const unsigned char get[] = {4, 0, 0, 0, YK__GET, 1, 0, 'k'};
    static const unsigned char watch[] = {9, 0, 0, 0, YK__WATCH, 1, 0, 'k', 0, 0, 0, 0, 0};
    yk__session_init(s, space, identity);
    s->authenticated = true;
    bool good = watches ? yk__session_receive(s, watch, sizeof(watch)) : yk__session_receive(s, get, sizeof(get));
    require(good && s->waiting);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static yk__identity identity;
    if (!identity.protocol)
        require(yk__identity_init(&identity, "store", "s", 1, "fuzz") == YK_OK);
    if (size < 1)
        return 0;
    bool member = bytes[0] & 1;
    size_t piece = (size_t)(bytes[0] >> 1) + 1;
    yk__keyspace space = {0};
    yk__session peer, waiter, watcher;
    start_waiter(&waiter, &space, &identity, false);
    start_waiter(&watcher, &space, &identity, true);
    yk__session_init(&peer, &space, &identity);
    peer.authenticated = member;
    bool good = true;
    for (size_t at = 1; at < size && good && !peer.closing; at += piece) {
        size_t part = size - at < piece ? size - at : piece;
        good = yk__session_receive(&peer, bytes + at, part);
        peer.out.size = peer.sent = 0; /* sent */
        require(!peer.in.failed && peer.in.capacity <= 2 * size + 512);
    }
    require(member || !peer.authenticated); /* nobody guesses an HMAC */
    require(member || space.keys == 0);     /* and without it nothing is changed */
    /* "k" is either there, and then the waiter has it, or it was never or is no more. */
    const yk__bytes *value = yk__keyspace_get(&space, yk__text_bytes("k"));
    require(!value || (!waiter.waiting && waiter.out.size >= 5));
    require(!value || (!watcher.waiting && watcher.out.size >= 5));
    yk__session_clear(&peer);
    yk__session_clear(&waiter);
    yk__session_clear(&watcher);
    require(space.entries == space.keys); /* nobody waits any more, and nothing is left of those who did */
    yk__keyspace_clear(&space);
    require(!yk_last_error());
    return 0;
}
