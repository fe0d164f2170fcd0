/*
 * job_mapping.c - which job is on which GPU, for dcgm-exporter. Layer: launch.
 *
 * dcgm-exporter drops the metrics of a GPU whose file is empty, gives a line that is there twice twice, and does not
 * escape: a file without lines is removed, a line that is there is not added, and what would have to be escaped becomes
 * "_". Files are replaced by a rename, so that none is seen half written, and a lock on the folder keeps launchers
 * apart. Invariant: mine.folder is a descriptor only while a note of this process may be in the folder.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/process.h"
#include "launch/job_mapping.h"

/* MOST_BYTES: of a file here; MOST_NUMBERS: any number above that of a host's GPUs. */
enum { MOST_BYTES = 1 << 16, MOST_NUMBERS = 256 };

/* Seconds to wait for another launcher, which has the lock for a few milliseconds. */
static const double lock_wait = 1;

/* The lines that a launcher has put here. */
typedef struct note {
    char machine[256], job[128];
    bool gpus[MOST_NUMBERS];
} note;

static struct {
    pid_t pid;
    int folder;
    char name[64]; /* of the note */
} mine = {.folder = -1};

/* ---- files ------------------------------------------------------------------------------------------------------- */
/* The whole file, which ends with a zero, or as much as a file here may have; the caller frees. NULL and errno. */
static char *text_read(int folder, const char *name, uid_t *owner)
{
    struct stat about;
    int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    char *text = fstat(fd, &about) == 0 && S_ISREG(about.st_mode) ? malloc(MOST_BYTES + 1) : NULL;
    ssize_t size = text ? read(fd, text, MOST_BYTES) : -1;
    if (owner)
        *owner = about.st_uid;
    close(fd);
    if (size >= 0) {
        text[size] = '\0';
        return text;
    }
    free(text);
    errno = EINVAL;
    return NULL;
}

static bool text_write(int folder, const char *name, const char *text)
{
    char temporary[80];
    size_t size = strlen(text);
    snprintf(temporary, sizeof(temporary), ".yoke-%.60s.tmp", name);
    unlinkat(folder, temporary, 0);
    int fd = openat(folder, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0)
        return false;
    fchmod(fd, 0644); /* dcgm-exporter is another user's, whatever the umask of this one */
    ssize_t written = write(fd, text, size);
    if (written >= 0 && written != (ssize_t)size)
        errno = ENOSPC;
    bool done = written == (ssize_t)size && renameat(folder, temporary, folder, name) == 0;
    int why = errno;
    close(fd);
    if (!done)
        unlinkat(folder, temporary, 0);
    errno = why;
    return done;
}

/* The position of the line in a text; NULL: it is not there. */
static char *line_find(char *text, const char *line)
{
    size_t length = strlen(line);
    for (char *at = text; *at;) {
        size_t size = strcspn(at, "\n");
        if (size == length && memcmp(at, line, length) == 0)
            return at;
        at += size + (at[size] == '\n');
    }
    return NULL;
}

static bool line_is_there(int folder, const char *name, const char *line)
{
    char *text = text_read(folder, name, NULL);
    bool found = text && line_find(text, line);
    free(text);
    return found;
}

/* Adds the line to a GPU's file, unless it is there. False and errno. */
static bool line_add(int folder, const char *name, const char *line)
{
    char *text = text_read(folder, name, NULL);
    size_t size = text ? strlen(text) : 0;
    if (!text && errno != ENOENT)
        return false;
    bool done = text && line_find(text, line);
    if (!done && size + strlen(line) + 2 > MOST_BYTES) {
        errno = EFBIG;
    } else if (!done) {
        char *more = yk__format("%s%s%s\n", text ? text : "", size && text[size - 1] != '\n' ? "\n" : "", line);
        errno = ENOMEM;
        done = more && text_write(folder, name, more);
        free(more);
    }
    free(text);
    return done;
}

