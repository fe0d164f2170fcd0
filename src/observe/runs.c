/*
 * runs.c - the runs of this user on this machine. Layer: observe.
 *
 * Announcements and pages are written by processes of this user, and are not trusted to be whole: numbers are bounded,
 * texts end, and memory that could become shorter while it is mapped is not mapped. A process counts as the one that
 * was meant only where it was started when that one was: pids are used again.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <jansson.h>

#include "base/log.h"
#include "host/process.h"
#include "host/rank_info.h"
#include "launch/announcement.h"
#include "launch/run_folder.h"
#include "observe/runs.h"

/* MOST_FILE: bytes of an announcement, which has the arguments of the program. MOST_RUNS: any number above what a
 * machine runs at a time. */
enum { MOST_FILE = 4 << 20, MOST_RUNS = 1000 };

/* ---- processes --------------------------------------------------------------------------------------------------- */
/* True where the process runs and has this start time (0: any). */
static bool process_is(int pid, uint64_t start)
{
    char state;
    uint64_t found;
    return pid > 0 && yk__process_state(pid, &state, &found) && state != 'Z' && state != 'X' &&
           (!start || !found || start == found);
}

/* True where the process of the page still runs. It was started before it mapped its page; another one that has got its
 * number since was not. Both clocks go on alike but while the machine sleeps. */
static bool rank_is_alive(const yk__rank_page *page, int pid)
{
    struct timespec boot;
    char state;
    uint64_t start;
    if (pid <= 0 || !yk__process_state(pid, &state, &start) || state == 'Z' || state == 'X')
        return false;
    clock_gettime(CLOCK_BOOTTIME, &boot);
    double asleep = (double)boot.tv_sec + 1e-9 * (double)boot.tv_nsec - yk__now();
    return (double)start / (double)sysconf(_SC_CLK_TCK) <= atomic_load(&page->born) + asleep + 1;
}

/* A small file of /proc; "" where it cannot be read. */
static void proc_read(int pid, const char *name, char *text, size_t size)
{
    char path[40];
    snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, size - 1) : -1;
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
}

/* Memory and processor time of a process; below 0 where /proc does not tell. stat has the memory, too, but a sum that
 * may lag behind. */
