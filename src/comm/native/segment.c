/*
 * segment.c - the memory that the ranks of a host share: made by the lowest of them, mapped by all. Layer: comm/native.
 *
 * Which rank is the lowest of its host is known when all records are there. So every rank opens a memory file before,
 * still empty, and names it in its record; the lowest gives its own the size and the head, and the others wait for that
 * in the file itself, without a request to the store. They open the maker's descriptor (host/process.h), which needs
 * the same user and process name space, and leaves no file. Threads of one process share one mapping.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "comm/native/native.h"
#include "host/process.h"

/* Seconds between looks at other ranks' failures. */
static const double look_again = 0.25;
/* Seconds within which a process whose files are closed has ended for all to see. */
static const double ends_within = 1;

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

static void *mapping_share(uint64_t cookie)
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

yk_status yk__native_reserve_segment(native *g)
{
    g->segment_fd = memfd_create("yoke", MFD_CLOEXEC);
    if (g->segment_fd < 0)
        return yk__fail_errno("group '%s': no memory file could be made", g->name);
    do {
        if (getrandom(&g->segment_cookie, sizeof(g->segment_cookie), 0) != (ssize_t)sizeof(g->segment_cookie))
            return yk__fail_errno("group '%s': no random number for the segment", g->name);
    } while (!g->segment_cookie);
    return YK_OK;
}

void yk__native_drop_segment_file(native *g)
{
    if (g->segment_fd >= 0)
        close(g->segment_fd);
    g->segment_fd = -1;
}

/* The lowest rank: gives the file its size. The cookie, written last, says that the head is there. */
static void *make_segment(native *g)
{
    void *memory = MAP_FAILED;
    if (ftruncate(g->segment_fd, (off_t)g->segment_bytes) == 0)
        memory = mmap(NULL, g->segment_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, g->segment_fd, 0);
    if (memory == MAP_FAILED) {
        yk__fail_errno("the native backend: %zu bytes of shared memory could not be had", g->segment_bytes);
        return NULL;
    }
    yk__native_head *head = memory;
    head->local_size = g->local_size;
    atomic_store(&head->cookie, g->segment_cookie);
    if (remember(memory, g->segment_bytes, g->segment_cookie))
        return memory;
    munmap(memory, g->segment_bytes);
    return NULL;
}

/* The segment that `own` is, a descriptor of the maker's file at `path`: NULL without an error where the maker has not
 * come so far. */
static void *map_file(native *g, const yk__comm_join_args *args, int own, const char *path)
{
    int lowest = yk__native_rank_at(g, g->host, 0);
    const yk__native_member *maker = &g->members[lowest];
    struct stat file = {0};
    bool there = fstat(own, &file) == 0;
    if (there && file.st_size == 0)
        return NULL;
    bool fits = there && file.st_size == (off_t)g->segment_bytes; /* else reading it may be a SIGBUS */
    void *memory = fits ? mmap(NULL, g->segment_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, own, 0) : MAP_FAILED;
    if (memory == MAP_FAILED && (fits || !there)) {
        yk__fail_errno("group '%s': the segment of rank %d (host %s, pid %d) at %s cannot be mapped", args->name,
                       lowest, maker->host_name, (int)maker->pid, path);
        return NULL;
    }
    yk__native_head *head = fits ? memory : NULL;
    uint64_t cookie = head ? atomic_load(&head->cookie) : 1;
    if (cookie && (cookie != g->segment_cookie || head->local_size != g->local_size))
        yk__fail(YK_ERR_CONNECTION, "group '%s': the segment at %s is not the one of rank %d (host %s, pid %d)",
                 args->name, path, lowest, maker->host_name, (int)maker->pid);
    else if (cookie && remember(memory, g->segment_bytes, cookie))
        return memory;
    if (fits)
        munmap(memory, g->segment_bytes);
    return NULL;
}

