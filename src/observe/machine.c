/*
 * machine.c - the processors and the memory of this machine at a moment. Layer: observe.
 */
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "observe/machine.h"

/* Seconds between two looks for `busy`, in ticks: with fewer it would be noise. */
enum { LEAST_TICKS = 5 };

static void file_read(const char *path, char *text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, size - 1) : -1;
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
}

/* A line of /proc/meminfo, in bytes. */
static double memory_of(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    long long kilobytes;
    return at && sscanf(at + strlen(name), "%lld", &kilobytes) == 1 ? (double)kilobytes * 1024 : NAN;
}

void yk__machine_read(yk__machine *m)
{
    char text[4096];
    unsigned long long user, nice, system, idle, wait, irq, soft, steal;
    m->cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    file_read("/proc/meminfo", text, sizeof(text));
    m->memory = memory_of(text, "MemTotal:");
    m->available = memory_of(text, "MemAvailable:");
    file_read("/proc/stat", text, sizeof(text));
    if (sscanf(text, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &user, &nice, &system, &idle, &wait, &irq, &soft,
               &steal) != 8) {
        m->busy = NAN;
        return;
    }
    double busy = (double)(user + nice + system + irq + soft + steal), all = busy + (double)(idle + wait);
    bool first = m->ticks <= 0;
    if (!first && all - m->ticks < LEAST_TICKS)
        return; /* what the look before has found */
    m->busy = first ? NAN : 100 * (busy - m->busy_ticks) / (all - m->ticks);
    m->busy = m->busy < 0 ? 0 : m->busy; /* the kernel's sums of idle time may step back */
    m->busy_ticks = busy;
    m->ticks = all;
}
