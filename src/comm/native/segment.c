/*
 * segment.c - joining and leaving: the ranks of a host find one another through the store and map one segment.
 * Layer: comm/native.
 *
 * Each rank puts a record into the store and reads everybody's. The lowest rank of a host makes the segment and says
 * where; the others open it through /proc/PID/fd, which needs the same user and process name space, and leaves no file
 * behind. Threads of one process share one mapping.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "comm/native/hosts.h"

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
    char host_id[128], host_name[64];
} record;

static size_t round_up(size_t bytes)
{
    return (bytes + 4095) & ~(size_t)4095;
}

/* Sets the addresses inside the segment, and gives its size. */
static size_t lay_out(native *g, char *memory)
{
    size_t n = (size_t)g->world_size, at = round_up(sizeof(native_head));
    g->head = (native_head *)(void *)memory;
    g->rows = (native_row *)(void *)(memory + at);
    at += round_up(n * sizeof(native_row));
    g->channels = (native_channel *)(void *)(memory + at);
    at += round_up(n * n * sizeof(native_channel));
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

static yk_status publish_record(const yk__comm_place *place, const char *key, int pid, uint64_t start)
{
    char value[512], *now = NULL;
    bool swapped = false;
    int n = snprintf(value, sizeof(value), "%d %d %" PRIu64 " %" PRIx64 " %.120s %.60s", place->world_size, pid, start,
                     place->members, place->host_id, place->host_name);
    yk_status status = yk_store_compare_set(place->store, key, "", 0, value, (size_t)n, (void **)&now, NULL, &swapped);
    if (!status && !swapped && strcmp(now, value) == 0)
        status =
            yk__fail(YK_ERR_ARGUMENT, "group '%s': rank %d has joined already, from this process (pid %d, store %s)",
                     place->name, place->rank, pid, yk_store_name(place->store));
    record other;
    if (!status && !swapped &&
        sscanf(now, "%d %d %" SCNu64 " %" SCNx64 " %127s %63s", &other.world_size, &other.pid, &other.start,
               &other.members, other.host_id, other.host_name) == 6)
        status = yk__fail(YK_ERR_ARGUMENT,
                          "group '%s': two processes have rank %d: pid %d on host %s, and this one, pid %d on host %s",
                          place->name, place->rank, other.pid, other.host_name, pid, place->host_name);
    if (!status && !swapped)
        status = yk__fail(YK_ERR_FORMAT, "group '%s': key %s of store %s holds something else", place->name, key,
                          yk_store_name(place->store));
    free(now);
    return status;
}

/* Everybody's records, in the time that is left. */
static yk_status read_records(const yk__comm_place *place, record *records, double until)
{
    char missing[400] = "";
    size_t used = 0;
    int absent = 0;
    for (int r = 0; r < place->world_size; r++) {
        char key[300], *text = NULL;
        snprintf(key, sizeof(key), "%s/rank/%d", place->name, r);
        double left = until - yk__now();
        yk_status status = yk_store_get(place->store, key, (void **)&text, NULL, left > 0.01 ? left : 0.01);
        if (status == YK_ERR_TIMEOUT) {
            yk_clear_error();
            absent++;
            if (used < sizeof(missing) - 20)
                used += (size_t)snprintf(missing + used, sizeof(missing) - used, "%s%d", used ? ", " : "", r);
            continue;
        }
        if (status)
            return status;
        record *e = &records[r];
        int fields = sscanf(text, "%d %d %" SCNu64 " %" SCNx64 " %127s %63s", &e->world_size, &e->pid, &e->start,
                            &e->members, e->host_id, e->host_name);
        free(text);
        if (fields != 6)
            return yk__fail(YK_ERR_FORMAT, "group '%s': key %s of store %s holds something else", place->name, key,
                            yk_store_name(place->store));
        if (e->world_size != place->world_size)
            return yk__fail(YK_ERR_MISMATCH,
                            "group '%s': rank %d (host %s, pid %d) was given a world size of %d, rank %d one of %d",
                            place->name, r, e->host_name, e->pid, e->world_size, place->rank, place->world_size);
        if (e->members != place->members)
            return yk__fail(YK_ERR_MISMATCH,
                            "group '%s': rank %d (host %s, pid %d) made it of other ranks, or by another backend, than "
                            "rank %d",
                            place->name, r, e->host_name, e->pid, place->rank);
    }
    if (absent)
        return yk__fail(YK_ERR_TIMEOUT, "group '%s': rank%s %s of %d did not join within %g s (store %s)", place->name,
                        absent == 1 ? "" : "s", missing, place->world_size, place->join_timeout,
                        yk_store_name(place->store));
    return YK_OK;
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
            native_member *m = &g->members[i];
            *m = (native_member){.host = h, .row = placed - g->first[h], .pid = records[i].pid};
            snprintf(m->host_name, sizeof(m->host_name), "%s", records[i].host_name);
            g->order[placed++] = i;
        }
        g->first[h + 1] = placed;
    }
    g->host = g->members[g->world_rank].host;
    g->rank = g->members[g->world_rank].row;
    g->world_size = native_rows_of(g, g->host);
    g->has_boards = g->hosts > 1 && g->hosts < g->world;
    g->segment_bytes = lay_out(g, NULL);
    g->head = NULL;
    g->mappings = yk__calloc((size_t)g->world_size, sizeof(native_mapping *));
    return g->mappings ? YK_OK : yk__error_code();
}

