/*
 * segment.c - joining and leaving: the ranks of a host find one another through the store and map one segment.
 * Layer: comm/native.
 *
 * Each rank puts a record into the store and reads everybody's. The lowest rank of a host makes the segment and says
 * where; the others open it through /proc/PID/fd, which needs the same user and process name space, and leaves no file
 * behind. Threads of one process share one mapping. Who fails tells the others through the store, so that they need not
 * wait, and know why.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "comm/native/hosts.h"
#include "net/store_table.h"

/* Segments that this process has mapped. */
typedef struct mapped {
    void *memory;
    size_t bytes;
    uint64_t cookie;
    int references;
    struct mapped *next;
} mapped;

static pthread_mutex_t mapped_lock = PTHREAD_MUTEX_INITIALIZER;
static mapped *all_mapped;

/* A rank as the others read it from the store. */
typedef struct record {
    int world_size, pid;
    uint64_t start, members;
    char host_id[128], host_name[64], address[YK__ADDRESS_TEXT]; /* where it listens for other hosts; "-": nowhere */
} record;

static size_t round_up(size_t bytes)
{
    return (bytes + 4095) & ~(size_t)4095;
}

/* Sets the addresses inside the segment, and gives its size. */
static size_t lay_out(native *g, char *memory)
{
    size_t n = (size_t)g->world_size, at = round_up(sizeof(yk__native_head));
    g->head = (yk__native_head *)(void *)memory;
    g->rows = (yk__native_row *)(void *)(memory + at);
    at += round_up(n * sizeof(yk__native_row));
    g->channels = (yk__native_channel *)(void *)(memory + at);
    at += round_up(n * n * sizeof(yk__native_channel));
    g->staging = memory + at;
    at += n * 2 * NATIVE_HALF;
    g->boards = memory + at;
    return at + (g->has_boards ? n * 2 * NATIVE_BOARD : 0); /* pages that are never touched cost nothing */
}

static bool remember(void *memory, size_t bytes, uint64_t cookie)
{
    mapped *m = yk__calloc(1, sizeof(*m));
    if (!m)
        return false;
    *m = (mapped){memory, bytes, cookie, 1, NULL};
    pthread_mutex_lock(&mapped_lock);
    m->next = all_mapped;
    all_mapped = m;
    pthread_mutex_unlock(&mapped_lock);
    return true;
}

static void *share(uint64_t cookie)
{
    void *memory = NULL;
    pthread_mutex_lock(&mapped_lock);
    for (mapped *m = all_mapped; m; m = m->next) {
        if (m->cookie == cookie) {
            m->references++;
            memory = m->memory;
        }
    }
    pthread_mutex_unlock(&mapped_lock);
    return memory;
}

static void drop(void *memory)
{
    pthread_mutex_lock(&mapped_lock);
    mapped **at = &all_mapped;
    while (*at && (*at)->memory != memory)
        at = &(*at)->next;
    mapped *m = *at;
    if (m && --m->references == 0) {
        *at = m->next;
        munmap(m->memory, m->bytes);
        free(m);
    }
    pthread_mutex_unlock(&mapped_lock);
}

/* ---- what ranks say to each other ------------------------------------------------------------------------------- */
/* Seconds: between looks at other ranks' failures, and at the records of those that are there; and what a server that
 * has been asked for its last word is given beyond the time to join. */
static const double look_again = 0.25, records_slice = 1, answer_time = 2;

static void failed_key(const yk__comm_place *place, char key[300])
{
    snprintf(key, 300, "%s/failed", place->name);
}

yk_status yk__native_check_joining(native *g, const yk__comm_place *place)
{
    char key[300], *cause = NULL, *text;
    const char *keys[] = {key};
    bool there = false;
    failed_key(place, key);
    yk_status status = g->head ? yk__native_check(g) : YK_OK;
    if (status)
        return status;
    if (yk_store_check(place->store, keys, 1, &there) == YK_OK && there &&
        yk_store_get(place->store, key, (void **)&cause, NULL, 1) == YK_OK) {
        long code = strtol(cause, &text, 10);
        status = yk__fail(code > 0 ? (yk_status)code : YK_ERR_CONNECTION, "%s", text + (*text == ' '));
    } else {
        yk_clear_error();
    }
    free(cause);
    return status;
}

