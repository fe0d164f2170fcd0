/*
 * explain.c - why a job does not get on, or ended. Layer: observe.
 *
 * Collectives of a group are numbered, and each rank begins them in their order. So where some ranks are in number N of
 * a group and another one of the group has not begun it, they wait for that one. If it waits itself, in another group,
 * it is not the cause: the one that is looked for is absent somewhere and waits for nobody. Where all that are absent
 * wait, they wait for each other. Calls of RPC are followed likewise, from the worker that waits for an answer to the
 * one that is called, which may wait for another's.
 *
 * What pages say is not trusted: texts are escaped, and what is not there counts as not known.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "observe/explain.h"

enum { MOST_RANKS = 4096, MOST_NAMED = 12 /* ranks in a sentence */, PLAIN = 256 };

typedef struct explained {
    const json_t *page; /* NULL: there is none of this rank */
    const json_t *in;   /* its oldest collective or message under way; NULL: none is */
    const json_t *last; /* the one that ended last */
    const json_t *call; /* the oldest call whose answer a thread of it waits for */
    int callee;         /* the rank that is called; -1: not known */
} explained;

typedef struct explanation {
    explained *ranks;
    int world;
    bool all_ended; /* the pages were saved after the job */
} explanation;

/* ---- pages ------------------------------------------------------------------------------------------------------- */
static const char *text_of(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "";
}

static int64_t number_of(const json_t *object, const char *name)
{
    return json_integer_value(json_object_get(object, name));
}

/* Seconds ago; below 0 where it is not said. */
static double ago_of(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    return json_is_number(value) ? json_number_value(value) : -1;
}

static bool is_collective(const json_t *operation)
{
    return strcmp(text_of(operation, "what"), "collective") == 0;
}

/* A message between two ranks has a tag, and a number of its own. */
static bool is_message(const json_t *operation)
{
    return json_object_get(operation, "tag") != NULL;
}

/* The oldest of those under way, calls or not. */
static const json_t *oldest_under_way(const json_t *page, bool call)
{
    const json_t *one, *found = NULL;
    size_t at;
    json_array_foreach(json_object_get(page, "under_way"), at, one)
    {
        if ((call ? strcmp(text_of(one, "what"), "call") == 0 : is_collective(one)) &&
            (!found || ago_of(one, "began_s_ago") > ago_of(found, "began_s_ago")))
            found = one;
    }
    return found;
}

static const json_t *newest_ended(const json_t *page)
{
    const json_t *one, *found = NULL;
    size_t at;
    json_array_foreach(json_object_get(page, "last"), at, one)
    {
        if (is_collective(one) && (!found || ago_of(one, "ended_s_ago") <= ago_of(found, "ended_s_ago")))
            found = one;
    }
    return found;
}

/* The highest number of this group's collectives that the rank has begun; 0: none that is known. */
static int64_t reached(const json_t *page, const char *group)
{
    static const char *const lists[] = {"under_way", "last"};
    const json_t *one;
    int64_t most = 0;
    size_t at;
    for (int i = 0; i < 2; i++) {
        json_array_foreach(json_object_get(page, lists[i]), at, one)
        {
            if (is_collective(one) && !is_message(one) && strcmp(text_of(one, "of"), group) == 0 &&
                number_of(one, "number") > most)
                most = number_of(one, "number");
        }
    }
    return most;
}

/* The process of the rank is, or was when the page was saved, in this state: "stopped", "ended". */
static bool is_process(const explained *e, const char *state)
{
    return e->page && strcmp(text_of(e->page, "process"), state) == 0;
}

/* ---- sentences --------------------------------------------------------------------------------------------------- */
static const char *plain(const char *text, char to[PLAIN])
{
    return yk__escape(text, strlen(text), to, PLAIN);
}

/* "all_reduce #12 of group 'world'" */
static void write_operation(FILE *to, const json_t *o)
{
    char kind[PLAIN], group[PLAIN];
    fprintf(to, "%s #%" PRId64 " of group '%s'", plain(text_of(o, "kind"), kind), number_of(o, "number"),
            plain(text_of(o, "of"), group));
    if (is_message(o))
        fprintf(to, " with rank %" PRId64 " (tag %" PRId64 ")", number_of(o, "peer"), number_of(o, "tag"));
}

