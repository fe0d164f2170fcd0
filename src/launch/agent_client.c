/*
 * agent_client.c - a launcher's connection to the launchers' store. Layer: launch.
 *
 * The calls of yoke/store.h wait; a launcher that relays output must not. So this is a client of its own, of the same
 * requests (net/store_session.h), on one connection. Invariants: nothing here waits; at most one value is awaited at a
 * time; a connection that breaks, or a reply that is an error, makes the client `gone`.
 */
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "launch/agents.h"
#include "net/store_session.h"

/* Bytes after which the launcher sees to its processes again; the rest is received at the next turn. */
enum { RECEIVED_AT_ONCE = 1 << 20 };

void yk__agent_client_lose(yk__agent_client *c, const char *why)
{
    if (c->gone)
        return;
    c->gone = true;
    snprintf(c->why, sizeof(c->why), "%s", why);
    yk__socket_close(c->fd);
    c->fd = -1;
}

void yk__agent_client_clear(yk__agent_client *c)
{
    yk__socket_close(c->fd);
    c->fd = -1;
    c->gone = true;
    yk__channel_clear(&c->channel);
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */
static void put_key(yk__agent_client *c, const char *key)
{
    yk__wire_put_key(&c->channel.message, key, strlen(key));
}

static void put_value(yk__agent_client *c, const yk__wire *value)
{
    yk__wire_put_value(&c->channel.message, value->data, value->size);
    c->channel.message.failed |= value->failed;
}

static void end_request(yk__agent_client *c)
{
    c->unanswered++;
    c->sent++;
    yk__channel_end(&c->channel);
}

void yk__agent_client_set(yk__agent_client *c, const char *key, const yk__wire *value)
{
    if (c->gone)
        return;
    yk__channel_begin(&c->channel, YK__SET);
    put_key(c, key);
    put_value(c, value);
    end_request(c);
}

void yk__agent_client_push(yk__agent_client *c, const char *list, const yk__wire *value)
{
    if (c->gone)
        return;
    yk__channel_begin(&c->channel, YK__PUSH);
    put_key(c, list);
    put_value(c, value);
    end_request(c);
}

static void key_of(char key[64], const char *list, int64_t number)
{
    snprintf(key, 64, "%s/%" PRId64, list, number);
}

void yk__agent_client_delete(yk__agent_client *c, const char *list, int64_t number)
{
    char key[64];
    if (c->gone)
        return;
    key_of(key, list, number);
    yk__channel_begin(&c->channel, YK__DELETE);
    put_key(c, key);
    end_request(c);
}

void yk__agent_client_lease(yk__agent_client *c, const char *list, const yk__wire values[3], double seconds)
{
    yk__channel_begin(&c->channel, YK__LEASE);
    put_key(c, list);
    for (int i = YK__LEASE_ENDED; i <= YK__LEASE_DAMAGED; i++)
        put_value(c, &values[i]);
    yk__wire_put_u32(&c->channel.message, (uint32_t)(1e3 * seconds + 0.5));
    end_request(c);
}

void yk__agent_client_renew(yk__agent_client *c)
{
    if (c->gone)
        return;
    yk__channel_begin(&c->channel, YK__RENEW);
    end_request(c);
}

void yk__agent_client_await(yk__agent_client *c, const char *key)
{
    if (c->gone)
        return;
    yk__channel_begin(&c->channel, YK__AWAIT);
    put_key(c, key);
    yk__channel_end(&c->channel);
}

static void await_next(yk__agent_client *c)
{
    char key[64];
    key_of(key, c->list, ++c->next);
    yk__agent_client_await(c, key);
}

void yk__agent_client_follow_after(yk__agent_client *c, const char *list, int64_t after)
{
    snprintf(c->list, sizeof(c->list), "%s", list);
    c->next = after;
    await_next(c);
}

void yk__agent_client_follow(yk__agent_client *c, const char *list)
{
    yk__agent_client_follow_after(c, list, 0);
}

/* ---- what comes -------------------------------------------------------------------------------------------------- */
static yk__address near_address(const yk__agent_client *c)
{
    yk__address near = {.size = sizeof(near.storage)};
    if (getsockname(c->fd, (struct sockaddr *)&near.storage, &near.size))
        near.size = 0;
    return near;
}

/* The channel is of no use any more. Where what came is damaged the other side learns of it. */
static void lose_channel(yk__agent_client *c)
{
    yk__channel *channel = &c->channel;
    char text[YK__WHY_SIZE];
    if (channel->state == YK__DAMAGED) {
        yk__channel_send(channel, YK__BROKEN, channel->why, strlen(channel->why));
        yk__channel_flush(channel, c->fd);
        yk__address near = near_address(c);
        yk__damaged_connection(&c->address, &near, channel->why, text);
    } else {
        snprintf(text, sizeof(text), "%s",
                 channel->state == YK__LOST ? "its launcher ended without a word" : channel->why);
    }
    yk__agent_client_lose(c, text);
}

/* A reply that says what is wrong. */
static void lose_by_reply(yk__agent_client *c, unsigned type, const yk__reader *reply)
{
    char text[YK__WHY_SIZE], plain[YK__WHY_SIZE - 20];
    size_t size = (size_t)(reply->end - reply->at), skip = type == YK__FAILED && size;
    yk__escape((const char *)reply->at + skip, size - skip, plain, sizeof(plain));
    yk__address near = near_address(c);
    if (type == YK__REPLY_DAMAGED)
        yk__damaged_connection(&near, &c->address, plain, text);
    else
        snprintf(text, sizeof(text), "its store: %s", plain);
    yk__agent_client_lose(c, text);
}

void yk__agent_client_move(yk__agent_client *c)
{
    if (c->gone)
        return;
    yk__channel_flush(&c->channel, c->fd);
    size_t before = c->channel.in.size - c->channel.taken;
    if (c->channel.state == YK__REACHED)
        yk__channel_receive(&c->channel, c->fd, RECEIVED_AT_ONCE);
    if (c->channel.in.size - c->channel.taken > before)
        c->heard = yk__now();
}

bool yk__agent_client_next(yk__agent_client *c, yk__reader *value)
{
    unsigned type;
    yk__reader reply;
    while ((type = yk__channel_next(&c->channel, &reply))) {
        if (type == YK__ARRIVED) {
            size_t size = yk__read_u32(&reply);
            const unsigned char *bytes = yk__read_bytes(&reply, size);
            *value = (yk__reader){bytes, bytes + (bytes ? size : 0), !bytes};
            if (c->list[0])
                await_next(c);
            return true;
        }
        if (type == YK__FAILED || type == YK__REPLY_DAMAGED) {
            lose_by_reply(c, type, &reply);
            return false;
        }
        c->unanswered--;
    }
    if (c->channel.state != YK__REACHED)
        lose_channel(c);
    else
        yk__channel_flush(&c->channel, c->fd);
    return false;
}
