/*
 * native_join.c - joining and leaving: the ranks find one another through the store. Layer: comm/native.
 *
 * Each rank puts a record into the store and reads everybody's; then the ranks of a host map their segment (segment.c)
 * while those of different hosts connect (links.c). A rank that fails publishes the reason in a key of the group, which
 * ends the waiting of all others.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/invariant.h"
#include "base/log.h"
#include "comm/native/multihost.h"
#include "host/process.h"
#include "net/store_table.h"

/* A rank as the others read it from the store. */
typedef struct record {
    int world_size, pid;
    uint64_t start, members;
    char host_id[192], host_name[64], address[YK__ADDRESS_TEXT]; /* the address at which it listens for other hosts;
                                                                  * "-": none */
    int segment_fd; /* its file for the segment of its host, if it is the lowest rank there */
    uint64_t segment_cookie;
} record;

/* ---- records and failures in the store -------------------------------------------------------------------------- */
/* Seconds: between looks at the records of those that are there; and what a server that has been asked for its last
 * word is given beyond the time to join. */
static const double records_slice = 1, answer_time = 2;

static void failed_key(const yk__comm_join_args *args, char key[300])
{
    snprintf(key, 300, "%s/failed", args->name);
}

yk_status yk__native_check_joining(native *g, const yk__comm_join_args *args)
{
    char key[300], *cause = NULL, *text;
    const char *keys[] = {key};
    bool there = false;
    failed_key(args, key);
    yk_status status = g->head ? yk__native_check(g) : YK_OK;
    if (status)
        return status;
    if (yk_store_check(args->store, keys, 1, &there) == YK_OK && there &&
        yk_store_get(args->store, key, (void **)&cause, NULL, 1) == YK_OK) {
        long code = strtol(cause, &text, 10);
        status = yk__fail(code > 0 ? (yk_status)code : YK_ERR_CONNECTION, "%s", text + (*text == ' '));
    } else {
        yk_clear_error();
    }
    free(cause);
    return status || !args->in_vain ? status : args->in_vain(args->in_vain_of);
}

/* Tells the others why they wait in vain; false where it cannot. The first cause stays. */
static bool publish_failure(const yk__comm_join_args *args)
{
    char key[300], who[120];
    void *now = NULL;
    yk_error error;
    yk__error_take(&error);
    failed_key(args, key);
    snprintf(who, sizeof(who), "rank %d (host %.60s, pid %d)", args->rank, args->host_name, (int)getpid());
    bool names = strstr(error.message, who) != NULL;
    char *text = names ? yk__format("%d %s", (int)error.code, error.message)
                       : yk__format("%d %s did not join: %s", (int)error.code, who, error.message);
    bool published_failure =
        text && yk_store_compare_set(args->store, key, "", 0, text, strlen(text), &now, NULL, NULL) == YK_OK;
    free(now);
    free(text);
    yk_clear_error();
    yk__error_put(&error);
    return published_failure;
}

/* The value of the key of an attempt that failed before its store was made. */
static const char failed_before[] = "7 an earlier attempt to join failed";

void yk__native_mark_failed(yk_store *store, const char *name)
{
    char key[300];
    void *now = NULL;
    snprintf(key, sizeof(key), "%s/failed", name);
    if (yk_store_compare_set(store, key, "", 0, failed_before, sizeof(failed_before) - 1, &now, NULL, NULL))
        yk_clear_error(); /* then this rank finds it out, too */
    free(now);
}

/* Asks for keys until they are there, or another rank has failed, for `slice` seconds. A server that stalls is waited
 * for as long as the ranks are. */
static yk_status gather(native *g, const yk__comm_join_args *args, yk__store_gather *all, double slice, double until)
{
    char key[300];
    double now = yk__now(), end = now + slice < until ? now + slice : until;
    failed_key(args, key);
    all->stop = yk__text_bytes(key);
    yk_status status = g->head ? yk__native_check(g) : YK_OK;
    return status ? status : yk__store_gather_run(args->store, all, end, until - now + answer_time);
}

/* Fails with what the rank that failed has said, if one has; frees it. */
static yk_status peer_failure(yk__store_gather *all)
{
    yk_status status = YK_OK;
    if (all->stopped.data) {
        char *text;
        long code = strtol(all->stopped.data, &text, 10);
        status = yk__fail(code > 0 ? (yk_status)code : YK_ERR_CONNECTION, "%s", text + (*text == ' '));
    }
    free(all->stopped.data);
    all->stopped.data = NULL;
    return status;
}

