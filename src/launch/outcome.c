/*
 * outcome.c - how a run of several processes ended, as text and as JSON. Layer: launch.
 *
 * {"message":"rank 1 (...) failed: exit code 3","job_id":"...","host":"a","time":1700000000,"restarts":0,"exit_code":3,
 *  "failure":{"rank":1,"local_rank":1,"host":"a","pid":7,"exit_code":3,"signal":null,"seconds":1.5,"stderr":["..."]},
 *  "others":[{"rank":0,"local_rank":0,"pid":6,"exit_code":null,"signal":"SIGTERM","stopped":true,"killed":false}]}
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include "base/core.h"
#include "base/escape.h"
#include "base/json_line.h"
#include "launch/departures.h"
#include "launch/exit_codes.h"
#include "launch/hang.h"
#include "launch/outcome.h"

void yk__outcome_of_group(yk__outcome *end, const group *g, const char *host)
{
    *end = (yk__outcome){.kind = YK__RUN_DONE};
    snprintf(end->host, sizeof(end->host), "%.63s", host);
    if (g->stuck[0]) {
        end->kind = YK__RUN_HUNG;
        end->code = EXIT_HUNG;
        snprintf(end->text, sizeof(end->text), "%s", g->stuck);
    } else if (g->failed) {
        const worker *w = g->failed;
        end->kind = YK__RUN_FAILED;
        end->code = yk__exit_code(w->status);
        end->rank = w->rank;
        end->local_rank = w->local_rank;
        end->role_rank = w->role_rank;
        snprintf(end->role, sizeof(end->role), "%s", w->role ? w->role : "");
        end->pid = (int)w->pid;
        end->status = w->status;
        end->seconds = w->ended - w->began;
        end->tail = w->err.tail ? yk__relay_tail(&w->err, YK__LAST_LINES) : NULL;
    } else if (g->interrupted) {
        end->kind = YK__RUN_INTERRUPTED;
        end->code = EXIT_SIGNAL + g->interrupted;
        end->signal = g->interrupted;
    }
}

void yk__outcome_clear(yk__outcome *end)
{
    free(end->tail);
    *end = (yk__outcome){.kind = YK__RUN_DONE};
}

const char *yk__worker_name(const worker *w, char text[YK__WORKER_NAME])
{
    if (w->role)
        snprintf(text, YK__WORKER_NAME, "rank %d (%s %d)", w->rank, w->role, w->role_rank);
    else
        snprintf(text, YK__WORKER_NAME, "rank %d", w->rank);
    return text;
}

/* True if it has left a program that survives it (src/elastic/), before anybody asked it to end. */
static bool has_left(const group *g, const worker *w)
{
    return w->pid && !w->running && !w->asked && WIFEXITED(w->status) && WEXITSTATUS(w->status) == 0 &&
           yk__alone_view(g) > 0;
}

/* True if it was there to take the place of another, and had none. */
static bool had_no_place(const group *g, const worker *w)
{
    return w->spare && yk__hang_counter(g->hang, (int)(w - g->workers), "elastic_view") == 0;
}

bool yk__group_saved(const group *g)
{
    bool any = false, all_lost = true;
    for (int i = 0; i < g->count; i++) {
        const worker *w = &g->workers[i];
        all_lost &= w->lost;
        if (w->lost || has_left(g, w) || had_no_place(g, w))
            continue;
        if (!w->pid || w->running || !WIFEXITED(w->status) || WEXITSTATUS(w->status) != EXIT_AGAIN)
            return false;
        any = true;
    }
    return any || all_lost;
}

bool yk__group_finished(const group *g)
{
    bool all = true;
    for (int i = 0; i < g->count; i++) {
        const worker *w = &g->workers[i];
        all &= w->pid && !w->running && !w->asked && WIFEXITED(w->status) && WEXITSTATUS(w->status) == 0;
    }
    return all;
}

void yk__outcome_saved(yk__outcome *end)
{
    yk__outcome_clear(end);
    *end = (yk__outcome){.kind = YK__RUN_SAVED, .code = EXIT_AGAIN};
}

