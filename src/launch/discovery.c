/*
 * discovery.c - a launcher finds the launchers' store, which node 0 serves, or becomes node 0. Layer: launch.
 *
 * A node that was given no number and has the job's address tries to listen there; the first that does is node 0. Node
 * 0 is a client of its own store, as the others are. The first requests go right behind the proof of the hand-shake: a
 * round trip for each of connecting, the hellos, and the proof with all that is asked and answered. With etcd
 * (register.h) the first who writes the job's view there is node 0, at an address of its own. The thread ends by
 * writing to a pipe; until then nobody else touches the discovery but for its end of the pipe.
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/thread.h"
#include "launch/agents.h"
#include "net/store_session.h"

/* The most addresses of one host name; those beyond are not tried. */
enum { MAX_ADDRESSES = 8 };
/* Seconds that one address may take, so that one that drops all packets leaves time for the others. */
static const double attempt_patience = 10;

typedef struct discovery_thread {
    yk__discovery *discovery;
    int done;
} discovery_thread;

/* Serves on the first of the addresses that can be; the error is in `why`. */
static bool try_serve(yk__discovery *s, const yk__address *addresses, size_t count, char why[YK__WHY_SIZE])
{
    for (size_t i = 0; i < count; i++) {
        if (yk__identity_allows(s->identity, &addresses[i], "the launchers' address") == YK_OK &&
            (s->server = yk__store_server_start(&addresses[i], s->identity, s->serving, &s->client.link.far))) {
            s->everywhere = yk__address_is_any(&s->client.link.far);
            return true;
        }
        snprintf(why, YK__WHY_SIZE, "%.470s", yk_last_error()->message);
        yk_clear_error();
    }
    return false;
}

/* Connects and shakes hands with one address. */
static yk__reason join_address(yk__discovery *s, const yk__address *address, double until, char why[YK__WHY_SIZE])
{
    yk__agent_client *c = &s->client;
    *c = (yk__agent_client){0};
    yk__reason reason = yk__store_link_connect(&c->link, address, s->identity, until, why);
    if (reason)
        return reason;
    s->greet(s->arg, c, s->server != NULL, s->everywhere);
    reason = yk__store_link_wait_open(&c->link, until, why);
    c->heard = yk__now();
    return reason;
}

static yk__reason try_connect(yk__discovery *s, const yk__address *addresses, size_t count, char why[YK__WHY_SIZE])
{
    yk__reason reason = YK__NOT_RESOLVED;
    for (size_t i = 0; i < count && reason != YK__REJECTED && reason != YK__EXHAUSTED; i++) {
        if (yk__identity_allows(s->identity, &addresses[i], "the launchers' address")) {
            snprintf(why, YK__WHY_SIZE, "%.470s", yk_last_error()->message);
            yk_clear_error();
            return YK__REJECTED;
        }
        double now = yk__now(), until = now + attempt_patience < s->deadline ? now + attempt_patience : s->deadline;
        reason = join_address(s, &addresses[i], until, why);
        if (reason == YK__REACHED)
            return reason;
    }
    return reason;
}

/* ---- through etcd ------------------------------------------------------------------------------------------------ */

/* Serves at an address of this node's own; its name for others in `where`. */
static bool serve_own(yk__discovery *s, yk__address *bound, char where[YK__HOST_SIZE + 8], char why[YK__WHY_SIZE])
{
    yk__address own[MAX_ADDRESSES];
    char text[YK__ADDRESS_TEXT];
    size_t count = 1;
    if (s->host)
        count = yk__resolve_to_listen(s->host, s->port, s->identity->has_secret, s->deadline, own, MAX_ADDRESSES, why);
    else if (yk__etcd_local(yk__register_etcd(s->reg), s->deadline, own, why))
        yk__address_set_port(own, s->port);
    else
        count = 0;
    if (!count || !try_serve(s, own, count, why))
        return false;
    *bound = s->client.link.far;
    if (s->everywhere)
        snprintf(where, YK__HOST_SIZE + 8, "%.255s:%d", s->host, yk__address_port(bound));
    else
        snprintf(where, YK__HOST_SIZE + 8, "%s", yk__address_format(bound, text));
    return true;
}

