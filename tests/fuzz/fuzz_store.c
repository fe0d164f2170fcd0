/*
 * fuzz_store.c - libFuzzer on a TCP store's server, with the bytes of a peer. The first byte picks whether they come
 * from a stranger, or are messages of a member (u32 size, type, payload; sent in frames as they should be), and into
 * which pieces they are cut; a second member waits for keys meanwhile.
 */
#include <stdlib.h>

#include "net/store_session.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void require(bool holds)
{
    if (!holds)
        abort();
}

/* A session whose hand-shake with `client` is done. */
static void admit(yk__session *s, yk__channel *client, yk__keyspace *space, const yk__identity *identity)
{
    yk__session_init(s, space, identity);
    yk__channel_init(client, identity, false, YK__REQUEST_LIMIT);
    while (!client->open) {
        require(yk__session_receive(s, client->out.data, client->out.size));
        client->out.size = 0;
        yk__channel_feed(client, s->channel.out.data, s->channel.out.size);
        s->channel.out.size = 0;
    }
    require(s->channel.open);
}

static bool deliver(yk__session *s, yk__channel *client, size_t piece)
{
    bool good = true;
    for (size_t at = 0; at < client->out.size && good && !s->closing; at += piece) {
        size_t left = client->out.size - at;
        good = yk__session_receive(s, client->out.data + at, left < piece ? left : piece);
        s->channel.out.size = s->channel.sent = 0; /* sent */
    }
    client->out.size = 0;
    return good;
}

/* A member that waits for the key "k", which the peer may set, or that watches it. */
static void start_waiter(yk__session *s, yk__keyspace *space, const yk__identity *identity, bool watches)
{
    static const unsigned char key[] = {1, 0, 'k', 0, 0, 0, 0, 0};
    yk__channel client;
    admit(s, &client, space, identity);
    yk__channel_send(&client, watches ? YK__WATCH : YK__GET, key, watches ? sizeof(key) : 3);
    require(deliver(s, &client, SIZE_MAX / 2) && s->waiting);
    yk__channel_clear(&client);
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
    yk__channel client = {0};
    start_waiter(&waiter, &space, &identity, false);
    start_waiter(&watcher, &space, &identity, true);
    bool good = true;
    if (member) {
        admit(&peer, &client, &space, &identity);
        yk__reader left = {bytes + 1, bytes + size, false};
        while (good && !peer.closing && left.at < left.end) {
            size_t length = yk__read_u32(&left);
            const unsigned char *message = yk__read_bytes(&left, length);
            if (message && length) {
                yk__channel_send(&client, message[0], message + 1, length - 1);
                good = deliver(&peer, &client, piece);
            }
            if (left.bad)
                break;
        }
    } else {
        yk__session_init(&peer, &space, &identity);
        for (size_t at = 1; at < size && good && !peer.closing; at += piece) {
            size_t part = size - at < piece ? size - at : piece;
            good = yk__session_receive(&peer, bytes + at, part);
            peer.channel.out.size = peer.channel.sent = 0; /* sent */
            require(peer.channel.in.capacity <= 2 * size + 512);
        }
        require(!peer.channel.open); /* nobody guesses a proof */
        require(space.keys == 0);    /* and without it nothing is changed */
    }
    /* The values that the peer left for its end are pushed, in one of the three ways. */
    yk__session_end_lease(&peer, (yk__lease_end)((bytes[0] >> 1) % 3), "the connection is damaged");
    /* "k" is either there, and then the waiter has it, or it was never or is no more. */
    const yk__bytes *value = yk__keyspace_get(&space, yk__text_bytes("k"));
    require(!value || (!waiter.waiting && waiter.channel.out.size > YK__FRAME_HEADER));
    require(!value || (!watcher.waiting && watcher.channel.out.size > YK__FRAME_HEADER));
    yk__channel_clear(&client);
    yk__session_clear(&peer);
    yk__session_clear(&waiter);
    yk__session_clear(&watcher);
    require(space.entries == space.keys); /* nobody waits any more, and nothing is left of those who did */
    yk__keyspace_clear(&space);
    require(!yk_last_error());
    return 0;
}
