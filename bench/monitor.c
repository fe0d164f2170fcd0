/*
 * monitor.c - what `yoke monitor` takes: 8 emulated GPUs and 50 runs of one rank each, scraped over one connection that
 * stays open. Prints the time of a scrape, its processor time, so the part of a core at a scrape every 15 s, and the
 * memory. Exits with 1 where a scrape takes longer than 3 ms, the memory is above 15 MiB, the part above 0.1%.
 *
 * Usage: monitor [scrapes [runs]]          default: 400 of 50; $YOKE is the program, build/yoke where it is not set
 *
 * Many scrapes (1000000 of 2 runs: make soak) show that memory does not grow: it is read after a tenth and at the end.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <yoke/yoke.h>

#include "base/core.h"
#include "bench/times.h"

enum { MOST_RUNS = 200, KEPT = 100000 /* times that are kept */ };

static char folder[] = "/tmp/yoke-bench-XXXXXX";
static pid_t children[MOST_RUNS + 1];
static int n_children;

/* The program with these arguments; what it prints goes to `out`. */
static pid_t child_start(const char *out, const char *const *arguments)
{
    pid_t pid = fork();
    if (pid == 0) {
        char path[100];
        snprintf(path, sizeof(path), "%s/%s", folder, out);
        if (!freopen(path, "w", stdout) || !freopen("/dev/null", "r", stdin) || dup2(1, 2) < 0)
            _exit(126);
        execv(getenv("YOKE"), (char *const *)arguments);
        _exit(127);
    }
    if (pid > 0)
        children[n_children++] = pid;
    return pid;
}

static void children_end(void)
{
    char command[100];
    for (int i = 0; i < n_children; i++)
        kill(children[i], SIGTERM);
    for (int i = 0; i < n_children; i++)
        waitpid(children[i], NULL, 0);
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    if (system(command))
        fprintf(stderr, "%s is left\n", folder);
}

/* A rank that has trained. */
static void rank_run(void)
{
    yk_progress_loss(0.5, 32);
    yk_progress_phase("waits to be looked at");
    for (;;)
        pause();
}

static int port_read(void)
{
    char path[100], line[300];
    int port = 0;
    snprintf(path, sizeof(path), "%s/monitor", folder);
    for (int tries = 0; tries < 200 && !port; tries++) {
        FILE *from = fopen(path, "r");
        while (from && fgets(line, sizeof(line), from)) {
            const char *at = strstr(line, "http://127.0.0.1:");
            port = at ? atoi(at + strlen("http://127.0.0.1:")) : port;
        }
        if (from)
            fclose(from);
        usleep(50000);
    }
    return port;
}

/* One answer over the connection; how many lines of it hold the word, -1 where it breaks. */
static int scrape(int fd, const char *word)
{
    static const char request[] = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
    static char answer[1 << 22];
    size_t size = 0, head = 0, whole = 0;
    if (write(fd, request, sizeof(request) - 1) != sizeof(request) - 1)
        return -1;
    while (!whole || size < whole) {
        ssize_t more = read(fd, answer + size, sizeof(answer) - 1 - size);
        if (more <= 0)
            return -1;
        answer[size += (size_t)more] = '\0';
        const char *end = whole ? NULL : strstr(answer, "\r\n\r\n"), *length = end ? strstr(answer, "Length: ") : NULL;
        if (end && (!length || strncmp(answer, "HTTP/1.1 200 ", 13) != 0))
            return -1;
        head = end ? (size_t)(end + 4 - answer) : head;
        whole = end ? head + (size_t)atol(length + 8) : whole;
    }
    int count = 0;
    for (const char *at = word ? answer + head : NULL; at && (at = strstr(at, word)); at++)
        count++;
    return count;
}

/* KiB of memory, and seconds of the processor, of a process. */
static long memory_of(pid_t pid)
{
    char path[64], line[200];
    long kib = 0;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    FILE *from = fopen(path, "r");
    while (from && fgets(line, sizeof(line), from))
        sscanf(line, "VmRSS: %ld", &kib);
    if (from)
        fclose(from);
    return kib;
}

