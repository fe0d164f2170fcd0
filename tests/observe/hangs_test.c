/*
 * hangs_test.c - jobs that hang, each in a way that its seed says, and what `yoke explain` says of them: the rank that
 * is the cause, and where. The ranks are this program again; the launcher is $YOKE.
 *
 * YOKE_HANGS: how many (a round of all kinds); YOKE_TEST_SEED: the first seed. Of many, one in a hundred may be wrong.
 */
#include "tests/support/expect.h"

#include <errno.h>
#include <ftw.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <yoke/yoke.h>

#include "base/core.h"
#include "tests/support/machine.h"

typedef enum kind {
    MISSING,  /* a rank does something else */
    ORDER,    /* two groups, in another order */
    STOPPED,  /* before the operation */
    INSIDE,   /* stopped within it */
    TEARDOWN, /* a rank leaves, and waits there for who does not take its message */
    LOADER,   /* a sample does not come */
    CALLS,    /* workers wait for each other's answers */
    SILENT,   /* a message is not sent */
    KINDS
} kind;
static const char *const names[KINDS] = {"missing",  "other order", "stopped",   "stopped inside",
                                         "teardown", "loader",      "RPC cycle", "no message"};
enum { MOST_WARM = 6 };

typedef struct hang {
    kind kind;
    int world, culprit, warm; /* warm: collectives before it */
    bool barrier;             /* the operation is one; else an all_reduce */
} hang;

static hang hang_of(uint64_t seed)
{
    uint64_t z = seed * 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    hang h = {.kind = (kind)(seed % KINDS), .world = 2 + (int)(z % 3), .barrier = z >> 20 & 1};
    h.culprit = (int)((z >> 8) % (unsigned)h.world);
    h.warm = (int)((z >> 12) % MOST_WARM);
    return h;
}

/* ---- a rank ------------------------------------------------------------------------------------------------------ */
static void pause_forever(void)
{
    for (;;)
        pause();
}

static yk_status sample_never(void *context, int64_t index, yk_sample *sample)
{
    (void)context;
    (void)index;
    (void)sample;
    pause_forever();
    return YK_OK;
}

static void load_forever(void)
{
    const yk_dataset_table table = {.name = "a disk that is gone", .length = 8, .get = sample_never};
    yk_loader *loader =
        yk_loader_create(yk_dataset_create(&table, NULL, NULL), YK_OPTIONS(yk_loader_options, .batch_size = 4));
    yk_batch batch;
    yk_loader_start(loader, 0);
    yk_loader_next(loader, &batch);
}

static pthread_mutex_t kept = PTHREAD_MUTEX_INITIALIZER;

static yk_status leaf(yk_call *call)
{
    pthread_mutex_lock(&kept);
    pthread_mutex_unlock(&kept);
    return yk_call_return(call, yk_value_int(1));
}

static char next_worker[32];

/* Keeps what this worker's own answers need while it asks the next one, which does likewise. */
static yk_status hold(yk_call *call)
{
    pthread_mutex_lock(&kept);
    usleep(300000);
    return yk_call_return(call, yk_rpc_sync(next_worker, "leaf", NULL, NULL));
}

static yk_status calls_in_a_circle(const hang *h, int rank)
{
    yk_status status = yk_rpc_register("leaf", leaf);
    status = status ? status : yk_rpc_register("hold", hold);
    snprintf(next_worker, sizeof(next_worker), "w%d", (rank + 1) % h->world);
    char name[32];
    snprintf(name, sizeof(name), "w%d", rank);
    status = status ? status : yk_rpc_init(name, YK_OPTIONS(yk_rpc_init_options, .timeout = 600));
    if (status)
        return status;
    yk_future *asked = yk_rpc_async(next_worker, "hold", NULL, NULL);
    return yk_future_wait(asked, YK_NOT_GIVEN) ? YK_OK : yk_last_error()->code;
}

static void *stop_soon(void *argument)
{
    (void)argument;
    usleep(100000);
    kill(getpid(), SIGSTOP);
    return NULL;
}

/* The operation that hangs. */
static yk_status operation(const hang *h, yk_tensor *x, yk_process_group *group)
{
    return h->barrier ? yk_barrier(group) : yk_all_reduce(x, YK_OP_SUM, group);
}

