/*
 * store_link.c - a client's connection to the server of a TCP store. Layer: net.
 */
#include "net/store_link.h"

#include <poll.h>
#include <string.h>

#include "base/escape.h"
#include "net/store_session.h"

yk__reason yk__store_link_connect(yk__store_link *link, const yk__address *server, const yk__identity *identity,
                                  double deadline, char why[YK__WHY_SIZE])
{
    yk__reason reason;
    reason = yk__store_link_begin(link, server, identity, why);
    if (reason)
        return reason;
    reason = yk__connect_end(link->fd, !yk__wait_fd(link->fd, POLLOUT, deadline), why);
    if (reason)
        yk__store_link_close(link);
    return reason;
}

yk__reason yk__store_link_begin(yk__store_link *link, const yk__address *server, const yk__identity *identity,
                                char why[YK__WHY_SIZE])
{
    yk__reason reason;
    *link = (yk__store_link){.far = *server, .near.size = sizeof(link->near.storage)};
    link->fd = yk__connect_begin(server, &reason, why);
    if (link->fd < 0)
        return reason;
    yk__socket_tune(link->fd);
    if (getsockname(link->fd, (struct sockaddr *)&link->near.storage, &link->near.size))
        link->near.size = 0;
    yk__channel_init(&link->channel, identity, false, YK__REQUEST_LIMIT);
    return YK__REACHED;
}

void yk__store_link_close(yk__store_link *link)
{
    yk__socket_close(link->fd);
    link->fd = -1;
    yk__channel_clear(&link->channel);
}

/* Closes a link whose hand-shake failed. */
static yk__reason opening_ended(yk__store_link *link, yk__reason reason, char why[YK__WHY_SIZE])
{
    if (reason) {
        snprintf(why, YK__WHY_SIZE, "%s", link->channel.why);
        yk__store_link_close(link);
    }
    return reason;
}

yk__reason yk__store_link_wait_open(yk__store_link *link, double deadline, char why[YK__WHY_SIZE])
{
    return opening_ended(link, yk__channel_wait_open(&link->channel, link->fd, deadline), why);
}

yk__reason yk__store_link_wait_hello(yk__store_link *link, double deadline, char why[YK__WHY_SIZE])
{
    yk__channel *c = &link->channel;
    for (;;) {
        yk__channel_flush(c, link->fd);
        if (c->state != YK__REACHED || c->handshake.state != YK__HANDSHAKE_HELLO)
            return opening_ended(link, c->state, why);
        if (!yk__wait_fd(link->fd, POLLIN, deadline)) {
            snprintf(c->why, sizeof(c->why), "no answer in the hand-shake");
            return opening_ended(link, YK__NO_ANSWER, why);
        }
        yk__channel_receive_exactly(c, link->fd);
    }
}

bool yk__store_link_move(yk__store_link *link, size_t most)
{
    yk__channel *c = &link->channel;
    yk__channel_flush(c, link->fd);
    size_t before = c->in.size - c->taken;
    if (c->state == YK__REACHED)
        yk__channel_receive(c, link->fd, most);
    return c->in.size - c->taken > before;
}

/* A copy of the text, escaped: it may hold anything. */
static void copy_answer(const yk__reader *answer, size_t skip, char text[YK__WHY_SIZE])
{
    size_t size = (size_t)(answer->end - answer->at);
    yk__escape((const char *)answer->at + skip, size - skip, text, YK__WHY_SIZE / 2);
}

bool yk__store_link_fault(yk__store_link *link, unsigned type, const yk__reader *answer, yk_status *code,
                          char text[YK__WHY_SIZE])
{
    yk__channel *c = &link->channel;
    static const char client[] = "this process at ", server[] = "the server at ";
    char said[YK__WHY_SIZE];
    *code = YK_ERR_CONNECTION;
    if (type == YK__FAILED && answer->at < answer->end) {
        *code = *answer->at == YK__FAILED_MEMORY ? YK_ERR_MEMORY : YK_ERR_ARGUMENT;
        copy_answer(answer, 1, text);
        return true;
    }
    if (type == YK__REPLY_DAMAGED) {
        copy_answer(answer, 0, said);
        yk__damaged_connection(client, &link->near, server, &link->far, said, text);
    } else if (type) {
        snprintf(text, YK__WHY_SIZE, "the server's answer is no reply");
    } else if (c->state == YK__DAMAGED) {
        yk__channel_send(c, YK__BROKEN, c->why, strlen(c->why));
        yk__channel_flush(c, link->fd);
        yk__damaged_connection(server, &link->far, client, &link->near, c->why, text);
    } else {
        snprintf(text, YK__WHY_SIZE, "%s", c->why);
    }
    return false;
}