int yk__exit_code(int status)
{
    return WIFSIGNALED(status) ? EXIT_SIGNAL + WTERMSIG(status) : WEXITSTATUS(status);
}

const char *yk__signal_name(int number, char text[32])
{
    const char *name = sigabbrev_np(number);
    if (name)
        snprintf(text, 32, "SIG%s", name);
    else
        snprintf(text, 32, "signal %d", number);
    return text;
}

const char *yk__ending_describe(int status, char text[YK__ENDING_TEXT])
{
    char name[32];
    if (WIFSIGNALED(status))
        snprintf(text, YK__ENDING_TEXT, "killed by %s%s", yk__signal_name(WTERMSIG(status), name),
                 WCOREDUMP(status) ? " (core dumped)" : "");
    else if (status == WORKER_STATUS_UNKNOWN)
        snprintf(text, YK__ENDING_TEXT, "how it ended is not known, because SIGCHLD is ignored");
    else
        snprintf(text, YK__ENDING_TEXT, "exit code %d", WEXITSTATUS(status));
    return text;
}

/* True if a process is asked to stop by this signal: others that end it are its own, or somebody else's. */
static bool stops(int number)
{
    return number == SIGTERM || number == SIGINT || number == SIGHUP || number == SIGQUIT;
}

/* The same of any; "killed by SIGKILL, would not stop". */
static void describe(const worker *w, char *text, size_t size)
{
    char name[32], ending[YK__ENDING_TEXT];
    if (w->lost)
        snprintf(text, size, "lost before: %s", yk__ending_describe(w->status, ending));
    else if (w->running)
        snprintf(text, size, "cannot be killed (it waits for a disk or a network file system)");
    else if (w->killed && WIFSIGNALED(w->status) && WTERMSIG(w->status) == SIGKILL)
        snprintf(text, size, "killed by SIGKILL, would not stop");
    else if (w->asked && WIFSIGNALED(w->status) && !stops(WTERMSIG(w->status)))
        snprintf(text, size, "%s, when it was asked to stop", yk__ending_describe(w->status, ending));
    else if (w->asked && WIFSIGNALED(w->status))
        snprintf(text, size, "stopped by %s%s", yk__signal_name(WTERMSIG(w->status), name),
                 WCOREDUMP(w->status) ? " (core dumped)" : "");
    else if (w->asked)
        snprintf(text, size, "stopped, exit code %d", WEXITSTATUS(w->status));
    else
        snprintf(text, size, "%s", yk__ending_describe(w->status, ending));
}

/* "rank 1" or "ranks 0, 2-5" of the processes that ended with this text; marks them as reported. */
static void say_ranks(group *g, const worker *but, const char *text, bool *reported)
{
    char ranks[512] = "", other[96];
    size_t used = 0;
    int count = 0;
    for (int i = 0; i < g->count; i++) {
        int last = i;
        for (; last < g->count && &g->workers[last] != but; last++) {
            describe(&g->workers[last], other, sizeof(other));
            if (!g->workers[last].pid || strcmp(other, text) != 0)
                break;
            reported[last] = true;
        }
        if (last == i)
            continue;
        int from = g->workers[i].rank, to = g->workers[last - 1].rank;
        count += last - i;
        if (used < sizeof(ranks) - 32) {
            used += (size_t)snprintf(ranks + used, sizeof(ranks) - used, "%s%d", used ? ", " : "", from);
            if (to > from)
                used += (size_t)snprintf(ranks + used, sizeof(ranks) - used, "%s%d", to == from + 1 ? ", " : "-", to);
        } else if (ranks[used - 1] != '.') {
            used += (size_t)snprintf(ranks + used, sizeof(ranks) - used, ", ...");
        }
        i = last;
    }
    yk__relay_say(g->err, "  %s %s: %s\n", count > 1 ? "ranks" : "rank", ranks, text);
}

/* The process that the end names, where it is one of this node. */
static const worker *cause_of(const group *g, const yk__outcome *end)
{
    bool here = end->kind == YK__RUN_FAILED && g->failed && g->failed->rank == end->rank;
    return here ? g->failed : NULL;
}