static yk_status leave(const hang *h)
{
    yk_tensor *big = yk_zeros(YK_SHAPE(4 << 20), NULL); /* more than is on its way without a receive */
    yk_work *work = yk_isend(big, (h->culprit + 1) % h->world, 7, NULL);
    yk_destroy_process_group();
    return work ? YK_OK : YK_ERR_STATE;
}

static yk_status act(const hang *h, int rank)
{
    bool culprit = rank == h->culprit;
    yk_tensor *x = yk_ones(YK_SHAPE(16), NULL);
    yk_status status = yk_init_process_group(YK_OPTIONS(yk_init_options, .timeout = 600));
    for (int i = 0; i < h->warm && !status; i++)
        status = yk_all_reduce(x, YK_OP_SUM, NULL);
    if (status)
        return status;
    int all[4] = {0, 1, 2, 3};
    yk_process_group *a = h->kind == ORDER ? yk_new_group(NULL, h->world, all) : NULL,
                     *b = h->kind == ORDER ? yk_new_group(NULL, h->world, all) : NULL;
    switch (h->kind) {
    case MISSING:
        if (culprit)
            pause_forever();
        return operation(h, x, NULL);
    case ORDER:
        status = operation(h, x, a) ? YK_ERR_STATE : operation(h, x, b); /* groups are known by what was in them */
        status = status ? status : operation(h, x, culprit ? b : a);
        return status ? status : operation(h, x, culprit ? a : b);
    case STOPPED:
        if (culprit)
            kill(getpid(), SIGSTOP);
        return operation(h, x, NULL);
    case INSIDE:
        if (culprit) {
            pthread_t thread;
            pthread_create(&thread, NULL, stop_soon, NULL);
        } else {
            usleep(400000);
        }
        for (int i = 0; i < 3 && !status; i++) /* all have come to the first, which the others may finish */
            status = operation(h, x, NULL);
        return status;
    case TEARDOWN: return culprit ? leave(h) : operation(h, x, NULL);
    case LOADER:
        if (culprit)
            load_forever();
        return operation(h, x, NULL);
    case CALLS: return calls_in_a_circle(h, rank);
    default: /* SILENT */
        if (culprit)
            pause_forever();
        return rank == (h->culprit + 1) % h->world ? yk_recv(x, h->culprit, 3, NULL) : operation(h, x, NULL);
    }
}

static int rank_main(uint64_t seed)
{
    hang h = hang_of(seed);
    yk_scope scope = yk_scope_begin();
    yk_status status = act(&h, atoi(getenv("RANK")));
    fprintf(stderr, "it did not hang: %s\n", status ? yk_last_error()->message : "it is done");
    yk_scope_end(scope);
    return 1;
}

/* ---- the test ---------------------------------------------------------------------------------------------------- */
static char folder[] = "/tmp/yoke-hangs-XXXXXX";

/* The first line that yoke explain prints of the job, or "". */
static void explain(const char *job, char sentence[4096])
{
    char command[6000];
    sentence[0] = '\0';
    snprintf(command, sizeof(command), "\"$YOKE\" explain %s 2> /dev/null", job);
    FILE *from = popen(command, "r");
    assert_non_null(from);
    if (!fgets(sentence, 4096, from))
        sentence[0] = '\0';
    sentence[strcspn(sentence, "\n")] = '\0';
    while (fgetc(from) != EOF)
        continue;
    pclose(from);
}

/* Without numbers, which are seconds that go on, pids and numbers of operations. */
static void numbers_cut(const char *from, char to[4096])
{
    for (; *from; from++) {
        if ((*from < '0' || *from > '9') && *from != '.')
            *to++ = *from;
    }
    *to = '\0';
}

