/*
 * rpc_members.c - the workers that there are, and their addresses: lists in the job's store. Layer: rpc.
 *
 * Keys, all with the prefix "rpc/":
 *   joined        how many workers have joined so far; the N-th to do so has the index N, from 1
 *   member/N      what it is: "NAME HOST PID ADDRESS"
 *   name/NAME     the index of the youngest worker of that name
 *   left/N        it has come to its shutdown, and answers calls until all others have; or it was refused for its name
 *
 * A worker that comes back takes its name over by compare-and-set from the index of the one before, which must be found
 * gone: nobody listens at its address.
 */
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rpc/rpc_agent.h"

static const double PROBE_SECONDS = 1; /* between looks for workers that ended without a word */

enum { RECORD = YK__RPC_NAME + 64 + 20 + YK__ADDRESS_TEXT + 8, MOST_INDEX = 1 << 24 };

static yk_status member_parse(uint32_t index, const char *text, yk__rpc_member *m)
{
    char address[YK__ADDRESS_TEXT], host[YK__HOST_SIZE], why[YK__WHY_SIZE];
    int port = 0;
    *m = (yk__rpc_member){.index = index};
    if (sscanf(text, "%127s %63s %d %79s", m->name, m->host, &m->pid, address) != 4 ||
        yk__host_port_parse(address, -1, host, &port) || !yk__resolve(host, port, yk__now() + 1, &m->address, 1, why))
        return yk__fail(YK_ERR_FORMAT, "rpc: the store's entry of worker %u is '%.200s'", index, text);
    return YK_OK;
}

/* The store's text under a key; the caller frees it. NULL and an error when it did not come in time. */
char *yk__rpc_store_text(const char *key, double deadline)
{
    void *data = NULL;
    size_t size = 0;
    double left = deadline - yk__now();
    if (yk_store_get(yk__rpc.store, key, &data, &size, left > 0.01 ? left : 0.01))
        return NULL;
    char *text = yk__calloc(size + 1, 1);
    if (text && size)
        memcpy(text, data, size);
    free(data);
    return text;
}

static yk_status member_read(uint32_t index, double deadline, yk__rpc_member *m)
{
    char key[40];
    snprintf(key, sizeof(key), "rpc/member/%u", index);
    char *text = yk__rpc_store_text(key, deadline);
    yk_status status = text ? member_parse(index, text, m) : yk__error_code();
    free(text);
    return status;
}

/* Adds those that have joined since the last look. The list only grows, so an index is a position. */
static yk_status members_refresh(double deadline)
{
    int64_t joined = 0;
    yk_status status = yk_store_add(yk__rpc.store, "rpc/joined", 0, &joined);
    if (!status && (joined < 0 || joined > MOST_INDEX))
        status = yk__fail(YK_ERR_FORMAT, "rpc: the store counts %" PRId64 " workers", joined);
    while (!status) {
        yk__rpc_lock();
        int known = yk__rpc.member_count;
        pthread_mutex_unlock(&yk__rpc.lock);
        if (known >= joined)
            break;
        yk__rpc_member m;
        status = member_read((uint32_t)known + 1, deadline, &m);
        if (status)
            break;
        yk__rpc_lock();
        if (yk__rpc.member_count == known) { /* no other thread was faster */
            yk__rpc_member *all = yk__realloc(yk__rpc.members, (size_t)(known + 1) * sizeof(*all));
            if (all) {
                yk__rpc.members = all;
                all[yk__rpc.member_count++] = m;
            } else {
                status = YK_ERR_MEMORY;
            }
        }
        pthread_mutex_unlock(&yk__rpc.lock);
    }
    return status;
}

bool yk__rpc_member_has_left(uint32_t index)
{
    char key[40];
    const char *keys[] = {key};
    bool there = false;
    snprintf(key, sizeof(key), "rpc/left/%u", index);
    return !yk_store_check(yk__rpc.store, keys, 1, &there) && there;
}

/* A host that does not answer is no proof that nobody listens. */
bool yk__rpc_member_probe(const yk__rpc_member *m)
{
    yk__reason reason;
    char why[YK__WHY_SIZE];
    int fd = yk__connect(&m->address, yk__now() + 1, &reason, why);
    yk__socket_close(fd);
    return fd < 0 && reason == YK__REFUSED;
}