const char *yk__outcome_describe(const yk__outcome *end, const char *host, char text[YK__OUTCOME_TEXT])
{
    char how[YK__ENDING_TEXT];
    if (end->kind == YK__RUN_FAILED) {
        yk__ending_describe(end->status, how);
        const worker failed = {.rank = end->rank, .role = end->role[0] ? end->role : NULL, .role_rank = end->role_rank};
        char name[YK__WORKER_NAME];
        snprintf(text, YK__OUTCOME_TEXT, "%s failed: %s (local rank %d, host %s, pid %d, after %.1f s)",
                 yk__worker_name(&failed, name), how, end->local_rank, end->host, end->pid, end->seconds);
    } else if (end->kind == YK__RUN_INTERRUPTED) {
        bool here = strcmp(end->host, host) == 0;
        snprintf(text, YK__OUTCOME_TEXT, "%s%s%s: stopped", yk__signal_name(end->signal, how), here ? "" : " on host ",
                 here ? "" : end->host);
    } else {
        snprintf(text, YK__OUTCOME_TEXT, "%s", end->text);
    }
    return text;
}

const char *yk__outcome_hint(const yk__outcome *end)
{
    if (end->kind == YK__RUN_FAILED && WIFSIGNALED(end->status) && WTERMSIG(end->status) == SIGKILL)
        return "nobody here sent that signal: where memory ran out, the kernel did (see dmesg)";
    return NULL;
}

void yk__outcome_print(group *g, const yk__outcome *end, const yk__outcome_context *facts)
{
    char text[YK__OUTCOME_TEXT];
    const char *hint = yk__outcome_hint(end);
    const worker *one = cause_of(g, end);
    yk__outcome_describe(end, facts->host, text);
    char plain[4096];
    yk__relay_say(g->err, "yoke run: %s\n", yk__escape_lines(text, strlen(text), plain, sizeof(plain)));
    if (end->kind == YK__RUN_FAILED) {
        if (hint)
            yk__relay_say(g->err, "  %s\n", hint);
        if (end->tail && *end->tail) {
            yk__relay_say(g->err, "  its last lines on stderr:\n");
            for (char *line = end->tail, *last; *line; line = *last ? last + 1 : last) {
                last = strchrnul(line, '\n');
                yk__relay_say(g->err, "    %s\n", yk__escape(line, (size_t)(last - line), plain, sizeof(plain)));
            }
        }
        if (end->text[0])
            yk__relay_say(g->err, "  %s\n", yk__escape_lines(end->text, strlen(end->text), plain, sizeof(plain)));
    }
    if (facts->pages && *facts->pages)
        yk__relay_say(g->err, "  what each rank of this node was doing: %s\n",
                      yk__escape(facts->pages, strlen(facts->pages), plain, sizeof(plain)));
    bool *reported = calloc((size_t)g->count, sizeof(*reported));
    for (int i = 0; reported && i < g->count; i++) {
        if (reported[i] || &g->workers[i] == one || !g->workers[i].pid)
            continue;
        describe(&g->workers[i], text, sizeof(text));
        say_ranks(g, one, text, reported);
    }
    free(reported);
}

/* ---- JSON ------------------------------------------------------------------------------------------------------- */

static json_t *text_json(const char *text)
{
    return yk__json_text(text, strlen(text));
}

/* The members that every process has. */
static json_t *worker_json(const worker *w)
{
    char name[32];
    bool by_signal = !w->running && WIFSIGNALED(w->status);
    json_t *code = w->running || by_signal ? json_null() : json_integer(WEXITSTATUS(w->status));
    json_t *signal = by_signal ? json_string(yk__signal_name(WTERMSIG(w->status), name)) : json_null();
    json_t *object = json_pack("{s:i,s:i,s:i,s:o,s:o}", "rank", w->rank, "local_rank", w->local_rank, "pid",
                               (int)w->pid, "exit_code", code, "signal", signal);
    if (object && w->role) {
        json_object_set_new(object, "role", text_json(w->role));
        json_object_set_new(object, "role_rank", json_integer(w->role_rank));
    }
    if (object && w->rule && w->rule->on_failure != YK__ON_FAILURE_END) {
        json_object_set_new(object, "lost", json_boolean(w->lost));
        json_object_set_new(object, "incarnation", json_integer(w->incarnation));
    }
    return object;
}