/* True if the sentence names the culprit and the place. */
static bool is_right(const hang *h, const char *sentence)
{
    char absent[200], inside[200], number[60];
    const char *operation_name = h->barrier ? "barrier" : "all_reduce";
    snprintf(number, sizeof(number), "%s #%d of group 'world'", operation_name, h->warm + 1);
    snprintf(absent, sizeof(absent), "rank %d has not come to %s, in which rank", h->culprit, number);
    snprintf(inside, sizeof(inside), "rank %d does not go on in %s", h->culprit, number);
    bool missed = strncmp(sentence, absent, strlen(absent)) == 0;
    switch (h->kind) {
    case ORDER:
        return strncmp(sentence, "ranks wait for each other: rank ", 32) == 0 && strstr(sentence, "'world/1'") &&
               strstr(sentence, "'world/2'");
    case STOPPED: return missed && strstr(sentence, "is stopped");
    case INSIDE:
        snprintf(absent, sizeof(absent), "rank %d has not come to %s #%d of group 'world'", h->culprit, operation_name,
                 h->warm + 2);
        return (strncmp(sentence, inside, strlen(inside)) == 0 ||
                (strncmp(sentence, absent, strlen(absent)) == 0 && strstr(sentence, "it is still in "))) &&
               strstr(sentence, "is stopped");
    case LOADER: return missed && strstr(sentence, "it is loading for ");
    case CALLS:
        for (int r = 0; r < h->world; r++) {
            char named[80];
            snprintf(named, sizeof(named), "' of worker 'w%d' (rank %d) for ", r, r);
            if (!strstr(sentence, named))
                return false;
        }
        return strncmp(sentence, "workers wait for each other's answers: ", 39) == 0;
    case SILENT: {
        char silent[200];
        snprintf(silent, sizeof(silent), "rank %d is not in one with it", h->culprit);
        return missed || (h->world == 2 && strstr(sentence, "recv #1 of group 'world'") && strstr(sentence, silent));
    }
    default: return missed;
    }
}

static bool hang_explained(uint64_t seed)
{
    hang h = hang_of(seed);
    char job[64], number[32], log[200], sentence[4096] = "", before[4096] = "", now[4096] = "", world[16];
    snprintf(job, sizeof(job), "hang-%d-%llu", (int)getpid(), (unsigned long long)seed);
    snprintf(number, sizeof(number), "%llu", (unsigned long long)seed);
    snprintf(world, sizeof(world), "%d", h.world);
    snprintf(log, sizeof(log), "%s/log", folder);
    fflush(stdout);
    pid_t launcher = fork();
    if (launcher == 0) {
        if (!freopen(log, "w", stderr) || !freopen("/dev/null", "w", stdout))
            _exit(126);
        execl(getenv("YOKE"), "yoke", "run", "-n", world, "--job-id", job, "--grace", "0.1", "--", own_program(),
              "rank", number, (char *)NULL);
        _exit(127);
    }
    /* Until it says the same for a while, and that is asked once more and judged. */
    double began = yk__now(), same_since = began;
    while (yk__now() < began + patience(20)) {
        usleep(100000);
        explain(job, sentence);
        numbers_cut(sentence, now);
        if (strcmp(now, before) != 0 || !*sentence || yk__now() < began + 0.6)
            same_since = yk__now();
        strcpy(before, now);
        if (yk__now() > same_since + patience(0.6))
            break;
    }
    explain(job, sentence);
    bool right = is_right(&h, sentence);
    if (!right) {
        printf("# seed %llu, %s by rank %d of %d after %d collectives: %s\n", (unsigned long long)seed, names[h.kind],
               h.culprit, h.world, h.warm, *sentence ? sentence : "nothing is told");
        FILE *said = fopen(log, "r");
        for (char line[500]; said && fgets(line, sizeof(line), said);)
            printf("#   %s", line);
        if (said)
            fclose(said);
    }
    kill(launcher, SIGTERM);
    while (waitpid(launcher, NULL, 0) < 0 && errno == EINTR)
        continue;
    return right;
}

static void hangs(void **state)
{
    (void)state;
    const char *wanted = getenv("YOKE_HANGS"), *given = getenv("YOKE_TEST_SEED");
    int count = wanted ? atoi(wanted) : KINDS, right = 0;
    uint64_t seed = given ? strtoull(given, NULL, 10) : 0;
    for (int i = 0; i < count; i++)
        right += hang_explained(seed + (uint64_t)i);
    printf("# %d of %d hangs are explained, seeds from %llu\n", right, count, (unsigned long long)seed);
    assert_true(right >= count - count / 100);
}

static int remove_one(const char *path, const struct stat *about, int flag, struct FTW *place)
{
    (void)about;
    (void)flag;
    (void)place;
    return remove(path);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "rank") == 0)
        return rank_main(strtoull(argv[2], NULL, 10));
    if (!has_proc()) {
        printf("1..0 # SKIP there is no /proc, by which a run is found\n");
        return 0;
    }
    if (!getenv("YOKE"))
        setenv("YOKE", "build/yoke", 1);
    if (!mkdtemp(folder))
        return 1;
    setenv("YOKE_RUN_DIR", folder, 1);
    setenv("TMPDIR", folder, 1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(hangs)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    return failed;
}