/* "'add' of worker 'ps0' (rank 2) for 3.0 s" */
static void write_call(FILE *to, const explained *e)
{
    char function[PLAIN], worker[PLAIN];
    fprintf(to, "'%s' of worker '%s'", plain(text_of(e->call, "kind"), function),
            plain(text_of(e->call, "of"), worker));
    if (e->callee >= 0)
        fprintf(to, " (rank %d)", e->callee);
    fprintf(to, " for %.1f s", ago_of(e->call, "began_s_ago"));
}

/* "rank 3", "ranks 0, 1 and 3"; the first of many. */
static void write_ranks(FILE *to, const int *ranks, int count)
{
    fprintf(to, count == 1 ? "rank " : "ranks ");
    for (int i = 0; i < count && i < MOST_NAMED; i++)
        fprintf(to, "%s%d", !i ? "" : i == count - 1 ? " and " : ", ", ranks[i]);
    if (count > MOST_NAMED)
        fprintf(to, " and %d more", count - MOST_NAMED);
}

/* "loading for 75.0 s" */
static void write_phase(FILE *to, const json_t *page)
{
    char own[PLAIN];
    const json_t *phase = json_object_get(page, "phase");
    const char *name = text_of(phase, "name");
    double since = ago_of(phase, "since_s_ago");
    if (strcmp(name, "own") == 0)
        fprintf(to, "'%s'", plain(text_of(phase, "text"), own));
    else
        fprintf(to, "%s", !*name || strcmp(name, "none") == 0 ? "in no phase of yoke's" : plain(name, own));
    if (since >= 0)
        fprintf(to, " for %.1f s", since);
}

/* The end of a sentence about a rank that others wait for. */
static void write_doing(FILE *to, const explained *e)
{
    if (!e->page) {
        fprintf(to, "nothing is known of it: it never called yoke, or its page is on another machine");
        return;
    }
    if (is_process(e, "ended"))
        fprintf(to, "it has ended, and was ");
    else if (is_process(e, "stopped"))
        fprintf(to, "its process (pid %" PRId64 ") is stopped, and was ", number_of(e->page, "pid"));
    else
        fprintf(to, "it is ");
    write_phase(to, e->page);
    if (e->call) {
        fprintf(to, "; it waits for ");
        write_call(to, e);
    }
    if (e->last) {
        fprintf(to, "; its last, ");
        write_operation(to, e->last);
        fprintf(to, ", ended %.1f s ago", ago_of(e->last, "ended_s_ago"));
    }
}

/* ---- finding ----------------------------------------------------------------------------------------------------- */
/* True where rank r belongs to the group and has not begun this collective of it. To a group that is not the world
 * those belong that have been in one of its operations. */
static bool is_absent(const explanation *x, int r, const json_t *operation)
{
    const char *group = text_of(operation, "of");
    int64_t most = x->ranks[r].page ? reached(x->ranks[r].page, group) : 0;
    return most < number_of(operation, "number") && (most > 0 || strcmp(group, "world") == 0);
}

/* The collective that `absent` is missing in, by the rank that is in it longest; NULL: none. */
static const json_t *missed_by(const explanation *x, int absent)
{
    const json_t *found = NULL;
    for (int r = 0; r < x->world; r++) {
        const json_t *in = x->ranks[r].in;
        if (in && !is_message(in) && is_absent(x, absent, in) &&
            (!found || ago_of(in, "began_s_ago") > ago_of(found, "began_s_ago")))
            found = in;
    }
    return found;
}

/* Lists the ranks in this collective. */
static int ranks_in(const explanation *x, const json_t *operation, int *ranks)
{
    int count = 0;
    for (int r = 0; r < x->world; r++) {
        const json_t *in = x->ranks[r].in;
        if (in && !is_message(in) && number_of(in, "number") == number_of(operation, "number") &&
            strcmp(text_of(in, "of"), text_of(operation, "of")) == 0)
            ranks[count++] = r;
    }
    return count;
}