static void *make_segment(const yk__comm_place *place, native *g, int *fd)
{
    native_head head = {.world_size = g->world_size};
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
    int lowest = native_rank_at(g, g->host, 0);
    const native_member *maker = &g->members[lowest];
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
    memory = own >= 0 ? mmap(NULL, g->segment_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, own, 0) : MAP_FAILED;
    if (memory == MAP_FAILED) {
        yk__fail_errno("group '%s': the segment of rank %d (host %s, pid %d) at %s cannot be mapped", place->name,
                       lowest, maker->host_name, (int)maker->pid, path);
        memory = NULL;
    } else if (((const native_head *)memory)->cookie != cookie ||
               ((const native_head *)memory)->world_size != g->world_size) {
        yk__fail(YK_ERR_CONNECTION, "group '%s': the segment at %s is not the one of rank %d (host %s, pid %d)",
                 place->name, path, lowest, maker->host_name, (int)maker->pid);
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
    native_row *row = &g->rows[g->rank];
    row->pid = g->pid;
    row->start = start;
    snprintf(row->host, sizeof(row->host), "%s", place->host_name);
    if (sched_getaffinity(0, sizeof(row->cores), &row->cores))
        CPU_ZERO(&row->cores);
    atomic_store(&row->here, 1);
    atomic_fetch_add(&g->head->attached, 1);
    native_wake(&g->head->attached);
}

/* Waits until all ranks have mapped the segment and filled their rows. */
static yk_status wait_for_all(native *g, const yk__comm_place *place, double until)
{
    for (;;) {
        uint32_t attached = atomic_load(&g->head->attached);
        if (attached == (uint32_t)g->world_size)
            return YK_OK;
        double now = yk__now();
        for (int r = 0; r < g->world_size; r++) {
            char letter;
            uint64_t start;
            int rank = native_rank_at(g, g->host, r);
            int pid = g->members[rank].pid;
            if (!atomic_load(&g->rows[r].here) &&
                (now > until || !native_process_state(pid, &letter, &start) || letter == 'Z'))
                return yk__fail(now > until ? YK_ERR_TIMEOUT : YK_ERR_CONNECTION,
                                "group '%s': rank %d (host %s, pid %d) %s while it joined", place->name, rank,
                                g->members[rank].host_name, pid, now > until ? "stalled" : "failed or ended");
        }
        if (now > until)
            return yk__fail(YK_ERR_TIMEOUT, "group '%s': %u of %d ranks joined within %g s", place->name, attached,
                            g->world_size, place->join_timeout);
        native_sleep(&g->head->attached, attached, 0.05);
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
        native_net_close(g);
    if (g->head)
        drop(g->head);
    if (g->mappings)
        native_forget_mappings(g);
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
    snprintf(key, sizeof(key), "%s/segment/%d", place->name, native_rank_at(g, g->host, 0));
    yk_status status = YK_OK;
    void *memory = NULL;
    if (g->rank == 0) {
        memory = make_segment(place, g, &fd);
        int n = memory ? snprintf(text, sizeof(text), "%d %" PRIx64, fd, ((native_head *)memory)->cookie) : 0;
        status = memory ? YK_OK : yk__error_code();
        if (!status && g->world_size > 1)
            status = yk_store_set(place->store, key, text, (size_t)n);
    } else {
        double left = until - yk__now();
        status = yk_store_get(place->store, key, (void **)&value, NULL, left > 0.01 ? left : 0.01);
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

/* Finds the ranks, on this host and others. */
static yk_status find_all(native *g, const yk__comm_place *place, uint64_t start, double until)
{
    char key[300];
    record *records = yk__calloc((size_t)place->world_size, sizeof(record));
    yk_status status = records ? YK_OK : yk__error_code();
    snprintf(key, sizeof(key), "%s/rank/%d", place->name, place->rank);
    if (!status && place->store) {
        status = publish_record(place, key, g->pid, start);
        if (!status)
            status = read_records(place, records, until);
    } else if (!status) {
        snprintf(records[0].host_name, sizeof(records[0].host_name), "%.60s", place->host_name);
        records[0].pid = g->pid;
    }
    if (!status)
        status = arrange(g, place, records);
    free(records);
    if (!status && g->hosts > 1)
        status = native_net_listen(g, place);
    if (!status)
        status = meet(g, place, start, until);
    if (!status && g->hosts > 1) {
        status = native_net_connect(g, place, until);
        if (status)
            native_abort(g, status, yk_last_error() ? yk_last_error()->message : "a rank could not join");
    }
    return status;
}

yk_status native_join(const yk__comm_place *place, void **state)
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
    if (!status && !native_process_state(g->pid, &letter, &start))
        status = yk__fail_errno("group '%s': /proc/%d/stat cannot be read", place->name, (int)g->pid);
    if (!status)
        status = find_all(g, place, start, until);
    if (status) {
        destroy(g);
        return status;
    }
    measure(g);
    *state = g;
    return YK_OK;
}

void native_leave(void *state)
{
    native *g = state;
    native_drain_messages(g);
    atomic_store(&g->rows[g->rank].left, 1);
    /* Those that wait look at once, not after their nap. */
    atomic_fetch_add(&g->head->epoch, 1);
    native_wake(&g->head->epoch);
    for (int r = 0; r < g->world_size; r++) {
        atomic_fetch_add(&g->rows[r].bell, 1);
        native_wake(&g->rows[r].bell);
    }
    destroy(g);
}

const yk__comm_backend yk__comm_native = {
    .name = "native",
    .join = native_join,
    .collective =
        {
            [YK__COMM_ALL_REDUCE] = native_all_reduce,
            [YK__COMM_REDUCE] = native_reduce,
            [YK__COMM_BROADCAST] = native_broadcast,
            [YK__COMM_ALL_GATHER] = native_all_gather,
            [YK__COMM_GATHER] = native_all_gather,
            [YK__COMM_SCATTER] = native_scatter,
            [YK__COMM_REDUCE_SCATTER] = native_reduce_scatter,
            [YK__COMM_ALL_TO_ALL] = native_all_to_all,
            [YK__COMM_BARRIER] = native_barrier,
        },
    .post = native_post,
    .wait = native_wait,
    .forget = native_forget,
    .check = native_check,
    .give_up = native_abort,
    .leave = native_leave,
};