/* Becomes node 0, of a job that has no view, or one of which nobody is left. */
static yk__register_result begin_job(yk__discovery *s, const yk__view *before, yk__address *bound,
                                     char where[YK__HOST_SIZE + 8], char why[YK__WHY_SIZE])
{
    if (!s->server && !serve_own(s, bound, where, why))
        return YK__REGISTER_DENIED;
    yk__view view = {.number = before->number + 1,
                     .term = before->term + 1,
                     .after = before->revision,
                     .keeper = s->id,
                     .count = 1,
                     .nodes = {{.id = s->id}}};
    snprintf(view.where, sizeof(view.where), "%s", where);
    yk__register_result result = yk__register_swap(s->reg, &view, why);
    s->view = view;
    return result;
}

static yk__reason join_keeper(yk__discovery *s, char why[YK__WHY_SIZE])
{
    char host[YK__HOST_SIZE];
    int port;
    yk__address addresses[MAX_ADDRESSES];
    if (yk__host_port_parse(s->view.where, -1, host, &port)) {
        yk_clear_error();
        return YK__NOT_RESOLVED;
    }
    size_t count = yk__resolve(host, port, s->deadline, addresses, MAX_ADDRESSES, why);
    return try_connect(s, addresses, count, why);
}

/* One look at etcd; true when it is done, with s->why set where it failed. */
static bool find_once(yk__discovery *s, yk__address *bound, char where[YK__HOST_SIZE + 8], char why[YK__WHY_SIZE])
{
    char text[YK__WHY_SIZE];
    yk__register_result result = yk__register_look(s->reg, &s->view, why);
    if (result == YK__REGISTER_DONE && !s->view.number && s->may_listen)
        result = begin_job(s, &(yk__view){0}, bound, where, why);
    else if (result == YK__REGISTER_DONE && !s->view.number)
        snprintf(why, YK__WHY_SIZE, "%.200s is not in etcd: node 0 has not come", yk__register_key(s->reg));
    if (result == YK__REGISTER_DENIED || result == YK__REGISTER_FALSE) {
        snprintf(s->why, sizeof(s->why), "%s", why);
        return true;
    }
    if (result != YK__REGISTER_DONE || !s->view.number)
        return false;
    if (s->view.keeper == s->id) {
        yk__address own = *bound;
        if (s->everywhere)
            yk__resolve("127.0.0.1", yk__address_port(bound), s->deadline, &own, 1, text);
        if (join_address(s, &own, s->deadline, text) != YK__REACHED)
            snprintf(s->why, sizeof(s->why), "%.200s: its own store: %s", where, text);
        return true;
    }
    yk__store_server_stop(s->server);
    s->server = NULL;
    if (s->must_listen) {
        snprintf(s->why, sizeof(s->why), "--node-rank 0: %.200s in etcd says that the job is kept at %.200s already",
                 yk__register_key(s->reg), s->view.where);
        return true;
    }
    yk__reason reason = join_keeper(s, why);
    if (reason == YK__REACHED)
        return true;
    if (reason == YK__REJECTED || reason == YK__EXHAUSTED) {
        snprintf(s->why, sizeof(s->why), "%.200s: %s", s->view.where, why);
        return true;
    }
    if (s->may_listen && yk__register_is_over(s->reg, &s->view, why)) {
        yk__view before = s->view;
        (void)begin_job(s, &before, bound, where, why); /* the next look has what came of it */
    }
    return false;
}

static void find_by_register(yk__discovery *s)
{
    char why[YK__WHY_SIZE] = "", where[YK__HOST_SIZE + 8] = "";
    yk__address bound = {0};
    double begin = yk__now();
    for (double wait = 0.005; !find_once(s, &bound, where, why); wait = wait < 0.3 ? 1.5 * wait : 0.4) {
        if (yk__now() + wait >= s->deadline) {
            snprintf(s->why, sizeof(s->why), "%s (tried for %.3g s)", why, yk__now() - begin);
            return;
        }
        poll(NULL, 0, (int)(1000 * wait) + 1);
    }
}

