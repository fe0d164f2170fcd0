/*
 * survive.c - the time from the SIGKILL of a rank to the next step that the survivors complete: LeNet on the built-in
 * digits in 12 virtual ranks. Each kill is a run of its own under `yoke run`, at a step and a rank that differ from run
 * to run; beside it the median time of a step before the kill, and of one after it, which has more to compute. Prints
 * the median, the least and the largest of all runs, in milliseconds.
 *
 * With torchrun's path the restart of all workers by `torchrun --max-restarts 1` is measured in turns with that, at
 * every tenth kill: SIGKILL of a rank to the first collective of the new ones (bench/peer_survive.py). They load no
 * checkpoint and no data, and have no network, so it is the least that a program pays there.
 *
 * Usage: survive [kills [ranks [TORCHRUN]]]    default: 20 of 4; $YOKE is the program, build/yoke where it is not set
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <yoke/yoke.h>

#include "base/core.h"

enum { BEFORE = 10, AFTER = 10, MOST_KILLS = 1000 };

/* Memory that the ranks of a run share with this program. */
typedef struct board {
    double killed, next;                 /* when the rank was, and when the others' next step was complete */
    double before[BEFORE], after[AFTER]; /* seconds of steps */
} board;

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof(*values), compare);
    return values[count / 2];
}

