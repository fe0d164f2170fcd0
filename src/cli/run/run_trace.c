/*
 * run_trace.c - the traces of a job's ranks become one file. Layer: cli.
 *
 * Nothing here ends a run, or changes how it ended: a trace that cannot be written is one line on stderr.
 */
#include <errno.h>
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

void run_trace_end(job *j)
{
    char path[sizeof(prefix) + 32], to[sizeof(prefix) + 32];
    FILE **from = prefix[0] ? calloc((size_t)j->local + 1, sizeof(*from)) : NULL;
    char **names = from ? calloc((size_t)j->local + 1, sizeof(*names)) : NULL;
    int *missing = names ? calloc((size_t)j->local + 1, sizeof(*missing)) : NULL, count = 0, n_missing = 0;
    for (int i = 0; missing && i < j->local; i++) {
        part_path(path, j->first + i);
        if ((from[count] = fopen(path, "re")) && (names[count] = strdup(path)))
            count++;
        else
            missing[n_missing++] = j->first + i;
    }
    if (j->node > 0)
        snprintf(to, sizeof(to), "%s.node%d", prefix, (int)j->node);
    else
        snprintf(to, sizeof(to), "%s", prefix);
    if (count && yk__trace_merge_save(from, (const char *const *)names, count, to)) {
        yk__relay_say(&j->err, "yoke run: --trace: %s; what the ranks wrote is in %s.rank*\n", yk_last_error()->message,
                      prefix);
        yk_clear_error();
    } else if (count) {
        for (int i = 0; i < count; i++)
            unlink(names[i]);
        yk__relay_say(&j->err, "yoke run: the trace of %d %s is in %s\n", count, count == 1 ? "rank" : "ranks", to);
    }
    if (missing)
        missing_say(j, missing, n_missing);
    for (int i = 0; names && i < count; i++) {
        fclose(from[i]);
        free(names[i]);
    }
    free(from);
    free(names);
    free(missing);
}
