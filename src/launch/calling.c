/*
 * calling.c - the launcher that keeps the list of nodes after another one calls at the addresses at which the list was
 * kept before, and tells who listens there where it is kept now. Layer: launch.
 *
 * It does so in a thread, since a host that is down answers nothing, and the keeper may not wait. The call is a report
 * (REPORT_RECALL) in the launchers' store there, behind the hand-shake of the job: a launcher of another job, or with
 * another secret, is not called, and learns nothing. A connection stays, and the call is repeated on it, so that it is
 * known when who was reached has ended. Invariants: the thread alone uses the targets; memory belongs to the thread and
 * to who has started it, and the last of them frees it.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/escape.h"
#include "base/thread.h"
#include "launch/recall.h"

/* Seconds: between two looks; for the name, the connection and the hand-shake at an address; until it is called again,
 * once it is reached; for the answer; and until somebody else is tried again who is there. recall.c waits for a few
 * looks. */
static const double call_every = 0.2, patience = 1, repeat_every = 1, answer_patience = 2, rejected_pause = 0.4;
/* The most addresses of one name that are tried. */
enum { NAME_ADDRESSES = 4 };

typedef struct target {
    char name[YK__HOST_SIZE + 8];
    yk__agent_client client; /* gone: nobody is reached there */
    double next, called;
    bool said;
} target;

struct yk__calling {
    yk__identity identity;
    uint64_t id, term;
    char where[YK__ADDRESS_TEXT];
    yk__address own;
    target targets[YK__MOST_FORMER];
    int count;
    int lines[2]; /* a pipe with what is to be said */
    _Atomic bool may, ends;
    atomic_int users;
};

/* True if the list has the word. */
static bool has_address(const char *former, const char *name)
{
    size_t size = strlen(name);
    for (const char *at = former; *at; at += strspn(at, " ")) {
        size_t length = strcspn(at, " ");
        if (length == size && memcmp(at, name, size) == 0)
            return true;
        at += length;
    }
    return false;
}

void yk__former_add(char former[YK__FORMER_TEXT], const char *name)
{
    size_t used = strlen(former);
    int count = 0;
    for (const char *at = former; *at; at++)
        count += *at == ' ';
    if (*name && !strchr(name, ' ') && !has_address(former, name) && count + 1 < YK__MOST_FORMER &&
        used + strlen(name) + 2 <= YK__FORMER_TEXT)
        snprintf(former + used, YK__FORMER_TEXT - used, "%s%s", used ? " " : "", name);
}

static void drop(yk__calling *c)
{
    if (atomic_fetch_sub(&c->users, 1) > 1)
        return;
    for (int i = 0; i < c->count; i++)
        yk__agent_client_clear(&c->targets[i].client);
    yk__identity_clear(&c->identity);
    for (int i = 0; i < 2; i++)
        if (c->lines[i] >= 0)
            close(c->lines[i]);
    free(c);
}

/* Somebody is there whom this job's secret or name does not let in, or not as one of these. */
static void say_other(yk__calling *c, target *p, const char *why)
{
    char plain[YK__WHY_SIZE], text[YK__WHY_SIZE] = "";
    if (p->said)
        return;
    p->said = true;
    snprintf(text, sizeof(text), "at %.140s, where this job was kept before, is somebody else: %.260s", p->name,
             yk__escape(why, strlen(why), plain, sizeof(plain)));
    (void)!write(c->lines[1], text, sizeof(text)); /* less than PIPE_BUF: whole or not at all */
}

static void send_call(yk__calling *c, target *p)
{
    yk__wire call = yk__agent_report(REPORT_RECALL, c->id);
    yk__wire_put_u64(&call, c->term);
    yk__agent_put_text(&call, c->where);
    yk__agent_put_text(&call, c->identity.host);
    yk__wire_put_u32(&call, c->identity.pid);
    yk__agent_client_push(&p->client, "reports", &call);
    yk__wire_clear(&call);
    p->called = yk__now();
    p->next = p->called + repeat_every;
}