/* The worker that waits for no other one's answer, by way of calls from rank r; r itself where it waits for none, or
 * where calls go in a circle, or to whom is not known. */
static int called_last(const explanation *x, int r)
{
    int at = r;
    for (int steps = 0; x->ranks[at].callee >= 0 && x->ranks[at].callee != at; steps++) {
        at = x->ranks[at].callee;
        if (steps == x->world)
            return r;
    }
    return at;
}

/* A rank waits where it is in a message, or in a collective that another one has not begun. One that is in a collective
 * to which all have come is not held up by them. */
static bool waits_for_others(const explanation *x, int r)
{
    const json_t *in = x->ranks[r].in;
    int called = called_last(x, r);
    if (!in)
        return called != r && !x->ranks[called].in;
    if (is_message(in))
        return true;
    for (int other = 0; other < x->world; other++) {
        if (other != r && is_absent(x, other, in))
            return true;
    }
    return false;
}

static bool say_absent(const explanation *x, FILE *to)
{
    int in[MOST_RANKS], absent[MOST_RANKS], count = 0;
    const json_t *missed = NULL;
    for (int r = 0; r < x->world; r++) {
        const json_t *one = waits_for_others(x, r) ? NULL : missed_by(x, r);
        if (one && (!missed || (number_of(one, "number") == number_of(missed, "number") &&
                                strcmp(text_of(one, "of"), text_of(missed, "of")) == 0))) {
            missed = missed ? missed : one;
            absent[count++] = r;
        }
    }
    if (!count)
        return false;
    write_ranks(to, absent, count);
    fprintf(to, count == 1 ? " has not come to " : " have not come to ");
    write_operation(to, missed);
    fprintf(to, ", in which ");
    int waiting = ranks_in(x, missed, in);
    write_ranks(to, in, waiting);
    fprintf(to, waiting == 1 ? " is for %.1f s: " : " are for %.1f s: ", ago_of(missed, "began_s_ago"));
    if (count > 1)
        fprintf(to, "of rank %d ", absent[0]);
    if (x->ranks[absent[0]].in) {
        fprintf(to, "it is still in ");
        write_operation(to, x->ranks[absent[0]].in);
        fprintf(to, ", to which all have come; ");
    }
    write_doing(to, &x->ranks[absent[0]]);
    fprintf(to, ".\n");
    return true;
}

/* All that are absent wait themselves. */
static bool say_cycle(const explanation *x, FILE *to)
{
    for (int r = 0; r < x->world; r++) {
        const json_t *in = x->ranks[r].in, *missed = in ? missed_by(x, r) : NULL;
        int others[MOST_RANKS];
        if (!missed)
            continue;
        fprintf(to, "ranks wait for each other: rank %d is in ", r);
        write_operation(to, in);
        fprintf(to, " for %.1f s, and has not come to ", ago_of(in, "began_s_ago"));
        write_operation(to, missed);
        fprintf(to, ", in which ");
        int count = ranks_in(x, missed, others);
        write_ranks(to, others, count);
        fprintf(to, count == 1 ? " is for %.1f s.\n" : " are for %.1f s.\n", ago_of(missed, "began_s_ago"));
        return true;
    }
    return false;
}

/* One that is in the operation has come, and does not go on with it. */
static bool say_stopped(const explanation *x, FILE *to)
{
    for (int r = 0; r < x->world; r++) {
        const explained *e = &x->ranks[r];
        if (!e->in || !(is_process(e, "stopped") || (is_process(e, "ended") && !x->all_ended)))
            continue;
        fprintf(to, "rank %d does not go on in ", r);
        write_operation(to, e->in);
        fprintf(to, ", in which it is for %.1f s: ", ago_of(e->in, "began_s_ago"));
        write_doing(to, e);
        fprintf(to, ".\n");
        return true;
    }
    return false;
}