/* Tells the others why they wait in vain; false where it cannot. The first cause stays. */
static bool tell_others(const yk__comm_place *place)
{
    char key[300], who[120];
    void *now = NULL;
    yk_error error;
    yk__error_take(&error);
    failed_key(place, key);
    snprintf(who, sizeof(who), "rank %d (host %.60s, pid %d)", place->rank, place->host_name, (int)getpid());
    bool names = strstr(error.message, who) != NULL;
    char *text = names ? yk__format("%d %s", (int)error.code, error.message)
                       : yk__format("%d %s did not join: %s", (int)error.code, who, error.message);
    bool told = text && yk_store_compare_set(place->store, key, "", 0, text, strlen(text), &now, NULL, NULL) == YK_OK;
    free(now);
    free(text);
    yk_clear_error();
    yk__error_put(&error);
    return told;
}

/* Whether a rank of this host has ended. */
static bool is_gone(const native *g, int rank)
{
    char letter;
    uint64_t start;
    const yk__native_member *m = &g->members[rank];
    return m->host == g->host && (!yk__native_process_state(m->pid, &letter, &start) || letter == 'Z');
}

/* Asks for keys until they are there, or another rank has failed, for `slice` seconds. A server that stalls is waited
 * for as long as the ranks are. */
static yk_status gather(native *g, const yk__comm_place *place, yk__store_gather *all, double slice, double until)
{
    char key[300];
    double now = yk__now(), end = now + slice < until ? now + slice : until;
    failed_key(place, key);
    all->stop = yk__text_bytes(key);
    yk_status status = g->head ? yk__native_check(g) : YK_OK;
    return status ? status : yk__store_gather_run(place->store, all, end, until - now + answer_time);
}

/* Fails with what the rank that failed has said, if one has; frees it. */
static yk_status stopped(yk__store_gather *all)
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

yk_status yk__native_await(native *g, const yk__comm_place *place, const char *key, int rank, double until,
                           char **value)
{
    yk__bytes name = yk__text_bytes(key);
    yk__store_value found = {0};
    for (;;) {
        yk__store_gather one = {.keys = &name, .count = 1, .values = &found};
        yk_status status = gather(g, place, &one, look_again, until), failed = stopped(&one);
        status = status ? status : failed;
        *value = found.data;
        if (!status && one.complete)
            return status;
        free(found.data);
        *value = NULL;
        if (status)
            return status;
        bool gone = is_gone(g, rank);
        char who[120];
        if (gone || yk__now() >= until)
            return yk__fail(gone ? YK_ERR_CONNECTION : YK_ERR_TIMEOUT, "group '%s': %s %s while it joined", place->name,
                            yk__native_who_rank(g, rank, who, sizeof(who)), gone ? "failed or ended" : "stalled");
    }
}

/* ---- records ----------------------------------------------------------------------------------------------------- */
static bool parse_record(const char *text, record *r)
{
    return sscanf(text, "%d %d %" SCNu64 " %" SCNx64 " %127s %63s %79s", &r->world_size, &r->pid, &r->start,
                  &r->members, r->host_id, r->host_name, r->address) == 7;
}

/* Another process has published a record as this rank, or this one has before. */
static yk_status conflict(const yk__comm_place *place, const char *key, uint64_t start, const char *theirs)
{
    int pid = (int)getpid();
    char host[128];
    record other;
    snprintf(host, sizeof(host), "%.120s", place->host_id);
    if (!parse_record(theirs, &other))
        return yk__fail(YK_ERR_FORMAT, "group '%s': key %s of store %s holds something else", place->name, key,
                        yk_store_name(place->store));
    if (other.members == place->members && other.pid == pid && other.start == start && strcmp(other.host_id, host) == 0)
        return yk__fail(YK_ERR_ARGUMENT, "group '%s': rank %d has joined already, from this process (pid %d, store %s)",
                        place->name, place->rank, pid, yk_store_name(place->store));
    if (other.members != place->members)
        return yk__fail(YK_ERR_MISMATCH,
                        "group '%s': process %d on host %s made it of other ranks, or by another backend, than this "
                        "one, pid %d on host %s; all ranks make the same groups in the same order",
                        place->name, other.pid, other.host_name, pid, place->host_name);
    return yk__fail(YK_ERR_ARGUMENT,
                    "group '%s': two processes have rank %d: pid %d on host %s, and this one, pid %d on host %s",
                    place->name, place->rank, other.pid, other.host_name, pid, place->host_name);
}