/* The same, looked at for a second: a process that is being killed still listens a little after its last answer. */
static bool member_goes(const yk__rpc_member *m)
{
    enum { LOOKS = 50, PAUSE = 20 /* milliseconds */ };
    for (int i = 0; i < LOOKS; i++) {
        if (yk__rpc_member_probe(m))
            return true;
        poll(NULL, 0, PAUSE);
    }
    return false;
}

uint32_t yk__rpc_member_youngest(const char *name)
{
    char key[YK__RPC_NAME + 20];
    snprintf(key, sizeof(key), "rpc/name/%s", name);
    char *text = yk__rpc_store_text(key, 0);
    uint32_t index = text ? (uint32_t)strtoul(text, NULL, 10) : 0;
    free(text);
    return index;
}

bool yk__rpc_member_has_ended(const yk__rpc_member *m)
{
    return m->gone || member_goes(m);
}

yk_status yk__rpc_member_at(uint32_t index, yk__rpc_member *member)
{
    yk_status status = YK_OK;
    for (int look = 0; look < 2 && !status; look++) {
        bool found = false;
        yk__rpc_lock();
        for (int i = 0; i < yk__rpc.member_count && !found; i++)
            if ((found = yk__rpc.members[i].index == index))
                *member = yk__rpc.members[i];
        pthread_mutex_unlock(&yk__rpc.lock);
        if (found)
            return YK_OK;
        status = look ? yk__fail(YK_ERR_NOT_FOUND, "there is no worker of number %u", index)
                      : members_refresh(yk__now() + yk__rpc.timeout);
    }
    return status;
}

void yk__rpc_member_gone(uint32_t index)
{
    yk__rpc_lock();
    for (int i = 0; i < yk__rpc.member_count; i++)
        if (yk__rpc.members[i].index == index)
            yk__rpc.members[i].gone = true;
    pthread_mutex_unlock(&yk__rpc.lock);
}

/* ---- joining ----------------------------------------------------------------------------------------------------- */

/* Takes the name for this index: from nobody, or from one that has ended. */
static yk_status name_claim(uint32_t index, double deadline)
{
    char key[YK__RPC_NAME + 20], own[16], before[16] = "";
    snprintf(key, sizeof(key), "rpc/name/%s", yk__rpc.name);
    snprintf(own, sizeof(own), "%u", index);
    for (;;) {
        bool swapped = false;
        void *held = NULL;
        size_t size = 0;
        yk_status status =
            yk_store_compare_set(yk__rpc.store, key, before, strlen(before), own, strlen(own), &held, &size, &swapped);
        char text[16] = "";
        if (!status && !swapped)
            snprintf(text, sizeof(text), "%.*s", (int)(size < 15 ? size : 15), held ? (const char *)held : "");
        free(held);
        if (status || swapped)
            return status;
        unsigned long other = strtoul(text, NULL, 10);
        yk__rpc_member m;
        status =
            other ? member_read((uint32_t)other, deadline, &m)
                  : yk__fail(YK_ERR_FORMAT, "rpc_init: the store's entry of the name '%s' is '%s'", yk__rpc.name, text);
        if (status)
            return status;
        if (!member_goes(&m))
            return yk__fail(YK_ERR_ARGUMENT,
                            "rpc_init: there is a worker '%s' already: process %d of host %s; this is process %d",
                            m.name, m.pid, m.host, yk__rpc.pid);
        snprintf(before, sizeof(before), "%s", text);
    }
}

static yk_status members_await(int count, double deadline)
{
    yk_status status = YK_OK;
    while (!(status = members_refresh(deadline))) {
        yk__rpc_lock();
        int there = yk__rpc.member_count;
        pthread_mutex_unlock(&yk__rpc.lock);
        if (there >= count)
            return YK_OK;
        if (yk__now() >= deadline)
            return yk__fail(YK_ERR_TIMEOUT, "rpc_init: %d of %d workers have joined within %g s", there, count,
                            yk__rpc.timeout);
        char key[40];
        const char *keys[] = {key};
        snprintf(key, sizeof(key), "rpc/member/%d", there + 1);
        double left = deadline - yk__now();
        YK__QUESTION;
        (void)!yk_store_wait(yk__rpc.store, keys, 1, left > 0.01 ? left : 0.01); /* the loop looks at what came of it */
    }
    yk__error_prefix("rpc_init");
    return status;
}

