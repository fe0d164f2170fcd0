/*
 * messages.c - send and recv: inside one host here, to another by control.c. Layer: comm/native.
 *
 * Every ordered pair of ranks has a channel of NATIVE_SLOTS slots. The sender posts a message into a free one: the
 * bytes inline if they fit, where they are if the receiver can reach them, else copied to a buffer that it can. The
 * receiver takes the oldest message with its tag and marks the slot taken; the sender frees it. Only the first way to
 * pass the bytes by reference makes the send wait for its receiver.
 *
 * A rank's messages that are not done stand in one list in the order of the calls, and whoever holds the lock looks
 * after all of them: so equal tags keep their order, and a message never waits for the thread that began it.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/native/multihost.h"

enum { MESSAGE_SPINS = 200, MESSAGE_OFFERS = 400 /* times that the core is offered to others, about 1 us each */ };

static yk__native_channel *channel_of(const native *g, int from, int to)
{
    return &g->channels[(size_t)from * (size_t)g->local_size + (size_t)to];
}

static void bell_ring(native *g, int rank)
{
    yk__native_row *row = &g->rows[rank];
    atomic_fetch_add(&row->bell, 1);
    if (atomic_load(&row->bell_sleepers))
        yk__native_wake(&row->bell);
}

yk_status yk__native_fail_message(native *g, const yk__comm_op *op)
{
    char what[160], who[120];
    yk_error error;
    yk__error_take(&error);
    return yk__native_break(g, error.code, "%s of %s: %s", yk__comm_describe(op, what, sizeof(what)),
                            yk__native_rank_name(g, g->rank, who, sizeof(who)), error.message);
}

static void message_end(native *g, yk__native_message *m, yk_status status)
{
    m->done = true;
    m->status = status;
    if (status)
        yk__error_take(&m->error);
    atomic_fetch_sub_explicit(&g->pending, 1, memory_order_relaxed);
}

/* A buffer that holds `bytes` and is free. */
static yk__native_buffer *acquire_buffer(native *g, size_t bytes)
{
    yk__native_buffer *best = NULL;
    for (yk__native_buffer *b = g->buffers; b; b = b->next) {
        if (b->slot && atomic_load_explicit(&b->slot->state, memory_order_acquire) == SLOT_TAKEN) {
            atomic_store_explicit(&b->slot->state, SLOT_FREE, memory_order_release);
            b->slot = NULL;
        }
        if (!b->slot && b->bytes >= bytes && (!best || b->bytes < best->bytes))
            best = b;
    }
    if (best)
        return best;
    size_t room = (size_t)64 << 10;
    while (room < bytes)
        room *= 2;
    yk__native_buffer *made = yk__calloc(1, sizeof(*made));
    if (!made)
        return NULL;
    made->memory = yk__region_create(room);
    if (!made->memory) {
        free(made);
        return NULL;
    }
    made->bytes = room;
    made->next = g->buffers;
    g->buffers = made;
    return made;
}

/* Withdraws a message by reference that failed; true if its bytes are the sender's own again. A thread of this process
 * may be reading them, which has an end; another process reads from its own mapping, and finds in the slot that it was
 * for nothing. */
static bool withdraw(native *g, yk__native_message *m)
{
    uint32_t state = SLOT_POSTED;
    if (!m->slot)
        return true;
    if (!atomic_compare_exchange_strong(&m->slot->state, &state, SLOT_FREE) && state == SLOT_READING) {
        if (g->rows[m->local_rank].pid == g->pid)
            return false;
        atomic_compare_exchange_strong(&m->slot->state, &state, SLOT_FREE);
    }
    m->slot = NULL;
    return true;
}

/* Slots whose bytes were inline or in a buffer are nobody's until they are wanted again. */
static yk__native_slot *free_slot(native *g, yk__native_channel *channel)
{
    for (int i = 0; i < NATIVE_SLOTS; i++) {
        yk__native_slot *slot = &channel->slots[i];
        uint32_t state = atomic_load_explicit(&slot->state, memory_order_acquire);
        if (state == SLOT_FREE)
            return slot;
        if (state != SLOT_TAKEN)
            continue;
        bool waited = false;
        for (yk__native_message *m = g->messages; m; m = m->next)
            waited |= m->slot == slot;
        if (waited)
            continue; /* its send frees it */
        for (yk__native_buffer *b = g->buffers; b; b = b->next)
            if (b->slot == slot)
                b->slot = NULL;
        return slot;
    }
    return NULL;
}