static yk_status check_record(const yk__comm_place *place, int rank, const char *text, record *r)
{
    if (!parse_record(text, r))
        return yk__fail(YK_ERR_FORMAT, "group '%s': key %s/rank/%d of store %s holds something else", place->name,
                        place->name, rank, yk_store_name(place->store));
    if (r->world_size != place->world_size)
        return yk__fail(YK_ERR_MISMATCH,
                        "group '%s': rank %d (host %s, pid %d) was given a world size of %d, rank %d one of %d",
                        place->name, rank, r->host_name, r->pid, r->world_size, place->rank, place->world_size);
    if (r->members != place->members)
        return yk__fail(YK_ERR_MISMATCH,
                        "group '%s': rank %d (host %s, pid %d) made it of other ranks, or by another backend, than "
                        "rank %d",
                        place->name, rank, r->host_name, r->pid, place->rank);
    return YK_OK;
}

/* Those that have come fit together; the time is over for the others. */
static yk_status name_missing(const yk__comm_place *place, const yk__store_value *values)
{
    char missing[400] = "";
    size_t used = 0;
    int absent = 0;
    for (int r = 0; r < place->world_size; r++) {
        if (values[r].data)
            continue;
        absent++;
        if (used < sizeof(missing) - 20)
            used += (size_t)snprintf(missing + used, sizeof(missing) - used, "%s%d", used ? ", " : "", r);
    }
    return yk__fail(YK_ERR_TIMEOUT, "group '%s': rank%s %s of %d did not join within %g s (store %s)", place->name,
                    absent == 1 ? "" : "s", missing, place->world_size, place->join_timeout,
                    yk_store_name(place->store));
}

/* Publishes this rank's record and reads everybody's: one request, which is answered when the last is there. A rank
 * that does not fit is seen by those that are there within a second. */