yk_status yk__rpc_join(int world_size, double deadline)
{
    int64_t index = 0;
    char key[40], record[RECORD], address[YK__ADDRESS_TEXT];
    yk_status status = yk_store_add(yk__rpc.store, "rpc/joined", 1, &index);
    if (status) {
        yk__error_prefix("rpc_init");
        return status;
    }
    yk__rpc_lock();
    yk__rpc.index = (uint32_t)index;
    atomic_store(&yk__progress_page()->worker, (int)index);
    pthread_mutex_unlock(&yk__rpc.lock);
    snprintf(key, sizeof(key), "rpc/member/%u", (uint32_t)index);
    snprintf(record, sizeof(record), "%s %s %d %s", yk__rpc.name, yk__rpc.identity.host, yk__rpc.pid,
             yk__address_format(&yk__rpc.address, address));
    /* The entry comes first, so that whoever finds the name finds the worker. */
    status = yk_store_set(yk__rpc.store, key, record, strlen(record));
    status = status ? status : name_claim((uint32_t)index, deadline);
    if (status)
        yk__rpc_left();
    return status ? status : members_await(world_size, deadline);
}

/* ---- finding ----------------------------------------------------------------------------------------------------- */

/* Copies the youngest worker of the name that is not known to be gone, else the youngest; the number of those that are
 * not, or -1 where there is none at all. */
static int member_youngest(const char *name, yk__rpc_member *found)
{
    int living = -1;
    yk__rpc_lock();
    for (int i = yk__rpc.member_count - 1; i >= 0; i--) {
        const yk__rpc_member *m = &yk__rpc.members[i];
        if (strcmp(m->name, name) != 0)
            continue;
        if (living < 0 || (living == 0 && !m->gone))
            *found = *m;
        living = (living < 0 ? 0 : living) + !m->gone;
    }
    pthread_mutex_unlock(&yk__rpc.lock);
    return living;
}

/* Several of that name are not known to be gone: the store says whose it is. Those that joined before that one have
 * ended, as it took the name over; of the others, those have that were refused for their name. */
static void member_settle(const char *name, yk__rpc_member *found)
{
    YK__QUESTION;
    uint32_t owner = yk__rpc_member_youngest(name);
    if (!owner)
        return;
    yk__rpc_lock();
    int count = yk__rpc.member_count;
    pthread_mutex_unlock(&yk__rpc.lock);
    for (int i = 0; i < count; i++) {
        yk__rpc_lock();
        yk__rpc_member m = yk__rpc.members[i];
        pthread_mutex_unlock(&yk__rpc.lock);
        if (m.gone || strcmp(m.name, name) != 0)
            continue;
        if (m.index == owner)
            *found = m;
        else if (m.index < owner || yk__rpc_member_has_left(m.index))
            yk__rpc_member_gone(m.index);
    }
}

/* Finds the worker that has the name, or had it; false where there is none. */
static bool member_lookup(const char *name, yk__rpc_member *found)
{
    int living = member_youngest(name, found);
    if (living > 1)
        member_settle(name, found);
    return living >= 0;
}

static yk_status member_unknown(const char *what, const char *name)
{
    enum { SHOWN = 64 };
    const char *names[SHOWN];
    char list[300] = "";
    size_t count = 0;
    yk__rpc_lock();
    for (int i = 0; i < yk__rpc.member_count && count < SHOWN; i++)
        names[count++] = yk__rpc.members[i].name;
    const char *nearest = yk__nearest(name, names, count);
    for (size_t i = 0, at = 0; i < count && at < sizeof(list) - 64; i++)
        at += (size_t)snprintf(list + at, sizeof(list) - at, "%s'%.50s'", i ? ", " : "", names[i]);
    yk_status status = yk__fail(YK_ERR_NOT_FOUND, "%s: there is no worker '%.127s'%s%s%s; there %s %s", what, name,
                                nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "",
                                count == 1 ? "is" : "are", list);
    pthread_mutex_unlock(&yk__rpc.lock);
    return status;
}