static void find_by_address(yk__discovery *s)
{
    /* The last answer of any kind: systems answer only some of many packets that are rejected. */
    char why[YK__WHY_SIZE] = "", taken[YK__WHY_SIZE] = "", answer[YK__WHY_SIZE] = "";
    yk__reason answered = YK__NO_ANSWER;
    double begin = yk__now();
    for (double wait = 0.005;; wait = wait < 0.3 ? 1.5 * wait : 0.4) {
        yk__address addresses[MAX_ADDRESSES];
        size_t count = s->may_listen ? yk__resolve_to_listen(s->host, s->port, s->identity->has_secret, s->deadline,
                                                             addresses, MAX_ADDRESSES, why)
                                     : 0;
        if (count) {
            if (try_serve(s, addresses, count, taken)) {
                yk__address bound = s->client.link.far;
                if (s->everywhere)
                    yk__resolve("127.0.0.1", s->port, s->deadline, &bound, 1, why);
                if (join_address(s, &bound, s->deadline, why) != YK__REACHED)
                    snprintf(s->why, sizeof(s->why), "%.200s:%d: its own store: %s", s->host, s->port, why);
                break;
            }
            if (s->must_listen) {
                snprintf(s->why, sizeof(s->why), "%s%s", taken,
                         strstr(taken, "no interface") ? " (node 0 is the one that has --master-addr)" : "");
                break;
            }
        }
        if (!s->must_listen && (!count || yk__address_is_any(&addresses[0])))
            count = yk__identity_narrow(s->identity, addresses,
                                        yk__resolve(s->host, s->port, s->deadline, addresses, MAX_ADDRESSES, why));
        yk__reason reason = s->must_listen ? YK__NOT_RESOLVED : try_connect(s, addresses, count, why);
        if (reason == YK__REACHED)
            break;
        if (reason == YK__REFUSED || reason == YK__UNREACHABLE) {
            memcpy(answer, why, sizeof(answer));
            answered = reason;
        } else if (reason == YK__NO_ANSWER && *answer) {
            memcpy(why, answer, sizeof(why));
            reason = answered;
        }
        double now = yk__now();
        if (reason == YK__REJECTED || reason == YK__EXHAUSTED || now + wait >= s->deadline) {
            bool held = strstr(taken, "in use") != NULL;
            snprintf(s->why, sizeof(s->why), "%.200s:%d: %.350s%s%.350s%s", s->host, s->port, why, held ? " (" : "",
                     held ? taken : "", held ? ")" : "");
            if (reason != YK__REJECTED && reason != YK__EXHAUSTED) {
                size_t used = strlen(s->why);
                snprintf(s->why + used, sizeof(s->why) - used, " (tried for %.3g s%s)", now - begin,
                         reason == YK__REFUSED       ? "; is `yoke run` started on node 0, with this port?"
                         : reason == YK__UNREACHABLE ? "; is the host up, does a firewall reject the connection?"
                                                     : "");
            }
            break;
        }
        poll(NULL, 0, (int)(1000 * wait) + 1);
    }
}

static void *discover(void *arg)
{
    discovery_thread *t = arg;
    if (t->discovery->reg)
        find_by_register(t->discovery);
    else
        find_by_address(t->discovery);
    (void)!write(t->done, "", 1);
    close(t->done);
    free(t);
    return NULL;
}

bool yk__discovery_start(yk__discovery *s)
{
    int ends[2];
    discovery_thread *t = malloc(sizeof(*t));
    pthread_t thread;
    s->client.link.fd = -1;
    if (!t || pipe2(ends, O_CLOEXEC)) {
        free(t);
        return false;
    }
    *t = (discovery_thread){s, ends[1]};
    s->ready = ends[0];
    if (yk__thread_create_open(&thread, discover, t)) {
        close(ends[0]);
        close(ends[1]);
        free(t);
        return false;
    }
    pthread_detach(thread);
    return true;
}
