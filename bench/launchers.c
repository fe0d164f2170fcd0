/*
 * launchers.c - the time in which N launchers of `yoke run` meet on one machine, N nodes of which node 0 alone has a
 * process. They are started one after the other, as fast as that goes: node 0's first; or last, when all others have
 * been looking for it and come at once. From the start of the last one on:
 *
 *   meet    until the process of node 0 begins, which it does when all have come and have been given their parts
 *   begin   until every launcher has begun its part (it has announced its run; launch/announcement.h)
 *   end     until the last of them has ended, which waits for that process
 *
 * and the processor seconds of all launchers together, in milliseconds for each, beside those of `yoke --version` as
 * often: the loading of the program alone. Medians of the rounds, in which the sizes and orders take turns.
 *
 * Usage: launchers [rounds [N ...]]   default: 3 rounds of 64, 256, 1000; $YOKE is the program, build/yoke if not set
 */
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/core.h"
#include "bench/times.h"
#include "net/socket.h"

extern char **environ;

enum { MOST_ROUNDS = 100, MOST_SIZES = 16, MOST_LAUNCHERS = 4096, PATIENCE = 60 };

static char folder[] = "/tmp/yoke-launchers-XXXXXX";
static char runs[sizeof(folder) + 8], file[sizeof(folder) + 8], secret[sizeof(folder) + 8];

/* Runs of which the launchers have said that they are there. */
static int announced(void)
{
    int count = 0;
    DIR *list = opendir(runs);
    for (struct dirent *entry; list && (entry = readdir(list));) {
        size_t length = strlen(entry->d_name);
        count += length > 5 && strcmp(entry->d_name + length - 5, ".json") == 0;
    }
    if (list)
        closedir(list);
    return count;
}

/* The process of node 0: writes when it begins, and when all launchers have begun. */
static int rank_main(const char *path, int launchers)
{
    double times[2] = {yk__now(), 0}, until = yk__now() + PATIENCE;
    snprintf(runs, sizeof(runs), "%s", getenv("YOKE_RUN_DIR"));
    while (announced() < launchers)
        if (yk__now() > until || poll(NULL, 0, 20))
            return 1;
    times[1] = yk__now();
    FILE *f = fopen(path, "w");
    if (!f)
        return 1;
    fprintf(f, "%.6f %.6f\n", times[0], times[1]);
    return fclose(f) ? 1 : 0;
}

/* The figures of one size and order. */
typedef struct figures {
    int launchers, count;
    bool last; /* node 0 is started last */
    double started[MOST_ROUNDS], meet[MOST_ROUNDS], begin[MOST_ROUNDS], end[MOST_ROUNDS], each[MOST_ROUNDS];
} figures;

static double processor_seconds(void)
{
    struct rusage all;
    getrusage(RUSAGE_CHILDREN, &all);
    return (double)(all.ru_utime.tv_sec + all.ru_stime.tv_sec) +
           1e-6 * (double)(all.ru_utime.tv_usec + all.ru_stime.tv_usec);
}

static pid_t start(const char *const *argv, const posix_spawn_file_actions_t *actions)
{
    pid_t pid;
    return posix_spawn(&pid, argv[0], actions, NULL, (char *const *)argv, environ) == 0 ? pid : -1;
}

/* Waits for all; the number of those that failed. One that has not ended in time is killed. */
static int wait_for(const pid_t *pids, int count)
{
    int failed = 0;
    double until = yk__now() + 2 * PATIENCE;
    for (int i = 0; i < count; i++) {
        int status = 1;
        pid_t ended = 0;
        while (pids[i] > 0 && (ended = waitpid(pids[i], &status, WNOHANG)) == 0) {
            if (yk__now() > until)
                kill(pids[i], SIGKILL);
            poll(NULL, 0, 2);
        }
        failed += ended != pids[i] || status != 0;
    }
    return failed;
}