/* Checks the maker while it is at work: an error where it, or another rank, has failed, or the time is over. */
static yk_status check_maker(native *g, const yk__comm_join_args *args, double until, double *looked)
{
    double now = yk__now();
    if (now - *looked < look_again && now <= until)
        return YK_OK;
    *looked = now;
    int lowest = yk__native_rank_at(g, g->host, 0);
    char who[120];
    bool gone = yk__native_is_gone(g, lowest); /* looked at first: what it had to say is there by then */
    yk_status status = yk__native_check_joining(g, args);
    if (!status && (gone || now > until))
        status = yk__fail(gone ? YK_ERR_CONNECTION : YK_ERR_TIMEOUT, "group '%s': %s %s while it joined", args->name,
                          yk__native_rank_name(g, lowest, who, sizeof(who)), gone ? "failed or ended" : "stalled");
    return status;
}

/* The maker's file is not there: closed by a process that gave up, which has said so, or by the end of one, which takes
 * a moment from there until it shows. YK_OK: neither is known. */
static yk_status find_maker_gone(native *g, const yk__comm_join_args *args, double until)
{
    double looked, latest = yk__now() + ends_within;
    yk_status status;
    do {
        looked = 0;
        status = check_maker(g, args, until, &looked);
        if (!status)
            usleep(1000);
    } while (!status && yk__now() < latest);
    return status;
}

/* The others: open the maker's file, and wait for what it writes. That takes less than a request to the store. */
static yk_status open_segment(native *g, const yk__comm_join_args *args, int maker_fd, double until, void **memory)
{
    int lowest = yk__native_rank_at(g, g->host, 0), own = -1;
    const yk__native_member *maker = &g->members[lowest];
    double looked = yk__now();
    char path[64];
    yk_status status = YK_OK;
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)maker->pid, maker_fd);
    if (maker->pid != g->pid && (own = yk__process_open(maker->pid, maker_fd)) < 0) {
        int number = errno;
        looked = 0;
        status = number == ENOENT || number == EBADF || number == ESRCH ? find_maker_gone(g, args, until)
                                                                        : check_maker(g, args, until, &looked);
        errno = number;
        return status ? status
                      : yk__fail_errno("group '%s': the segment of rank %d (host %s, pid %d) at %s cannot be mapped",
                                       args->name, lowest, maker->host_name, (int)maker->pid, path);
    }
    *memory = NULL;
    for (useconds_t pause = 20; !status; pause = pause < 2000 ? 2 * pause : pause) {
        *memory = own < 0 ? mapping_share(g->segment_cookie) : map_file(g, args, own, path);
        status = own < 0 || *memory ? YK_OK : yk__error_code();
        if (*memory || status)
            break;
        usleep(pause);
        status = check_maker(g, args, until, &looked);
    }
    if (own >= 0)
        close(own);
    return status;
}

static void fill_row(native *g, const yk__comm_join_args *args, uint64_t start)
{
    yk__native_row *row = &g->rows[g->local_rank];
    row->pid = g->pid;
    row->start = start;
    atomic_store(&row->awaits[AWAITS_KIND], YK__COMM_KINDS);
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
            bool missing = !atomic_load(&g->rows[r].here) && (now > until || yk__native_is_gone(g, rank));
            if (missing && !atomic_load(&g->rows[r].here)) /* it may have joined and ended meanwhile */
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

yk_status yk__native_map_segment(native *g, const yk__comm_join_args *args, int maker_fd, uint64_t cookie,
                                 uint64_t start, double until)
{
    void *memory = NULL;
    yk_status status = YK_OK;
    if (g->local_rank == 0) {
        memory = make_segment(g);
        status = memory ? YK_OK : yk__error_code();
    } else {
        yk__native_drop_segment_file(g); /* nobody opens that of this rank */
        g->segment_cookie = cookie;
        status = open_segment(g, args, maker_fd, until, &memory);
    }
    if (memory)
        yk__native_lay_out(g, memory);
    if (!status) {
        fill_row(g, args, start);
        status = wait_for_all(g, args, until);
    }
    yk__native_drop_segment_file(g); /* all have it, or nobody is to have it */
    return status;
}

void yk__native_unmap_segment(native *g)
{
    unmap(g->head);
}