/* Takes the line out of a GPU's file, and the file away where nothing else is in it. */
static void line_remove(int folder, const char *name, const char *line)
{
    char *text = text_read(folder, name, NULL), *at = text && strlen(text) < MOST_BYTES ? line_find(text, line) : NULL;
    if (at) {
        size_t length = strlen(line);
        length += at[length] == '\n';
        memmove(at, at + length, strlen(at + length) + 1);
        if (text[strspn(text, " \t\r\n")])
            text_write(folder, name, text);
        else
            unlinkat(folder, name, 0);
    }
    free(text);
}

/* ---- notes ------------------------------------------------------------------------------------------------------- */
static bool note_parse(char *text, note *n)
{
    char *job = strchr(text, '\n'), *gpus = job ? strchr(job + 1, '\n') : NULL;
    *n = (note){0};
    if (!gpus)
        return false;
    *job++ = *gpus++ = '\0';
    snprintf(n->machine, sizeof(n->machine), "%s", text);
    snprintf(n->job, sizeof(n->job), "%s", job);
    for (char *end; (end = gpus, *gpus); gpus = end) {
        long number = strtol(gpus, &end, 10);
        if (end == gpus)
            break;
        if (number >= 0 && number < MOST_NUMBERS)
            n->gpus[number] = true;
    }
    return true;
}

/* Calls `visit` with each launcher's note, until that says true; whether it did. */
static bool notes_each(int folder, bool (*visit)(const char *name, const note *n, uid_t owner, void *argument),
                       void *argument)
{
    int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fd >= 0 ? fdopendir(fd) : NULL;
    bool found = false;
    for (struct dirent *entry; list && !found && (entry = readdir(list));) {
        const char *end = strrchr(entry->d_name, '.');
        uid_t owner = 0;
        note n;
        if (strncmp(entry->d_name, ".yoke-", 6) != 0 || strcmp(end, ".tmp") == 0)
            continue;
        char *text = text_read(folder, entry->d_name, &owner);
        if (text && note_parse(text, &n))
            found = visit(entry->d_name, &n, owner, argument);
        free(text);
    }
    if (list)
        closedir(list);
    else if (fd >= 0)
        close(fd);
    return found;
}

typedef struct need {
    const char *besides, *job; /* besides: the note that does not count */
    int gpu;
} need;

static bool need_is_noted(const char *name, const note *n, uid_t owner, void *argument)
{
    const need *one = argument;
    (void)owner;
    return strcmp(name, one->besides) != 0 && n->gpus[one->gpu] && strcmp(n->job, one->job) == 0;
}

/* Takes away a note, and those of its lines that no other note has. */
static void note_remove(int folder, const char *name, const note *n)
{
    char number[16];
    for (int gpu = 0; gpu < MOST_NUMBERS; gpu++) {
        const need one = {.besides = name, .job = n->job, .gpu = gpu};
        snprintf(number, sizeof(number), "%d", gpu);
        if (n->gpus[gpu] && !notes_each(folder, need_is_noted, (void *)&one))
            line_remove(folder, number, n->job);
    }
    unlinkat(folder, name, 0);
}

/* Takes a note away whose launcher is gone: of this pid namespace, or of an earlier boot. The folder is this host's
 * alone. Another user's process may be hidden here, and counts as running. */
static bool note_look(const char *name, const note *n, uid_t owner, void *folder)
{
    char own[256], state;
    int pid = 0;
    unsigned long long start = 0;
    uint64_t found = 0;
    if ((owner != geteuid() && geteuid() != 0) || sscanf(name, ".yoke-%d-%llu", &pid, &start) != 2 || pid <= 0 ||
        !yk__machine_name(own, sizeof(own)))
        return false;
    bool here = strcmp(own, n->machine) == 0, this_boot = strncmp(own, n->machine, strcspn(own, "/") + 1) == 0;
    bool runs = yk__process_state(pid, &state, &found) && state != 'Z' && state != 'X' && (!found || found == start);
    if (here ? !runs : !this_boot)
        note_remove(*(int *)folder, name, n);
    return false;
}

