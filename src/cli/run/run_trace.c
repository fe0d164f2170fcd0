/*
 * run_trace.c - the traces of a job's ranks become one file. Layer: cli.
 *
 * Nothing here ends a run, or changes how it ended: a trace that cannot be written is one line on stderr.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/options.h"
#include "cli/run/run_trace.h"
#include "host/trace_file.h"

static char prefix[4096]; /* "": no trace */

static void part_path(char path[sizeof(prefix) + 32], int rank)
{
    snprintf(path, sizeof(prefix) + 32, "%s.rank%d", prefix, rank);
}

/* Makes the path absolute: ranks may go to other folders. */
static bool prefix_make(const char *file)
{
    char here[sizeof(prefix)] = "";
    if (*file != '/' && !getcwd(here, sizeof(here) - 1))
        return false;
    int length = snprintf(prefix, sizeof(prefix), "%s%s%s", here, *here ? "/" : "", file);
    if (length > 0 && length <= 4000) /* a rank takes no longer one */
        return true;
    errno = ENAMETOOLONG;
    return false;
}

/* True if files can be made where the trace is to be. */
static bool folder_takes_files(void)
{
    char folder[sizeof(prefix)];
    snprintf(folder, sizeof(folder), "%s", prefix);
    char *slash = strrchr(folder, '/');
    slash[slash == folder] = '\0';
    return access(folder, W_OK | X_OK) == 0;
}

const char *run_trace_begin(job *j)
{
    char path[sizeof(prefix) + 32];
    prefix[0] = '\0';
    if (!j->trace)
        return NULL;
    if (!prefix_make(j->trace) || !folder_takes_files()) {
        yk__relay_say(&j->err, "yoke run: --trace %s: %s; the run goes on without a trace\n", j->trace,
                      strerror(errno));
        prefix[0] = '\0';
        return NULL;
    }
    for (int i = 0; i < j->local; i++) {
        part_path(path, j->first + i);
        unlink(path);
    }
    return prefix;
}

/* Says which ranks have left no trace, at most the first few. */
static void missing_say(job *j, const int *missing, int count)
{
    enum { SHOWN = 8 };
    char list[SHOWN * 12] = "";
    size_t size = 0;
    for (int i = 0; i < count && i < SHOWN; i++)
        size += (size_t)snprintf(list + size, sizeof(list) - size, "%s%d", i ? ", " : "", missing[i]);
    if (count)
        yk__relay_say(
            &j->err,
            "yoke run: %s %s%s left no trace: a process that is killed, ends by _exit or calls no yoke writes "
            "none\n",
            count == 1 ? "rank" : "ranks", list, count > SHOWN ? ", ..." : "");
}

/* The parts of this node's ranks, open, and whose traces are missing. */
typedef struct trace_parts {
    yk__trace_file *files;
    int count, own; /* own: the first of them are this node's */
    int *missing, n_missing;
} trace_parts;

static bool parts_open(job *j, trace_parts *p)
{
    char path[sizeof(prefix) + 32];
    int room = j->world > j->local ? j->world : j->local;
    *p = (trace_parts){.files = calloc((size_t)room + 1, sizeof(*p->files)),
                       .missing = calloc((size_t)j->local + 1, sizeof(*p->missing))};
    if (!p->files || !p->missing)
        return false;
    for (int i = 0; i < j->local; i++) {
        part_path(path, j->first + i);
        FILE *from = fopen(path, "re");
        if (from)
            p->files[p->count++] = (yk__trace_file){.rank = j->first + i, .file = from, .clock_known = true};
        else
            p->missing[p->n_missing++] = j->first + i;
    }
    p->own = p->count;
    return true;
}

static void parts_remove(const trace_parts *p)
{
    char path[sizeof(prefix) + 32];
    for (int i = 0; i < p->own; i++) {
        part_path(path, p->files[i].rank);
        unlink(path);
    }
}

/* The file in which node 0 keeps what a rank of another node recorded, until it is in the trace. It is not called like
 * that node's own part, since the folder may be one. */
static void copy_path(char path[sizeof(prefix) + 32], int rank)
{
    snprintf(path, sizeof(prefix) + 32, "%s.rank%d.copy", prefix, rank);
}

static FILE *copy_create(void *argument, int rank)
{
    char path[sizeof(prefix) + 32];
    job *j = argument;
    copy_path(path, rank);
    unlink(path);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    FILE *to = fd < 0 ? NULL : fdopen(fd, "w+");
    if (!to) {
        yk__relay_say(&j->err, "yoke run: --trace: %s: %s\n", path, strerror(errno));
        if (fd >= 0)
            close(fd);
    }
    return to;
}

static void copy_remove(void *argument, int rank)
{
    char path[sizeof(prefix) + 32];
    (void)argument;
    copy_path(path, rank);
    unlink(path);
}

/* Makes one file of the parts; what cannot be had stays where it is. */
static void parts_merge(job *j, const trace_parts *p, bool clocks, const char *to)
{
    FILE **from = calloc((size_t)p->count, sizeof(*from));
    char(*names)[40] = calloc((size_t)p->count, sizeof(*names));
    const char **list = calloc((size_t)p->count, sizeof(*list));
    yk__trace_clock *known = calloc((size_t)p->count, sizeof(*known));
    bool room = from && names && list && known;
    for (int i = 0; room && i < p->count; i++) {
        const yk__trace_file *f = &p->files[i];
        from[i] = f->file;
        snprintf(names[i], sizeof(names[i]), "the trace of rank %d", f->rank);
        list[i] = names[i];
        known[i] = (yk__trace_clock){f->clock_known, f->to_node0_ns, f->error_ns};
    }
    if (!room) {
        yk__relay_say(&j->err, "yoke run: --trace: out of memory; what the ranks wrote is in %s.rank*\n", prefix);
    } else if (yk__trace_merge_save(from, list, clocks ? known : NULL, p->count, to)) {
        yk__relay_say(&j->err, "yoke run: --trace: %s; what the ranks wrote is in %s.rank*\n", yk_last_error()->message,
                      prefix);
        yk_clear_error();
    } else {
        parts_remove(p);
        for (int i = p->own; i < p->count; i++)
            copy_remove(j, p->files[i].rank);
        yk__relay_say(&j->err, "yoke run: the trace of %d %s is in %s\n", p->count, p->count == 1 ? "rank" : "ranks",
                      to);
    }
    free(from);
    free(names);
    free(list);
    free(known);
}

void run_trace_end(job *j, yk__rendezvous *n, bool again)
{
    char to[sizeof(prefix) + 32];
    trace_parts p = {0};
    bool open = prefix[0] && parts_open(j, &p), first = !n || yk__rendezvous_is_first(n);
    if (open && n && again) { /* the next attempt has names of its own, and records anew */
        parts_remove(&p);
    } else if (open) {
        snprintf(to, sizeof(to), "%s", prefix);
        if (n && first)
            p.count += yk__rendezvous_traces_take(
                n, &(yk__trace_taker){.create = copy_create, .remove = copy_remove, .argument = j}, p.files + p.count);
        if (!first && yk__rendezvous_traces_give(n, p.files, p.count)) {
            parts_remove(&p);
        } else if (p.count) {
            if (!first)
                snprintf(to, sizeof(to), "%s.node%d", prefix, (int)j->node);
            parts_merge(j, &p, n && first, to);
        }
        missing_say(j, p.missing, p.n_missing);
    }
    for (int i = 0; i < p.count; i++)
        fclose(p.files[i].file);
    free(p.files);
    free(p.missing);
}