/* The last lines, one string each. */
static json_t *lines_json(const char *tail)
{
    json_t *lines = json_array();
    int failed = lines == NULL;
    for (const char *line = tail, *last; !failed && line && *line; line = *last ? last + 1 : last) {
        last = strchrnul(line, '\n');
        failed = json_array_append_new(lines, yk__json_text(line, (size_t)(last - line)));
    }
    if (!failed)
        return lines;
    json_decref(lines);
    return NULL;
}

/* Adds the second object's members to the first; takes over both. */
static json_t *joined(json_t *object, json_t *more)
{
    int failed = !object || !more || json_object_update(object, more);
    json_decref(more);
    if (!failed)
        return object;
    json_decref(object);
    return NULL;
}

static json_t *failure_json(const yk__outcome *end)
{
    worker failed = {.rank = end->rank,
                     .local_rank = end->local_rank,
                     .pid = end->pid,
                     .status = end->status,
                     .role = end->role[0] ? end->role : NULL,
                     .role_rank = end->role_rank};
    return joined(worker_json(&failed), json_pack("{s:o,s:o,s:o}", "host", text_json(end->host), "seconds",
                                                  yk__json_fixed(end->seconds, 3), "stderr", lines_json(end->tail)));
}

/* The processes of this node but the one that the end names. */
static json_t *others_json(const group *g, const worker *one)
{
    json_t *list = json_array();
    int failed = list == NULL;
    for (int i = 0; i < g->count && !failed; i++) {
        const worker *w = &g->workers[i];
        if (w == one || !w->pid)
            continue;
        failed = json_array_append_new(
            list, joined(worker_json(w), json_pack("{s:b,s:b}", "stopped", w->asked, "killed", w->killed)));
    }
    if (!failed)
        return list;
    json_decref(list);
    return NULL;
}

char *yk__outcome_json(const group *g, const yk__outcome *end, const yk__outcome_context *facts)
{
    char message[YK__OUTCOME_TEXT];
    if (end->kind == YK__RUN_FAILED) {
        char how[YK__ENDING_TEXT];
        yk__ending_describe(end->status, how);
        if (end->role[0])
            snprintf(message, sizeof(message), "rank %d (%s %d, local rank %d, host %s, pid %d) failed: %s", end->rank,
                     end->role, end->role_rank, end->local_rank, end->host, end->pid, how);
        else
            snprintf(message, sizeof(message), "rank %d (local rank %d, host %s, pid %d) failed: %s", end->rank,
                     end->local_rank, end->host, end->pid, how);
    } else if (end->kind == YK__RUN_DONE) {
        char departed[80];
        yk__departures_count(g, facts->departed, facts->departed_count, departed);
        snprintf(message, sizeof(message), "the job ended well%s%s", *departed ? "; " : "", departed);
    } else {
        yk__outcome_describe(end, facts->host, message);
    }
    json_t *failure = end->kind == YK__RUN_FAILED ? failure_json(end) : json_null();
    json_t *object = json_pack("{s:o,s:o,s:o,s:I,s:I,s:i,s:o,s:o}", "message", text_json(message), "job_id",
                               text_json(facts->job), "host", text_json(facts->host), "time", (json_int_t)time(NULL),
                               "restarts", (json_int_t)facts->restarts, "exit_code", end->code, "failure", failure,
                               "others", others_json(g, cause_of(g, end)));
    if (object && facts->pages && *facts->pages)
        json_object_set_new(object, "pages", text_json(facts->pages));
    json_t *departed = yk__departures_json(g, facts->departed, facts->departed_count);
    if (object && departed)
        json_object_set(object, "departed", departed);
    json_decref(departed);
    return yk__json_line(object, YK__JSON_DIGITS);
}
