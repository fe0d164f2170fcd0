/*
 * departures.c - processes that ended while the others went on, as reports say them. Layer: launch.
 *
 * A line of JSON of a running job is an event, which the report at the end, that is none, tells apart by its "event":
 * {"event":"lost","message":"rank 3 (t 2) is lost: exit code 3 ...","job_id":"...","host":"a","time":1700000000,
 *  "rank":3,"local_rank":2,"pid":7,"exit_code":3,"signal":null,"lost":true,"incarnation":0,"role":"t","role_rank":2,
 *  "seconds":1.5,"why":null}
 */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include "base/core.h"
#include "base/escape.h"
#include "base/json_line.h"
#include "launch/departures.h"
#include "launch/hang.h"
#include "launch/member_changes.h"
#include "launch/outcome.h"

yk__departure yk__departure_of(const worker *w, const char *host)
{
    yk__departure d = {.rank = w->rank,
                       .local_rank = w->local_rank,
                       .pid = (int)w->pid,
                       .status = w->status,
                       .incarnation = w->incarnation,
                       .lost = w->lost,
                       .seconds = w->ended > w->began ? w->ended - w->began : 0,
                       .role_rank = w->role_rank};
    snprintf(d.host, sizeof(d.host), "%.63s", host ? host : "");
    snprintf(d.role, sizeof(d.role), "%s", w->role ? w->role : "");
    snprintf(d.why, sizeof(d.why), "%s", w->why);
    return d;
}

bool yk__departure_keep(yk__departure **table, int *count, const yk__departure *departure)
{
    int at = 0;
    while (at < *count && (*table)[at].rank < departure->rank)
        at++;
    if (at == *count || (*table)[at].rank != departure->rank) {
        yk__departure *more = realloc(*table, ((size_t)*count + 1) * sizeof(**table));
        if (!more)
            return false;
        memmove(more + at + 1, more + at, (size_t)(*count - at) * sizeof(*more));
        *table = more;
        ++*count;
    }
    (*table)[at] = *departure;
    return true;
}

/* ---- text -------------------------------------------------------------------------------------------------------- */
static const char *departure_name(const yk__departure *d, char text[YK__WORKER_NAME])
{
    const worker w = {.rank = d->rank, .role = d->role[0] ? d->role : NULL, .role_rank = d->role_rank};
    return yk__worker_name(&w, text);
}

enum { HOW = WORKER_WHY + 64 };