/* ---- records ----------------------------------------------------------------------------------------------------- */
static bool parse_record(const char *text, record *r)
{
    return sscanf(text, "%d %d %" SCNu64 " %" SCNx64 " %d %" SCNx64 " %191s %63s %79s", &r->world_size, &r->pid,
                  &r->start, &r->members, &r->segment_fd, &r->segment_cookie, r->host_id, r->host_name,
                  r->address) == 9;
}

/* Another process has published a record as this rank, or this one has before. */
static yk_status conflict(const yk__comm_join_args *args, const char *key, uint64_t start, const char *theirs)
{
    int pid = (int)getpid();
    char host[192];
    record other;
    snprintf(host, sizeof(host), "%.160s", args->host_id);
    if (!parse_record(theirs, &other))
        return yk__fail(YK_ERR_FORMAT, "group '%s': key %s of store %s holds something else", args->name, key,
                        yk_store_name(args->store));
    if (other.members == args->members && other.pid == pid && other.start == start && strcmp(other.host_id, host) == 0)
        return yk__fail(YK_ERR_ARGUMENT, "group '%s': rank %d has joined already, from this process (pid %d, store %s)",
                        args->name, args->rank, pid, yk_store_name(args->store));
    if (other.members != args->members)
        return yk__fail(YK_ERR_MISMATCH,
                        "group '%s': process %d on host %s made it of other ranks, or by another backend, than this "
                        "one, pid %d on host %s; all ranks make the same groups in the same order",
                        args->name, other.pid, other.host_name, pid, args->host_name);
    return yk__fail(YK_ERR_ARGUMENT,
                    "group '%s': two processes have rank %d: pid %d on host %s, and this one, pid %d on host %s",
                    args->name, args->rank, other.pid, other.host_name, pid, args->host_name);
}

/* True if two host ids are of one machine, whatever the rights of the processes are (comm/group.c). */
static bool same_machine(const char *a, const char *b)
{
    const char *a_end = strrchr(a, '/'), *b_end = strrchr(b, '/');
    return a_end && b_end && a_end > a && a_end - a == b_end - b && strncmp(a, b, (size_t)(a_end - a)) == 0;
}

/* The same of ids that a carrier's ranks have, a host each (comm/group.c). */
static bool same_behind_rank(const char *a, const char *b)
{
    const char *a_machine = strchr(a, '@'), *b_machine = strchr(b, '@');
    return a_machine && b_machine && a_machine[1] && strcmp(a_machine, b_machine) == 0;
}

/* Logs which ranks of one machine do not share its memory, since they may not open one another's files: once, by the
 * lowest of them. */
static void tell_apart(const native *g, const yk__comm_join_args *args, const record *records)
{
    char list[200] = "";
    bool any = false;
    for (int r = 0; r < g->world_size; r++) {
        if (!same_machine(records[r].host_id, records[g->rank].host_id))
            continue;
        if (r < g->rank)
            return;
        any |= g->members[r].host != g->host;
        size_t used = strlen(list);
        if (used < sizeof(list) - 20)
            snprintf(list + used, sizeof(list) - used, "%s%d", used ? ", " : "", r);
        else if (list[used - 1] != '.')
            snprintf(list + used, sizeof(list) - used, ", ...");
    }
    if (any && !args->parent)
        yk__log(
            YK_LOG_WARN,
            "group '%s': ranks %s are on one machine (host %s) and may not open one another's memory: they have user "
            "namespaces, users or capabilities of their own, or the system refuses it; they use TCP, which is "
            "slower",
            args->name, list, args->host_name);
}

/* Takes over the record of a process of this host that has ended while others are still missing: this one was started
 * in its place. Where all records are there the others have gone on with their content. */
static bool replace_ended_process(const yk__comm_join_args *args, char (*names)[300], const char *theirs,
                                  const char *value)
{
    const char *key = names[args->rank];
    bool all = true;
    char host[192], state;
    record other;
    uint64_t start;
    void *now = NULL;
    bool swapped = false;
    snprintf(host, sizeof(host), "%.160s", args->host_id);
    if (!parse_record(theirs, &other) || !same_machine(other.host_id, host) || other.pid == (int)getpid() ||
        (yk__process_state(other.pid, &state, &start) && state != 'Z' && start == other.start))
        return false;
    for (int r = 0; r < args->world_size && all; r++) {
        const char *one[] = {names[r]};
        if (yk_store_check(args->store, one, 1, &all))
            return false;
    }
    if (all)
        return false;
    if (yk_store_compare_set(args->store, key, theirs, strlen(theirs), value, strlen(value), &now, NULL, &swapped))
        yk_clear_error();
    free(now);
    return swapped;
}