yk_status yk__rpc_member_find(const char *what, const char *name, double deadline, yk__rpc_member *member)
{
    enum { PAUSE = 50 /* milliseconds */ };
    if (member_lookup(name, member) && !member->gone)
        return YK_OK;
    for (;;) {
        double now = yk__now();
        yk_status status = members_refresh(now + yk__rpc.timeout);
        if (status) {
            yk__error_prefix("%s: looking for worker '%.127s'", what, name);
            return status;
        }
        bool found = member_lookup(name, member);
        if (found && (deadline == 0 || !member->gone))
            return YK_OK;
        if (deadline == 0)
            return member_unknown(what, name);
        if (now >= deadline)
            return yk__fail(YK_ERR_TIMEOUT, "%s: no worker '%.127s' has joined in time%s", what, name,
                            found ? ", since the one of that name has ended" : "");
        if (found) { /* its name is in the store, so there is nothing to wait for there */
            poll(NULL, 0, PAUSE);
            continue;
        }
        char key[YK__RPC_NAME + 20];
        const char *keys[] = {key};
        snprintf(key, sizeof(key), "rpc/name/%s", name);
        YK__QUESTION;
        (void)!yk_store_wait(yk__rpc.store, keys, 1, deadline - now > 0.01 ? deadline - now : 0.01);
    }
}

yk_status yk_rpc_wait_for(const char *worker, double timeout)
{
    yk_status status = yk__rpc_name_check("rpc_wait_for", "worker", worker);
    status = status ? status : yk__rpc_enter("rpc_wait_for");
    if (status)
        return status;
    double seconds = yk__rpc.timeout;
    yk__rpc_leave();
    yk__rpc_member member;
    status = yk__check_timeout("rpc_wait_for", "timeout", timeout, seconds, &seconds);
    return status ? status : yk__rpc_member_find("rpc_wait_for", worker, yk__now() + seconds, &member);
}

/* ---- leaving ----------------------------------------------------------------------------------------------------- */

void yk__rpc_left(void)
{
    YK__QUESTION;
    char key[40];
    atomic_store(&yk__progress_page()->worker, 0);
    snprintf(key, sizeof(key), "rpc/left/%u", yk__rpc.index);
    (void)!yk_store_set(yk__rpc.store, key, "1", 1); /* without the store nobody can look */
}

/* Copies the first worker that has not left and is not known to be gone, from position *at on; false where there is
 * none. */
static bool member_missing(int *at, yk__rpc_member *m)
{
    for (;; ++*at) {
        yk__rpc_lock();
        bool end = *at >= yk__rpc.member_count;
        if (!end)
            *m = yk__rpc.members[*at];
        pthread_mutex_unlock(&yk__rpc.lock);
        if (end)
            return false;
        if (!m->gone && m->index != yk__rpc.index && !yk__rpc_member_has_left(m->index))
            return true;
    }
}

yk_status yk__rpc_leave_together(double deadline)
{
    yk__rpc_left();
    int at = 0;
    yk__rpc_member m;
    for (;;) {
        YK__QUESTION;
        /* A store that is gone is no error: the process that served it has ended, which it does when all have left. */
        if (members_refresh(yk__now() + PROBE_SECONDS) || !member_missing(&at, &m))
            return YK_OK;
        double now = yk__now(), left = deadline ? deadline - now : PROBE_SECONDS;
        char key[40];
        const char *keys[] = {key};
        snprintf(key, sizeof(key), "rpc/left/%u", m.index);
        if (left <= 0)
            break;
        if (yk_store_wait(yk__rpc.store, keys, 1, left < PROBE_SECONDS ? left : PROBE_SECONDS) == YK_ERR_TIMEOUT &&
            yk__rpc_member_probe(&m))
            yk__rpc_member_gone(m.index);
    }
    return yk__fail(YK_ERR_TIMEOUT,
                    "rpc_shutdown: worker '%s' (host %s, process %d) has not come to its own shutdown in time", m.name,
                    m.host, m.pid);
}