static board *map_board(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    void *memory = fd >= 0 && ftruncate(fd, sizeof(board)) == 0
                       ? mmap(NULL, sizeof(board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                       : MAP_FAILED;
    if (fd >= 0)
        close(fd);
    return memory == MAP_FAILED ? NULL : memory;
}

/* A step; the victim ends in the middle of its first batch, while the others wait for its gradients. */
static yk_status train_step(yk_elastic *job, board *shared, bool victim)
{
    yk_batch part;
    while (yk_elastic_next(job, &part)) {
        yk_scope scope = yk_scope_begin();
        yk_tensor *loss = yk_cross_entropy(yk_forward(yk_elastic_model(job), part.input), part.target, NULL);
        if (victim) {
            shared->killed = yk__now();
            raise(SIGKILL);
        }
        yk_status status = yk_elastic_backward(job, loss);
        yk_scope_end(scope);
        if (status)
            return status;
    }
    return yk_elastic_step(job);
}

static int rank_main(const char *path, int kill)
{
    board *shared = map_board(path);
    yk_scope program = yk_scope_begin();
    if (!shared || yk_init_process_group(NULL))
        return yk_report_error(stderr);
    int ranks = yk_world_size(NULL), own = yk_rank(NULL);
    yk_manual_seed(7);
    yk_module *net = yk_lenet(NULL);
    yk_optimizer *sgd = yk_sgd(yk_module_parameters(net), YK_OPTIONS(yk_sgd_options, .lr = 0.05, .momentum = 0.9));
    yk_dataset *digits = yk_dataset_open("glyphs", YK_TRAIN, yk_default_transform("glyphs", YK_TRAIN, true));
    yk_loader *loader = yk_loader_create(digits, YK_OPTIONS(yk_loader_options, .batch_size = 16, .shuffle = true));
    yk_elastic *job = yk_elastic_create(YK_OPTIONS(yk_elastic_options, .model = net, .optimizer = sgd, .loader = loader,
                                                   .virtual_ranks = 12, .survive = true));
    if (!job)
        return yk_report_error(stderr);
    int64_t step = 0, fatal = BEFORE + kill % 5;
    double last = yk__now();
    while (step < fatal + AFTER + 1 && yk_elastic_begin(job)) {
        yk_scope scope = yk_scope_begin();
        bool victim = step == fatal && own == kill % ranks && yk_world_size(NULL) == ranks;
        yk_status status = train_step(job, shared, victim);
        yk_scope_end(scope);
        if (status && yk_elastic_recover(job))
            return yk_report_error(stderr);
        if (status)
            continue;
        double now = yk__now();
        if (yk_rank(NULL) == 0 && step == fatal)
            shared->next = now;
        else if (yk_rank(NULL) == 0 && step < fatal)
            shared->before[step % BEFORE] = now - last;
        else if (yk_rank(NULL) == 0)
            shared->after[(step - fatal - 1) % AFTER] = now - last;
        last = now;
        step++;
    }
    if (yk_last_error())
        return yk_report_error(stderr);
    yk_destroy_process_group();
    yk_scope_end(program);
    return 0;
}

/* Milliseconds of one restart by torchrun; below 0 where it failed. */
static double restart_of_peer(const char *torchrun, int ranks, const char *path)
{
    char command[1000], file[200];
    double times[2] = {0, 0};
    snprintf(file, sizeof(file), "%s.peer", path);
    snprintf(command, sizeof(command),
             "OMP_NUM_THREADS=1 '%s' --standalone --nproc-per-node %d --max-restarts 1 bench/peer_survive.py '%s' "
             "> %s.out 2>&1",
             torchrun, ranks, file, path);
    int status = system(command);
    FILE *f = status == 0 ? fopen(file, "r") : NULL;
    bool read = f && fscanf(f, "%lf %lf", &times[0], &times[1]) == 2;
    if (f)
        fclose(f);
    unlink(file);
    return read ? 1e3 * (times[1] - times[0]) : -1;
}

int main(int argc, char **argv)
{
    if (argc > 3 && strcmp(argv[1], "--rank") == 0)
        return rank_main(argv[2], atoi(argv[3]));
    int kills = argc > 1 ? atoi(argv[1]) : 20, ranks = argc > 2 ? atoi(argv[2]) : 4, measured = 0;
    int restarts = 0, failed = 0;
    const char *torchrun = argc > 3 ? argv[3] : NULL;
    const char *yoke = getenv("YOKE") ? getenv("YOKE") : "build/yoke";
    static double restart_times[MOST_KILLS], times[MOST_KILLS], before[MOST_KILLS], after[MOST_KILLS];
    char path[] = "/tmp/yoke-survive-XXXXXX", command[1000];
    int fd = mkstemp(path);
    board *shared = fd >= 0 ? map_board(path) : NULL;
    for (int i = 0; shared && i < kills && i < MOST_KILLS; i++) {
        memset(shared, 0, sizeof(*shared));
        snprintf(command, sizeof(command), "'%s' run -n %d -- '%s' --rank %s %d > %s.out 2>&1", yoke, ranks, argv[0],
                 path, i, path);
        if (system(command) != 0 || shared->killed == 0 || shared->next == 0) {
            fprintf(stderr, "survive: run %d failed; its output is in %s.out\n", i, path);
            return 1;
        }
        times[measured] = 1e3 * (shared->next - shared->killed);
        before[measured] = 1e3 * median(shared->before, BEFORE);
        after[measured++] = 1e3 * median(shared->after, AFTER);
        if (torchrun && i % 10 == 0) {
            double took = restart_of_peer(torchrun, ranks, path);
            if (took < 0) /* its workers do not always find one another again */
                failed++;
            else
                restart_times[restarts++] = took;
        }
    }
    unlink(path);
    snprintf(command, sizeof(command), "%s.out", path);
    unlink(command);
    if (!measured)
        return 1;
    double middle = median(times, measured);
    printf("SIGKILL of one of %d ranks to the next step of the others, %d runs: median %.1f ms, least %.1f, largest "
           "%.1f; a "
           "step takes %.1f ms before, %.1f after\n",
           ranks, measured, middle, times[0], times[measured - 1], median(before, measured), median(after, measured));
    if (failed)
        printf("torchrun's restart did not come to an end %d times\n", failed);
    if (restarts) {
        double peer = median(restart_times, restarts);
        printf("SIGKILL of one of %d ranks to the first collective after torchrun's restart, %d runs: median %.0f ms, "
               "least %.0f, largest %.0f; %.0f times as long\n",
               ranks, restarts, peer, restart_times[0], restart_times[restarts - 1], peer / middle);
    }
    return 0;
}