static void advance_send(native *g, yk__native_message *m)
{
    const yk__comm_op *op = &m->op;
    if (m->slot) {
        if (atomic_load_explicit(&m->slot->state, memory_order_acquire) != SLOT_TAKEN)
            return;
        atomic_store_explicit(&m->slot->state, SLOT_FREE, memory_order_release);
        m->slot = NULL;
        message_end(g, m, YK_OK);
        return;
    }
    for (yk__native_message *before = g->messages; before != m; before = before->next)
        if (!before->done && !before->posted && before->op.kind == YK__COMM_SEND && before->op.peer == op->peer)
            return; /* messages keep their order */
    yk__native_slot *slot = free_slot(g, channel_of(g, g->local_rank, m->local_rank));
    if (!slot)
        return;
    size_t bytes = yk__comm_message_bytes(op);
    yk__native_buffer *buffer = NULL;
    slot->where = bytes > NATIVE_INLINE;
    if (!slot->where) {
        if (bytes)
            memcpy(slot->bytes, op->in, bytes);
    } else {
        slot->handle = yk__region_find(op->in, bytes);
        bool same = g->rows[m->local_rank].pid == g->pid && m->local_rank != g->local_rank;
        if (!same && (slot->handle.id == 0 || m->local_rank == g->local_rank)) {
            buffer = acquire_buffer(g, bytes);
            if (!buffer) {
                message_end(g, m, yk__native_fail_message(g, op));
                return;
            }
            memcpy(buffer->memory, op->in, bytes);
            slot->handle = yk__region_find(buffer->memory, bytes);
            buffer->slot = slot;
        }
    }
    slot->tag = op->tag;
    slot->dtype = (int32_t)op->dtype;
    slot->count = op->count;
    slot->number = op->number;
    atomic_store_explicit(&slot->state, SLOT_POSTED, memory_order_release);
    bell_ring(g, m->local_rank);
    m->posted = true;
    if (op->announced || (slot->where && !buffer))
        m->slot = slot;
    else
        message_end(g, m, YK_OK);
}

static void advance_recv(native *g, yk__native_message *m)
{
    const yk__comm_op *op = &m->op;
    for (yk__native_message *before = g->messages; before != m; before = before->next)
        if (!before->done && before->op.kind == YK__COMM_RECV && before->op.peer == op->peer &&
            before->op.tag == op->tag)
            return; /* an earlier receive has the first claim */
    yk__native_channel *channel = channel_of(g, m->local_rank, g->local_rank);
    yk__native_slot *slot = NULL, *seen;
    do { /* an older message may have been posted meanwhile; a rank that sees a message sees all older ones */
        seen = slot;
        for (int i = 0; i < NATIVE_SLOTS; i++) {
            yk__native_slot *s = &channel->slots[i];
            if (atomic_load_explicit(&s->state, memory_order_acquire) == SLOT_POSTED && s->tag == op->tag &&
                (!slot || s->number < slot->number))
                slot = s;
        }
    } while (slot != seen);
    if (!slot)
        return;
    if (slot->dtype != (int32_t)op->dtype || slot->count != op->count) {
        yk__comm_op sent = {.kind = YK__COMM_SEND,
                            .dtype = (yk_dtype)slot->dtype,
                            .count = slot->count,
                            .number = slot->number,
                            .peer = g->rank,
                            .tag = slot->tag};
        message_end(g, m, yk__native_mismatch(g, op->peer, &sent, g->rank, op));
        return;
    }
    size_t bytes = yk__comm_message_bytes(op);
    uint32_t state = SLOT_POSTED;
    if (slot->where && !atomic_compare_exchange_strong(&slot->state, &state, SLOT_READING))
        return; /* taken back: the group is broken */
    const char *from = slot->where ? yk__native_reach(g, m->local_rank, &slot->handle, op) : slot->bytes;
    if (!from) {
        atomic_store(&slot->state, SLOT_FREE);
        yk__native_abort(g, yk__error_code(), yk_last_error()->message);
        yk_clear_error();
        message_end(g, m, yk__native_check(g)); /* the group's first cause, of which this may be a consequence */
        return;
    }
    if (bytes)
        memcpy(op->out, from, bytes);
    state = SLOT_READING;
    yk_status status = YK_OK;
    if (!slot->where)
        atomic_store_explicit(&slot->state, SLOT_TAKEN, memory_order_release);
    else if (!atomic_compare_exchange_strong(&slot->state, &state, SLOT_TAKEN))
        status = yk__native_check(g);
    bell_ring(g, m->local_rank);
    message_end(g, m, status);
}