/* Nobody is absent: all are in the same number, as different operations, or in one that does not end; or in messages.
 */
static bool say_waiting(const explanation *x, FILE *to)
{
    int first = -1;
    for (int r = 0; r < x->world; r++) {
        const json_t *in = x->ranks[r].in, *of = first >= 0 ? x->ranks[first].in : NULL;
        if (of && in && number_of(in, "number") == number_of(of, "number") &&
            strcmp(text_of(in, "of"), text_of(of, "of")) == 0 && !is_message(in) &&
            strcmp(text_of(in, "kind"), text_of(of, "kind")) != 0) {
            fprintf(to, "the ranks call different operations: rank %d is in ", first);
            write_operation(to, of);
            fprintf(to, ", and rank %d in ", r);
            write_operation(to, in);
            fprintf(to, ".\n");
            return true;
        }
        if (in && (!of || ago_of(in, "began_s_ago") > ago_of(of, "began_s_ago")))
            first = r;
    }
    if (first < 0)
        return false;
    const json_t *in = x->ranks[first].in;
    fprintf(to, "rank %d is in ", first);
    write_operation(to, in);
    fprintf(to, " for %.1f s", ago_of(in, "began_s_ago"));
    int64_t peer = is_message(in) ? number_of(in, "peer") : -1;
    if (peer >= 0 && peer < x->world && !x->ranks[peer].in) {
        fprintf(to, ", and rank %" PRId64 " is not in one with it: ", peer);
        write_doing(to, &x->ranks[peer]);
    } else if (!is_message(in)) {
        fprintf(to, ", and no rank that belongs to it is missing: it is under way, or what carries it does not get on");
    }
    fprintf(to, ".\n");
    return true;
}

/* Nobody waits: the job ended. Those that saw a group fail were not the first. */
static void say_ended(const explanation *x, FILE *to)
{
    int saw[MOST_RANKS], count = 0, cause = -1, slowest = -1;
    for (int r = 0; r < x->world; r++) {
        const json_t *page = x->ranks[r].page;
        if (page && ago_of(page, "failed_s_ago") >= 0)
            saw[count++] = r;
        else if (cause < 0)
            cause = r;
        if (page &&
            (slowest < 0 || ago_of(page, "progressed_s_ago") > ago_of(x->ranks[slowest].page, "progressed_s_ago")))
            slowest = r;
    }
    if (count && cause >= 0) {
        fprintf(to, "rank %d ended first: ", cause);
        write_ranks(to, saw, count);
        fprintf(to, " saw a group fail, and it did not; ");
        write_doing(to, &x->ranks[cause]);
    } else if (count) {
        fprintf(to, "every rank saw a group fail, rank %d first", saw[0]);
    } else {
        fprintf(to, "no rank waits in an operation; rank %d has not got on for %.1f s: ", slowest,
                ago_of(x->ranks[slowest].page, "progressed_s_ago"));
        write_doing(to, &x->ranks[slowest]);
    }
    fprintf(to, ".\n");
}

/* Calls that wait for each other. */
static bool say_call_circle(const explanation *x, FILE *to)
{
    for (int r = 0; r < x->world; r++) {
        int at = x->ranks[r].callee, steps = 1;
        while (at >= 0 && at != r && steps++ < x->world)
            at = x->ranks[at].callee;
        if (at != r || x->ranks[r].callee == r)
            continue;
        fprintf(to, "workers wait for each other's answers: rank %d waits for ", r);
        write_call(to, &x->ranks[r]);
        for (at = x->ranks[r].callee; at != r; at = x->ranks[at].callee) {
            fprintf(to, ", rank %d for ", at);
            write_call(to, &x->ranks[at]);
        }
        fprintf(to, ".\n");
        return true;
    }
    return false;
}

