/*
 * store.c - the time until N clients have joined through one TCP store: each makes a connection and proves itself, sets
 * its key, counts itself, and waits for a key that the last one sets; then reads its neighbour's key. All N are
 * connected at once; each is a thread of this process with a store object of its own, the server is a process. Prints
 * one line for each N: the median of the rounds, and the time for one client.
 *
 * Usage: store [rounds [N ...]]          default: 3 rounds of 250, 500, 1000, 2000
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <yoke/store.h>

#include "base/core.h"

static const char secret[] = "of the benchmark";
static int port, clients;

static yk_tcp_store_options options(bool is_server)
{
    return *YK_OPTIONS(yk_tcp_store_options, .host = "127.0.0.1", .port = is_server ? 0 : port, .is_server = is_server,
                       .secret = secret, .secret_size = sizeof(secret));
}

static void *join(void *arg)
{
    int rank = *(int *)arg;
    char key[32], value[32];
    yk_scope scope = yk_scope_begin();
    yk_tcp_store_options o = options(false);
    yk_store *store = yk_tcp_store(&o);
    int64_t sum = 0;
    snprintf(key, sizeof(key), "rank/%d", rank);
    snprintf(value, sizeof(value), "host:%d", rank);
    yk_status status = store ? yk_store_set(store, key, value, strlen(value)) : YK_ERR_INTERNAL;
    if (!status)
        status = yk_store_add(store, "joined", 1, &sum);
    if (!status && sum == clients)
        status = yk_store_set(store, "all", "", 0);
    if (!status)
        status = yk_store_get(store, "all", NULL, NULL, YK_NOT_GIVEN);
    snprintf(key, sizeof(key), "rank/%d", (rank + 1) % clients);
    char *other = NULL;
    if (!status)
        status = yk_store_get(store, key, (void **)&other, NULL, YK_NOT_GIVEN);
    if (!status && atoi(other + 5) != (rank + 1) % clients)
        status = yk_set_error(YK_ERR_INTERNAL, "rank %d reads '%s'", rank, other);
    free(other);
    if (status)
        yk_report_error(stderr);
    yk_scope_end(scope);
    return status ? arg : NULL;
}

static pid_t start_server(void)
{
    int ready[2];
    if (pipe(ready))
        exit(1);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        yk_scope scope = yk_scope_begin();
        yk_tcp_store_options o = options(true);
        yk_store *store = yk_tcp_store(&o);
        if (!store)
            exit(yk_report_error(stderr));
        port = yk_store_port(store);
        if (write(ready[1], &port, sizeof(port)) == sizeof(port))
            pause();
        yk_scope_end(scope);
        exit(1);
    }
    if (pid < 0 || read(ready[0], &port, sizeof(port)) != sizeof(port))
        exit(1);
    close(ready[0]);
    close(ready[1]);
    return pid;
}

static double one_round(int n)
{
    clients = n;
    pid_t server = start_server();
    pthread_t *threads = calloc((size_t)n, sizeof(*threads));
    int *ranks = calloc((size_t)n, sizeof(*ranks)), failed = 0;
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 256 << 10);
    double begin = yk__now();
    for (int i = 0; i < n; i++) {
        ranks[i] = i;
        if (pthread_create(&threads[i], &small, join, &ranks[i]))
            exit(1);
    }
    for (int i = 0; i < n; i++) {
        void *bad;
        pthread_join(threads[i], &bad);
        failed += bad != NULL;
    }
    double took = yk__now() - begin;
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
    free(threads);
    free(ranks);
    if (failed) {
        fprintf(stderr, "%d of %d clients failed\n", failed, n);
        exit(1);
    }
    return took;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    static const char *const usual[] = {"250", "500", "1000", "2000"};
    enum { MOST_ROUNDS = 101 };
    int rounds = argc > 1 ? atoi(argv[1]) : 3;
    const char *const *sizes = argc > 2 ? (const char *const *)argv + 2 : usual;
    int count = argc > 2 ? argc - 2 : 4;
    if (rounds < 1 || rounds > MOST_ROUNDS) {
        fprintf(stderr, "usage: store [rounds (1 to %d) [N ...]]\n", MOST_ROUNDS);
        return 2;
    }
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    printf("%8s  %10s  %14s\n", "clients", "seconds", "us per client");
    for (int i = 0; i < count; i++) {
        double times[MOST_ROUNDS];
        int n = atoi(sizes[i]);
        if (n < 1)
            return 2;
        for (int r = 0; r < rounds; r++)
            times[r] = one_round(n);
        qsort(times, (size_t)rounds, sizeof(*times), by_size);
        double median = (times[rounds / 2] + times[(rounds - 1) / 2]) / 2;
        printf("%8d  %10.3f  %14.1f\n", n, median, 1e6 * median / n);
        fflush(stdout);
    }
    return 0;
}
