/*
 * agent_client.c - a launcher's connection to the launchers' store. Layer: launch.
 *
 * The calls of yoke/store.h wait; a launcher that relays output must not. So this queues the same requests
 * (net/store_session.h) on one connection (net/store_link.h). Invariants: nothing here waits; at most one value is
 * awaited at a time; a connection that breaks, or a reply that is an error, makes the client `gone`.
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
    c->closed = c->link.channel.closed;
    if (c->mirrored) /* a keeper takes a close in order for the end of this process (yk__keeper_left) */
        yk__socket_reset(c->link.fd);
    else
        yk__socket_close(c->link.fd);
    c->link.fd = -1;
}

int yk__agent_client_park(yk__agent_client *c, const char *why)
{
    int fd = c->gone ? -1 : c->link.fd;
    if (c->gone)
        return -1;
    c->link.fd = -1;
    c->mirrored = NULL;
    yk__agent_client_lose(c, why);
    return fd;
}

void yk__agent_client_clear(yk__agent_client *c)
{
    yk__store_link_close(&c->link);
    c->gone = true;
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */
static void put_key(yk__agent_client *c, const char *key)
{
    yk__wire_put_key(&c->link.channel.message, key, strlen(key));
}

static void put_value(yk__agent_client *c, const yk__wire *value)
{
    yk__wire_put_value(&c->link.channel.message, value->data, value->size);
    c->link.channel.message.failed |= value->failed;
}

static void end_request(yk__agent_client *c)
{
    c->unanswered++;
    c->sent++;
    yk__channel_end(&c->link.channel);
}

void yk__agent_client_set(yk__agent_client *c, const char *key, const yk__wire *value)
{
    if (c->gone)
        return;
    yk__channel_begin(&c->link.channel, YK__SET);
    put_key(c, key);
    put_value(c, value);
    end_request(c);
}

void yk__agent_client_set_text(yk__agent_client *c, const char *key, const char *text)
{
    yk__wire value = {0};
    yk__wire_put(&value, text, strlen(text));
    yk__agent_client_set(c, key, &value);
    yk__wire_clear(&value);
}

void yk__agent_client_push(yk__agent_client *c, const char *list, const yk__wire *value)
{
    if (c->gone)
        return;
    yk__channel_begin(&c->link.channel, YK__PUSH);
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
    yk__channel_begin(&c->link.channel, YK__DELETE);
    put_key(c, key);
    end_request(c);
}

void yk__agent_client_lease(yk__agent_client *c, const char *list, const yk__wire values[3], double seconds)
{
    yk__channel_begin(&c->link.channel, YK__LEASE);
    put_key(c, list);
    for (int i = YK__LEASE_ENDED; i <= YK__LEASE_DAMAGED; i++)
        put_value(c, &values[i]);
    yk__wire_put_u32(&c->link.channel.message, (uint32_t)(1e3 * seconds + 0.5));
    end_request(c);
}

void yk__agent_client_renew(yk__agent_client *c)
{
    if (c->gone)
        return;
    yk__channel_begin(&c->link.channel, YK__RENEW);
    end_request(c);
}

void yk__agent_client_word(yk__agent_client *c, unsigned kind, const yk__wire *payload)
{
    if (c->gone)
        return;
    yk__channel_begin(&c->link.channel, kind);
    yk__wire_put(&c->link.channel.message, payload->data, payload->size);
    c->link.channel.message.failed |= payload->failed;
    yk__channel_end(&c->link.channel);
}

void yk__agent_client_plain(yk__agent_client *c, unsigned kind, const yk__wire *payload)
{
    if (c->gone)
        return;
    c->unanswered++;
    c->sent++;
    yk__agent_client_word(c, kind, payload);
}

void yk__agent_client_await(yk__agent_client *c, const char *key)
{
    if (c->gone)
        return;
    yk__channel_begin(&c->link.channel, YK__AWAIT);
    put_key(c, key);
    yk__channel_end(&c->link.channel);
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
/* An answer of `type`, or 0, the end of the connection, ends all. */
static void lose_by_fault(yk__agent_client *c, unsigned type, const yk__reader *answer)
{
    char why[YK__WHY_SIZE], text[YK__WHY_SIZE];
    yk_status code;
    if (!type && c->link.channel.state == YK__LOST)
        snprintf(text, sizeof(text), "its launcher ended without a word");
    else if (yk__store_link_fault(&c->link, type, answer, &code, why))
        snprintf(text, sizeof(text), "its store: %.460s", why);
    else
        snprintf(text, sizeof(text), "%s", why);
    yk__agent_client_lose(c, text);
}

void yk__agent_client_move(yk__agent_client *c)
{
    if (c->gone)
        return;
    if (yk__store_link_move(&c->link, RECEIVED_AT_ONCE))
        c->heard = yk__now();
}

bool yk__agent_client_next(yk__agent_client *c, yk__reader *value)
{
    unsigned type;
    yk__reader reply;
    while ((type = yk__channel_next(&c->link.channel, &reply))) {
        if (type == YK__ARRIVED) {
            size_t size = yk__read_u32(&reply);
            const unsigned char *bytes = yk__read_bytes(&reply, size);
            *value = (yk__reader){bytes, bytes + (bytes ? size : 0), !bytes};
            if (c->list[0])
                await_next(c);
            return true;
        }
        if (type == YK__MIRRORED && c->mirrored) {
            c->mirrored(c->argument, &reply);
            if (c->gone)
                return false;
            continue;
        }
        if (type == YK__FAILED || type == YK__REPLY_DAMAGED) {
            lose_by_fault(c, type, &reply);
            return false;
        }
        c->unanswered--;
    }
    if (c->link.channel.state != YK__REACHED)
        lose_by_fault(c, 0, NULL);
    else
        yk__channel_flush(&c->link.channel, c->link.fd);
    return false;
}