static void unlink_done(native *g)
{
    for (yk__native_message **at = &g->messages; *at;) {
        if ((*at)->done)
            *at = (*at)->next;
        else
            at = &(*at)->next;
    }
}

/* With the lock held. Errors of single messages go into them; the thread's record is kept as it is. */
static void progress(native *g)
{
    yk_error before;
    yk__error_take(&before);
    for (yk__native_message *m = g->messages; m; m = m->next) {
        if (m->done)
            continue;
        yk_status status;
        if (yk__native_check(g)) {
            if (!withdraw(g, m)) {
                yk_clear_error();
                continue;
            }
            g->transport->drop_messages(g);
            message_end(g, m, yk__error_code());
        } else if (m->local_rank < 0) {
            if (m->op.kind == YK__COMM_SEND ? yk__native_remote_send(g, m, &status)
                                            : yk__native_remote_recv(g, m, &status))
                message_end(g, m, status);
        } else if (m->op.kind == YK__COMM_SEND) {
            advance_send(g, m);
        } else {
            advance_recv(g, m);
        }
    }
    unlink_done(g);
    yk__error_put(&before);
}

void yk__native_progress(native *g)
{
    pthread_mutex_lock(&g->message_lock);
    g->transport->progress(g);
    progress(g);
    pthread_mutex_unlock(&g->message_lock);
}

/* With the lock held: the message that this rank sleeps for; NULL: none any more. */
static void publish_awaited(native *g, const yk__native_message *m)
{
    yk__native_row *row = &g->rows[g->local_rank];
    int64_t awaits[AWAITS_SIZE] = {[AWAITS_KIND] = YK__COMM_KINDS};
    if (m) {
        awaits[AWAITS_KIND] = (int64_t)m->op.kind;
        awaits[AWAITS_DTYPE] = (int64_t)m->op.dtype;
        awaits[AWAITS_PEER] = m->op.peer;
        awaits[AWAITS_TAG] = m->op.tag;
        awaits[AWAITS_NUMBER] = (int64_t)m->op.number;
        awaits[AWAITS_COUNT] = m->op.count;
    }
    atomic_fetch_add(&row->awaits_version, 1);
    for (int i = 0; i < AWAITS_SIZE; i++)
        atomic_store(&row->awaits[i], awaits[i]);
    atomic_fetch_add(&row->awaits_version, 1);
}

bool yk__native_awaited_message(const native *g, int local_rank, char *text, size_t size)
{
    const yk__native_row *row = &g->rows[local_rank];
    int64_t awaits[AWAITS_SIZE];
    uint32_t version = atomic_load(&row->awaits_version);
    for (int i = 0; i < AWAITS_SIZE; i++)
        awaits[i] = atomic_load(&row->awaits[i]);
    bool message = awaits[AWAITS_KIND] == YK__COMM_SEND || awaits[AWAITS_KIND] == YK__COMM_RECV;
    if (version % 2 || atomic_load(&row->awaits_version) != version || !message ||
        (uint64_t)awaits[AWAITS_DTYPE] >= YK__DTYPES)
        return false;
    yk__comm_op op = {.kind = (yk__comm_kind)awaits[AWAITS_KIND],
                      .dtype = (yk_dtype)awaits[AWAITS_DTYPE],
                      .peer = (int)awaits[AWAITS_PEER],
                      .tag = (int)awaits[AWAITS_TAG],
                      .number = (uint64_t)awaits[AWAITS_NUMBER],
                      .count = awaits[AWAITS_COUNT]};
    yk__comm_describe(&op, text, size);
    return true;
}

