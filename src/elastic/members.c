/*
 * members.c - the views of a run, in the store of its job. Layer: elastic.
 *
 * Note [Views] in members.h has the keys. Every member computes the view that follows; which of those that they try to
 * put into the register is the first does not matter, since all take what the register then holds.
 */
#include "elastic/members.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "host/rank_info.h"

enum { KEY = 96 };
static const char register_key[] = "elastic/view", joins_key[] = "elastic/joins";
/* Seconds between looks at keys of the store, at first and at last; and at those who want to join. */
static const double look_soon = 2e-4, look_late = 5e-3, look_joining = 0.1;
/* Seconds for which a spare waits for a word at most, before it looks at the register itself. */
static const double spare_waits = 0.2;

/* ---- views as text ----------------------------------------------------------------------------------------------- */

static char *view_format(int64_t number, const yk__member *list, int count)
{
    size_t room = 32 + 32 * (size_t)count, used;
    char *text = yk__calloc(room, 1);
    if (!text)
        return NULL;
    used = (size_t)snprintf(text, room, "%" PRId64, number);
    for (int i = 0; i < count; i++)
        used += (size_t)snprintf(text + used, room - used, " %d.%d", list[i].slot, list[i].incarnation);
    return text;
}

/* Takes over the text, which becomes the view. */
static yk_status view_take(yk__members *m, char *text)
{
    int used = 0, count = 0, step;
    int64_t number = 0;
    /* A member has four bytes of text at least: " 0.0". */
    yk__member *list = yk__calloc(strlen(text) / 4 + 1, sizeof(*list)), next;
    bool good = list && sscanf(text, "%" SCNd64 "%n", &number, &used) == 1 && number > 0;
    while (good && text[used]) {
        good = text[used] == ' ' && sscanf(text + used, " %d.%d%n", &next.slot, &next.incarnation, &step) == 2 &&
               next.slot >= 0 && next.incarnation >= 0 && step >= 4;
        for (int i = 0; i < count && good; i++)
            good = list[i].slot != next.slot;
        if (good)
            list[count++] = next;
        used += good ? step : 0;
    }
    if (!good || !count) {
        yk_status status = list
                               ? yk__fail(YK_ERR_FORMAT, "elastic: the store's key %s holds '%.100s', which is no view",
                                          register_key, text)
                               : YK_ERR_MEMORY;
        free(list);
        free(text);
        return status;
    }
    free(m->text);
    free(m->list);
    m->text = text;
    m->list = list;
    m->view = number;
    m->round = 0;
    m->count = count;
    return YK_OK;
}