static double processor_of(pid_t pid)
{
    clockid_t clock;
    struct timespec t = {0};
    if (clock_getcpuclockid(pid, &clock) == 0)
        clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool measure(pid_t monitor, int fd, long scrapes, int runs)
{
    static double taken[KEPT];
    long first = 0;
    int seen = 0;
    for (int tries = 0; tries < 300 && seen < runs; tries++) { /* all ranks are there */
        seen = scrape(fd, "yoke_rank_loss{");
        usleep(100000);
    }
    int gpus = scrape(fd, "DCGM_FI_DEV_GPU_TEMP{");
    if (seen != runs || gpus < 0)
        return printf("monitor: %d of %d ranks are served\n", seen, runs), false;
    double before = processor_of(monitor);
    long start = memory_of(monitor);
    for (long i = 0; i < scrapes; i++) {
        double began = yk__now();
        if (scrape(fd, NULL) < 0)
            return printf("monitor: scrape %ld was not answered\n", i), false;
        taken[i % KEPT] = yk__now() - began;
        if (i == scrapes / 10)
            first = memory_of(monitor);
    }
    double each = (processor_of(monitor) - before) / (double)scrapes;
    long count = scrapes < KEPT ? scrapes : KEPT, last = memory_of(monitor);
    double typical = 1e9; /* of the fifth that other programs disturbed least */
    for (int part = 0; part < 5; part++) {
        double *of = taken + part * (count / 5);
        qsort(of, (size_t)(count / 5), sizeof(*of), times_compare);
        double middle = 1e3 * of[count / 10];
        typical = middle < typical ? middle : typical;
    }
    qsort(taken, (size_t)count, sizeof(*taken), times_compare);
    double slow = 1e3 * taken[count - 1 - count / 100];
    printf("yoke monitor, %d GPUs, %d runs, %ld scrapes: %.2f ms (bound: 3), 99 of 100 within %.2f ms; %.2f ms of the "
           "processor, %.4f%% of a core at 15 s (0.1); %.1f MiB (15), before them %.1f, after a tenth %.1f\n",
           gpus, runs, scrapes, typical, slow, 1e3 * each, 100 * each / 15, (double)last / 1024, (double)start / 1024,
           (double)first / 1024);
    return typical <= 3 && each / 15 <= 0.001 && last <= 15 * 1024 && last - first <= 1024;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "rank") == 0)
        rank_run();
    long scrapes = argc > 1 ? atol(argv[1]) : 400;
    int runs = argc > 2 ? atoi(argv[2]) : 50, fd = -1;
    if (scrapes < 10 || runs < 1 || runs > MOST_RUNS || !mkdtemp(folder))
        return fprintf(stderr, "usage: monitor [scrapes [runs]]\n"), 2;
    setenv("YOKE", "build/yoke", 0);
    setenv("YOKE_RUN_DIR", folder, 1);
    setenv("YOKE_EMULATOR_GPUS", "8", 0);
    char self[4096], command[300];
    ssize_t size = readlink("/proc/self/exe", self, sizeof(self) - 1);
    self[size > 0 ? size : 0] = '\0';
    snprintf(command, sizeof(command), "cc -shared -fPIC -D_GNU_SOURCE -o %s/libnvidia-ml.so.1 tests/emulator/nvml.c",
             folder);
    if (system(command) == 0) /* without it there are no GPUs, and the line says so */
        setenv("LD_LIBRARY_PATH", folder, 1);
    for (int i = 0; i < runs; i++) {
        char name[24];
        snprintf(name, sizeof(name), "run-%d", i);
        child_start("out", (const char *const[]){"yoke", "run", "-n", "1", "--job-id", name, "--grace", "0.1", "--",
                                                 self, "rank", NULL});
    }
    pid_t monitor = child_start("monitor", (const char *const[]){"yoke", "monitor", "-a", "127.0.0.1:0", NULL});
    int port = port_read();
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool fine = port && connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0;
    if (!fine)
        printf("monitor: it does not listen\n");
    fine = fine && measure(monitor, fd, scrapes, runs);
    close(fd);
    children_end();
    return !fine;
}