static yk_status check_record(const yk__comm_join_args *args, int rank, const char *text, record *r)
{
    if (!parse_record(text, r))
        return yk__fail(YK_ERR_FORMAT, "group '%s': key %s/rank/%d of store %s holds something else", args->name,
                        args->name, rank, yk_store_name(args->store));
    if (r->world_size != args->world_size)
        return yk__fail(YK_ERR_MISMATCH,
                        "group '%s': rank %d (host %s, pid %d) was given a world size of %d, rank %d one of %d",
                        args->name, rank, r->host_name, r->pid, r->world_size, args->rank, args->world_size);
    if (r->members != args->members)
        return yk__fail(YK_ERR_MISMATCH,
                        "group '%s': rank %d (host %s, pid %d) made it of other ranks, or by another backend, than "
                        "rank %d",
                        args->name, rank, r->host_name, r->pid, args->rank);
    return YK_OK;
}

/* Those that have come fit together; the time is over for the others. */
static yk_status name_missing(const yk__comm_join_args *args, const yk__store_value *values)
{
    char missing[400] = "";
    size_t used = 0;
    int absent = 0;
    for (int r = 0; r < args->world_size; r++) {
        if (values[r].data)
            continue;
        absent++;
        if (used < sizeof(missing) - 20)
            used += (size_t)snprintf(missing + used, sizeof(missing) - used, "%s%d", used ? ", " : "", r);
    }
    return yk__fail(YK_ERR_TIMEOUT, "group '%s': rank%s %s of %d did not join within %g s (store %s)", args->name,
                    absent == 1 ? "" : "s", missing, args->world_size, args->join_timeout, yk_store_name(args->store));
}

yk_status yk__native_compare_lists(yk_store *store, const char *name, const char *self, int count, const int *ranks)
{
    char key[320], failed[300], own[520], list[360] = "";
    void *now = NULL;
    bool swapped = false;
    uint64_t hash = yk__hash(YK__HASH_BASIS, ranks, (size_t)count * sizeof(*ranks));
    for (int i = 0; i < count; i++) {
        size_t used = strlen(list);
        if (used > sizeof(list) - 20) {
            snprintf(list + used, sizeof(list) - used, ", ...");
            break;
        }
        snprintf(list + used, sizeof(list) - used, "%s%d", i ? ", " : "", ranks[i]);
    }
    snprintf(key, sizeof(key), "%s/list", name);
    snprintf(own, sizeof(own), "%016" PRIx64 " %.110s made it of ranks %s", hash, self, list);
    yk_status status = yk_store_compare_set(store, key, "", 0, own, strlen(own), &now, NULL, &swapped);
    const char *theirs = now;
    if (!status && !swapped && theirs && strncmp(theirs, own, 16) != 0) {
        const char *text = strlen(theirs) > 17 ? theirs + 17 : theirs;
        status =
            yk__fail(YK_ERR_MISMATCH,
                     "group '%s': %.300s, but %s of %s; all ranks of the group that it is a part of call new_group "
                     "with the same lists in the same order",
                     name, text, self, list);
        yk_error error;
        yk__error_take(&error);
        char *cause = yk__format("%d %s", (int)error.code, error.message);
        void *before = NULL;
        snprintf(failed, sizeof(failed), "%.290s/failed", name);
        if (!cause || yk_store_compare_set(store, failed, "", 0, cause, strlen(cause), &before, NULL, NULL))
            yk_clear_error(); /* this rank knows it at least */
        free(cause);
        free(before);
        yk__error_put(&error);
    }
    free(now);
    return status;
}

/* After a wait in vain: fails if other ranks made this group from another list of ranks, and so do not come. */
static yk_status compare_lists(const yk__comm_join_args *args)
{
    const native *parent = args->parent;
    char self[120];
    if (!parent || !args->ranks)
        return YK_OK;
    yk__native_rank_name(parent, parent->rank, self, sizeof(self));
    return yk__native_compare_lists(args->store, args->name, self, args->world_size, args->ranks);
}

/* Publishes this rank's record and reads everybody's: one request, which is answered when the last is there. A rank
 * that does not fit is seen by those that are there within a second. */
