/*
 * graph.c - a function whose work on a device is recorded once and then replayed. Layer: device.
 *
 * The first calls run the function as it is: they make what is made once (state, plans of libraries), show who takes
 * part (graph.h), and whether anything in it cannot be repeated. Then a call records it, into memory of the graph's
 * own, and from there on a call puts the recorded work on the queue: the call that recorded, too, since recording
 * computes nothing. Where a recording fails, the same call runs the function as it is, so each call is one run of it
 * for whoever calls. Where ranks share the graph's collectives they do so together: Note [Ranks record together].
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/random_branch.h"
#include "device/graph.h"

/* WARM_UP: calls before the recording, as torch.cuda.make_graphed_callables makes. WHY: bytes for a reason. */
enum { WARM_UP = 3, WHY = 400 };

struct yk_graph {
    yk__object object;
    yk_device device;
    yk_status (*fn)(void *user);
    void *user;
    int warm_up;
    yk_graph_info info;
    char why[WHY];
    int fit; /* calls in a row that could have been recorded */
    bool given_up;
    bool announced; /* given_up, and the other ranks know */
    bool recording;
    int spoiled; /* recordings that something else in the process ended */
    yk__graph_exec *exec;
    yk__memory_pool *pool;
    yk__graph_member *members;
    int n_members;
    /* The random numbers that the recorded work draws: the state of their stream, and how many it took. */
    yk__storage *calls; /* int64: the number of calls before */
    uint64_t seed;
    uint32_t drawn;
    uint32_t calls_there; /* the value of *calls once everything queued is done */
    bool calls_known;
};

static _Thread_local yk_graph *current;

static void drop_recording(yk_graph *g)
{
    if (g->exec)
        yk__backend_of(g->device)->graph_release(g->exec);
    g->exec = NULL;
    yk__memory_pool_release(g->pool);
    g->pool = NULL;
}

static void graph_destroy(void *object)
{
    yk_graph *g = object;
    drop_recording(g);
    for (int i = 0; i < g->n_members; i++)
        g->members[i].release(g->members[i].object, g->members[i].notes);
    free(g->members);
    yk__storage_release(g->calls);
    yk__object_free(g);
}

static const yk__type graph_type = {"graph", graph_destroy};

yk_graph *yk_graph_create(yk_device device, int warm_up, yk_status (*fn)(void *user), void *user)
{
    if (!yk__scope_check("graph_create") || yk__device_check(device))
        return NULL;
    if (!fn || warm_up < 0) {
        if (fn)
            yk__fail(YK_ERR_ARGUMENT, "graph_create: %d calls before the recording", warm_up);
        else
            yk__fail(YK_ERR_ARGUMENT, "graph_create: the function is NULL");
        return NULL;
    }
    yk_graph *g = yk__object_new(&graph_type, sizeof(*g));
    if (!g)
        return NULL;
    g->device = device;
    g->fn = fn;
    g->user = user;
    g->warm_up = warm_up ? warm_up : WARM_UP;
    char name[16];
    if (!yk__backend_of(device)->capture_begin) {
        g->given_up = true;
        snprintf(g->why, WHY, "%s carries work out as it comes: there is no queue to record",
                 yk_device_format(device, name));
    } else if (!(g->calls = yk__storage_create(device, sizeof(int64_t)))) {
        yk_object_release(g);
        return NULL;
    }
    return yk__scope_own(g);
}

/* ---- for those who take part ---- */

yk_graph *yk__graph_current(void)
{
    return current;
}

bool yk__graph_recording(void)
{
    return current && current->recording;
}

bool yk__graph_is_shared(const yk_graph *g)
{
    for (int i = 0; i < g->n_members; i++) {
        if (g->members[i].decide)
            return true;
    }
    return false;
}

void yk__graph_give_up(yk_graph *g, const char *why)
{
    if (!g->recording) /* a recording is dropped where it ends */
        drop_recording(g);
    g->given_up = true;
    snprintf(g->why, WHY, "%.*s", WHY - 1, why);
}

bool yk__graph_is_of(const yk_graph *g, yk_device device)
{
    return yk_device_equal(g->device, device);
}

bool yk__graph_records(yk_device device)
{
    return current && current->recording && yk__graph_is_of(current, device);
}

void *yk__graph_notes(const yk_graph *g, const void *object)
{
    for (int i = 0; i < g->n_members; i++) {
        if (g->members[i].object == object)
            return g->members[i].notes;
    }
    return NULL;
}

yk_status yk__graph_add(yk_graph *g, const yk__graph_member *member)
{
    yk__graph_member *grown = NULL;
    if (g->recording)
        yk__fail(YK_ERR_STATE,
                 "%s, which had no part in the calls before the recording: a greater warm_up of graph_create lets the "
                 "function come to it",
                 member->decide ? "a collective of a process group is called"
                                : "an optimizer or gradient scaler steps");
    else
        grown = yk__realloc(g->members, (size_t)(g->n_members + 1) * sizeof(*grown));
    if (!grown) {
        member->release(member->object, member->notes);
        return yk__error_code();
    }
    g->members = grown;
    grown[g->n_members++] = *member;
    return YK_OK;
}