static yk_status exchange_records(native *g, const yk__comm_place *place, uint64_t start, const char *address,
                                  record *records, double until, bool *published)
{
    int n = place->world_size;
    char own[300], value[600];
    yk__bytes *keys = yk__calloc((size_t)n, sizeof(*keys));
    yk__store_value *values = yk__calloc((size_t)n, sizeof(*values));
    char(*names)[300] = yk__calloc((size_t)n, sizeof(*names));
    yk_status status = keys && values && names ? YK_OK : yk__error_code();
    for (int r = 0; r < n && !status; r++) {
        snprintf(names[r], sizeof(names[r]), "%s/rank/%d", place->name, r);
        keys[r] = yk__text_bytes(names[r]);
    }
    snprintf(own, sizeof(own), "%s/rank/%d", place->name, place->rank);
    snprintf(value, sizeof(value), "%d %d %" PRIu64 " %" PRIx64 " %.120s %.60s %s", n, g->pid, start, place->members,
             place->host_id, place->host_name, address);
    bool complete = false;
    while (!status && !complete) {
        yk__store_gather all = {.keys = keys, .count = (size_t)n, .values = values};
        if (!*published)
            all.own = yk__text_bytes(own), all.value = yk__text_bytes(value);
        status = gather(g, place, &all, records_slice, until);
        complete = !status && all.complete;
        if (!status && all.conflict.data)
            status = conflict(place, own, start, all.conflict.data);
        free(all.conflict.data);
        /* Two processes of one rank are told to all, the other one too; a second try of this process is its own
         * mistake. */
        *published = status != YK_ERR_ARGUMENT || strstr(yk_last_error()->message, "two processes") != NULL;
        for (int r = 0; r < n && !status; r++)
            status = values[r].data ? check_record(place, r, values[r].data, &records[r]) : YK_OK;
        if (status) /* this rank's own reason counts here, not one that another rank had */
            free(all.stopped.data);
        else
            status = stopped(&all);
        if (!status && !complete && yk__now() >= until)
            status = name_missing(place, values);
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

/* Who is on which host. */
static yk_status arrange(native *g, const yk__comm_place *place, const record *records)
{
    int n = place->world_size;
    g->members = yk__calloc((size_t)n, sizeof(*g->members));
    g->order = yk__calloc((size_t)n, sizeof(int));
    g->first = yk__calloc((size_t)n + 1, sizeof(int));
    if (!g->members || !g->order || !g->first)
        return yk__error_code();
    int placed = 0;
    for (int r = 0; r < n; r++) {
        bool known = false;
        for (int h = 0; h < g->hosts && !known; h++)
            known = strcmp(records[g->order[g->first[h]]].host_id, records[r].host_id) == 0;
        if (known)
            continue;
        int h = g->hosts++;
        g->first[h] = placed;
        for (int i = r; i < n; i++) {
            if (strcmp(records[i].host_id, records[r].host_id) != 0)
                continue;
            yk__native_member *m = &g->members[i];
            *m = (yk__native_member){.host = h, .row = placed - g->first[h], .pid = records[i].pid};
            snprintf(m->host_name, sizeof(m->host_name), "%s", records[i].host_name);
            g->order[placed++] = i;
        }
        g->first[h + 1] = placed;
    }
    g->host = g->members[g->world_rank].host;
    g->rank = g->members[g->world_rank].row;
    g->world_size = yk__native_rows_of(g, g->host);
    g->has_boards = g->hosts > 1 && g->hosts < g->world;
    g->segment_bytes = lay_out(g, NULL);
    g->head = NULL;
    g->mappings = yk__calloc((size_t)g->world_size, sizeof(yk__native_mapping *));
    return g->mappings ? YK_OK : yk__error_code();
}

static void *make_segment(const yk__comm_place *place, native *g, int *fd)
{
    yk__native_head head = {.world_size = g->world_size};
    void *memory = yk__memory_file("the native backend", g->segment_bytes, fd);
    if (!memory)
        return NULL;
    if (getrandom(&head.cookie, sizeof(head.cookie), 0) != (ssize_t)sizeof(head.cookie)) {
        yk__fail_errno("group '%s': no random number for the segment", place->name);
    } else {
        memcpy(memory, &head, sizeof(head));
        if (remember(memory, g->segment_bytes, head.cookie))
            return memory;
    }
    munmap(memory, g->segment_bytes);
    close(*fd);
    *fd = -1;
    return NULL;
}

static void *open_segment(const yk__comm_place *place, const native *g, const char *text)
{
    int lowest = yk__native_rank_at(g, g->host, 0);
    const yk__native_member *maker = &g->members[lowest];
    char path[64];
    uint64_t cookie = 0;
    int fd = -1;
    if (sscanf(text, "%d %" SCNx64, &fd, &cookie) != 2) {
        yk__fail(YK_ERR_FORMAT, "group '%s': key %s/segment/%d of store %s holds something else", place->name,
                 place->name, lowest, yk_store_name(place->store));
        return NULL;
    }
    void *memory = maker->pid == g->pid ? share(cookie) : NULL;
    if (memory)
        return memory;
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)maker->pid, fd);
    int own = open(path, O_RDWR | O_CLOEXEC);
    struct stat file = {0};
    bool there = own >= 0 && fstat(own, &file) == 0;
    bool fits = there && file.st_size == (off_t)g->segment_bytes; /* else reading it may be a SIGBUS */
    memory = fits ? mmap(NULL, g->segment_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, own, 0) : MAP_FAILED;
    if (memory == MAP_FAILED && (fits || !there)) {
        yk__fail_errno("group '%s': the segment of rank %d (host %s, pid %d) at %s cannot be mapped", place->name,
                       lowest, maker->host_name, (int)maker->pid, path);
        memory = NULL;
    } else if (!fits || ((const yk__native_head *)memory)->cookie != cookie ||
               ((const yk__native_head *)memory)->world_size != g->world_size) {
        yk__fail(YK_ERR_CONNECTION, "group '%s': the segment at %s is not the one of rank %d (host %s, pid %d)",
                 place->name, path, lowest, maker->host_name, (int)maker->pid);
        if (fits)
            munmap(memory, g->segment_bytes);
        memory = NULL;
    } else if (!remember(memory, g->segment_bytes, cookie)) {
        munmap(memory, g->segment_bytes);
        memory = NULL;
    }
    if (own >= 0)
        close(own);
    return memory;
}