/* With the lock held: ", and has sent messages with other tags: 5, 7" of the sender of a message that does not come. */
static void append_other_tags(const native *g, const yk__native_message *m, char *list, size_t size)
{
    int tags[8], count = 0, most = (int)(sizeof(tags) / sizeof(tags[0]));
    if (m->op.kind != YK__COMM_RECV)
        return;
    if (m->local_rank < 0) {
        for (const control_arrived *a = g->net->links[m->op.peer].arrived; a && count < most; a = a->next)
            tags[count++] = a->frame.tag;
    } else {
        const yk__native_channel *channel = channel_of(g, m->local_rank, g->local_rank);
        for (int i = 0; i < NATIVE_SLOTS && count < most; i++)
            if (atomic_load_explicit(&channel->slots[i].state, memory_order_acquire) == SLOT_POSTED)
                tags[count++] = channel->slots[i].tag;
    }
    for (int i = 0; i < count; i++) {
        size_t used = strlen(list);
        snprintf(list + used, size - used, "%s%d",
                 i           ? ", "
                 : count > 1 ? ", of which there are messages with the tags "
                             : ", of which there is a message with tag ",
                 tags[i]);
    }
}

/* With the lock held: a message that waits for a rank that cannot answer, or has waited too long, breaks the group. */
static void look_after(native *g, const yk__native_message *m, bool thorough)
{
    char a[120], b[120], what[160];
    int peer = m->op.peer;
    const yk__native_link *link = m->local_rank < 0 ? &g->net->links[peer] : NULL;
    bool stopped = false, late = m->deadline > 0 && yk__now() > m->deadline;
    bool left = link ? link->left : atomic_load(&g->rows[m->local_rank].left) != 0;
    bool dead = !left && (link ? link->closed : (thorough || late) && yk__native_is_dead(g, m->local_rank, &stopped));
    if (!left && !dead && !late)
        return;
    progress(g); /* bytes that came before the end count */
    if (m->done)
        return;
    yk_error before;
    yk__error_take(&before);
    yk_status status;
    yk__comm_describe(&m->op, what, sizeof(what));
    yk__native_rank_name(g, g->rank, a, sizeof(a));
    yk__native_rank_name(g, peer, b, sizeof(b));
    if (dead && link && link->error) {
        status =
            yk__native_break(g, YK_ERR_CONNECTION, "group '%s': %s of %s: %s ended, or its connection to %s broke: %s",
                             g->name, what, a, b, a, link->why);
    } else if (left || dead) {
        status = yk__native_break(g, YK_ERR_CONNECTION, "group '%s': %s of %s: %s %s", g->name, what, a, b,
                                  dead ? "ended" : "left");
    } else {
        char list[400] = "";
        yk__native_append_late(g, list, sizeof(list), peer, false);
        append_other_tags(g, m, list, sizeof(list));
        status = yk__native_break_stalled(g, &m->op, list);
    }
    yk_clear_error();
    (void)status;
    progress(g); /* ends all with the cause */
    yk__error_put(&before);
}

yk_status yk__native_post(void *state, const yk__comm_op *op, void **message)
{
    native *g = state;
    yk__native_message *m = yk__calloc(1, sizeof(*m));
    *message = m;
    if (!m)
        return yk__error_code();
    m->op = *op;
    m->local_rank = g->members[op->peer].host == g->host ? g->members[op->peer].local_rank : -1;
    pthread_mutex_lock(&g->message_lock);
    yk__native_message **tail = &g->messages;
    while (*tail)
        tail = &(*tail)->next;
    *tail = m;
    atomic_fetch_add_explicit(&g->pending, 1, memory_order_relaxed);
    g->transport->progress(g);
    progress(g);
    pthread_mutex_unlock(&g->message_lock);
    return YK_OK;
}