/* Refuses an operation of the current graph, or notes it. */
static yk_status forbid(yk_device device, const char *operation, bool backward, const char *what, const char *instead)
{
    char text[WHY], name[16];
    snprintf(text, sizeof(text), "%s: %s%s%s%s, which a recording cannot repeat; %s", yk_device_format(device, name),
             operation && backward ? "backward of " : "", operation ? operation : "", operation ? ": " : "", what,
             instead);
    if (current->recording)
        return yk__fail(YK_ERR_STATE, "%s", text);
    if (!current->why[0])
        memcpy(current->why, text, WHY);
    return YK_OK;
}

yk_status yk__graph_forbid(yk_device device, const char *what, const char *instead)
{
    if (!current || (!what && yk__graph_is_of(current, device)))
        return YK_OK;
    char own[16], text[80];
    snprintf(text, sizeof(text), "it is work on another device than the graph's, %s",
             yk_device_format(current->device, own));
    return forbid(device, yk__operation_name, yk__operation_is_backward, what ? what : text,
                  what ? instead : "keep it out of the function");
}

yk_status yk__graph_forbid_in(const char *operation, const char *what, const char *instead)
{
    return current ? forbid(current->device, operation, false, what, instead) : YK_OK;
}

yk__stream yk__random_draw(yk_device device, const uint32_t **calls)
{
    yk_graph *g = current;
    *calls = NULL;
    if (g && (yk__random_branch_used() || !yk__graph_is_of(g, device))) {
        yk_status noted = yk__graph_is_of(g, device)
                              ? yk__graph_forbid(device, "random numbers of a part of a batch are drawn",
                                                 "run DataParallel and pipelines without a graph")
                              : yk__graph_forbid(device, "random numbers are drawn, on another device than the graph's",
                                                 "draw them before the run, or on the graph's device");
        (void)noted; /* while it is recorded, the graph sees the record */
    } else if (g && g->recording) {
        *calls = g->calls->data;
        return (yk__stream){.key = g->seed, .purpose = YK__RANDOM_USER, .epoch = g->drawn++};
    }
    return yk__random_next();
}

/* ---- the calls ---- */

/* Brings everything that has changed on the host since to the device. */
static yk_status members_prepare(yk_graph *g, const char **stale)
{
    yk_status status = YK_OK;
    yk_random_state random = yk_random_get_state();
    for (int i = 0; i < g->n_members && !status; i++)
        status = g->members[i].before(g->members[i].object, g->members[i].notes, stale);
    if (g->exec && g->drawn && random.seed != g->seed)
        *stale = "the generator was seeded anew";
    g->seed = random.seed;
    if (status || (g->exec && !g->drawn) || (g->calls_known && g->calls_there == random.calls))
        return status;
    yk__view calls = {.data = g->calls->data, .dtype = YK_I64};
    status = yk__backend_of(g->device)->fill(g->device.index, &calls, (double)random.calls);
    g->calls_known = !status;
    g->calls_there = random.calls;
    return status;
}

static yk_status replay(yk_graph *g)
{
    yk_status status = yk__backend_of(g->device)->graph_launch(g->exec);
    if (status)
        return status;
    g->info.replays++;
    yk__random_skip(g->drawn);
    g->calls_there += g->drawn;
    for (int i = 0; i < g->n_members; i++)
        g->members[i].after(g->members[i].object, g->members[i].notes);
    return YK_OK;
}

/* Calls the function with this graph as the thread's. */
static yk_status call(yk_graph *g)
{
    for (int i = 0; i < g->n_members; i++)
        g->members[i].begin(g->members[i].object, g->members[i].notes);
    current = g;
    yk_scope scope = yk_scope_begin();
    yk_status status = g->fn(g->user);
    if (!status)
        status = yk__error_code();
    yk_scope_end(scope);
    current = NULL;
    if (status && !yk__error_code())
        yk__fail(status, "graph_run: the function failed with status %d and no message", (int)status);
    return status;
}

/* Runs the function as it is, and notes work that could not be recorded. */
static yk_status function_run(yk_graph *g)
{
    if (!g->given_up)
        g->why[0] = '\0';
    yk_status status = call(g);
    g->fit = status || g->why[0] ? 0 : g->fit + 1;
    if (status && !g->given_up) {
        const yk_error *error = yk_last_error();
        snprintf(g->why, WHY, "the function failed: %.*s", WHY - 32, error ? error->message : "without a message");
    }
    if (!g->why[0] && !g->given_up)
        snprintf(g->why, WHY, "it was called %d times of the %d before it is recorded", g->fit, g->warm_up);
    return status;
}