static void fill_row(native *g, const yk__comm_place *place, uint64_t start)
{
    yk__native_row *row = &g->rows[g->rank];
    row->pid = g->pid;
    row->start = start;
    snprintf(row->host, sizeof(row->host), "%s", place->host_name);
    if (sched_getaffinity(0, sizeof(row->cores), &row->cores))
        CPU_ZERO(&row->cores);
    atomic_store(&row->here, 1);
    atomic_fetch_add(&g->head->attached, 1);
    yk__native_wake(&g->head->attached);
}

/* Waits until all ranks have mapped the segment and filled their rows. */
static yk_status wait_for_all(native *g, const yk__comm_place *place, double until)
{
    for (double looked = yk__now();;) {
        uint32_t attached = atomic_load(&g->head->attached);
        if (attached == (uint32_t)g->world_size)
            return YK_OK;
        double now = yk__now();
        if (now - looked >= look_again) {
            yk_status status = yk__native_check_joining(g, place);
            if (status)
                return status;
            looked = now;
        }
        for (int r = 0; r < g->world_size; r++) {
            char who[120];
            int rank = yk__native_rank_at(g, g->host, r);
            if (!atomic_load(&g->rows[r].here) && (now > until || is_gone(g, rank)))
                return yk__fail(now > until ? YK_ERR_TIMEOUT : YK_ERR_CONNECTION, "group '%s': %s %s while it joined",
                                place->name, yk__native_who_rank(g, rank, who, sizeof(who)),
                                now > until ? "stalled" : "failed or ended");
        }
        if (now > until)
            return yk__fail(YK_ERR_TIMEOUT, "group '%s': %u of %d ranks joined within %g s", place->name, attached,
                            g->world_size, place->join_timeout);
        yk__native_sleep(&g->head->attached, attached, 0.05);
    }
}

static void measure(native *g)
{
    cpu_set_t cores;
    CPU_ZERO(&cores);
    g->one_process = true;
    for (int r = 0; r < g->world_size; r++) {
        CPU_OR(&cores, &cores, &g->rows[r].cores);
        g->one_process &= g->rows[r].pid == g->pid;
    }
    int count = CPU_COUNT(&cores);
    g->crowded = g->world_size > (count > 0 ? count : yk__cores());
}