static yk_status exchange_records(native *g, const yk__comm_join_args *args, uint64_t start, const char *address,
                                  record *records, double until, bool *published)
{
    int n = args->world_size;
    char own[300], value[600];
    yk__bytes *keys = yk__calloc((size_t)n, sizeof(*keys));
    yk__store_value *values = yk__calloc((size_t)n, sizeof(*values));
    char(*names)[300] = yk__calloc((size_t)n, sizeof(*names));
    yk_status status = keys && values && names ? YK_OK : yk__error_code();
    for (int r = 0; r < n && !status; r++) {
        snprintf(names[r], sizeof(names[r]), "%s/rank/%d", args->name, r);
        keys[r] = yk__text_bytes(names[r]);
    }
    snprintf(own, sizeof(own), "%s/rank/%d", args->name, args->rank);
    snprintf(value, sizeof(value), "%d %d %" PRIu64 " %" PRIx64 " %d %" PRIx64 " %.160s %.60s %s", n, g->pid, start,
             args->members, g->segment_fd, g->segment_cookie, args->host_id, args->host_name, address);
    bool complete = false;
    while (!status && !complete) {
        yk__store_gather all = {.keys = keys, .count = (size_t)n, .values = values};
        if (!*published)
            all.own = yk__text_bytes(own), all.value = yk__text_bytes(value);
        status = gather(g, args, &all, records_slice, until);
        complete = !status && all.complete;
        /* It had failed when this rank came, or is marked so by a rank 0 that serves a new store, a moment after. */
        bool over = !status && args->attempt && all.stopped.data &&
                    ((all.own.data && !values[args->rank].data) || strcmp(all.stopped.data, failed_before) == 0);
        if (!status && !over && all.conflict.data && !replace_ended_process(args, names, all.conflict.data, value))
            status = conflict(args, own, start, all.conflict.data);
        free(all.conflict.data);
        if (args->attempt)
            args->attempt->over = over;
        /* Two processes of one rank are reported to all, the other one too; a second try of this process is its own
         * mistake. */
        if (over)
            *published = false;
        else if (all.own.data)
            *published =
                all.sent && (status != YK_ERR_ARGUMENT || strstr(yk_last_error()->message, "two processes") != NULL);
        for (int r = 0; r < n && !status; r++)
            status = values[r].data ? check_record(args, r, values[r].data, &records[r]) : YK_OK;
        if (status) /* this rank's own reason counts here, not one that another rank had */
            free(all.stopped.data);
        else
            status = peer_failure(&all);
        if (!status && !complete)
            status = compare_lists(args);
        if (!status && !complete && args->in_vain)
            status = args->in_vain(args->in_vain_of);
        if (!status && !complete && yk__now() >= until)
            status = name_missing(args, values);
        for (int r = 0; r < n; r++) {
            free(values[r].data);
            values[r].data = NULL;
        }
    }
    free(keys);
    free(values);
    free(names);
    return status;
}

const char *yk__native_group_check(const native *g)
{
    if (g->hosts < 1 || g->first[0] != 0 || g->first[g->hosts] != g->world_size)
        return yk__broken("%d hosts have ranks %d to %d, of a group of %d", g->hosts, g->first[0],
                          g->hosts < 1 ? 0 : g->first[g->hosts] - 1, g->world_size);
    for (int h = 0; h < g->hosts; h++) {
        if (g->first[h + 1] <= g->first[h])
            return yk__broken("host %d of %d has no rank", h, g->hosts);
        if (h > 0 && g->order[g->first[h]] <= g->order[g->first[h - 1]])
            return yk__broken("host %d has the lowest rank %d, and host %d before it %d", h, g->order[g->first[h]],
                              h - 1, g->order[g->first[h - 1]]);
        for (int i = g->first[h]; i < g->first[h + 1]; i++) {
            int rank = g->order[i];
            if (rank < 0 || rank >= g->world_size || (i > g->first[h] && rank <= g->order[i - 1]))
                return yk__broken("rank %d of %d is number %d of host %d, behind rank %d", rank, g->world_size,
                                  i - g->first[h], h, i > g->first[h] ? g->order[i - 1] : -1);
            if (g->members[rank].host != h || g->members[rank].local_rank != i - g->first[h])
                return yk__broken("rank %d is number %d of host %d, and says number %d of host %d", rank,
                                  i - g->first[h], h, g->members[rank].local_rank, g->members[rank].host);
        }
    }
    if (g->host != g->members[g->rank].host || g->local_rank != g->members[g->rank].local_rank ||
        g->local_size != yk__native_host_size(g, g->host))
        return yk__broken("rank %d is number %d of %d on host %d, and keeps number %d of %d on host %d", g->rank,
                          g->members[g->rank].local_rank, yk__native_host_size(g, g->members[g->rank].host),
                          g->members[g->rank].host, g->local_rank, g->local_size, g->host);
    return NULL;
}

