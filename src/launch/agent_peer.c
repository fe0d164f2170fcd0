/*
 * agent_peer.c - one connection between the launchers of two nodes, and what is sent over it. Layer: launch.
 *
 * Nothing here waits. Invariants: no byte is taken as a frame before the handshake is done; a peer that breaks the
 * rules, or whose connection does, is `gone` and its socket is closed.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "launch/agents.h"

enum { PIECE = 16 << 10 };

static void watch(yk__agent_peer *p, int epoll, int operation)
{
    bool sending = p->out.size > p->sent;
    struct epoll_event event = {.events = EPOLLIN | (sending ? EPOLLOUT : 0), .data.ptr = p};
    epoll_ctl(epoll, operation, p->fd, &event);
}

yk__agent_peer *yk__agent_peer_create(int fd, int epoll, const yk__identity *identity, bool accepted)
{
    yk__agent_peer *p = calloc(1, sizeof(*p));
    if (!p)
        return NULL;
    p->fd = fd;
    p->accepted = accepted;
    p->came = p->heard = yk__now();
    p->node = p->wanted = -1;
    if (!accepted)
        yk__handshake_init(&p->handshake, identity, true, &p->out);
    watch(p, epoll, EPOLL_CTL_ADD);
    return p;
}

void yk__agent_peer_free(yk__agent_peer *p)
{
    if (!p)
        return;
    yk__socket_close(p->fd);
    yk__wire_clear(&p->in);
    yk__wire_clear(&p->out);
    free(p->counts);
    free(p->frame);
    free(p);
}

void yk__agent_peer_lose(yk__agent_peer *p, const char *why)
{
    if (p->gone)
        return;
    p->gone = true;
    snprintf(p->why, sizeof(p->why), "%s", why);
    yk__socket_close(p->fd); /* epoll forgets it */
    p->fd = -1;
}

static void flush(yk__agent_peer *p, int epoll)
{
    bool before = p->out.size > p->sent;
    while (!p->gone && p->out.size > p->sent) {
        ssize_t sent = send(p->fd, p->out.data + p->sent, p->out.size - p->sent, MSG_NOSIGNAL);
        if (sent > 0)
            p->sent += (size_t)sent;
        else if (errno == EAGAIN)
            break;
        else if (errno != EINTR)
            yk__agent_peer_lose(p, errno == EPIPE || errno == ECONNRESET ? "its launcher ended without a word"
                                                                         : strerror(errno));
    }
    if (p->sent == p->out.size)
        p->out.size = p->sent = 0;
    if (!p->gone && (before || p->out.size > p->sent))
        watch(p, epoll, EPOLL_CTL_MOD);
}

static void take(yk__agent_peer *p, size_t bytes)
{
    memmove(p->in.data, p->in.data + bytes, p->in.size - bytes);
    p->in.size -= bytes;
}

static void shake_hands(yk__agent_peer *p, int epoll)
{
    while (!p->accepted && p->in.size) {
        size_t used = yk__handshake_feed(&p->handshake, p->in.data, p->in.size, &p->out);
        take(p, used);
        if (p->handshake.state == YK__HANDSHAKE_DONE) {
            p->accepted = true;
            p->who = p->handshake.peer;
        } else if (p->handshake.state == YK__HANDSHAKE_FAILED) {
            if (!p->handshake.garbage)
                flush(p, epoll);
            yk__agent_peer_lose(p, p->handshake.why);
            return;
        } else if (!used) {
            break;
        }
    }
    flush(p, epoll);
}

void yk__agent_peer_move(yk__agent_peer *p, int epoll)
{
    if (p->gone)
        return;
    flush(p, epoll);
    while (!p->gone && !p->finished && p->in.size < 2 * AGENT_FRAME_LIMIT) {
        if (!yk__wire_reserve(&p->in, PIECE)) {
            yk__agent_peer_lose(p, "out of memory");
            return;
        }
        ssize_t got = recv(p->fd, p->in.data + p->in.size, PIECE, 0);
        if (got > 0) {
            p->in.size += (size_t)got;
            p->heard = yk__now();
            if (!p->accepted)
                shake_hands(p, epoll);
        } else if (got == 0 || errno == ECONNRESET || errno == EPIPE) {
            p->finished = true; /* what came before the end is taken first */
            if (!p->accepted)
                yk__agent_peer_lose(p, "its launcher ended without a word");
            return;
        } else if (errno == EAGAIN) {
            return;
        } else if (errno != EINTR) {
            yk__agent_peer_lose(p, strerror(errno));
        }
    }
}