/* Nobody waits in an operation of a group; one waits for an answer. */
static bool say_called(const explanation *x, FILE *to)
{
    int first = -1;
    for (int r = 0; r < x->world; r++) {
        const explained *e = &x->ranks[r];
        if (e->call && !x->all_ended &&
            (first < 0 || ago_of(e->call, "began_s_ago") > ago_of(x->ranks[first].call, "began_s_ago")))
            first = r;
    }
    if (first < 0)
        return false;
    int last = called_last(x, first);
    fprintf(to, "rank %d waits for ", first);
    write_call(to, &x->ranks[first]);
    if (last != first) {
        fprintf(to, last == x->ranks[first].callee ? ": " : ", and so on to rank %d: ", last);
        write_doing(to, &x->ranks[last]);
    }
    fprintf(to, ".\n");
    return true;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */
static void write_table(const explanation *x, FILE *to)
{
    for (int r = 0; r < x->world; r++) {
        const explained *e = &x->ranks[r];
        fprintf(to, "  rank %-4d ", r);
        if (!e->page) {
            fprintf(to, "no page\n");
            continue;
        }
        fprintf(to, "pid %-8" PRId64 " step %-8" PRId64 " ", number_of(e->page, "pid"), number_of(e->page, "steps"));
        write_phase(to, e->page);
        if (is_process(e, "stopped") || (is_process(e, "ended") && !x->all_ended))
            fprintf(to, "; %s", text_of(e->page, "process"));
        if (ago_of(e->page, "failed_s_ago") >= 0)
            fprintf(to, "; saw a group fail %.1f s ago", ago_of(e->page, "failed_s_ago"));
        const json_t *shown = e->in ? e->in : e->last;
        if (e->call) {
            fprintf(to, "; waits for ");
            write_call(to, e);
        }
        if (shown) {
            fprintf(to, e->in ? "; in " : "; last ");
            write_operation(to, shown);
            fprintf(to, e->in ? " for %.1f s" : ", ended %.1f s ago",
                    ago_of(shown, e->in ? "began_s_ago" : "ended_s_ago"));
        }
        fputc('\n', to);
    }
}

static bool is_page(const json_t *page)
{
    int64_t rank = number_of(page, "rank"), world = number_of(page, "world_size");
    return json_is_object(page) && json_is_integer(json_object_get(page, "rank")) && rank >= 0 && world <= MOST_RANKS &&
           rank < world;
}

yk_status yk__explain(const json_t *pages, FILE *to)
{
    explanation x = {0};
    const json_t *page;
    size_t at;
    json_array_foreach(pages, at, page)
    {
        if (is_page(page) && number_of(page, "world_size") > x.world)
            x.world = (int)number_of(page, "world_size");
    }
    if (!x.world)
        return yk__fail(
            YK_ERR_FORMAT,
            "there is no page of a rank in what was given; yoke run saves them as yoke-pages-*.json when a job fails");
    x.ranks = yk__calloc((size_t)x.world, sizeof(*x.ranks));
    if (!x.ranks)
        return yk__error_code();
    for (int r = 0; r < x.world; r++)
        x.ranks[r].callee = -1;
    json_array_foreach(pages, at, page)
    {
        if (is_page(page))
            x.ranks[number_of(page, "rank")] = (explained){.page = page,
                                                           .in = oldest_under_way(page, false),
                                                           .last = newest_ended(page),
                                                           .call = oldest_under_way(page, true),
                                                           .callee = -1};
    }
    for (int r = 0; r < x.world; r++) {
        for (int other = 0; other < x.world && x.ranks[r].call; other++) {
            if (x.ranks[other].page && number_of(x.ranks[other].page, "worker") == number_of(x.ranks[r].call, "peer"))
                x.ranks[r].callee = other;
        }
    }
    x.all_ended = true;
    for (int r = 0; r < x.world; r++)
        x.all_ended = x.all_ended && (!x.ranks[r].page || is_process(&x.ranks[r], "ended"));
    if (!say_call_circle(&x, to) && !say_absent(&x, to) && !say_cycle(&x, to) && !say_stopped(&x, to) &&
        !say_waiting(&x, to) && !say_called(&x, to))
        say_ended(&x, to);
    write_table(&x, to);
    free(x.ranks);
    return YK_OK;
}