/* Numbers the hosts and finds the ranks of each. */
static yk_status hosts_number(native *g, const yk__comm_join_args *args, const record *records)
{
    int n = args->world_size;
    const native *parent = args->parent;
    g->is_part = parent != NULL;
    g->members = yk__calloc((size_t)n, sizeof(*g->members));
    g->order = yk__calloc((size_t)n, sizeof(int));
    g->first = yk__calloc((size_t)n + 1, sizeof(int));
    if (!g->members || !g->order || !g->first)
        return yk__error_code();
    int ordered = 0;
    for (int r = 0; r < n; r++) {
        bool known = false;
        for (int h = 0; h < g->hosts && !known; h++)
            known = strcmp(records[g->order[g->first[h]]].host_id, records[r].host_id) == 0;
        if (known)
            continue;
        int h = g->hosts++;
        g->first[h] = ordered;
        for (int i = r; i < n; i++) {
            if (strcmp(records[i].host_id, records[r].host_id) != 0)
                continue;
            yk__native_member *m = &g->members[i];
            *m = (yk__native_member){.host = h, .local_rank = ordered - g->first[h], .pid = records[i].pid};
            m->global = parent ? parent->members[args->ranks[i]].global : i;
            snprintf(m->host_name, sizeof(m->host_name), "%s", records[i].host_name);
            g->order[ordered++] = i;
        }
        g->first[h + 1] = ordered;
    }
    g->host = g->members[g->rank].host;
    g->local_rank = g->members[g->rank].local_rank;
    g->local_size = yk__native_host_size(g, g->host);
    g->has_boards = g->hosts > 1 && g->hosts < g->world_size;
    g->segment_bytes = yk__native_lay_out(g, NULL);
    g->head = NULL;
    g->mappings = yk__calloc((size_t)g->local_size, sizeof(yk__native_mapping *));
    YK__ASSERT_SOUND(yk__native_group_check(g));
    return g->mappings ? YK_OK : yk__error_code();
}

static void segment_measure(native *g)
{
    cpu_set_t cores;
    CPU_ZERO(&cores);
    g->one_process = true;
    for (int r = 0; r < g->local_size; r++) {
        CPU_OR(&cores, &cores, &g->rows[r].cores);
        g->one_process &= g->rows[r].pid == g->pid;
    }
    int count = CPU_COUNT(&cores);
    g->crowded = g->local_size > (count > 0 ? count : yk__cores());
}

static void destroy(native *g)
{
    yk__native_drop_segment_file(g);
    if (g->net)
        yk__native_net_close(g);
    if (g->head)
        yk__native_unmap_segment(g);
    if (g->mappings)
        yk__native_forget_mappings(g);
    pthread_mutex_destroy(&g->map_lock);
    pthread_mutex_destroy(&g->message_lock);
    free(g->mappings);
    free(g->members);
    free(g->order);
    free(g->first);
    free(g->name);
    free(g);
}

