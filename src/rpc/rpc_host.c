/*
 * rpc_host.c - connections between workers of one host: their messages go through memory. Layer: rpc.
 *
 * Note [Memory of two workers]
 * Who has connected to a worker of its own host makes a memory file for the pair: a page with a number that nobody can
 * guess, and a ring in each direction. It names the file, and that of its bell, in the message SHARE; the other opens
 * them by the descriptors of that process (host/process.h), compares the number, writes one of its own beside it, and
 * names that and its own bell in SHARED. What the caller then reads in the memory proves that both have the same. From
 * there on messages go through the rings; the socket stays as it is, and its end is the end of the connection. Where a
 * step fails (other users, other name spaces, no such system call) messages go over the socket, as between hosts.
 *
 * Invariants: rings are written and read with the agent's lock. The bell of this process is never unmapped: a thread
 * may still look at it when the agent has ended.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/thread.h"
#include "rpc/rpc_agent.h"

/* NUMBER: bytes of each side's number. TURN: frames of a ring that are taken before the next ring's. NAP: nanoseconds
 * between two looks of the helper while there is work, and IDLE: looks without work before it sleeps. */
enum { NUMBER = 16, TURN = 256, NAP = 50000, IDLE = 20, PAGE = YK__RPC_PAGE };

typedef struct pair_head {
    unsigned char caller[NUMBER], worker[NUMBER];
} pair_head;

_Static_assert(sizeof(yk__ring_words) <= PAGE && sizeof(pair_head) <= PAGE, "a page for each");

/* ---- the bell ---------------------------------------------------------------------------------------------------- */

bool yk__rpc_bell_make(void)
{
    if (yk__rpc.bell && yk__rpc.bell_pid == getpid())
        return true;
    if (yk__rpc.bell) /* the parent's: this process was forked */
        close(yk__rpc.bell_file.fd);
    yk__rpc.bell = yk__shared_create(PAGE, &yk__rpc.bell_file);
    yk__rpc.bell_pid = getpid();
    return yk__rpc.bell != NULL;
}

/* True if a listener may spin: there are two cores for each worker of this host. With fewer, the one that it waits for
 * may have been put on its own core, where it would keep it from answering. */
static bool spin_is_cheap(void)
{
    static int cores;
    if (!cores)
        cores = yk__cores();
    int here = 0;
    for (int i = 0; i < yk__rpc.member_count; i++)
        here += !yk__rpc.members[i].gone && strcmp(yk__rpc.members[i].host, yk__rpc.identity.host) == 0;
    return 2 * here <= cores;
}

/* ---- the hand-shake ---------------------------------------------------------------------------------------------- */

static void file_put(yk__wire *out, const yk__shared_file *file)
{
    yk__wire_put_u32(out, (uint32_t)file->fd);
    yk__wire_put_u64(out, file->inode);
    yk__wire_put_u64(out, file->bytes);
}

static yk__shared_file file_read(yk__reader *r)
{
    yk__shared_file file = {.fd = (int32_t)yk__read_u32(r)};
    file.inode = yk__read_u64(r);
    file.bytes = yk__read_u64(r);
    return file;
}

static yk__ring ring_at(unsigned char *memory)
{
    return (yk__ring){.words = (yk__ring_words *)(void *)memory, .bytes = memory + PAGE};
}

/* Takes over the memory and the other side's bell. */
static bool pair_set(yk__rpc_link *link, unsigned char *memory, yk__bell *bell)
{
    yk__rpc_pair *pair = yk__calloc(1, sizeof(*pair));
    if (!pair)
        return false;
    unsigned char *calls = memory + PAGE, *replies = calls + PAGE + YK__RING_BYTES;
    pair->memory = memory;
    pair->bell = bell;
    pair->in = ring_at(link->accepted ? calls : replies);
    pair->out = ring_at(link->accepted ? replies : calls);
    link->pair = pair;
    return true;
}

