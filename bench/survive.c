/*
 * survive.c - the time from the SIGKILL of a rank to the next step that the survivors complete: LeNet on the built-in
 * digits in 12 virtual ranks of 16 images, or ResNet-18 on random images of 32 x 32, one in each virtual rank. Each
 * kill is a run of its own under `yoke run`, at a step and a rank that differ from run to run; beside it the median
 * time of a step before the kill, and of one after it, which has more to compute. Prints the median, the least and the
 * largest of all runs, in milliseconds.
 *
 * At every tenth kill the rank is started again in a further run (--max-restarts): the time from its main until it
 * takes part, and until its first step is complete; and the time between two steps of the others in which it joined,
 * less that of a step.
 *
 * With torchrun's path the restart of all workers by `torchrun --max-restarts 1` is measured in turns with that, at
 * every tenth kill: SIGKILL of a rank to the first collective of the new ones (bench/peer_survive.py). They load no
 * checkpoint and no data, and have no network, so it is the least that a program pays there. torchrun gets
 * TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1: by its default the workers that are started again meet in the store of those
 * before, which still has the addresses of these (torch 2.15), and fail after half a minute of connecting to them.
 *
 * A run that fails is counted and said, with the place of its output, and so is a restart of torchrun's that has not
 * come to an end after ten minutes. SIGINT and SIGTERM end the measuring, and what was measured so far is printed; all
 * that takes an hour on a machine that is busy, and a batch system's limit then leaves the figures.
 *
 * Usage: survive [kills [ranks [lenet|resnet18 [TORCHRUN]]]]    default: 20 of 4, lenet; $YOKE is the program,
 *        build/yoke where it is not set
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
#include "bench/times.h"

enum { BEFORE = 10, AFTER = 10, MOST_KILLS = 1000, MOST_STEPS = 2000 };

/* Memory that the ranks of a run share with this program. */
typedef struct board {
    double killed, next;                 /* when the rank was, and when the others' next step was complete */
    double before[BEFORE], after[AFTER]; /* seconds of steps */
    /* The times of a rank that was started again: its main began, it took part, its first step was complete; and the
     * seconds between the two steps of the others between which it joined. */
    double started, joined, stepped, grown;
} board;

/* The counts that all members have alike. */
typedef struct counts {
    int64_t step, again; /* again: steps since all ranks are there again */
} counts;

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

static yk_loader *loader_of(bool resnet)
{
    enum { SAMPLES = 2048 };
    yk_loader_options options = {yk_loader_options_DEFAULTS};
    options.shuffle = true;
    options.batch_size = resnet ? 1 : 16;
    if (resnet)
        return yk_loader_create(
            yk_tensor_dataset(yk_randn(YK_SHAPE(SAMPLES, 3, 32, 32), NULL), yk_randint(0, 10, YK_SHAPE(SAMPLES), NULL)),
            &options);
    return yk_loader_create(yk_dataset_open("glyphs", YK_TRAIN, yk_default_transform("glyphs", YK_TRAIN, true)),
                            &options);
}