/* Connects to the address, where there is somebody, and calls. */
static void reach(yk__calling *c, target *p)
{
    char host[YK__HOST_SIZE], why[YK__WHY_SIZE];
    int port;
    yk__address addresses[NAME_ADDRESSES];
    double until = yk__now() + patience;
    p->next = yk__now() + call_every;
    if (yk__host_port_parse(p->name, -1, host, &port)) {
        yk_clear_error();
        return;
    }
    size_t count =
        yk__identity_narrow(&c->identity, addresses, yk__resolve(host, port, until, addresses, NAME_ADDRESSES, why));
    for (size_t i = 0; i < count && !atomic_load(&c->ends); i++) {
        if (yk__address_equal(&addresses[i], &c->own) ||
            yk__identity_allows(&c->identity, &addresses[i], "the address")) {
            yk_clear_error();
            continue;
        }
        p->client = (yk__agent_client){.heard = yk__now()};
        yk__reason reason = yk__store_link_connect(&p->client.link, &addresses[i], &c->identity, until, why);
        if (reason == YK__REACHED)
            reason = yk__store_link_wait_open(&p->client.link, until, why);
        if (reason == YK__REACHED) {
            send_call(c, p);
            return;
        }
        p->client = (yk__agent_client){.gone = true, .link.fd = -1};
        if (reason == YK__REJECTED) {
            say_other(c, p, why);
            p->next = yk__now() + rejected_pause;
        }
    }
}

static void step(yk__calling *c, target *p)
{
    yk__reader value;
    double now = yk__now();
    if (p->client.gone) {
        if (now >= p->next)
            reach(c, p);
        return;
    }
    yk__agent_client_move(&p->client);
    while (yk__agent_client_next(&p->client, &value))
        ;
    bool silent = p->client.unanswered > 0 && now > p->called + answer_patience;
    if (p->client.gone || silent) {
        yk__agent_client_clear(&p->client);
        p->next = now;
    } else if (now >= p->next && p->client.unanswered == 0) {
        send_call(c, p);
        (void)yk__agent_client_next(&p->client, &value); /* which sends it */
    }
}

static void *call_all(void *argument)
{
    yk__calling *c = argument;
    while (!atomic_load(&c->ends)) {
        for (int i = 0; i < c->count && atomic_load(&c->may) && !atomic_load(&c->ends); i++)
            step(c, &c->targets[i]);
        poll(NULL, 0, (int)(1000 * call_every));
    }
    drop(c);
    return NULL;
}

yk__calling *yk__calling_start(const yk__identity *identity, uint64_t id, uint64_t term, const char *where,
                               const char *former)
{
    char host[YK__HOST_SIZE], why[YK__WHY_SIZE];
    int port;
    pthread_t thread;
    yk__calling *c = yk__calloc(1, sizeof(*c));
    if (!c)
        return NULL;
    c->identity = *identity;
    c->id = id;
    c->term = term;
    c->lines[0] = c->lines[1] = -1;
    atomic_init(&c->users, 1);
    snprintf(c->where, sizeof(c->where), "%s", where);
    if (yk__host_port_parse(where, -1, host, &port) || !yk__resolve(host, port, yk__now() + patience, &c->own, 1, why))
        yk_clear_error();
    for (const char *at = former; *at && c->count < YK__MOST_FORMER; at += strspn(at, " ")) {
        size_t length = strcspn(at, " ");
        target *p = &c->targets[c->count];
        if (length && length < sizeof(p->name)) {
            snprintf(p->name, sizeof(p->name), "%.*s", (int)length, at);
            p->client = (yk__agent_client){.gone = true, .link.fd = -1};
            c->count++;
        }
        at += length;
    }
    if (pipe2(c->lines, O_CLOEXEC | O_NONBLOCK)) {
        yk__fail_errno("the pipe of the thread that calls at %.200s", former);
        drop(c);
        return NULL;
    }
    atomic_store(&c->users, 2);
    int failed = yk__thread_create(&thread, call_all, c);
    if (failed) {
        errno = failed;
        yk__fail_errno("the thread that calls at %.200s", former);
        atomic_store(&c->users, 1);
        drop(c);
        return NULL;
    }
    pthread_detach(thread);
    return c;
}

void yk__calling_may(yk__calling *c, bool may)
{
    if (c)
        atomic_store(&c->may, may);
}

bool yk__calling_said(yk__calling *c, char text[YK__WHY_SIZE])
{
    if (!c || read(c->lines[0], text, YK__WHY_SIZE) != YK__WHY_SIZE)
        return false;
    text[YK__WHY_SIZE - 1] = '\0';
    return true;
}

void yk__calling_stop(yk__calling *c)
{
    if (!c)
        return;
    atomic_store(&c->ends, true);
    drop(c);
}