void yk__rpc_pair_clear(yk__rpc_link *link)
{
    yk__rpc_pair *pair = link->pair;
    if (!pair)
        return;
    munmap(pair->memory, YK__RPC_PAIR_BYTES);
    if (pair->bell)
        munmap(pair->bell, PAGE);
    yk__wire_clear(&pair->message);
    free(pair);
    link->pair = NULL;
}

yk__reason yk__rpc_pair_offer(yk__rpc_link *link, double deadline)
{
    YK__QUESTION;
    yk__shared_file file;
    yk__channel *c = &link->channel;
    yk__rpc_lock();
    bool shares = yk__rpc.shares && yk__rpc_bell_make();
    pthread_mutex_unlock(&yk__rpc.lock);
    unsigned char *memory = shares ? yk__shared_create(YK__RPC_PAIR_BYTES, &file) : NULL;
    if (!memory)
        return YK__REACHED;
    pair_head *head = (pair_head *)(void *)memory;
    yk__bell *bell = NULL;
    yk__reason reason = YK__REACHED;
    unsigned type = 0;
    yk__reader r = {0};
    const unsigned char *number = NULL;
    if (getrandom(head->caller, NUMBER, 0) == NUMBER) {
        yk__channel_begin(c, YK__RPC_SHARE);
        file_put(&c->message, &file);
        file_put(&c->message, &yk__rpc.bell_file);
        yk__wire_put(&c->message, head->caller, NUMBER);
        yk__channel_end(c);
        reason = yk__channel_wait_message(c, link->fd, deadline, &type, &r);
        if (reason == YK__REACHED && type == YK__RPC_SHARED && yk__read_u8(&r)) {
            yk__shared_file theirs = file_read(&r);
            number = yk__read_bytes(&r, NUMBER);
            if (number && memcmp(number, head->worker, NUMBER) == 0 && theirs.bytes == PAGE)
                bell = yk__shared_map((int)c->handshake.peer.pid, &theirs);
        }
    }
    close(file.fd);
    if (bell && pair_set(link, memory, bell)) {
        link->pair->open = true;
        return YK__REACHED;
    }
    if (bell)
        munmap(bell, PAGE);
    munmap(memory, YK__RPC_PAIR_BYTES);
    if (reason == YK__REACHED)
        yk__log(YK_LOG_DEBUG,
                "rpc: no shared memory with worker '%s' (process %d), though it is on this host; TCP it is", link->name,
                link->pid);
    return reason;
}

/* Opens what a SHARE names and proves it in the answer. False: no memory is shared. */
static bool pair_accept(yk__rpc_link *link, yk__reader *r, yk__wire *answer)
{
    yk__shared_file file = file_read(r), bell_file = file_read(r);
    const unsigned char *number = yk__read_bytes(r, NUMBER);
    int pid = (int)link->channel.handshake.peer.pid;
    if (r->bad || file.bytes != YK__RPC_PAIR_BYTES || bell_file.bytes != PAGE || !yk__rpc.shares ||
        !yk__rpc_bell_make())
        return false;
    unsigned char *memory = yk__shared_map(pid, &file);
    yk__bell *bell = memory ? yk__shared_map(pid, &bell_file) : NULL;
    pair_head *head = (pair_head *)(void *)memory;
    bool done = bell && memcmp(head->caller, number, NUMBER) == 0;
    unsigned char own[NUMBER];
    done = done && getrandom(own, NUMBER, 0) == NUMBER && yk__rpc_helper_start() && pair_set(link, memory, bell);
    if (done) {
        memcpy(head->worker, own, NUMBER);
        yk__wire_put_u8(answer, 1);
        file_put(answer, &yk__rpc.bell_file);
        yk__wire_put(answer, own, NUMBER);
        return true;
    }
    if (bell)
        munmap(bell, PAGE);
    if (memory)
        munmap(memory, YK__RPC_PAIR_BYTES);
    return false;
}