int yk__agent_peer_next(yk__agent_peer *p, yk__reader *reader)
{
    if (!p->accepted)
        return 0;
    size_t size = p->in.size < YK__FRAME_HEAD ? 0 : yk__load_u32(p->in.data);
    if (p->in.size >= YK__FRAME_HEAD && (size < 1 || size > AGENT_FRAME_LIMIT)) {
        p->in.size = 0;
        yk__agent_peer_lose(p, "it sent what is no message of a launcher");
        return 0;
    }
    if (p->in.size < YK__FRAME_HEAD || p->in.size < YK__FRAME_HEAD + size) {
        if (p->finished)
            yk__agent_peer_lose(p, "its launcher ended without a word");
        return 0;
    }
    int type = p->in.data[YK__FRAME_HEAD];
    unsigned char *payload = malloc(size); /* lives until the next frame is taken */
    if (!payload) {
        yk__agent_peer_lose(p, "out of memory");
        return 0;
    }
    memcpy(payload, p->in.data + YK__FRAME_HEAD + 1, size - 1);
    take(p, YK__FRAME_HEAD + size);
    free(p->frame);
    p->frame = payload;
    *reader = (yk__reader){payload, payload + size - 1, false};
    return type;
}

void yk__agent_peer_send(yk__agent_peer *p, int epoll, int type, const yk__wire *payload)
{
    if (!p || p->gone)
        return;
    size_t begin = yk__wire_frame_begin(&p->out, (unsigned)type);
    if (payload)
        yk__wire_put(&p->out, payload->data, payload->size);
    yk__wire_frame_end(&p->out, begin);
    if (p->out.failed || (payload && payload->failed))
        yk__agent_peer_lose(p, "out of memory");
    else
        flush(p, epoll);
}

/* ---- what is in the frames -------------------------------------------------------------------------------------- */
bool yk__agent_read_text(yk__reader *reader, char *text, size_t size)
{
    size_t length = yk__read_u32(reader);
    const unsigned char *bytes = yk__read_bytes(reader, length);
    if (!bytes || length >= size)
        return false;
    for (size_t i = 0; i < length; i++)
        text[i] = (bytes[i] >= 32 && bytes[i] != 127) || bytes[i] == '\n' || bytes[i] == '\t' ? (char)bytes[i] : '?';
    text[length] = '\0';
    return true;
}

static void put_text(yk__wire *wire, const char *text)
{
    yk__wire_put_value(wire, text ? text : "", text ? strlen(text) : 0);
}

void yk__agent_put_end(yk__wire *wire, const yk__outcome *end)
{
    yk__wire_put_u8(wire, end->kind);
    const int numbers[] = {end->code, end->rank, end->local_rank, end->pid, end->status, end->signal};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
        yk__wire_put_u32(wire, (uint32_t)numbers[i]);
    yk__wire_put_u64(wire, (uint64_t)(end->seconds * 1e6));
    put_text(wire, end->host);
    put_text(wire, end->text);
    put_text(wire, end->tail);
}

bool yk__agent_read_end(yk__reader *reader, yk__outcome *end)
{
    *end = (yk__outcome){.kind = YK__RUN_DONE};
    unsigned kind = yk__read_u8(reader);
    int *numbers[] = {&end->code, &end->rank, &end->local_rank, &end->pid, &end->status, &end->signal};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
        *numbers[i] = (int)yk__read_u32(reader);
    end->seconds = (double)yk__read_u64(reader) * 1e-6;
    enum { TAIL = RELAY_TAIL + 16 };
    end->tail = malloc(TAIL);
    if (kind <= YK__RUN_SAVED && end->tail && yk__agent_read_text(reader, end->host, sizeof(end->host)) &&
        yk__agent_read_text(reader, end->text, sizeof(end->text)) && yk__agent_read_text(reader, end->tail, TAIL) &&
        end->code >= 0 && end->code < 256 && end->signal >= 0 && end->signal < 128) {
        end->kind = kind;
        return true;
    }
    yk__outcome_clear(end);
    return false;
}

void yk__agent_put_plan(yk__wire *wire, const yk__agent_plan *plan)
{
    const int numbers[] = {plan->node, plan->local, plan->first, plan->world, plan->port};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
        yk__wire_put_u32(wire, (uint32_t)numbers[i]);
    yk__wire_put_u64(wire, (uint64_t)plan->restart);
    yk__wire_put_u64(wire, (uint64_t)plan->restarts);
}

bool yk__agent_read_plan(yk__reader *reader, yk__agent_plan *plan)
{
    int *numbers[] = {&plan->node, &plan->local, &plan->first, &plan->world, &plan->port};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
        *numbers[i] = (int)yk__read_u32(reader);
    plan->restart = (int64_t)yk__read_u64(reader);
    plan->restarts = (int64_t)yk__read_u64(reader);
    return yk__read_finished(reader) && plan->node >= 0 && plan->local > 0 && plan->first >= 0 &&
           plan->world >= plan->local && plan->port > 0 && plan->port < 65536;
}