static bool folder_lock(int folder)
{
    for (double end = yk__now() + lock_wait; flock(folder, LOCK_EX | LOCK_NB); poll(NULL, 0, 5)) {
        if ((errno != EWOULDBLOCK && errno != EINTR) || yk__now() >= end)
            return false;
    }
    return true;
}

/* ---- this launcher ----------------------------------------------------------------------------------------------- */
static bool note_write(int folder, const note *n)
{
    char *text = NULL;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    if (!to)
        return false;
    fprintf(to, "%s\n%s\n", n->machine, n->job);
    for (int gpu = 0; gpu < MOST_NUMBERS; gpu++) {
        if (n->gpus[gpu])
            fprintf(to, "%d ", gpu);
    }
    fputc('\n', to);
    bool done = fclose(to) == 0 && text_write(folder, mine.name, text);
    free(text);
    return done;
}

/* Adds the lines, after the note that has those that are to go again: not those that somebody else has put there. False
 * and errno. */
static bool lines_add(int folder, note *n)
{
    char number[16];
    bool done = true;
    for (int gpu = 0; gpu < MOST_NUMBERS; gpu++) {
        const need one = {.besides = mine.name, .job = n->job, .gpu = gpu};
        snprintf(number, sizeof(number), "%d", gpu);
        n->gpus[gpu] =
            n->gpus[gpu] && (!line_is_there(folder, number, n->job) || notes_each(folder, need_is_noted, (void *)&one));
    }
    if (!note_write(folder, n))
        return false;
    for (int gpu = 0; gpu < MOST_NUMBERS && done; gpu++) {
        snprintf(number, sizeof(number), "%d", gpu);
        done = !n->gpus[gpu] || line_add(folder, number, n->job);
    }
    int why = errno;
    if (!done)
        note_remove(folder, mine.name, n);
    errno = why;
    return done;
}

yk_status yk__job_mapping_begin(const char *folder, const char *job, const int *gpus, int count)
{
    note n = {0};
    char state;
    uint64_t start = 0;
    if (mine.pid == getpid())
        return YK_OK;
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return yk__fail_errno("the folder of job mappings, %s, cannot be opened", folder);
    if (!yk__machine_name(n.machine, sizeof(n.machine)))
        n.machine[0] = '\0';
    snprintf(n.job, sizeof(n.job), "%s", job);
    for (char *c = n.job; *c; c++) {
        if (*c == '"' || *c == '\\' || (unsigned char)*c < ' ')
            *c = '_';
    }
    for (int i = 0; i < count; i++) {
        if (gpus[i] >= 0 && gpus[i] < MOST_NUMBERS)
            n.gpus[gpus[i]] = true;
    }
    mine.pid = getpid();
    yk__process_state((int)mine.pid, &state, &start);
    snprintf(mine.name, sizeof(mine.name), ".yoke-%d-%llu", (int)mine.pid, (unsigned long long)start);
    bool done = folder_lock(fd);
    if (done) {
        notes_each(fd, note_look, &fd);
        done = lines_add(fd, &n);
    }
    int why = errno;
    flock(fd, LOCK_UN);
    if (done) {
        mine.folder = fd;
        return YK_OK;
    }
    close(fd);
    errno = why;
    return yk__fail_errno("the job cannot be written to the folder of job mappings, %s", folder);
}

void yk__job_mapping_end(void)
{
    if (mine.folder < 0 || mine.pid != getpid())
        return;
    char *text = folder_lock(mine.folder) ? text_read(mine.folder, mine.name, NULL) : NULL;
    note n;
    if (text && note_parse(text, &n))
        note_remove(mine.folder, mine.name, &n);
    free(text);
    close(mine.folder);
    mine.folder = -1;
}