bool yk__rpc_pair_take_offer(yk__rpc_link *link, yk__reader *r)
{
    YK__QUESTION;
    if (!link->accepted || link->pair || link->calls)
        return false;
    yk__channel *c = &link->channel;
    yk__channel_begin(c, YK__RPC_SHARED);
    if (!pair_accept(link, r, &c->message)) {
        yk__channel_begin(c, YK__RPC_SHARED);
        yk__wire_put_u8(&c->message, 0);
    }
    yk__channel_end(c);
    return true;
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

bool yk__rpc_pair_put(yk__rpc_link *link, unsigned type, const void *head, size_t head_size, const void *data,
                      size_t size)
{
    yk__rpc_pair *pair = link->pair;
    if (!yk__ring_put(&pair->out, type, head, head_size, data, size))
        return false;
    if (link != yk__rpc.quiet)
        yk__bell_ring(pair->bell, link->accepted ? YK__BELL_WAITER : YK__BELL_SERVER);
    return true;
}

/* True if the pair has something for this process: frames, or room that it waits for. */
static bool pair_is_ready(const yk__rpc_link *link)
{
    yk__rpc_pair *pair = link->pair;
    return pair && link->fd >= 0 &&
           (yk__ring_has_frames(&pair->in) || (link->sending && yk__ring_ask_room(&pair->out)));
}

bool yk__rpc_pairs_ready(void)
{
    for (const yk__rpc_link *link = yk__rpc.links; link; link = link->next)
        if (pair_is_ready(link))
            return true;
    return false;
}

int yk__rpc_pair_take(yk__rpc_link *link)
{
    yk__rpc_pair *pair = link->pair;
    int taken = 0;
    link->references++;
    for (unsigned type; taken < TURN && link->fd >= 0 && (type = yk__ring_next(&pair->in, &pair->message));) {
        taken++;
        pair->open = true;
        if (!yk__rpc_link_take(link, type, pair->message.data, pair->message.size) && link->fd >= 0)
            yk__rpc_link_end(link, "it sent a message that this version does not know, or more than it may");
    }
    if (pair->in.broken && link->fd >= 0)
        yk__rpc_link_end(link, "it wrote something into the shared memory that is no message");
    if (yk__ring_fed(&pair->in))
        yk__bell_ring(pair->bell, YK__BELL_HELPER);
    if (link->fd >= 0 && link->sending && yk__ring_ask_room(&pair->out))
        yk__rpc_link_pump(link);
    yk__rpc_link_release(link);
    return taken;
}

int yk__rpc_pairs_take(void)
{
    int taken = 0;
    for (yk__rpc_link *link = yk__rpc.links, *next; link; link = next) {
        next = link->next;
        if (pair_is_ready(link))
            taken += yk__rpc_pair_take(link) + 1;
    }
    if (taken && yk__rpc_pairs_ready()) /* more than a turn: whoever took this one may not come again */
        yk__rpc_listeners_wake(YK__BELL_HELPER);
    return taken;
}

/* ---- files that messages lend ------------------------------------------------------------------------------------ */

bool yk__rpc_link_lends(const yk__rpc_link *link)
{
    return link && link->fd >= 0 && link->pair && link->pair->open;
}

void yk__rpc_lease_add(yk__rpc_link *link, uint64_t number, yk__lender *lender)
{
    if (!lender->count)
        return;
    yk__progress_count(yk__rpc.counters.sent, (int64_t)lender->bytes);
    yk__rpc_lease *lease = link->fd >= 0 ? calloc(1, sizeof(*lease)) : NULL;
    if (!lease) { /* nobody will return the files: they are not used again */
        yk__lender_clear(lender, true);
        return;
    }
    *lease = (yk__rpc_lease){number, *lender, link->leases};
    link->leases = lease;
    *lender = (yk__lender){0};
}

void yk__rpc_lease_end(yk__rpc_link *link, uint64_t number)
{
    for (yk__rpc_lease **at = &link->leases; *at;) {
        yk__rpc_lease *lease = *at;
        if (number && lease->number != number) {
            at = &lease->next;
            continue;
        }
        *at = lease->next;
        yk__lender_clear(&lease->lender, number == 0);
        free(lease);
    }
}

static bool number_send(yk__rpc_link *link, unsigned type, uint64_t number)
{
    yk__wire wire = {0};
    yk__wire_put_u64(&wire, number);
    if (!wire.failed)
        return yk__rpc_link_send(link, type, 0, wire.data, wire.size);
    yk__wire_clear(&wire);
    return false;
}

void yk__rpc_loans_send(void)
{
    if (!yk__loans_waiting())
        return;
    uint64_t number;
    for (yk__rpc_link *link; (link = yk__loan_next_returned(&number));)
        number_send(link, YK__RPC_RETURN, number);
    while (yk__lent_next_forgotten(&number))
        for (yk__rpc_link *link = yk__rpc.links, *next; link; link = next) {
            next = link->next;
            if (yk__rpc_link_lends(link))
                number_send(link, YK__RPC_FORGET, number);
        }
}

/* ---- waiting ----------------------------------------------------------------------------------------------------- */

bool yk__rpc_may_listen(unsigned kind)
{
    return yk__rpc.helper_runs && !(yk__rpc.listening & kind);
}

void yk__rpc_listen(unsigned kind, double deadline)
{
    bool spins = kind != YK__BELL_HELPER && spin_is_cheap();
    yk__bell *bell = yk__rpc.bell;
    yk__rpc_loans_send();
    yk__rpc.listening |= kind;
    yk__bell_arm(bell, kind, spins);
    if (yk__rpc_pairs_ready() || yk__rpc.stopping) {
        yk__bell_disarm(bell, kind);
    } else {
        pthread_mutex_unlock(&yk__rpc.lock);
        yk__bell_sleep(bell, kind, spins, deadline);
        yk__rpc_lock();
    }
    yk__rpc.listening &= ~kind;
    yk__rpc.server_takes = kind == YK__BELL_SERVER;
    yk__rpc_pairs_take();
    yk__rpc.server_takes = false;
}

void yk__rpc_listeners_wake(unsigned kinds)
{
    kinds &= yk__rpc.listening;
    if (kinds)
        yk__bell_wake(yk__rpc.bell, kinds);
}

/* Takes messages while nobody else does, and has threads run the calls that wait longer than a moment. */
static void *helper_run(void *arg)
{
    (void)arg;
    yk_scope scope = yk_scope_begin();
    prctl(PR_SET_TIMERSLACK, 1000);
    int idle = 0;
    uint64_t begun = 0;
    yk__rpc_lock();
    while (!yk__rpc.stopping) {
        bool waiting = yk__rpc.ready_first && yk__rpc.executing < yk__rpc.threads_limit;
        bool stalled = waiting && begun == yk__rpc.begun;
        begun = yk__rpc.begun;
        if (stalled)
            yk__rpc_serve_hurry();
        bool needed =
            !(yk__rpc.listening & (YK__BELL_WAITER | YK__BELL_SERVER)); /* else it would take their messages */
        idle = (needed && yk__rpc_pairs_take()) || waiting ? 0 : idle + 1;
        yk_clear_error();
        if (idle > IDLE) {
            yk__rpc_listen(YK__BELL_HELPER, 0);
            idle = 0;
            continue;
        }
        pthread_mutex_unlock(&yk__rpc.lock);
        nanosleep(&(struct timespec){.tv_nsec = NAP}, NULL);
        yk__rpc_lock();
    }
    pthread_mutex_unlock(&yk__rpc.lock);
    yk_scope_end(scope);
    return NULL;
}

bool yk__rpc_helper_start(void)
{
    if (yk__rpc.helper_runs)
        return true;
    if (yk__rpc.stopping || !yk__rpc_bell_make() || yk__thread_create(&yk__rpc.helper, helper_run, NULL))
        return false;
    pthread_setname_np(yk__rpc.helper, "yoke-rpc-help");
    yk__rpc.helper_runs = true;
    return true;
}