static void rank_usage(yk__run_rank *rank)
{
    char text[1024];
    unsigned long long user, system, pages;
    rank->resident = rank->cpu_seconds = -1;
    proc_read(rank->pid, "stat", text, sizeof(text));
    const char *at = strrchr(text, ')'); /* field 3 is next, as proc(5) counts them; 14 and 15 are the times */
    if (at && sscanf(at + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &user, &system) == 2)
        rank->cpu_seconds = (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
    proc_read(rank->pid, "statm", text, sizeof(text));
    if (sscanf(text, "%*u %llu", &pages) == 1)
        rank->resident = (double)pages * (double)sysconf(_SC_PAGESIZE);
}

/* ---- pages ------------------------------------------------------------------------------------------------------- */
static double age_of(const yk__rank_page *page, uint64_t ticks, double now)
{
    double time = yk__page_time(page, ticks), age = now - time;
    return time <= 0 ? -1 : age > 0 ? age : 0;
}

/* Seconds for which the oldest collective or message of the rank is under way; 0: none is. */
static double rank_waiting(const yk__rank_page *page, uint64_t begun, double now)
{
    yk__page_operation o;
    uint64_t oldest = 0;
    for (uint64_t i = 0; i < YK__PAGE_RING && i < begun; i++) {
        const yk__page_slot *slot = &page->ring[i];
        /* A look at its head first: most have ended, and a copy of each would be most of the work. */
        if (slot->operation.number && !slot->operation.ended && yk__page_read(slot, &o) && !o.ended &&
            o.what == YK__WHAT_COLLECTIVE && (!oldest || o.began < oldest))
            oldest = o.began;
    }
    double age = oldest ? age_of(page, oldest, now) : 0;
    return age > 0 ? age : 0;
}

static void rank_read(const yk__rank_page *page, yk__run_rank *rank)
{
    double since, now = yk__now();
    *rank = (yk__run_rank){.rank = page->rank,
                           .local_rank = page->local_rank,
                           .role_rank = page->role_rank,
                           .incarnation = page->incarnation,
                           .pid = atomic_load(&page->pid),
                           .phase_age = -1,
                           .progress_age = -1,
                           .step_age = -1,
                           .resident = -1,
                           .cpu_seconds = -1};
    memcpy(rank->role, page->role, sizeof(rank->role) - 1);
    rank->alive = rank_is_alive(page, rank->pid);
    if (!rank->alive)
        return;
    rank->phase = yk__page_phase(page, rank->phase_text, &since);
    rank->phase_age = since > 0 ? (now > since ? now - since : 0) : -1;
    rank->progress_age = age_of(page, atomic_load(&page->progressed), now);
    rank->step_age = age_of(page, atomic_load(&page->stepped), now);
    rank->steps = atomic_load(&page->steps);
    rank->losses = atomic_load_explicit(&page->losses, memory_order_acquire);
    rank->loss = atomic_load(&page->loss);
    rank->samples = atomic_load(&page->samples);
    rank->operations = atomic_load(&page->begun);
    rank->waiting = rank_waiting(page, rank->operations, now);
    rank->waited = yk__page_seconds(page, atomic_load(&page->waited));
    for (int i = 0; i < YK__PHASES; i++)
        rank->phase_times[i] = yk__page_phase_seconds(page, (yk__phase)i);
    for (int i = 0; i < YK__PAGE_COUNTERS; i++)
        rank->n_counters += yk__page_counter(page, i, rank->counters[rank->n_counters].name,
                                             &rank->counters[rank->n_counters].value) != NULL;
    rank_usage(rank);
}

/* The memory file of a launcher, mapped; NULL and errno where it is not to be had. *count is how many pages it has. */
static char *pages_map(int pid, int descriptor, int protection, int *count)
{
    struct stat about;
    char *pages = MAP_FAILED;
    int fd = yk__process_open(pid, descriptor), number = errno;
    if (fd >= 0) {
        bool usable = fstat(fd, &about) == 0 && S_ISREG(about.st_mode) && fcntl(fd, F_GET_SEALS) & F_SEAL_SHRINK &&
                      about.st_size >= YK__PAGE_SIZE;
        *count = usable ? (int)(about.st_size / YK__PAGE_SIZE) : 0;
        errno = EINVAL;
        if (usable)
            pages = mmap(NULL, (size_t)*count * YK__PAGE_SIZE, protection, MAP_SHARED, fd, 0);
        number = errno;
        close(fd);
    }
    errno = number;
    return pages == MAP_FAILED ? NULL : pages;
}

static int lower_rank(const void *a, const void *b)
{
    const yk__run_rank *x = a, *y = b;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

/* The newest page of each rank, by its local rank; NULL where there is none. */
static void pages_newest(char *pages, int count, int most, yk__rank_page **newest)
{
    memset(newest, 0, (size_t)most * sizeof(*newest));
    /* From the newest on: the memory of old pages has been given back, and a look would take it again. */
    for (int i = count - 1, found = 0; i >= 0 && found < most; i--) {
        yk__rank_page *page = (void *)(pages + (size_t)i * YK__PAGE_SIZE);
        if (!yk__page_is_known(page) || page->local_rank < 0 || page->local_rank >= most || newest[page->local_rank])
            continue;
        newest[page->local_rank] = page;
        found++;
    }
}

/* The launcher's block, in the memory of its pages; NULL where it is of another version. */
static yk__run_requests *block_of(void *pages)
{
    yk__run_requests *block = pages;
    bool known =
        block->magic == YK__REQUESTS_MAGIC && block->version == YK__REQUESTS_VERSION && block->size == sizeof(*block);
    return known ? block : NULL;
}

static void changes_read(const yk__run_requests *block, yk__run *run)
{
    if (!block || run->changes || !(run->changes = yk__calloc(YK__CHANGES_KEPT, sizeof(*run->changes))))
        return;
    run->n_changes = yk__changes_read(block, run->changes);
    for (int i = 0; i < YK__CHANGE_KINDS; i++)
        run->changes_of[i] = atomic_load(&block->changes_of[i]);
    run->change_seconds = atomic_load(&block->change_seconds);
}

/* Calls `read` with the newest page of each rank. False where they are not to be had, with run->why. */
static bool pages_each(yk__run *run, void (*read)(const yk__rank_page *page, void *argument), void *argument)
{
    yk__rank_page *newest[YK__MOST_LOCAL];
    int count = 0, most = run->local < YK__MOST_LOCAL ? run->local : YK__MOST_LOCAL;
    char *pages = pages_map(run->supervisor, run->pages, PROT_READ, &count);
    if (!pages) {
        snprintf(run->why, sizeof(run->why), "the pages of its ranks cannot be read: %s", strerror(errno));
        return false;
    }
    pages_newest(pages, count, most, newest);
    for (int i = 0; i < most; i++) {
        if (newest[i])
            read(newest[i], argument);
    }
    if (argument == run)
        changes_read(block_of(pages), run);
    munmap(pages, (size_t)count * YK__PAGE_SIZE);
    return true;
}

yk_status yk__run_pages_open(const yk__run *run, yk__run_open_pages *open)
{
    *open = (yk__run_open_pages){0};
    int count = 0, most = run->local < YK__MOST_LOCAL ? run->local : YK__MOST_LOCAL;
    open->memory = pages_map(run->supervisor, run->pages, PROT_READ | PROT_WRITE, &count);
    if (!open->memory)
        return yk__fail_errno("the pages of the ranks of job %s cannot be opened", run->job);
    open->size = (size_t)count * YK__PAGE_SIZE;
    open->pages = yk__calloc((size_t)most + 1, sizeof(*open->pages));
    if (!open->pages) {
        yk__run_pages_close(open);
        return yk__error_code();
    }
    open->requests = block_of(open->memory);
    pages_newest(open->memory, count, most, open->pages);
    for (int i = 0; i < most; i++) { /* those of processes that run */
        yk__rank_page *page = open->pages[i];
        int pid = page ? atomic_load(&page->pid) : 0;
        if (pid && rank_is_alive(page, pid))
            open->pages[open->count++] = page;
    }
    return YK_OK;
}

void yk__run_pages_close(yk__run_open_pages *open)
{
    if (open->memory)
        munmap(open->memory, open->size);
    free(open->pages);
    *open = (yk__run_open_pages){0};
}

bool yk__run_rank_is_alive(const yk__rank_page *page)
{
    int pid = atomic_load(&page->pid);
    return pid && rank_is_alive(page, pid);
}

static void rank_add(const yk__rank_page *page, void *argument)
{
    yk__run *run = argument;
    rank_read(page, &run->ranks[run->n_ranks++]);
}

/* The value of a counter of the rank; 0: it has none of that name. */
static int64_t rank_counter(const yk__run_rank *rank, const char *name)
{
    for (int i = 0; i < rank->n_counters; i++)
        if (strcmp(rank->counters[i].name, name) == 0)
            return rank->counters[i].value;
    return 0;
}

static void ranks_read(yk__run *run)
{
    int most = run->local < 0 ? 0 : run->local < YK__MOST_LOCAL ? run->local : YK__MOST_LOCAL;
    run->ranks = yk__calloc((size_t)most + 1, sizeof(*run->ranks));
    run->readable = run->ranks && pages_each(run, rank_add, run);
    if (run->readable)
        qsort(run->ranks, (size_t)run->n_ranks, sizeof(*run->ranks), lower_rank);
    for (int i = 0; i < run->n_ranks; i++) {
        int64_t view = rank_counter(&run->ranks[i], "elastic_view");
        if (!run->ranks[i].alive || view <= run->view)
            continue;
        run->view = view;
        run->members = rank_counter(&run->ranks[i], "elastic_members");
    }
}

static void page_add(const yk__rank_page *page, void *list)
{
    int pid = atomic_load(&page->pid);
    char *text = pid ? yk__page_json(page) : NULL;
    json_t *object = text ? json_loads(text, 0, NULL) : NULL;
    if (object && !rank_is_alive(page, pid)) /* another process may have its number */
        json_object_set_new(object, "process", json_string("ended"));
    if (object)
        json_array_append_new(list, object);
    free(text);
}

int yk__run_pid(const char *word)
{
    char *end;
    long number = isdigit((unsigned char)*word) ? strtol(word, &end, 10) : 0;
    return number > 0 && !*end && number < 1 << 30 ? (int)number : 0;
}

bool yk__run_is_called(const yk__run *run, const char *word)
{
    int pid = yk__run_pid(word);
    return strcmp(run->job, word) == 0 || (pid && (run->launcher == pid || run->supervisor == pid));
}

json_t *yk__run_pages(const yk__run *run)
{
    json_t *list = json_array();
    yk__run copy = *run;
    if (list && run->readable)
        pages_each(&copy, page_add, list);
    return list;
}

/* ---- announcements ----------------------------------------------------------------------------------------------- */
static char *program_text(const json_t *list)
{
    size_t size = 1, at;
    const json_t *word;
    json_array_foreach(list, at, word)
    {
        const char *text = json_string_value(word);
        size += (text ? strlen(text) : 0) + 1;
    }
    char *all = yk__calloc(1, size), *end = all;
    json_array_foreach(list, at, word)
    {
        const char *text = json_string_value(word);
        if (all)
            end = stpcpy(stpcpy(end, at ? " " : ""), text ? text : "");
    }
    return all;
}

static void run_clear(yk__run *run)
{
    free(run->job);
    free(run->host);
    free(run->program);
    free(run->ranks);
    free(run->changes);
}

typedef enum announced { RUNS, GONE, ELSEWHERE, UNKNOWN } announced;

/* Sorts an announcement; `own` is this machine, "": not known. Machines are named by the boot and the pid namespace
 * (host/process.h): a process of another namespace cannot be looked for, one of this host's earlier boot is gone, and
 * the rest is of other hosts, which share the folder. */
static announced announcement_state(const json_t *object, const char *own)
{
    const char *machine = json_string_value(json_object_get(object, "machine"));
    const char *host = json_string_value(json_object_get(object, "host"));
    int pid = (int)json_integer_value(json_object_get(object, "pid"));
    if (pid <= 0 || !machine || !host)
        return UNKNOWN;
    if (!*own || strcmp(own, machine) == 0)
        return process_is(pid, (uint64_t)json_integer_value(json_object_get(object, "start"))) ? RUNS : GONE;
    if (strncmp(own, machine, strcspn(own, "/") + 1) == 0)
        return ELSEWHERE;
    char name[256] = "";
    gethostname(name, sizeof(name) - 1);
    name[strcspn(name, ".")] = '\0';
    return strcmp(name, host) == 0 ? GONE : UNKNOWN;
}

/* Fills the run; false without memory. */
static bool run_parse(const json_t *object, yk__run *run)
{
    const char *job = NULL, *host = NULL;
    const json_t *program = json_object_get(object, "program");
    int version = 0, size = 0;
    run->pages = -1;
    json_unpack((json_t *)object, "{s:s,s:s,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:F,s:i,s:i,s:i}", "job", &job, "host",
                &host, "pid", &run->supervisor, "launcher", &run->launcher, "node", &run->node, "nodes", &run->nodes,
                "first", &run->first, "local", &run->local, "world", &run->world, "restart", &run->restart, "began",
                &run->began, "pages", &run->pages, "page_version", &version, "page_size", &size);
    run->job = yk__strdup(job ? job : "");
    run->host = yk__strdup(host ? host : "");
    run->program = program_text(program);
    if (version != YK__PAGE_VERSION || size != YK__PAGE_SIZE)
        snprintf(run->why, sizeof(run->why), "its launcher is of another version of yoke");
    else
        ranks_read(run);
    return run->job && run->host && run->program;
}

/* One file of a folder. */
static void announcement_read(yk__runs *runs, const char *own, int folder, const char *name)
{
    struct stat about;
    int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    char *text = NULL;
    ssize_t size = -1;
    if (fd < 0)
        return;
    if (fstat(fd, &about) == 0 && S_ISREG(about.st_mode) && about.st_size <= MOST_FILE &&
        (text = yk__calloc(1, (size_t)about.st_size + 1)))
        size = read(fd, text, (size_t)about.st_size);
    close(fd);
    json_t *object = size > 0 ? json_loadb(text, (size_t)size, 0, NULL) : NULL;
    free(text);
    announced state = announcement_state(object, own);
    if (state == GONE)
        unlinkat(folder, name, 0);
    runs->elsewhere += state == ELSEWHERE;
    if (state == RUNS && runs->count < MOST_RUNS) {
        yk__run *more = yk__realloc(runs->all, ((size_t)runs->count + 1) * sizeof(*more)), *run;
        runs->all = more ? more : runs->all;
        if (more) {
            run = &more[runs->count];
            *run = (yk__run){0};
            if (run_parse(object, run))
                runs->count++;
            else
                run_clear(run);
        }
    }
    json_decref(object);
}

static int older_run(const void *a, const void *b)
{
    const yk__run *x = a, *y = b;
    return x->began != y->began ? (x->began > y->began) - (x->began < y->began)
                                : (x->supervisor > y->supervisor) - (x->supervisor < y->supervisor);
}

void yk__runs_read(yk__runs *runs)
{
    YK__QUESTION;
    char path[YK__RUN_FOLDER_PATH], own[256];
    *runs = (yk__runs){0};
    if (!yk__machine_name(own, sizeof(own)))
        own[0] = '\0';
    for (int i = 0; yk__run_folder_path(i, path); i++) {
        int fd = yk__run_folder_open(path);
        DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;
        for (struct dirent *entry; folder && (entry = readdir(folder));) {
            const char *end = strrchr(entry->d_name, '.');
            if (end && strcmp(end, ".json") == 0)
                announcement_read(runs, own, fd, entry->d_name);
        }
        if (fd < 0 && yk_last_error() && !runs->problem[0])
            snprintf(runs->problem, sizeof(runs->problem), "%.590s", yk_last_error()->message);
        yk_clear_error();
        if (folder)
            closedir(folder);
        else if (fd >= 0)
            close(fd);
    }
    if (runs->all)
        qsort(runs->all, (size_t)runs->count, sizeof(*runs->all), older_run);
}

void yk__runs_clear(yk__runs *runs)
{
    for (int i = 0; i < runs->count; i++)
        run_clear(&runs->all[i]);
    free(runs->all);
    *runs = (yk__runs){0};
}
