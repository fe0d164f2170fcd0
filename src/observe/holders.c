/*
 * holders.c - what a process holds of this machine, and since when. Layer: observe.
 *
 * All of it is of /proc, and may be gone, or another process's, between two looks: what does not fit together is not
 * known.
 */
#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "host/process.h"
#include "observe/holders.h"
#include "observe/leftovers.h"

/* The bytes of a file of /proc/PID, and a zero behind them. */
static size_t proc_bytes(int pid, const char *name, char *text, size_t size)
{
    char path[64];
    size_t all = 0;
    snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    for (ssize_t n; fd >= 0 && all < size - 1 && (n = read(fd, text + all, size - 1 - all)) > 0;)
        all += (size_t)n;
    if (fd >= 0)
        close(fd);
    text[all] = '\0';
    return all;
}

/* The value of "Name:\tvalue" in /proc/PID/status. */
static void status_value(const char *status, const char *name, char *value, size_t size)
{
    const char *at = strstr(status, name);
    value[0] = '\0';
    if (!at)
        return;
    at += strlen(name);
    at += strspn(at, ": \t");
    snprintf(value, size, "%.*s", (int)strcspn(at, "\n"), at);
}

/* Seconds since 1970 at which a process was started, by its start time in ticks since the boot. */
static double start_time(uint64_t ticks)
{
    struct timespec boot, now;
    clock_gettime(CLOCK_BOOTTIME, &boot);
    clock_gettime(CLOCK_REALTIME, &now);
    double since_boot = (double)boot.tv_sec + 1e-9 * (double)boot.tv_nsec;
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec -
           (since_boot - (double)ticks / (double)sysconf(_SC_CLK_TCK));
}

/* ---- ports ------------------------------------------------------------------------------------------------------- */
/* "0100007F" as the kernel prints an address, in words of this machine. */
static bool address_text(const char *digits, unsigned port, char *text, size_t size)
{
    uint32_t words[4];
    char host[INET6_ADDRSTRLEN];
    int count = strlen(digits) == 32 ? 4 : 1;
    for (int i = 0; i < count; i++) {
        char word[9];
        snprintf(word, sizeof(word), "%.8s", digits + 8 * i);
        words[i] = (uint32_t)strtoul(word, NULL, 16);
    }
    if (!inet_ntop(count == 4 ? AF_INET6 : AF_INET, words, host, sizeof(host)))
        return false;
    snprintf(text, size, count == 4 ? "[%s]:%u" : "%s:%u", host, port);
    return true;
}

/* Adds those of one table of the process's network whose sockets it has open. */
static void ports_add(yk__holder *h, const char *table, const unsigned long *inodes, int n_inodes)
{
    enum { LISTENING = 10 };
    char path[64], line[512], host[33];
    unsigned port, state;
    unsigned long inode;
    snprintf(path, sizeof(path), "/proc/%d/net/%s", h->pid, table);
    FILE *file = fopen(path, "re");
    while (file && h->n_ports < YK__HOLDER_PORTS && fgets(line, sizeof(line), file)) {
        bool open = false;
        if (sscanf(line, " %*d: %32[0-9A-F]:%x %*[0-9A-F]:%*x %x %*s %*s %*s %*s %*s %lu", host, &port, &state,
                   &inode) != 4 ||
            state != LISTENING)
            continue;
        for (int i = 0; i < n_inodes; i++)
            open = open || inodes[i] == inode;
        if (open && address_text(host, port, h->ports[h->n_ports], sizeof(h->ports[0])))
            h->n_ports++;
    }
    if (file)
        fclose(file);
}

static void ports_read(yk__holder *h)
{
    enum { MOST = 4096 };
    char path[300], link[64];
    int count = 0;
    unsigned long *inodes = malloc(MOST * sizeof(*inodes));
    snprintf(path, sizeof(path), "/proc/%d/fd", h->pid);
    DIR *folder = inodes ? opendir(path) : NULL;
    for (struct dirent *entry; folder && count < MOST && (entry = readdir(folder));) {
        ssize_t size = readlinkat(dirfd(folder), entry->d_name, link, sizeof(link) - 1);
        link[size > 0 ? size : 0] = '\0';
        count += sscanf(link, "socket:[%lu]", &inodes[count]) == 1;
    }
    if (folder)
        closedir(folder);
    if (count) {
        ports_add(h, "tcp", inodes, count);
        ports_add(h, "tcp6", inodes, count);
    }
    free(inodes);
}

/* ---- a process --------------------------------------------------------------------------------------------------- */
void yk__holder_read(int pid, yk__holder *h)
{
    YK__QUESTION;
    char status[8192], value[64], state;
    uint64_t start = 0;
    *h = (yk__holder){.pid = pid, .since = -1, .resident = -1};
    h->here = pid > 0 && yk__process_state(pid, &state, &start) && yk__process_user(pid, h->user, sizeof(h->user));
    if (!h->here)
        return;
    h->own = yk__process_is_own(pid);
    h->since = start ? start_time(start) : -1;
    proc_bytes(pid, "comm", h->name, sizeof(h->name));
    h->name[strcspn(h->name, "\n")] = '\0';
    proc_bytes(pid, "status", status, sizeof(status));
    status_value(status, "\nCpus_allowed_list", h->cores, sizeof(h->cores));
    status_value(status, "\nVmRSS", value, sizeof(value));
    h->resident = *value ? 1024 * strtod(value, NULL) : -1;
    if (!h->own)
        return;
    size_t size = proc_bytes(pid, "cmdline", h->command, sizeof(h->command));
    for (size_t i = 0; i + 1 < size; i++)
        h->command[i] = h->command[i] ? h->command[i] : ' ';
    h->supervisor = yk__process_supervisor(pid);
    h->launcher_gone = h->supervisor && !yk__process_is_below(pid, h->supervisor);
    ports_read(h);
}

/* ---- files ------------------------------------------------------------------------------------------------------- */
/* True if a line of /proc/PID/maps ends in the path. */
static bool is_mapped(int pid, const char *path)
{
    char name[64], line[4500];
    bool found = false;
    size_t length = strlen(path);
    snprintf(name, sizeof(name), "/proc/%d/maps", pid);
    FILE *file = fopen(name, "re");
    while (file && !found && fgets(line, sizeof(line), file)) {
        size_t size = strcspn(line, "\n");
        found = size > length && line[size - length - 1] == ' ' && strncmp(line + size - length, path, length) == 0;
    }
    if (file)
        fclose(file);
    return found;
}

static bool is_open(int pid, const char *path)
{
    char name[64], link[4200];
    bool found = false;
    snprintf(name, sizeof(name), "/proc/%d/fd", pid);
    DIR *folder = opendir(name);
    for (struct dirent *entry; folder && !found && (entry = readdir(folder));) {
        ssize_t size = readlinkat(dirfd(folder), entry->d_name, link, sizeof(link) - 1);
        link[size > 0 ? size : 0] = '\0';
        found = strcmp(link, path) == 0;
    }
    if (folder)
        closedir(folder);
    return found;
}

int yk__file_holders(const char *path, int *pids, int most)
{
    int count = 0;
    DIR *folder = opendir("/proc");
    for (struct dirent *entry; folder && count < most && (entry = readdir(folder));) {
        int pid = isdigit((unsigned char)entry->d_name[0]) ? atoi(entry->d_name) : 0;
        if (pid > 0 && pid != getpid() && (is_mapped(pid, path) || is_open(pid, path)))
            pids[count++] = pid;
    }
    if (folder)
        closedir(folder);
    return count;
}