/* True if messages to this host (`away`: to other hosts) are not done. With the lock held. */
static bool others_wait(const native *g, bool away)
{
    for (const yk__native_message *m = g->messages; m; m = m->next)
        if (!m->done && (m->local_rank >= 0) == away)
            return true;
    return false;
}

yk_status yk__native_wait(void *state, void *message, double seconds, bool *done)
{
    native *g = state;
    yk__native_message *m = message;
    yk__native_row *row = &g->rows[g->local_rank];
    double until = 0, looked = 0, seen = 0;
    int spins = MESSAGE_OFFERS + (g->crowded ? 0 : MESSAGE_SPINS);
    for (int spin = 0;; spin++) {
        uint32_t bell = atomic_load(&row->bell);
        bool sleeping = spin >= spins && seconds > 0;
        double now = sleeping ? yk__now() : 0;
        if (sleeping && until == 0)
            until = now + seconds;
        pthread_mutex_lock(&g->message_lock);
        g->transport->progress(g);
        progress(g);
        if (sleeping) {
            if (seen == 0)
                publish_awaited(g, m);
            double still = yk__standstill(&seen, now);
            m->deadline = m->deadline > 0 ? m->deadline + still : now + g->timeout;
            until += still;
        }
        if (!m->done && sleeping) {
            bool look = now - looked > 0.1 || yk__signal_pending();
            look_after(g, m, look);
            looked = look ? now : looked;
        }
        *done = m->done;
        bool away = m->local_rank < 0, others = others_wait(g, away);
        pthread_mutex_unlock(&g->message_lock);
        if (*done || seconds <= 0 || (sleeping && now >= until))
            break;
        if (!sleeping && away) {
            sched_yield();
            continue;
        }
        if (!sleeping) {
            for (; spin < spins && atomic_load_explicit(&row->bell, memory_order_relaxed) == bell; spin++) {
                if (spin < spins - MESSAGE_OFFERS)
                    yk__native_relax();
                else
                    sched_yield();
            }
            continue;
        }
        double nap = until - now < 0.05 ? until - now : 0.05;
        if (others && nap > 0.001)
            nap = 0.001; /* messages of the other kind are looked after between naps */
        if (away) {
            yk__native_control_wait(g, nap);
            continue;
        }
        atomic_fetch_add(&row->bell_sleepers, 1);
        if (m->deadline - now < nap)
            nap = m->deadline - now > 0.001 ? m->deadline - now : 0.001;
        yk__native_sleep(&row->bell, bell, nap);
        atomic_fetch_sub(&row->bell_sleepers, 1);
    }
    if (seen > 0 && *done) {
        pthread_mutex_lock(&g->message_lock);
        publish_awaited(g, NULL);
        pthread_mutex_unlock(&g->message_lock);
    }
    if (*done && m->status)
        yk__error_put(&m->error);
    return *done ? m->status : YK_OK;
}

void yk__native_forget(void *state, void *message)
{
    (void)state;
    free(message);
}

static bool is_wanted(yk__native_slot *slot)
{
    uint32_t state = atomic_load_explicit(&slot->state, memory_order_acquire);
    return state == SLOT_POSTED || state == SLOT_READING;
}

void yk__native_drain_messages(native *g)
{
    double until = yk__now() + g->timeout, looked = 0, seen = 0;
    for (yk__native_buffer *b = g->buffers; b; b = b->next) {
        ptrdiff_t at = b->slot ? ((char *)b->slot - (char *)g->channels) / (ptrdiff_t)sizeof(yk__native_channel) : 0;
        int to = (int)(at % g->local_size);
        while (b->slot && is_wanted(b->slot) && !atomic_load(&g->head->broken) && !atomic_load(&g->rows[to].left)) {
            double now = yk__now();
            bool stopped;
            until += yk__standstill(&seen, now);
            if (now > until || (now - looked > 0.1 && yk__native_is_dead(g, to, &stopped)))
                break;
            looked = now - looked > 0.1 ? now : looked;
            usleep(500);
        }
    }
    while (g->buffers) {
        yk__native_buffer *b = g->buffers;
        g->buffers = b->next;
        yk__region_destroy(b->memory);
        free(b);
    }
}
