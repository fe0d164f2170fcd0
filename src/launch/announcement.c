/*
 * announcement.c - a launcher says that its run is there. Layer: launch.
 *
 * The file is written beside its place and renamed, so that what is read is whole. Invariant: announced.path is that of
 * a file that this process has made, or empty; a child of a fork has another pid and removes nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/json_line.h"
#include "host/process.h"
#include "launch/announcement.h"
#include "launch/run_folder.h"

static struct {
    pid_t pid;
    uint64_t start; /* of this process */
    double began;   /* seconds since 1970, of the first announcement */
    char path[YK__RUN_FOLDER_PATH + 64];
} announced;

static json_t *text_json(const char *text)
{
    return yk__json_text(text, strlen(text));
}

static json_t *program_json(char *const *program)
{
    json_t *list = json_array();
    for (int i = 0; list && program && program[i]; i++)
        json_array_append_new(list, text_json(program[i]));
    return list;
}

/* The whole file; the caller frees. NULL without memory. */
static char *announcement_json(const yk__announcement *run)
{
    char machine[256];
    if (!yk__machine_name(machine, sizeof(machine)))
        machine[0] = '\0';
    return yk__json_line(json_pack("{s:i,s:i,s:I,s:i,s:s,s:o,s:o,s:i,s:i,s:i,s:i,s:i,s:i,s:o,s:i,s:i,s:i,s:o}",
                                   "version", YK__ANNOUNCEMENT_VERSION, "pid", (int)announced.pid, "start",
                                   (json_int_t)announced.start, "launcher", run->launcher, "machine", machine, "job",
                                   text_json(run->job), "host", text_json(run->host), "node", run->node, "nodes",
                                   run->nodes, "first", run->first, "local", run->local, "world", run->world, "restart",
                                   run->restart, "began", yk__json_fixed(announced.began, 3), "pages",
                                   yk__pages_descriptor(run->pages), "page_version", YK__PAGE_VERSION, "page_size",
                                   YK__PAGE_SIZE, "program", program_json(run->program)),
                         YK__JSON_DIGITS);
}

static void know_oneself(void)
{
    struct timespec now;
    char state;
    announced.pid = getpid();
    if (!yk__process_state((int)announced.pid, &state, &announced.start))
        announced.start = 0;
    clock_gettime(CLOCK_REALTIME, &now);
    announced.began = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static yk_status write_inside(int folder, const char *path, const char *name, const char *text)
{
    char temporary[80];
    size_t size = strlen(text);
    snprintf(temporary, sizeof(temporary), "%.60s.tmp", name);
    int fd = openat(folder, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return yk__fail_errno("the run cannot be announced in %s", path);
    ssize_t written = write(fd, text, size);
    if (written >= 0 && written != (ssize_t)size)
        errno = ENOSPC;
    bool failed = written != (ssize_t)size || renameat(folder, temporary, folder, name);
    if (failed) {
        yk__fail_errno("the run cannot be announced in %s", path);
        unlinkat(folder, temporary, 0);
    }
    close(fd);
    return failed ? yk__error_code() : YK_OK;
}

yk_status yk__announce(const yk__announcement *run)
{
    char path[YK__RUN_FOLDER_PATH], name[64];
    if (announced.pid != getpid())
        know_oneself();
    int folder = yk__run_folder_make(path);
    if (folder < 0)
        return yk__error_code();
    char *text = announcement_json(run);
    snprintf(name, sizeof(name), "%d-%llu.json", (int)announced.pid, (unsigned long long)announced.start);
    yk_status status = text ? write_inside(folder, path, name, text) : yk__fail_memory(4096);
    if (!status)
        snprintf(announced.path, sizeof(announced.path), "%s/%s", path, name);
    free(text);
    close(folder);
    return status;
}

void yk__announce_end(void)
{
    if (announced.path[0] && announced.pid == getpid())
        unlink(announced.path);
    announced.path[0] = '\0';
}
