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
#include "launch/exit_codes.h"
#include "launch/outcome.h"

enum { LAST_LINES = 20 };

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
        end->pid = (int)w->pid;
        end->status = w->status;
        end->seconds = w->ended - w->began;
        end->tail = w->err.tail ? yk__relay_tail(&w->err, LAST_LINES) : NULL;
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

bool yk__group_saved(const group *g)
{
    for (int i = 0; i < g->count; i++) {
        const worker *w = &g->workers[i];
        if (!w->pid || w->running || !WIFEXITED(w->status) || WEXITSTATUS(w->status) != EXIT_AGAIN)
            return false;
    }
    return true;
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

/* Whether a process is asked to stop by this signal: others that end it are its own, or somebody else's. */
static bool stops(int number)
{
    return number == SIGTERM || number == SIGINT || number == SIGHUP || number == SIGQUIT;
}

/* The same of any; "killed by SIGKILL, as it did not stop". */
static void describe(const worker *w, char *text, size_t size)
{
    char name[32], ending[YK__ENDING_TEXT];
    if (w->running)
        snprintf(text, size, "cannot be killed (it waits for a disk or a network file system)");
    else if (w->killed && WIFSIGNALED(w->status) && WTERMSIG(w->status) == SIGKILL)
        snprintf(text, size, "killed by SIGKILL, as it did not stop");
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
        snprintf(text, YK__OUTCOME_TEXT, "rank %d failed: %s (local rank %d, host %s, pid %d, after %.1f s)", end->rank,
                 how, end->local_rank, end->host, end->pid, end->seconds);
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

/* Length of the UTF-8 character at `s`, or 0 where there is none. */
static int character(const unsigned char *s, size_t left)
{
    int length = s[0] < 0x80                   ? 1
                 : s[0] >= 0xc2 && s[0] < 0xe0 ? 2
                 : (s[0] & 0xf0) == 0xe0       ? 3
                 : s[0] >= 0xf0 && s[0] < 0xf5 ? 4
                                               : 0;
    if ((size_t)length > left)
        return 0;
    for (int i = 1; i < length; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    }
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf0 && s[1] < 0x90) ||
        (s[0] == 0xf4 && s[1] > 0x8f))
        return 0; /* too long a form, a surrogate, beyond the last character */
    return length;
}

static void put_string(FILE *out, const char *text, size_t size)
{
    putc('"', out);
    for (size_t i = 0; i < size;) {
        const unsigned char *s = (const unsigned char *)text + i;
        int length = character(s, size - i);
        if (length == 0)
            fputs("\\ufffd", out);
        else if (*s == '"' || *s == '\\')
            fprintf(out, "\\%c", *s);
        else if (*s < 0x20 || *s == 0x7F)
            fprintf(out, "\\u%04x", *s);
        else if (length == 2 && s[0] == 0xC2 && s[1] < 0xA0) /* C1 */
            fprintf(out, "\\u%04x", s[1]);
        else
            fwrite(s, 1, (size_t)length, out);
        i += length ? (size_t)length : 1;
    }
    putc('"', out);
}

static void put_worker(FILE *out, const worker *w)
{
    char name[32];
    fprintf(out, "\"rank\":%d,\"local_rank\":%d,\"pid\":%d,", w->rank, w->local_rank, (int)w->pid);
    if (w->running || WIFSIGNALED(w->status))
        fprintf(out, "\"exit_code\":null,");
    else
        fprintf(out, "\"exit_code\":%d,", WEXITSTATUS(w->status));
    if (!w->running && WIFSIGNALED(w->status))
        fprintf(out, "\"signal\":\"%s\"", yk__signal_name(WTERMSIG(w->status), name));
    else
        fprintf(out, "\"signal\":null");
}

static void put_text(FILE *out, const char *name, const char *text)
{
    fprintf(out, "\"%s\":", name);
    put_string(out, text, strlen(text));
}

static void put_failure(FILE *out, const yk__outcome *end)
{
    worker failed = {.rank = end->rank, .local_rank = end->local_rank, .pid = end->pid, .status = end->status};
    fprintf(out, "{");
    put_worker(out, &failed);
    fprintf(out, ",");
    put_text(out, "host", end->host);
    fprintf(out, ",\"seconds\":%.3f,\"stderr\":[", end->seconds);
    for (const char *line = end->tail, *last; line && *line; line = *last ? last + 1 : last) {
        last = strchrnul(line, '\n');
        put_string(out, line, (size_t)(last - line));
        if (*last && last[1])
            putc(',', out);
    }
    fprintf(out, "]}");
}

char *yk__outcome_json(const group *g, const yk__outcome *end, const yk__outcome_context *facts)
{
    char *text = NULL, message[YK__OUTCOME_TEXT];
    size_t size;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return NULL;
    const worker *one = cause_of(g, end);
    if (end->kind == YK__RUN_FAILED) {
        char how[YK__ENDING_TEXT];
        yk__ending_describe(end->status, how);
        snprintf(message, sizeof(message), "rank %d (local rank %d, host %s, pid %d) failed: %s", end->rank,
                 end->local_rank, end->host, end->pid, how);
    } else {
        yk__outcome_describe(end, facts->host, message);
    }
    fprintf(out, "{");
    put_text(out, "message", message);
    fprintf(out, ",");
    put_text(out, "job_id", facts->job);
    fprintf(out, ",");
    put_text(out, "host", facts->host);
    fprintf(out, ",\"time\":%lld,\"restarts\":%lld,\"exit_code\":%d,\"failure\":", (long long)time(NULL),
            (long long)facts->restarts, end->code);
    if (end->kind == YK__RUN_FAILED)
        put_failure(out, end);
    else
        fprintf(out, "null");
    fprintf(out, ",\"others\":[");
    bool first = true;
    for (int i = 0; i < g->count; i++) {
        const worker *w = &g->workers[i];
        if (w == one || !w->pid)
            continue;
        fprintf(out, "%s{", first ? "" : ",");
        first = false;
        put_worker(out, w);
        fprintf(out, ",\"stopped\":%s,\"killed\":%s}", w->asked ? "true" : "false", w->killed ? "true" : "false");
    }
    fprintf(out, "]}\n");
    if (fclose(out)) {
        free(text);
        return NULL;
    }
    return text;
}