/* *can becomes what all ranks can that share the graph's collectives. */
static yk_status decide(yk_graph *g, bool *can)
{
    yk__graph_vote vote = {.can = g->given_up ? -1 : *can};
    snprintf(vote.why, sizeof(vote.why), "%.*s", (int)sizeof(vote.why) - 1, g->why);
    yk_status status = YK_OK;
    for (int i = 0; i < g->n_members && !status && !g->announced; i++) {
        if (g->members[i].decide)
            status = g->members[i].decide(g->members[i].object, g->members[i].notes, &vote);
    }
    if (!status && vote.can < 0 && !g->given_up)
        yk__graph_give_up(g, vote.why);
    g->announced |= vote.can < 0;
    *can = !status && vote.can > 0;
    return status;
}

/* Ends the capture. True if it had been ended before, by something else or by a failure in the function, which the
 * error names first. */
static bool record_ended(yk_graph *g, const yk__backend *backend, yk_status *status)
{
    yk_error before;
    yk__error_take(&before);
    yk_status ended = backend->capture_end(g->device.index, &g->exec);
    if (ended == YK_ERR_STATE && before.code) {
        yk_error end;
        yk__error_take(&end);
        yk__fail(YK_ERR_STATE, "%.180s; %.200s", before.message, end.message);
    } else if (*status && ended != YK_ERR_STATE) {
        yk__error_put(&before);
    }
    *status = ended == YK_ERR_STATE || !*status ? ended : *status;
    return ended == YK_ERR_STATE;
}

/* Records the function; false where it could not be recorded: `why` says why, and nothing was carried out. *later: it
 * can be in a later call, since another thread's recording is in the way, or something else ended it, which is put up
 * with a few times. Ranks that record together have no later call: they would not know. */
static bool record(yk_graph *g, bool *later)
{
    enum { MOST_SPOILED = 3 };
    YK__OWN_RECORD;
    const yk__backend *backend = yk__backend_of(g->device);
    g->drawn = 0;
    g->pool = yk__memory_pool_open(g->device, later);
    bool spoiled = false;
    yk_status status = g->pool ? backend->capture_begin(g->device.index) : yk__error_code();
    if (!status) {
        g->recording = true;
        status = call(g);
        g->recording = false;
        yk__view calls = {.data = g->calls->data, .dtype = YK_I64};
        if (!status && g->drawn)
            status = backend->unary(g->device.index, YK__ADD_SCALAR, &calls, &calls, g->drawn, 0);
        spoiled = record_ended(g, backend, &status);
    }
    if (g->pool)
        yk__memory_pool_close(g->pool);
    if (!status && !g->given_up) {
        g->why[0] = '\0';
        return true;
    }
    *later = (*later || (spoiled && ++g->spoiled < MOST_SPOILED)) && !yk__graph_is_shared(g);
    yk_error error;
    yk__error_take(&error);
    if (g->given_up || *later) /* given up: meanwhile */
        drop_recording(g);
    if (!g->given_up && *later)
        snprintf(g->why, WHY, "%.*s", WHY - 1, error.message);
    else if (!g->given_up)
        yk__graph_give_up(g, error.message);
    return false;
}

static yk_status run_once(yk_graph *g)
{
    g->info.calls++;
    bool shared = yk__graph_is_shared(g), can = g->exec || (!g->given_up && g->fit >= g->warm_up);
    yk_status status = shared && !g->exec ? decide(g, &can) : YK_OK;
    if (status)
        return status;
    if (!can)
        return function_run(g);
    const char *stale = NULL;
    status = members_prepare(g, &stale);
    if (status)
        return status;
    if (stale) { /* from the beginning */
        drop_recording(g);
        g->fit = 0;
        status = function_run(g);
        if (g->fit)
            snprintf(g->why, WHY, "%s, so it is recorded anew", stale);
        return status;
    }
    char busy[WHY] = "";
    if (!g->exec) {
        bool later = false;
        can = record(g, &later);
        if (later)
            memcpy(busy, g->why, WHY);
        status = shared ? decide(g, &can) : YK_OK;
    }
    if (status)
        return status;
    if (can)
        return replay(g);
    status = function_run(g);
    if (busy[0] && g->fit)
        memcpy(g->why, busy, WHY);
    return status;
}

yk_status yk_graph_run(yk_graph *g)
{
    YK__LIVE(g);
    if (!g)
        return yk__error_code() ? yk__error_code() : yk__fail(YK_ERR_ARGUMENT, "graph_run: the graph is NULL");
    if (current)
        return yk__fail(YK_ERR_STATE, "graph_run: called by the function of a graph");
    YK__OWN_RECORD;
    yk_object_retain(g); /* the function may release it */
    yk_status status = run_once(g);
    yk_object_release(g);
    return status;
}

yk_graph_info yk_graph_get_info(const yk_graph *g)
{
    YK__LIVE(g);
    YK__QUESTION;
    yk_graph_info info = g ? g->info : (yk_graph_info){0};
    info.why_not = g && !g->exec ? g->why : NULL;
    return info;
}

yk_graph *yk_graph_retain(yk_graph *g)
{
    YK__LIVE(g);
    return yk_object_retain(g);
}

void yk_graph_release(yk_graph *g)
{
    yk_object_release(g);
}