static void destroy(native *g)
{
    if (g->net)
        yk__native_net_close(g);
    if (g->head)
        drop(g->head);
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

/* The ranks of this host map their segment, which is in the native's hands afterwards. */
static yk_status meet(native *g, const yk__comm_place *place, uint64_t start, double until)
{
    char key[300], text[64], *value = NULL;
    int fd = -1;
    snprintf(key, sizeof(key), "%s/segment/%d", place->name, yk__native_rank_at(g, g->host, 0));
    yk_status status = YK_OK;
    void *memory = NULL;
    if (g->rank == 0) {
        memory = make_segment(place, g, &fd);
        int n = memory ? snprintf(text, sizeof(text), "%d %" PRIx64, fd, ((yk__native_head *)memory)->cookie) : 0;
        status = memory ? YK_OK : yk__error_code();
        if (!status && g->world_size > 1)
            status = yk_store_set(place->store, key, text, (size_t)n);
    } else {
        status = yk__native_await(g, place, key, yk__native_rank_at(g, g->host, 0), until, &value);
        if (!status) {
            memory = open_segment(place, g, value);
            status = memory ? YK_OK : yk__error_code();
        }
    }
    free(value);
    if (memory)
        lay_out(g, memory);
    if (!status) {
        fill_row(g, place, start);
        status = wait_for_all(g, place, until);
    }
    if (fd >= 0)
        close(fd); /* all have it, or nobody is to have it */
    return status;
}

/* Finds the ranks, on this host and others. *published: they expect this one from then on. */
static yk_status find_all(native *g, const yk__comm_place *place, uint64_t start, double until, bool *published)
{
    record *records = yk__calloc((size_t)place->world_size, sizeof(record));
    yk_error no_listener = {0};
    yk_status status = records ? YK_OK : yk__error_code();
    if (!status && place->store) {
        /* Whether other hosts take part is not known yet: where the others are to connect is said with the record, and
         * an address that this rank does not have is an error only if they do. */
        if (place->world_size > 1 && yk__native_net_listen(g, place))
            yk__error_take(&no_listener);
        status = exchange_records(g, place, start, g->net && g->net->listener >= 0 ? g->net->address : "-", records,
                                  until, published);
    } else if (!status) {
        snprintf(records[0].host_name, sizeof(records[0].host_name), "%.60s", place->host_name);
        records[0].pid = g->pid;
    }
    if (!status)
        status = arrange(g, place, records);
    if (!status && g->hosts == 1 && g->net)
        yk__native_net_close(g);
    if (!status && g->hosts > 1 && no_listener.code) {
        yk__error_put(&no_listener);
        status = no_listener.code;
    }
    for (int r = 0; r < place->world_size && !status && g->hosts > 1; r++)
        snprintf(g->net->links[r].address, sizeof(g->net->links[r].address), "%s", records[r].address);
    free(records);
    if (!status && g->hosts > 1)
        status = yk__native_net_begin(g, place); /* connections are made while the segment is */
    if (!status)
        status = meet(g, place, start, until);
    if (!status && g->hosts > 1) {
        status = yk__native_net_connect(g, place, until);
        if (status)
            yk__native_abort(g, status, yk_last_error() ? yk_last_error()->message : "a rank could not join");
    }
    return status;
}

yk_status yk__native_join(const yk__comm_place *place, void **state)
{
    double until = yk__now() + place->join_timeout;
    *state = NULL;
    if (place->world_size > NATIVE_MAX_RANKS)
        return yk__fail(YK_ERR_UNSUPPORTED, "group '%s': the native backend takes up to %d ranks, not %d", place->name,
                        NATIVE_MAX_RANKS, place->world_size);
    native *g = yk__calloc(1, sizeof(*g));
    if (!g)
        return yk__error_code();
    pthread_mutexattr_t recursive; /* a message may break the group, which tells other hosts by messages */
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&g->map_lock, NULL);
    pthread_mutex_init(&g->message_lock, &recursive);
    pthread_mutexattr_destroy(&recursive);
    g->world_rank = place->rank;
    g->world = place->world_size;
    g->timeout = place->timeout;
    g->pid = (int32_t)getpid();
    g->name = yk__strdup(place->name);
    char letter;
    uint64_t start = 0;
    yk_status status = g->name ? YK_OK : yk__error_code();
    if (!status && !yk__native_process_state(g->pid, &letter, &start))
        status = yk__fail_errno("group '%s': /proc/%d/stat cannot be read", place->name, (int)g->pid);
    bool published = false;
    if (!status)
        status = find_all(g, place, start, until, &published);
    if (status) {
        bool told = !published || tell_others(place);
        destroy(g);
        if (!told)
            tell_others(place); /* with the descriptors that were missing, it may be */
        return status;
    }
    measure(g);
    *state = g;
    return YK_OK;
}

void yk__native_leave(void *state)
{
    native *g = state;
    yk__native_drain_messages(g);
    atomic_store(&g->rows[g->rank].left, 1);
    /* Those that wait look at once, not after their nap. */
    atomic_fetch_add(&g->head->epoch, 1);
    yk__native_wake(&g->head->epoch);
    for (int r = 0; r < g->world_size; r++) {
        atomic_fetch_add(&g->rows[r].bell, 1);
        yk__native_wake(&g->rows[r].bell);
    }
    destroy(g);
}

const yk__comm_backend yk__comm_native = {
    .name = "native",
    .join = yk__native_join,
    .collective =
        {
            [YK__COMM_ALL_REDUCE] = yk__native_all_reduce,
            [YK__COMM_REDUCE] = yk__native_reduce,
            [YK__COMM_BROADCAST] = yk__native_broadcast,
            [YK__COMM_ALL_GATHER] = yk__native_all_gather,
            [YK__COMM_GATHER] = yk__native_all_gather,
            [YK__COMM_SCATTER] = yk__native_scatter,
            [YK__COMM_REDUCE_SCATTER] = yk__native_reduce_scatter,
            [YK__COMM_ALL_TO_ALL] = yk__native_all_to_all,
            [YK__COMM_BARRIER] = yk__native_barrier,
        },
    .post = yk__native_post,
    .wait = yk__native_wait,
    .forget = yk__native_forget,
    .check = yk__native_check,
    .give_up = yk__native_abort,
    .leave = yk__native_leave,
};