static int place_of(const yk__member *list, int count, yk__member of)
{
    for (int i = 0; i < count; i++)
        if (list[i].slot == of.slot && list[i].incarnation == of.incarnation)
            return i;
    return -1;
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

static const char *key_of(char key[KEY], const char *what, yk__member of)
{
    snprintf(key, KEY, "elastic/%s/%d.%d", what, of.slot, of.incarnation);
    return key;
}

static const char *at_key(const yk__members *m, char key[KEY], yk__member of)
{
    snprintf(key, KEY, "elastic/%" PRId64 ".%" PRId64 "/at/%d.%d", m->view, m->round, of.slot, of.incarnation);
    return key;
}

static yk_status is_there(const yk__members *m, const char *key, bool *there)
{
    return yk_store_check(m->store, &key, 1, there);
}

/* The text of a key, which the caller frees; NULL, without an error, where it is not there. A key may go between the
 * question and the reading, as that of a process which asked to join does when it is in: then it is looked for again,
 * rather than waited for. */
static yk_status text_of(const yk__members *m, const char *key, char **text)
{
    double until = yk__now() + m->timeout;
    *text = NULL;
    for (double slice = 0.05;; slice *= 2) {
        bool there = false;
        yk_status status = is_there(m, key, &there);
        if (!status && there)
            status = yk_store_get(m->store, key, (void **)text, NULL, slice);
        if (!there || status != YK_ERR_TIMEOUT || yk__now() > until)
            return status;
        yk_clear_error();
    }
}

static void pause_for(double *seconds)
{
    usleep((useconds_t)(*seconds * 1e6));
    *seconds = *seconds < look_late ? 1.5 * *seconds : look_late;
}

/* ---- making ------------------------------------------------------------------------------------------------------ */

yk_status yk__members_make(yk__members *m, yk_store *store, int rank, int world_size, int most, char *facts,
                           bool *newcomer)
{
    yk__rank_info info;
    int64_t incarnation, seconds, seats;
    *m = (yk__members){.most = most, .facts = facts};
    *newcomer = false;
    yk_status status = facts ? yk__rank_info_read(&info) : YK_ERR_MEMORY;
    if (!status)
        status = yk__env_int("YOKE_JOIN_TIMEOUT", 60, 1, YK__MOST_SECONDS, &seconds);
    if (!status)
        status = yk__env_int("YOKE_INCARNATION", 0, 0, INT32_MAX, &incarnation);
    if (!status)
        status = yk__env_int("YOKE_ELASTIC_MEMBERS", 0, 0, YK__MOST_RANKS, &seats);
    if (status)
        return status;
    *newcomer = getenv("YOKE_ELASTIC_JOIN") != NULL;
    m->nodes = info.launcher && getenv("YOKE_NNODES") != NULL;
    m->seats = (int)seats;
    if ((!info.launcher || info.world_size == 1) && world_size == 1 && !*newcomer && !m->nodes && !m->seats)
        return YK_OK; /* whose end nobody survives */
    if (!*newcomer && (info.world_size != world_size || info.rank != rank))
        return yk__fail(YK_ERR_UNSUPPORTED,
                        "elastic_create: survive: the group is of %d ranks, but the job has %d processes; members may "
                        "change in the group of all of them alone, that of yk_init_process_group",
                        world_size, info.world_size);
    const char *nodes = getenv("GROUP_WORLD_SIZE");
    bool fixed = !m->nodes && nodes && atoi(nodes) > 1;
    if (!store || !getenv("YOKE_STORE") || fixed)
        return yk__fail(
            YK_ERR_UNSUPPORTED, "elastic_create: survive: %s",
            !getenv("YOKE_STORE") || !store
                ? "members may change under `yoke run` alone, which serves their store and says for certain "
                  "when a process has ended; without it leave survive out"
                : "this job has a fixed number of nodes; start it with --nnodes MIN:MAX, or leave survive out");
    m->store = yk_store_retain(store);
    m->slots = info.world_size;
    m->own = (yk__member){info.rank, (int)incarnation};
    m->timeout = (double)seconds;
    if (*newcomer)
        return YK_OK;
    yk__member *all = yk__calloc((size_t)m->slots, sizeof(*all));
    for (int i = 0; all && i < m->slots; i++)
        all[i].slot = i;
    char *first = all ? view_format(1, all, m->slots) : NULL;
    void *now = NULL;
    status = first ? yk_store_compare_set(store, register_key, "", 0, first, strlen(first), &now, NULL, NULL)
                   : YK_ERR_MEMORY;
    free(all);
    free(first);
    return status ? status : view_take(m, now);
}

bool yk__members_lost(const yk__members *m, const char *lost, int *slot)
{
    for (int used; lost && sscanf(lost, "%d%n", slot, &used) == 1; lost += used)
        for (int i = 0; i < m->count; i++)
            if (m->list[i].slot == *slot)
                return true;
    return false;
}

void yk__members_clear(yk__members *m)
{
    yk_store_release(m->store);
    free(m->facts);
    free(m->text);
    free(m->list);
    *m = (yk__members){0};
}

/* Members that there may be now. */
static int limit_of(const yk__members *m)
{
    return m->seats && m->seats < m->most ? m->seats : m->most;
}

bool yk__members_look(yk__members *m)
{
    double now = yk__now();
    int64_t all = 0;
    bool full = !m->nodes && !m->seats && m->count >= m->slots;
    if (!m->store || full || m->count >= limit_of(m) || now - m->looked < look_joining)
        return false;
    m->looked = now;
    if (yk_store_add(m->store, joins_key, 0, &all))
        yk_clear_error(); /* the store is gone: the next change says so */
    return all > m->heard;
}

void yk__members_over(yk__members *m)
{
    if (m->store && yk_store_set(m->store, "elastic/over", "1", 1))
        yk_clear_error(); /* the launcher is gone, and with it those who wait */
}

/* ---- a change ---------------------------------------------------------------------------------------------------- */

typedef struct standing {
    int64_t position;
    char kind; /* a yk__standing; 0: it is gone */
} standing;

/* Finds where a member stands, or that it is gone; *known is false while it says neither. */
static yk_status stand_of(const yk__members *m, yk__member of, standing *stands, bool *known)
{
    char key[KEY], *text = NULL;
    bool gone = false;
    yk_status status = is_there(m, key_of(key, "gone", of), &gone);
    if (!status && !gone)
        status = text_of(m, at_key(m, key, of), &text);
    *stands = (standing){0};
    *known = gone;
    if (text && !(*known = sscanf(text, "%" SCNd64 " %c", &stands->position, &stands->kind) == 2))
        status = yk__fail(YK_ERR_FORMAT, "elastic: the store's key %s holds '%.60s'", key, text);
    free(text);
    return status;
}

yk_status yk__members_gone(const yk__members *m)
{
    char key[KEY];
    for (int i = 0; i < m->count; i++) {
        bool gone = false;
        if (is_there(m, key_of(key, "gone", m->list[i]), &gone))
            yk_clear_error(); /* the store has no answer: whoever waits by it finds that out */
        if (gone)
            return yk__fail(YK_ERR_CONNECTION,
                            "elastic: process %d (incarnation %d) of the job ended before the members of view %" PRId64
                            " had met",
                            m->list[i].slot, m->list[i].incarnation, m->view);
    }
    return YK_OK;
}

/* Waits until each member of the view stands somewhere or is gone; or, in an action, until one has come to the end of
 * the run, and so knows that all had come to that action: *over. NULL: in a step. */
static yk_status stand_all(const yk__members *m, standing *stands, bool *over)
{
    double until = yk__now() + m->timeout, wait = look_soon;
    int missing = 0;
    for (int i = 0; i < m->count; i++) {
        bool known = false;
        yk_status status = stand_of(m, m->list[i], &stands[i], &known);
        if (status)
            return status;
        if (known)
            continue;
        if (over)
            status = is_there(m, "elastic/over", over);
        if (status || (over && *over))
            return status;
        bool held = false;
        if (yk__now() > until && is_there(m, "elastic/held", &held))
            return yk__error_code();
        until = held ? yk__now() + m->timeout : until; /* the launcher waits for more nodes, and knows how long */
        if (yk__now() > until)
            return yk__fail(YK_ERR_TIMEOUT,
                            "elastic: the members of view %" PRId64 " are to change, and process %d (incarnation %d) "
                            "of the job has neither come to that nor ended within %g s: it is stopped, or in something "
                            "else than a step (YOKE_JOIN_TIMEOUT)",
                            m->view, m->list[i].slot, m->list[i].incarnation, m->timeout);
        missing++;
        pause_for(&wait);
        i--;
    }
    /* One that came may have ended since. */
    for (int i = 0; i < m->count && missing; i++) {
        bool known = false;
        yk_status status = stand_of(m, m->list[i], &stands[i], &known);
        if (status)
            return status;
    }
    return YK_OK;
}

/* A sentence with the first lines that differ, which the caller frees. */
static char *first_difference(const char *its, const char *ours)
{
    for (size_t same = strcspn(its, "\n"); its[same] && strncmp(its, ours, same + 1) == 0; same = strcspn(its, "\n")) {
        its += same + 1;
        ours += same + 1;
    }
    return yk__format("it has %.*s, and the run has %.*s", (int)strcspn(its, "\n"), its, (int)strcspn(ours, "\n"),
                      ours);
}

/* The process of this slot that asks to join, and may. */
static yk_status newcomer_of(const yk__members *m, int slot, yk__member *who, bool *may)
{
    char key[KEY], *text = NULL;
    int used = 0;
    bool gone = false;
    *may = false;
    snprintf(key, sizeof(key), "elastic/join/%d", slot);
    yk_status status = text_of(m, key, &text);
    *who = (yk__member){.slot = slot};
    if (!text || sscanf(text, "%d %n", &who->incarnation, &used) != 1 || !used) {
        free(text);
        return status;
    }
    status = is_there(m, key_of(key, "gone", *who), &gone);
    if (!status && !gone && strcmp(text + used, m->facts) == 0) {
        *may = true;
    } else if (!status && !gone) {
        char *why = first_difference(text + used, m->facts);
        status = why ? yk_store_set(m->store, key_of(key, "refused", *who), why, strlen(why)) : YK_ERR_MEMORY;
        free(why);
    }
    free(text);
    return status;
}

/* The slot of the N-th that ever asked to join; *there is false while it has not written that yet. */
static yk_status applicant(const yk__members *m, int64_t number, int *slot, bool *there)
{
    char key[KEY], *text = NULL;
    snprintf(key, sizeof(key), "%s/%" PRId64, joins_key, number);
    yk_status status = text_of(m, key, &text);
    *there = text && sscanf(text, "%d", slot) == 1 && *slot >= 0;
    free(text);
    return status;
}

/* The view that follows, in *list with *count members; newcomers only where all stand before a step. *heard: so many of
 * those that ever asked to join have been looked at. */
static yk_status members_propose(const yk__members *m, const standing *stands, yk__member *list, int *count,
                                 int64_t *heard)
{
    bool at_step = true, open = false; /* open: some have to be looked at once more */
    int64_t all = 0;
    yk_status status = YK_OK;
    *heard = m->heard;
    *count = 0;
    for (int i = 0; i < m->count; i++) {
        at_step = at_step && stands[i].kind != YK__AT_ACTION;
        if (stands[i].kind && stands[i].kind != YK__AT_LEAVE)
            list[(*count)++] = m->list[i];
    }
    if (at_step && *count)
        status = yk_store_add(m->store, joins_key, 0, &all);
    for (int64_t n = 1; n <= all && !status; n++) {
        bool no_place = *count >= limit_of(m), taken = false, may = false, there = false;
        int slot = 0;
        yk__member who;
        status = applicant(m, n, &slot, &there);
        if (status || !there)
            break;
        for (int i = 0; i < m->count; i++) { /* one of the old view is not let in again before it is out */
            bool is_its = m->list[i].slot == slot;
            taken |= is_its && stands[i].kind != 0;
            open |= is_its && stands[i].kind == YK__AT_LEAVE;
        }
        for (int i = 0; i < *count; i++) /* it has asked twice, in two incarnations */
            taken |= list[i].slot == slot;
        open |= no_place && !taken && m->seats; /* a spare waits on */
        *heard = !open && n > *heard ? n : *heard;
        if (!taken && !no_place)
            status = newcomer_of(m, slot, &who, &may);
        if (may)
            list[(*count)++] = who;
    }
    return status;
}

/* Lists who goes and who comes, from one view to the next. */
static void compare(const yk__members *old, const standing *stands, const yk__members *now, yk__succession *next)
{
    size_t used = 0, room = sizeof(next->who);
    for (int i = 0; i < old->count; i++) {
        if (place_of(now->list, now->count, old->list[i]) >= 0)
            continue;
        next->went++;
        if (used + 60 < room)
            used += (size_t)snprintf(next->who + used, room - used, "%srank %d (process %d) %s", used ? ", " : "", i,
                                     old->list[i].slot, stands[i].kind == YK__AT_LEAVE ? "left" : "has ended");
    }
    for (int i = 0; i < now->count; i++) {
        if (place_of(old->list, old->count, now->list[i]) >= 0)
            continue;
        next->came++;
        if (used + 60 < room)
            used += (size_t)snprintf(next->who + used, room - used, "%sprocess %d joins as rank %d", used ? ", " : "",
                                     now->list[i].slot, i);
    }
    next->rank = place_of(now->list, now->count, now->own);
}

/* Puts the list into the register, unless another view came there first, and gives what it holds then. */
static yk_status install(const yk__members *m, const yk__member *list, int count, char **now)
{
    char *text = view_format(m->view + 1, list, count);
    void *held = NULL;
    yk_status status = text ? yk_store_compare_set(m->store, register_key, m->text, strlen(m->text), text, strlen(text),
                                                   &held, NULL, NULL)
                            : YK_ERR_MEMORY;
    bool is_ours = !status && strcmp(held, text) == 0;
    free(text);
    *now = held;
    for (int i = 0; i < count && !status && is_ours; i++) { /* who comes is told */
        char key[KEY];
        if (place_of(m->list, m->count, list[i]) < 0)
            status = yk_store_set(m->store, key_of(key, "in", list[i]), "1", 1);
    }
    return status;
}

/* The register's text, which it takes over, is that of the view that follows. */
static yk_status members_follow(yk__members *m, const standing *stands, char *now, yk__succession *next)
{
    yk__members old = *m;
    old.text = yk__strdup(m->text);
    old.list = yk__calloc((size_t)m->count, sizeof(*old.list));
    yk_status status = old.text && old.list ? YK_OK : YK_ERR_MEMORY;
    if (!status)
        memcpy(old.list, m->list, (size_t)m->count * sizeof(*old.list));
    if (status)
        free(now);
    else
        status = view_take(m, now);
    if (!status && (m->view != old.view + 1 || place_of(m->list, m->count, m->own) < 0))
        status = yk__fail(YK_ERR_STATE,
                          "elastic: the run has gone on in view %" PRId64
                          " without this process, which was in view %" PRId64,
                          m->view, old.view);
    if (!status) {
        compare(&old, stands, m, next);
        next->changed = true;
    }
    free(old.text);
    free(old.list);
    return status;
}

/* The verdict on a change: whether the members are others. *changed is this member's, and then that of all. */
static yk_status members_agree(const yk__members *m, bool *changed)
{
    char key[KEY];
    const char *own = *changed ? "changed" : "same";
    void *all = NULL;
    snprintf(key, sizeof(key), "elastic/%" PRId64 ".%" PRId64 "/verdict", m->view, m->round);
    yk_status status = yk_store_compare_set(m->store, key, "", 0, own, strlen(own), &all, NULL, NULL);
    *changed = !status && strcmp(all, "changed") == 0;
    free(all);
    return status;
}

/* All stand: the view that follows, if the first to look has found that one does. */
static yk_status members_settle(yk__members *m, standing *stands, yk__member *list, bool *over, yk__succession *next)
{
    bool decided = false;
    double wait = look_soon, until = yk__now() + m->timeout;
    while (yk__now() < until) {
        int count = 0;
        int64_t heard;
        yk_status status = members_propose(m, stands, list, &count, &heard);
        m->heard = heard;
        bool same = count == m->count && memcmp(list, m->list, (size_t)count * sizeof(*list)) == 0, changed = !same;
        if (!status && !decided)
            status = members_agree(m, &changed);
        if (status)
            return status;
        if (!decided && !changed) {
            m->round++;
            return YK_OK;
        }
        decided = true;
        /* The first one has seen what is still there to see, or has made the view already. */
        char *now = NULL;
        status = same ? text_of(m, register_key, &now) : install(m, list, count, &now);
        if (status)
            return status;
        if (now && strcmp(now, m->text) != 0)
            return members_follow(m, stands, now, next);
        free(now);
        pause_for(&wait);
        status = stand_all(m, stands, over);
        if (status || next->over)
            return status;
    }
    return yk__fail(YK_ERR_TIMEOUT,
                    "elastic: the members of view %" PRId64 " were to change, and no view has followed within %g s",
                    m->view, m->timeout);
}

yk_status yk__members_change(yk__members *m, int64_t position, yk__standing kind, yk__succession *next)
{
    char key[KEY], text[40];
    int staying = 0;
    *next = (yk__succession){.leaving = kind == YK__AT_LEAVE};
    if (!m->store)
        return YK_OK;
    int length = snprintf(text, sizeof(text), "%" PRId64 " %c", position, (char)kind);
    standing *stands = yk__calloc((size_t)m->count, sizeof(*stands));
    yk__member *list = yk__calloc((size_t)(m->most > m->count ? m->most : m->count), sizeof(*list));
    yk_status status = stands && list ? YK_OK : YK_ERR_MEMORY;
    if (!status)
        status = yk_store_set(m->store, at_key(m, key, m->own), text, (size_t)length);
    bool *over = kind == YK__AT_ACTION ? &next->over : NULL;
    if (!status)
        status = stand_all(m, stands, over);
    bool gone = false;
    for (int i = 0; i < m->count && !status; i++) {
        gone |= stands[i].kind == 0;
        staying += stands[i].kind != 0 && stands[i].kind != YK__AT_LEAVE;
    }
    next->whole = !staying && !gone;
    if (!status && !next->leaving && !next->over)
        status = members_settle(m, stands, list, over, next);
    free(stands);
    free(list);
    return status;
}

/* ---- joining ----------------------------------------------------------------------------------------------------- */

/* The number that a key holds becomes this one, unless it is larger. */
static yk_status raise_to(const yk__members *m, const char *key, int64_t number)
{
    char *held = NULL;
    yk_status status = text_of(m, key, &held);
    while (!status && (!held || strtoll(held, NULL, 10) < number)) {
        char text[24];
        void *now = NULL;
        int length = snprintf(text, sizeof(text), "%" PRId64, number);
        status = yk_store_compare_set(m->store, key, held ? held : "", held ? strlen(held) : 0, text, (size_t)length,
                                      &now, NULL, NULL);
        free(held);
        held = now;
    }
    free(held);
    return status;
}

/* One more that asks to join: it is the N-th, and the members look for it. The store may be asked twice for what it has
 * done once, so nothing is added here: the first number that bears nobody's name becomes this one's. */
static yk_status members_apply(yk__members *m)
{
    char key[KEY], text[32];
    int64_t number = 0;
    int length = snprintf(text, sizeof(text), "%d.%d", m->own.slot, m->own.incarnation);
    yk_status status = yk_store_add(m->store, joins_key, 0, &number);
    for (bool own = false; !status && !own;) {
        void *held = NULL;
        snprintf(key, sizeof(key), "%s/%" PRId64, joins_key, ++number);
        status = yk_store_compare_set(m->store, key, "", 0, text, (size_t)length, &held, NULL, NULL);
        own = !status && strcmp(held, text) == 0;
        free(held);
    }
    m->heard = number;
    return status ? status : raise_to(m, joins_key, number);
}

/* Looks whether a view has this process, which *in says then; or why none will, as an error. */
static yk_status look_for_view(yk__members *m, bool *in, bool *over, yk__succession *next)
{
    char key[KEY], *text = NULL;
    *in = *over = false;
    yk_status status = text_of(m, key_of(key, "refused", m->own), &text);
    if (!status && text)
        status = yk__fail(YK_ERR_MISMATCH, "elastic_create: the run does not take this process in: %s", text);
    free(text);
    text = NULL;
    if (!status)
        status = is_there(m, "elastic/over", over);
    if (status || *over)
        return status;
    status = text_of(m, register_key, &text);
    if (!status && text)
        status = view_take(m, text);
    *in = !status && (next->rank = place_of(m->list, m->count, m->own)) >= 0;
    return status;
}

/* A spare's wait for a word that a view has it; it shows that it does not hang. */
static yk_status spare_wait(const yk__members *m)
{
    char key[KEY];
    yk_progress_phase("ready, as a spare");
    yk_status status = yk_store_wait(m->store, (const char *[]){key_of(key, "in", m->own)}, 1, spare_waits);
    if (status != YK_ERR_TIMEOUT)
        return status;
    yk_clear_error();
    return YK_OK;
}

yk_status yk__members_join(yk__members *m, bool (*leaves)(void), yk__succession *next)
{
    char key[KEY], *own = yk__format("%d %s", m->own.incarnation, m->facts);
    snprintf(key, sizeof(key), "elastic/join/%d", m->own.slot);
    yk_status status = own ? yk_store_set(m->store, key, own, strlen(own)) : YK_ERR_MEMORY;
    free(own);
    if (!status)
        status = members_apply(m);
    if (!status)
        yk__log(YK_LOG_INFO, "elastic: process %d (incarnation %d) asks to join the others", m->own.slot,
                m->own.incarnation);
    double wait = look_soon;
    bool in = false, over = false;
    *next = (yk__succession){.changed = true};
    while (!status && !in) {
        bool leaving = m->seats && leaves && leaves();
        status = look_for_view(m, &in, &over, next);
        if (status || in)
            break;
        if ((over && m->seats) || leaving) {
            next->leaving = true;
            break;
        }
        if (over)
            return yk__fail(YK_ERR_STATE, "elastic_create: the run has come to its end before this process was in it");
        if (m->seats)
            status = spare_wait(m);
        else
            pause_for(&wait);
    }
    if (m->seats)
        yk_progress_phase(NULL);
    if (!status) { /* or it were let in again after it has left */
        snprintf(key, sizeof(key), "elastic/join/%d", m->own.slot);
        status = yk_store_delete(m->store, key, NULL);
    }
    if (!status && next->leaving && !over) { /* one may have let it in meanwhile: then it leaves as a member */
        status = look_for_view(m, &in, &over, next);
        next->leaving = !in;
    }
    return status;
}