static int rank_main(const char *path, int kill, int ranks, bool joins, bool resnet)
{
    double started = yk__now();
    counts all = {0};
    board *shared = map_board(path);
    yk_scope program = yk_scope_begin();
    if (!shared || yk_init_process_group(NULL))
        return yk_report_error(stderr);
    int own = yk_rank(NULL), members = ranks;
    yk_manual_seed(7);
    yk_module *net = resnet ? yk_resnet18(YK_OPTIONS(yk_resnet_options, .cifar = true)) : yk_lenet(NULL);
    yk_optimizer *sgd = yk_sgd(yk_module_parameters(net), YK_OPTIONS(yk_sgd_options, .lr = 0.05, .momentum = 0.9));
    yk_loader *loader = loader_of(resnet);
    yk_elastic *job =
        yk_elastic_create(YK_OPTIONS(yk_elastic_options, .model = net, .optimizer = sgd, .loader = loader,
                                     .virtual_ranks = 12, .survive = true, .own = &all, .own_bytes = sizeof(all)));
    if (!job)
        return yk_report_error(stderr);
    const int64_t fatal = BEFORE + kill % 5;
    double last = yk__now();
    bool newcomer = yk_elastic_joined(job);
    if (newcomer) {
        shared->started = started;
        shared->joined = last;
    }
    while ((joins ? all.again < AFTER && all.step < MOST_STEPS : all.step < fatal + AFTER + 1) &&
           yk_elastic_begin(job)) {
        yk_scope scope = yk_scope_begin();
        bool victim = all.step == fatal && own == kill % ranks && yk_world_size(NULL) == ranks && !newcomer;
        yk_status status = train_step(job, shared, victim);
        yk_scope_end(scope);
        if (status && yk_elastic_recover(job))
            return yk_report_error(stderr);
        if (status)
            continue;
        double now = yk__now();
        bool grew = yk_world_size(NULL) > members;
        members = yk_world_size(NULL);
        if (newcomer && shared->stepped == 0)
            shared->stepped = now;
        if (yk_rank(NULL) == 0 && !newcomer && grew)
            shared->grown = now - last;
        else if (yk_rank(NULL) == 0 && all.step == fatal)
            shared->next = now;
        else if (yk_rank(NULL) == 0 && all.step < fatal)
            shared->before[all.step % BEFORE] = now - last;
        else if (yk_rank(NULL) == 0)
            shared->after[(all.step - fatal - 1) % AFTER] = now - last;
        last = now;
        all.again += all.step > fatal && members == ranks;
        all.step++;
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
             "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 OMP_NUM_THREADS=1 timeout -k 5 600 '%s' --standalone "
             "--nproc-per-node %d --max-restarts 1 "
             "bench/peer_survive.py '%s' "
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

/* ---- measuring --------------------------------------------------------------------------------------------------- */
static volatile sig_atomic_t enough;

static void end_measuring(int number)
{
    (void)number;
    enough = 1;
}

typedef struct figures {
    int count, failed;
    double of[MOST_KILLS];
} figures;

static void add(figures *f, double value)
{
    f->of[f->count++] = value;
}

/* "median 20.1 ms, least 18.0, largest 31.5" */
static const char *middle(figures *f, char text[100])
{
    double value = times_median(f->of, f->count);
    snprintf(text, 100, "median %.1f ms, least %.1f, largest %.1f", value, f->of[0], f->of[f->count - 1]);
    return text;
}

/* One run with a kill; false where it failed, which is said. */
static bool run_once(const char *self, const char *path, board *shared, int number, int ranks, bool joins,
                     const char *model)
{
    char command[1000], kept[300];
    const char *yoke = getenv("YOKE") ? getenv("YOKE") : "build/yoke";
    memset(shared, 0, sizeof(*shared));
    snprintf(command, sizeof(command), "'%s' run -n %d %s -- '%s' --rank %s %d %d %d %s > %s.out 2>&1", yoke, ranks,
             joins ? "--max-restarts 1" : "", self, path, number, ranks, joins, model, path);
    int status = system(command);
    if (enough || (status == 0 && shared->killed > 0 && shared->next > 0 && (!joins || shared->stepped > 0)))
        return !enough;
    snprintf(command, sizeof(command), "%s.out", path);
    snprintf(kept, sizeof(kept), "%s.failed.%d", path, number);
    rename(command, kept);
    fprintf(stderr, "survive: run %d%s failed; its output is in %s\n", number, joins ? ", with a join," : "", kept);
    return false;
}

int main(int argc, char **argv)
{
    if (argc > 6 && strcmp(argv[1], "--rank") == 0)
        return rank_main(argv[2], atoi(argv[3]), atoi(argv[4]), atoi(argv[5]), strcmp(argv[6], "resnet18") == 0);
    int kills = argc > 1 ? atoi(argv[1]) : 20, ranks = argc > 2 ? atoi(argv[2]) : 4;
    const char *model = argc > 3 ? argv[3] : "lenet", *torchrun = argc > 4 ? argv[4] : NULL;
    if (strcmp(model, "lenet") != 0 && strcmp(model, "resnet18") != 0) {
        fprintf(stderr, "survive: there is no model %s; lenet and resnet18 are there\n", model);
        return 2;
    }
    static figures times, before, after, restarts, joined, stepped, cost;
    char path[] = "/tmp/yoke-survive-XXXXXX", file[100], text[100];
    int fd = mkstemp(path);
    board *shared = fd >= 0 ? map_board(path) : NULL;
    signal(SIGINT, end_measuring);
    signal(SIGTERM, end_measuring);
    for (int i = 0; shared && i < kills && i < MOST_KILLS && !enough; i++) {
        if (run_once(argv[0], path, shared, i, ranks, false, model)) {
            add(&times, 1e3 * (shared->next - shared->killed));
            add(&before, 1e3 * times_median(shared->before, BEFORE));
            add(&after, 1e3 * times_median(shared->after, AFTER));
        } else {
            times.failed += !enough;
        }
        if (i % 10 == 0 && !enough) {
            if (run_once(argv[0], path, shared, i, ranks, true, model)) {
                add(&joined, 1e3 * (shared->joined - shared->started));
                add(&stepped, 1e3 * (shared->stepped - shared->started));
                if (shared->grown > 0) /* else it came in time for the view without the one that was killed */
                    add(&cost, 1e3 * (shared->grown - times_median(shared->after, AFTER)));
            } else {
                joined.failed += !enough;
            }
        }
        if (torchrun && i % 10 == 0 && !enough) {
            double took = restart_of_peer(torchrun, ranks, path);
            if (took < 0)
                restarts.failed += !enough;
            else
                add(&restarts, took);
        }
    }
    unlink(path);
    snprintf(file, sizeof(file), "%s.out", path);
    unlink(file);
    if (!times.count)
        return 1;
    printf("%s: SIGKILL of one of %d ranks to the next step of the others, %d runs: %s; a step takes %.1f ms before, "
           "%.1f after\n",
           model, ranks, times.count, middle(&times, text), times_median(before.of, before.count),
           times_median(after.of, after.count));
    if (joined.count) {
        printf("main of a rank that is started again until it takes part, %d runs: %s;", joined.count,
               middle(&joined, text));
        printf(" until its first step is complete: %s", middle(&stepped, file));
        printf(cost.count ? "; it cost the others: %s\n" : "\n", cost.count ? middle(&cost, text) : "");
    }
    if (restarts.count)
        printf(
            "SIGKILL of one of %d ranks to the first collective after torchrun's restart, %d runs: %s; %.0f times as "
            "long\n",
            ranks, restarts.count, middle(&restarts, text),
            times_median(restarts.of, restarts.count) / times_median(times.of, times.count));
    if (times.failed || joined.failed || restarts.failed)
        printf("failed: %d runs, %d with a join, %d of torchrun's restarts\n", times.failed, joined.failed,
               restarts.failed);
    return times.failed || joined.failed;
}