/* One meeting; false where it failed, which is said. */
static bool meet_once(const char *yoke, const char *self, figures *f)
{
    static pid_t pids[MOST_LAUNCHERS];
    static char counts[2 * MOST_LAUNCHERS + 2];
    char nodes[16], port_text[16], number[16];
    int held, port = yk__port_claim(&held), n = f->launchers, first = f->last ? 1 : 0;
    if (!port)
        return false;
    close(held);
    counts[0] = '1';
    counts[1] = '\0';
    for (int i = 1; i < n; i++)
        memcpy(counts + 2 * i - 1, ",0", 3);
    snprintf(nodes, sizeof(nodes), "%d", n);
    snprintf(port_text, sizeof(port_text), "%d", port);
    const char *argv[] = {yoke,
                          "run",
                          "--nnodes",
                          nodes,
                          "--node-rank",
                          number,
                          "-n",
                          counts,
                          "--master-addr",
                          "127.0.0.1",
                          "--master-port",
                          port_text,
                          "--job-id",
                          "launchers",
                          "--secret-file",
                          secret,
                          "--join-timeout",
                          "100",
                          "--no-prefix",
                          self,
                          "--rank",
                          file,
                          nodes,
                          NULL};
    posix_spawn_file_actions_t quiet;
    posix_spawn_file_actions_init(&quiet);
    posix_spawn_file_actions_addopen(&quiet, 0, "/dev/null", O_RDONLY, 0);
    double cpu = processor_seconds(), began = yk__now(), last = began;
    unlink(file);
    for (int i = 0; i < n; i++) {
        int node = (i + first) % n;
        snprintf(number, sizeof(number), "%d", node);
        if (f->last && node == 0)
            poll(NULL, 0, 1500); /* the others look for it by then, ever more seldom */
        last = yk__now();
        pids[i] = start(argv, &quiet);
    }
    posix_spawn_file_actions_destroy(&quiet);
    int failed = wait_for(pids, n);
    double end = yk__now(), times[2] = {0};
    FILE *found = fopen(file, "r");
    bool good = found && fscanf(found, "%lf %lf", &times[0], &times[1]) == 2 && failed == 0;
    if (found)
        fclose(found);
    if (!good) {
        fprintf(stderr, "launchers: %d of %d failed\n", failed, n);
        return false;
    }
    int k = f->count++;
    f->started[k] = last - began - (f->last ? 1.5 : 0);
    f->meet[k] = times[0] - last;
    f->begin[k] = times[1] - last;
    f->end[k] = end - last;
    f->each[k] = 1e3 * (processor_seconds() - cpu) / n;
    return true;
}

/* Milliseconds of processor for one `yoke --version`. */
static double loading(const char *yoke)
{
    enum { TIMES = 50 };
    const char *argv[] = {yoke, "--version", NULL};
    posix_spawn_file_actions_t quiet;
    posix_spawn_file_actions_init(&quiet);
    posix_spawn_file_actions_addopen(&quiet, 1, "/dev/null", O_WRONLY, 0);
    double before = processor_seconds();
    for (int i = 0; i < TIMES; i++) {
        pid_t pid = start(argv, &quiet);
        wait_for(&pid, 1);
    }
    posix_spawn_file_actions_destroy(&quiet);
    return 1e3 * (processor_seconds() - before) / TIMES;
}

static bool make_folder(void)
{
    if (!mkdtemp(folder))
        return false;
    snprintf(runs, sizeof(runs), "%s/runs", folder);
    snprintf(file, sizeof(file), "%s/times", folder);
    snprintf(secret, sizeof(secret), "%s/secret", folder);
    int fd = open(secret, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    bool written = fd >= 0 && write(fd, "the secret of a bench of launchers", 34) == 34;
    if (fd >= 0)
        close(fd);
    setenv("YOKE_RUN_DIR", runs, 1);
    return written && mkdir(runs, 0700) == 0;
}

int main(int argc, char **argv)
{
    if (argc > 3 && strcmp(argv[1], "--rank") == 0)
        return rank_main(argv[2], atoi(argv[3]));
    static figures all[2 * MOST_SIZES];
    static const int usual[] = {64, 256, 1000};
    const char *yoke = getenv("YOKE") ? getenv("YOKE") : "build/yoke";
    int rounds = argc > 1 ? atoi(argv[1]) : 3, sizes = 0;
    for (int i = 2; i < argc && sizes < 2 * MOST_SIZES; i++, sizes += 2)
        all[sizes].launchers = all[sizes + 1].launchers = atoi(argv[i]);
    for (int i = 0; argc <= 2 && i < 3; i++, sizes += 2)
        all[sizes].launchers = all[sizes + 1].launchers = usual[i];
    char *self = realpath(argv[0], NULL);
    bool good = rounds >= 1 && rounds <= MOST_ROUNDS && self;
    for (int i = 0; i < sizes; i++) {
        all[i].last = i % 2 == 1;
        good = good && all[i].launchers >= 2 && all[i].launchers <= MOST_LAUNCHERS;
    }
    if (!good || !make_folder()) {
        fprintf(stderr, "usage: launchers [rounds [N ...]], of 2 to %d launchers\n", MOST_LAUNCHERS);
        return 2;
    }
    for (int r = 0; r < rounds && good; r++)
        for (int i = 0; i < sizes && good; i++)
            good = meet_once(yoke, self, &all[i]);
    double load[1] = {0}, load_each = loading(yoke);
    (void)!getloadavg(load, 1);
    printf("launchers  node 0  started in      meet     begin       end  ms of processor each\n");
    for (int i = 0; i < sizes && all[i].count; i++) {
        figures *f = &all[i];
        printf("%9d  %6s  %8.2f s  %6.2f s  %6.2f s  %6.2f s  %.1f\n", f->launchers, f->last ? "last" : "first",
               times_median(f->started, f->count), times_median(f->meet, f->count), times_median(f->begin, f->count),
               times_median(f->end, f->count), times_median(f->each, f->count));
    }
    printf("loading the program alone: %.1f ms of processor; load average at the end: %.1f\n", load_each, load[0]);
    free(self);
    unlink(file);
    unlink(secret);
    rmdir(runs);
    rmdir(folder);
    return good ? 0 : 1;
}