/* "exit code 3"; "killed by yoke run: no progress for 60 s ...". */
static const char *departure_how(const yk__departure *d, char text[HOW])
{
    char ending[YK__ENDING_TEXT];
    if (d->why[0])
        snprintf(text, HOW, "killed by yoke run: %s", d->why);
    else
        snprintf(text, HOW, "%s", yk__ending_describe(d->status, ending));
    return text;
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */
static json_t *text_json(const char *text)
{
    return yk__json_text(text, strlen(text));
}

static json_t *departure_json(const yk__departure *d)
{
    char name[32];
    bool signalled = WIFSIGNALED(d->status);
    json_t *object =
        json_pack("{s:i,s:i,s:i,s:o,s:o,s:b,s:i,s:o,s:o,s:o}", "rank", d->rank, "local_rank", d->local_rank, "pid",
                  d->pid, "exit_code", signalled ? json_null() : json_integer(WEXITSTATUS(d->status)), "signal",
                  signalled ? json_string(yk__signal_name(WTERMSIG(d->status), name)) : json_null(), "lost", d->lost,
                  "incarnation", d->incarnation, "host", text_json(d->host), "seconds", yk__json_fixed(d->seconds, 3),
                  "why", d->why[0] ? text_json(d->why) : json_null());
    if (object && d->role[0]) {
        json_object_set_new(object, "role", text_json(d->role));
        json_object_set_new(object, "role_rank", json_integer(d->role_rank));
    }
    return object;
}

void yk__event_say(group *g, const char *event, const char *message, json_t *members)
{
    char plain[2000];
    char *line = NULL;
    if (g->json) {
        json_t *object = json_pack("{s:s,s:o,s:o,s:o,s:I}", "event", event, "message", text_json(message), "job_id",
                                   text_json(g->job ? g->job : ""), "host", text_json(g->host ? g->host : ""), "time",
                                   (json_int_t)time(NULL));
        if (object && members)
            json_object_update(object, members);
        line = yk__json_line(object, YK__JSON_DIGITS);
    }
    json_decref(members);
    if (line)
        yk__relay_say(g->err, "%s", line);
    else
        yk__relay_say(g->err, "yoke run: %s\n", yk__escape_lines(message, strlen(message), plain, sizeof(plain)));
    free(line);
}

void yk__departure_say(group *g, const worker *w, double delay)
{
    char name[YK__WORKER_NAME], how[HOW], message[HOW + 700], doing[400];
    const yk__departure d = yk__departure_of(w, g->host);
    size_t used =
        (size_t)snprintf(message, sizeof(message), "%s %s: %s (pid %d, after %.1f s); ", departure_name(&d, name),
                         d.lost ? "is lost" : "failed", departure_how(&d, how), d.pid, d.seconds);
    if (d.lost)
        used += (size_t)snprintf(message + used, sizeof(message) - used, "the others go on");
    else
        used += (size_t)snprintf(message + used, sizeof(message) - used, "it is started again in %.3g s", delay);
    if (!d.lost && w->failures > 1 && used < sizeof(message))
        used += (size_t)snprintf(message + used, sizeof(message) - used, ", after %d failures in a row", w->failures);
    json_t *members = g->json ? departure_json(&d) : NULL;
    if (members && !d.lost)
        json_object_set_new(members, "again_in_s", yk__json_fixed(delay, 3));
    if (members && !d.lost)
        json_object_set_new(members, "failures", json_integer(w->failures));
    bool known = yk__hang_doing(g->hang, (int)(w - g->workers), doing, sizeof(doing));
    if (members)
        json_object_set_new(members, "doing", known ? text_json(doing) : json_null());
    else if (known && used < sizeof(message))
        snprintf(message + used, sizeof(message) - used, "\n  it was %s", doing);
    if (yk__alone_view(g) > 0)
        yk__change_note(g, d.lost ? YK__CHANGE_ENDED : YK__CHANGE_RESTARTED, g->change.since > 0, message);
    yk__event_say(g, d.lost ? "lost" : "restart", message, members);
}

void yk__departure_left(group *g, const worker *w)
{
    char name[YK__WORKER_NAME], message[200];
    const yk__departure d = yk__departure_of(w, g->host);
    snprintf(message, sizeof(message), "%s has left, with its step complete (pid %d, after %.1f s); the others go on",
             departure_name(&d, name), d.pid, d.seconds);
    yk__change_note(g, YK__CHANGE_LEFT, false, message);
    yk__event_say(g, "left", message, g->json ? departure_json(&d) : NULL);
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */
/* The next one in the order of ranks, here or on another node; false: there is none. *w and *o are the next of either.
 */
static bool departure_next(const group *g, const yk__departure *others, int count, int *w, int *o, yk__departure *next,
                           bool *elsewhere)
{
    while (*w < g->count && !g->workers[*w].lost && g->workers[*w].incarnation == 0)
        ++*w;
    bool here = *w < g->count, there = *o < count;
    if (!here && !there)
        return false;
    *elsewhere = there && (!here || others[*o].rank < g->workers[*w].rank);
    *next = *elsewhere ? others[*o] : yk__departure_of(&g->workers[*w], g->host);
    ++*(*elsewhere ? o : w);
    return true;
}

void yk__departures_print(group *g, const yk__departure *others, int count)
{
    char name[YK__WORKER_NAME], how[HOW], text[HOW + 400], plain[2000], host[100];
    yk__departure d;
    bool elsewhere;
    for (int w = 0, o = 0; departure_next(g, others, count, &w, &o, &d, &elsewhere);) {
        snprintf(host, sizeof(host), "host %s", d.host);
        if (d.lost)
            snprintf(text, sizeof(text), "%s was lost: %s (%s%spid %d, after %.1f s)", departure_name(&d, name),
                     departure_how(&d, how), elsewhere ? host : "", elsewhere ? ", " : "", d.pid, d.seconds);
        else
            snprintf(text, sizeof(text), "%s was started again %d time%s%s%s%s", departure_name(&d, name),
                     d.incarnation, d.incarnation > 1 ? "s" : "", elsewhere ? " (" : "", elsewhere ? host : "",
                     elsewhere ? ")" : "");
        yk__relay_say(g->err, "yoke run: %s\n", yk__escape_lines(text, strlen(text), plain, sizeof(plain)));
    }
}

json_t *yk__departures_json(const group *g, const yk__departure *others, int count)
{
    yk__departure d;
    bool elsewhere;
    json_t *list = NULL;
    for (int w = 0, o = 0; departure_next(g, others, count, &w, &o, &d, &elsewhere);) {
        if (!list && !(list = json_array()))
            return NULL;
        json_array_append_new(list, departure_json(&d));
    }
    return list;
}

const char *yk__departures_count(const group *g, const yk__departure *others, int count, char text[80])
{
    yk__departure d;
    bool elsewhere;
    int lost = 0, again = 0;
    for (int w = 0, o = 0; departure_next(g, others, count, &w, &o, &d, &elsewhere);) {
        lost += d.lost;
        again += !d.lost;
    }
    char was_lost[40] = "";
    if (lost)
        snprintf(was_lost, sizeof(was_lost), "%d rank%s lost", lost, lost > 1 ? "s were" : " was");
    if (again)
        snprintf(text, 80, "%s%s%d%s %s started again", was_lost, lost ? ", " : "", again,
                 lost        ? ""
                 : again > 1 ? " ranks"
                             : " rank",
                 again > 1 ? "were" : "was");
    else
        snprintf(text, 80, "%s", was_lost);
    return text;
}
