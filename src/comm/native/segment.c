/*
 * segment.c - the memory that the ranks of a host share: made by the lowest of them, mapped by all. Layer: comm/native.
 *
 * The others open the maker's descriptor (base/process.h), which needs the same user and process name space, and leaves
 * no file behind.
 * Threads of one process share one mapping.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/process.h"
#include "comm/native/native.h"

/* Seconds between looks at other ranks' failures. */
static const double look_again = 0.25;

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

static size_t round_up(size_t bytes)
{
    return (bytes + 4095) & ~(size_t)4095;
}

size_t yk__native_lay_out(native *g, char *memory)
{
    size_t n = (size_t)g->local_size, at = round_up(sizeof(yk__native_head));
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

static void unmap(void *memory)
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

bool yk__native_is_gone(const native *g, int rank)
{
    char state;
    uint64_t start;
    const yk__native_member *m = &g->members[rank];
    return m->host == g->host && (!yk__process_state(m->pid, &state, &start) || state == 'Z');
}

static void *make_segment(const yk__comm_join_args *args, native *g, int *fd)
{
    yk__native_head head = {.local_size = g->local_size};
    void *memory = yk__memory_file("the native backend", g->segment_bytes, fd);
    if (!memory)
        return NULL;
    if (getrandom(&head.cookie, sizeof(head.cookie), 0) != (ssize_t)sizeof(head.cookie)) {
        yk__fail_errno("group '%s': no random number for the segment", args->name);
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

static void *open_segment(const yk__comm_join_args *args, const native *g, const char *text)
{
    int lowest = yk__native_rank_at(g, g->host, 0);
    const yk__native_member *maker = &g->members[lowest];
    uint64_t cookie = 0;
    int fd = -1;
    if (sscanf(text, "%d %" SCNx64, &fd, &cookie) != 2) {
        yk__fail(YK_ERR_FORMAT, "group '%s': key %s/segment/%d of store %s holds something else", args->name,
                 args->name, lowest, yk_store_name(args->store));
        return NULL;
    }
    void *memory = maker->pid == g->pid ? share(cookie) : NULL;
    if (memory)
        return memory;
    int own = yk__process_open(maker->pid, fd);
    struct stat file = {0};
    bool there = own >= 0 && fstat(own, &file) == 0;
    bool fits = there && file.st_size == (off_t)g->segment_bytes; /* else reading it may be a SIGBUS */
    memory = fits ? mmap(NULL, g->segment_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, own, 0) : MAP_FAILED;
    if (memory == MAP_FAILED && (fits || !there)) {
        yk__fail_errno("group '%s': the segment of rank %d (host %s, pid %d, descriptor %d) cannot be mapped; "
                       "with YOKE_SHARED_MEMORY=0 the ranks use TCP",
                       args->name, lowest, maker->host_name, (int)maker->pid, fd);
        memory = NULL;
    } else if (!fits || ((const yk__native_head *)memory)->cookie != cookie ||
               ((const yk__native_head *)memory)->local_size != g->local_size) {
        yk__fail(YK_ERR_CONNECTION, "group '%s': descriptor %d of rank %d (host %s, pid %d) is not its segment",
                 args->name, fd, lowest, maker->host_name, (int)maker->pid);
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

static void fill_row(native *g, const yk__comm_join_args *args, uint64_t start)
{
    yk__native_row *row = &g->rows[g->local_rank];
    row->pid = g->pid;
    row->start = start;
    snprintf(row->host, sizeof(row->host), "%s", args->host_name);
    if (sched_getaffinity(0, sizeof(row->cores), &row->cores))
        CPU_ZERO(&row->cores);
    atomic_store(&row->here, 1);
    atomic_fetch_add(&g->head->attached, 1);
    yk__native_wake(&g->head->attached);
}

/* Waits until all ranks have mapped the segment and filled their rows. */
static yk_status wait_for_all(native *g, const yk__comm_join_args *args, double until)
{
    for (double looked = yk__now();;) {
        uint32_t attached = atomic_load(&g->head->attached);
        if (attached == (uint32_t)g->local_size)
            return YK_OK;
        double now = yk__now();
        if (now - looked >= look_again) {
            yk_status status = yk__native_check_joining(g, args);
            if (status)
                return status;
            looked = now;
        }
        for (int r = 0; r < g->local_size; r++) {
            char who[120];
            int rank = yk__native_rank_at(g, g->host, r);
            if (!atomic_load(&g->rows[r].here) && (now > until || yk__native_is_gone(g, rank)))
                return yk__fail(now > until ? YK_ERR_TIMEOUT : YK_ERR_CONNECTION, "group '%s': %s %s while it joined",
                                args->name, yk__native_rank_name(g, rank, who, sizeof(who)),
                                now > until ? "stalled" : "failed or ended");
        }
        if (now > until)
            return yk__fail(YK_ERR_TIMEOUT, "group '%s': %u of %d ranks joined within %g s", args->name, attached,
                            g->local_size, args->join_timeout);
        yk__native_sleep(&g->head->attached, attached, 0.05);
    }
}

yk_status yk__native_map_segment(native *g, const yk__comm_join_args *args, uint64_t start, double until)
{
    char key[300], text[64], *value = NULL;
    int fd = -1;
    snprintf(key, sizeof(key), "%s/segment/%d", args->name, yk__native_rank_at(g, g->host, 0));
    yk_status status = YK_OK;
    void *memory = NULL;
    if (g->local_rank == 0) {
        memory = make_segment(args, g, &fd);
        int n = memory ? snprintf(text, sizeof(text), "%d %" PRIx64, fd, ((yk__native_head *)memory)->cookie) : 0;
        status = memory ? YK_OK : yk__error_code();
        if (!status && g->local_size > 1)
            status = yk_store_set(args->store, key, text, (size_t)n);
    } else {
        status = yk__native_await(g, args, key, yk__native_rank_at(g, g->host, 0), until, &value);
        if (!status) {
            memory = open_segment(args, g, value);
            status = memory ? YK_OK : yk__error_code();
        }
    }
    free(value);
    if (memory)
        yk__native_lay_out(g, memory);
    if (!status) {
        fill_row(g, args, start);
        status = wait_for_all(g, args, until);
    }
    if (fd >= 0)
        close(fd); /* all have it, or nobody is to have it */
    return status;
}

void yk__native_unmap_segment(native *g)
{
    unmap(g->head);
}