/* Finds the ranks, on this host and others. *published: they expect this one from then on. */
static yk_status find_ranks(native *g, const yk__comm_join_args *args, uint64_t start, double until, bool *published)
{
    record *records = yk__calloc((size_t)args->world_size, sizeof(record));
    yk_error no_listener = {0};
    yk_status status = records ? yk__native_reserve_segment(g) : yk__error_code();
    if (!status && args->store) {
        /* Before the records are exchanged it is not known if other hosts take part: the address to connect to is
         * published with the record, and an address that this rank does not have is an error only if they do. */
        if (args->world_size > 1 && yk__native_net_listen(g, args))
            yk__error_take(&no_listener);
        else if (args->world_size > 1)
            yk__native_net_early(g, args);
        if (g->carrier && g->net)
            status = yk__native_carrier_open(g, args);
        *published = status != YK_OK; /* the others are to know */
    }
    if (!status && args->store) {
        status = exchange_records(g, args, start, g->net && g->net->listener >= 0 ? g->net->address : "-", records,
                                  until, published);
    } else if (!status) {
        snprintf(records[0].host_name, sizeof(records[0].host_name), "%.60s", args->host_name);
        records[0].pid = g->pid;
    }
    if (!status)
        status = hosts_number(g, args, records);
    if (!status && g->hosts > 1)
        tell_apart(g, args, records);
    if (!status)
        g->transport = g->hosts > 1 ? &yk__native_multihost : &yk__native_one_host;
    if (!status && g->hosts == 1 && g->net)
        yk__native_net_close(g);
    if (!status && g->hosts > 1 && no_listener.code) {
        yk__error_put(&no_listener);
        status = no_listener.code;
    }
    for (int r = 0; r < args->world_size && !status && g->carrier; r++)
        g->net->links[r].near = same_behind_rank(records[r].host_id, records[g->rank].host_id);
    for (int r = 0; r < args->world_size && !status && g->hosts > 1; r++)
        snprintf(g->net->links[r].address, sizeof(g->net->links[r].address), "%s", records[r].address);
    if (!status && g->hosts > 1)
        status = yk__native_net_begin(g, args); /* connections are made while the segment is */
    if (!status) {
        const record *maker = &records[yk__native_rank_at(g, g->host, 0)];
        status = yk__native_map_segment(g, args, maker->segment_fd, maker->segment_cookie, start, until);
    }
    free(records);
    if (!status && g->hosts > 1) {
        status = yk__native_net_connect(g, args, until);
        if (!status && g->carrier)
            status = yk__native_carrier_connect(g, args, until);
        if (status)
            yk__native_abort(g, status, yk_last_error() ? yk_last_error()->message : "a rank could not join");
    }
    return status;
}

yk_status yk__native_join(const yk__comm_join_args *args, void **state)
{
    double until = yk__now() + args->join_timeout;
    *state = NULL;
    if (args->world_size > NATIVE_MAX_RANKS)
        return yk__fail(YK_ERR_UNSUPPORTED, "group '%s': the native backend takes up to %d ranks, not %d", args->name,
                        NATIVE_MAX_RANKS, args->world_size);
    native *g = yk__calloc(1, sizeof(*g));
    if (!g)
        return yk__error_code();
    pthread_mutexattr_t recursive; /* a message may break the group, which sends messages to other hosts */
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&g->map_lock, NULL);
    pthread_mutex_init(&g->message_lock, &recursive);
    pthread_mutexattr_destroy(&recursive);
    g->rank = args->rank;
    g->world_size = args->world_size;
    g->transport = &yk__native_one_host; /* until the hosts of all ranks are known */
    g->timeout = args->timeout;
    g->carrier = args->world_size > 1 ? args->carrier : NULL;
    g->segment_fd = -1;
    g->pid = (int32_t)getpid();
    g->name = yk__strdup(args->name);
    char process_state;
    uint64_t start = 0;
    yk_status status = g->name ? YK_OK : yk__error_code();
    if (!status && !yk__process_state(g->pid, &process_state, &start))
        status = yk__fail_errno("group '%s': the state of this process, %d, cannot be read", args->name, (int)g->pid);
    bool published = false;
    if (!status)
        status = find_ranks(g, args, start, until, &published);
    if (args->attempt)
        args->attempt->announced = published;
    if (status) {
        bool published_failure = !published || publish_failure(args);
        destroy(g);
        if (!published_failure)
            publish_failure(args); /* with the descriptors that were missing, it may be */
        return status;
    }
    segment_measure(g);
    *state = g;
    return YK_OK;
}

void yk__native_leave(void *state)
{
    native *g = state;
    yk__native_drain_messages(g);
    atomic_store(&g->rows[g->local_rank].left, 1);
    /* Those that wait look at once, not after their nap. */
    yk__native_wake_all(g);
    destroy(g);
}

const yk__comm_backend yk__comm_native = {
    .name = "native",
    .join = yk__native_join,
    .collective =
        {
            [YK__COMM_ALL_REDUCE] = yk__native_collective,
            [YK__COMM_REDUCE] = yk__native_collective,
            [YK__COMM_BROADCAST] = yk__native_collective,
            [YK__COMM_ALL_GATHER] = yk__native_collective,
            [YK__COMM_GATHER] = yk__native_collective,
            [YK__COMM_SCATTER] = yk__native_collective,
            [YK__COMM_REDUCE_SCATTER] = yk__native_collective,
            [YK__COMM_ALL_TO_ALL] = yk__native_collective,
            [YK__COMM_BARRIER] = yk__native_collective,
        },
    .post = yk__native_post,
    .wait = yk__native_wait,
    .forget = yk__native_forget,
    .check = yk__native_check,
    .look = yk__native_look,
    .abort_group = yk__native_abort,
    .leave = yk__native_leave,
};
