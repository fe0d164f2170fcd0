/*
 * joining_test.c - yk_init_process_group by each method and under each launcher's variables, and what it says when the
 * ranks do not fit together or the address is wrong. Each rank is a process.
 */
#include "tests/support/expect.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <yoke/comm.h>
#include <yoke/ops.h>

#include "base/core.h"
#include "net/socket.h"
#include "tests/support/machine.h"

enum { MOST = 4, VARIABLES = 8 };

/* The way in which each rank joins: a variable's value may have one %d, which is the rank. */
typedef struct joining {
    struct {
        const char *name, *value;
    } set[VARIABLES];
    const yk_init_options *options; /* NULL: the defaults */
    int ranks[MOST], worlds[MOST];  /* with a method; world 0: from the environment */
    double wait[MOST];              /* seconds before */
    const char *clear;              /* a variable that yk_spawn has set */
    /* the outcome, shared */
    struct {
        yk_status status;
        double sum;
        char message[1000];
    } * outcome;
} joining;

static void forget_launcher(void)
{
    static const char *const names[] = {"RANK",
                                        "WORLD_SIZE",
                                        "LOCAL_RANK",
                                        "LOCAL_WORLD_SIZE",
                                        "MASTER_ADDR",
                                        "MASTER_PORT",
                                        "TORCHELASTIC_USE_AGENT_STORE",
                                        "SLURM_PROCID",
                                        "SLURM_NTASKS",
                                        "SLURM_LOCALID",
                                        "SLURM_TASKS_PER_NODE",
                                        "SLURM_JOB_ID",
                                        "SLURM_STEP_NODELIST",
                                        "OMPI_COMM_WORLD_RANK",
                                        "OMPI_COMM_WORLD_SIZE",
                                        "OMPI_COMM_WORLD_LOCAL_SIZE",
                                        "PMIX_NAMESPACE"};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        unsetenv(names[i]);
}

static yk_status join_one(int rank, void *arg)
{
    joining *j = arg;
    forget_launcher();
    if (j->clear)
        unsetenv(j->clear);
    for (int i = 0; i < VARIABLES && j->set[i].name; i++) {
        char text[200];
        const char *number = strstr(j->set[i].value, "%d");
        snprintf(text, sizeof(text), "%s", j->set[i].value);
        if (number)
            snprintf(text, sizeof(text), "%.*s%d%s", (int)(number - j->set[i].value), j->set[i].value, rank,
                     number + 2);
        setenv(j->set[i].name, text, 1);
    }
    usleep((useconds_t)(j->wait[rank] * 1e6));
    yk_init_options o = j->options ? *j->options : *YK_OPTIONS(yk_init_options);
    if (j->worlds[rank]) {
        o.rank = j->ranks[rank];
        o.world_size = j->worlds[rank];
    }
    yk_scope scope = yk_scope_begin();
    yk_status status = yk_init_process_group(&o);
    if (!status) {
        int64_t shape = 5;
        yk_tensor *x = yk_full(1, &shape, yk_rank(NULL) + 1, NULL);
        status = yk_all_reduce(x, YK_OP_SUM, NULL);
        if (!status)
            status = yk_barrier(NULL);
        if (!status)
            j->outcome[rank].sum = yk_get(x, (int64_t[]){4});
    }
    j->outcome[rank].status = status;
    if (status)
        snprintf(j->outcome[rank].message, sizeof(j->outcome[rank].message), "%s", yk_last_error()->message);
    yk_clear_error();
    yk_destroy_process_group();
    yk_scope_end(scope);
    return YK_OK;
}

static void run(joining *j, int count)
{
    size_t bytes = MOST * sizeof(*j->outcome);
    if (!j->outcome)
        j->outcome = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(j->outcome != MAP_FAILED);
    memset(j->outcome, 0, bytes);
    expect_ok(yk_spawn(join_one, j, count, NULL));
}

static void end(joining *j)
{
    munmap(j->outcome, MOST * sizeof(*j->outcome));
}

static void expect_joined(joining *j, int count)
{
    run(j, count);
    for (int i = 0; i < count; i++) {
        if (j->outcome[i].status)
            fail_msg("rank %d: %s", i, j->outcome[i].message);
        assert_true(j->outcome[i].sum == count * (count + 1) / 2);
    }
    end(j);
}

static void expect_message(const joining *j, int rank, yk_status code, const char *text)
{
    if (j->outcome[rank].status != code || !strstr(j->outcome[rank].message, text))
        fail_msg("rank %d: status %d '%s', expected %d '%s'", rank, j->outcome[rank].status, j->outcome[rank].message,
                 code, text);
}

/* One rank whose joining fails by itself. */
static void expect_refusal(joining *j, yk_status code, const char *text)
{
    run(j, 1);
    expect_message(j, 0, code, text);
    end(j);
}

/* ---- methods --------------------------------------------------------------------------------------------------- */
static void test_tcp(void **unused)
{
    (void)unused;
    char method[64];
    snprintf(method, sizeof(method), "tcp://127.0.0.1:%d", free_port());
    joining j = {.options = YK_OPTIONS(yk_init_options, .init_method = method, .join_timeout = patience(10)),
                 .ranks = {0, 1, 2},
                 .worlds = {3, 3, 3}};
    j.wait[0] = 0.1; /* the others wait for the server */
    expect_joined(&j, 3);
    snprintf(method, sizeof(method), "tcp://localhost:%d", free_port());
    joining by_name = {.options = YK_OPTIONS(yk_init_options, .init_method = method, .join_timeout = patience(10)),
                       .ranks = {1, 0},
                       .worlds = {2, 2}};
    expect_joined(&by_name, 2);
}

static void test_file(void **unused)
{
    (void)unused;
    char folder[] = "/tmp/yoke-joining-XXXXXX", path[64], method[80], text[160];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/store", folder);
    snprintf(method, sizeof(method), "file://%s", path);
    joining j = {.options = YK_OPTIONS(yk_init_options, .init_method = method, .join_timeout = patience(10)),
                 .ranks = {0, 1, 2},
                 .worlds = {3, 3, 3}};
    expect_joined(&j, 3);
    /* The file of a job that is over is no meeting place. */
    joining again = {.options = YK_OPTIONS(yk_init_options, .init_method = method, .join_timeout = 0.5),
                     .ranks = {0, 1},
                     .worlds = {2, 2}};
    run(&again, 2);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_not_equal(again.outcome[rank].status, YK_OK);
        snprintf(text, sizeof(text), "init_process_group: file://%s", path);
        expect_message(&again, rank, again.outcome[rank].status, text);
        expect_message(&again, rank, again.outcome[rank].status, "remove the file that an earlier job left");
    }
    end(&again);
    unlink(path);
    joining anew = {.options = YK_OPTIONS(yk_init_options, .init_method = method, .join_timeout = patience(10)),
                    .ranks = {0, 1},
                    .worlds = {2, 2}};
    expect_joined(&anew, 2);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("something else\n", file);
    fclose(file);
    joining wrong = {.options = YK_OPTIONS(yk_init_options, .init_method = method, .join_timeout = 1), .worlds = {2}};
    expect_refusal(&wrong, YK_ERR_FORMAT, path);
    unlink(path);
    rmdir(folder);
    joining nowhere = {.options = YK_OPTIONS(yk_init_options, .init_method = method, .join_timeout = 1), .worlds = {2}};
    expect_refusal(&nowhere, YK_ERR_IO, "No such file or directory");
}

static void test_methods(void **unused)
{
    (void)unused;
    joining j = {.options = YK_OPTIONS(yk_init_options, .init_method = "file://relative"), .worlds = {2}};
    expect_refusal(&j, YK_ERR_ARGUMENT, "'file://relative' is not env://, tcp://HOST:PORT or file:///PATH");
    joining outside = {
        .options = YK_OPTIONS(yk_init_options, .init_method = "tcp://127.0.0.1:1"), .ranks = {5}, .worlds = {2}};
    expect_refusal(&outside, YK_ERR_ARGUMENT, "rank 5 is outside a world of 2");
    joining missing = {.options = YK_OPTIONS(yk_init_options, .init_method = "tcp://127.0.0.1:1")};
    expect_refusal(&missing, YK_ERR_ARGUMENT, "needs a rank and a world size, and world_size was not given");
    joining backend = {.options = YK_OPTIONS(yk_init_options, .backend = "glow")};
    expect_refusal(&backend, YK_ERR_UNSUPPORTED, "unknown backend of collectives 'glow'");
    joining variable = {.set = {{"YOKE_COMM_BACKEND", "glow"}}};
    expect_refusal(&variable, YK_ERR_UNSUPPORTED, "unknown backend of collectives 'glow'");
}

/* ---- launchers ------------------------------------------------------------------------------------------------- */
static void test_launchers(void **unused)
{
    (void)unused;
    char port[16], job[32];
    snprintf(port, sizeof(port), "%d", free_port());
    joining slurm = {.set = {{"SLURM_PROCID", "%d"},
                             {"SLURM_NTASKS", "3"},
                             {"SLURM_LOCALID", "%d"},
                             {"MASTER_ADDR", "127.0.0.1"},
                             {"MASTER_PORT", port}},
                     .options = YK_OPTIONS(yk_init_options, .join_timeout = patience(10))};
    expect_joined(&slurm, 3);
    /* On one host neither address nor port need be said: the port follows from the job. */
    snprintf(job, sizeof(job), "%d", (int)getpid());
    joining one_host = {
        .set = {{"SLURM_PROCID", "%d"}, {"SLURM_NTASKS", "2"}, {"SLURM_TASKS_PER_NODE", "2"}, {"SLURM_JOB_ID", job}},
        .options = YK_OPTIONS(yk_init_options, .join_timeout = patience(10))};
    expect_joined(&one_host, 2);
    joining several = {
        .set = {
            {"SLURM_PROCID", "%d"}, {"SLURM_NTASKS", "4"}, {"SLURM_TASKS_PER_NODE", "2(x2)"}, {"SLURM_JOB_ID", job}}};
    expect_refusal(&several, YK_ERR_ARGUMENT, "MASTER_ADDR is not set");
    /* On several the first node of the list is rank 0's. */
    joining nodes = {.set = {{"SLURM_PROCID", "%d"},
                             {"SLURM_NTASKS", "4"},
                             {"SLURM_TASKS_PER_NODE", "2(x2)"},
                             {"SLURM_STEP_NODELIST", "localhost,far[001-002]"},
                             {"SLURM_JOB_ID", job}},
                     .options = YK_OPTIONS(yk_init_options, .join_timeout = patience(10))};
    expect_joined(&nodes, 4);
    joining odd = {.set = {{"SLURM_PROCID", "%d"},
                           {"SLURM_NTASKS", "4"},
                           {"SLURM_TASKS_PER_NODE", "2(x2)"},
                           {"SLURM_STEP_NODELIST", "far[001-"},
                           {"SLURM_JOB_ID", job}}};
    expect_refusal(&odd, YK_ERR_FORMAT,
                   "init_process_group: MASTER_ADDR is not set: SLURM_STEP_NODELIST=far[001- is no list of nodes: a "
                   "bracket has no end, at character 9");
    joining over_hosts = {.set = {{"OMPI_COMM_WORLD_RANK", "%d"},
                                  {"OMPI_COMM_WORLD_SIZE", "4"},
                                  {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                  {"PMIX_NAMESPACE", "prterun-7"}}};
    expect_refusal(&over_hosts, YK_ERR_ARGUMENT,
                   "the 4 ranks are not known to be on one host; mpirun does not tell them on which one rank 0 is");
    snprintf(port, sizeof(port), "%d", free_port());
    joining mpirun = {.set = {{"OMPI_COMM_WORLD_RANK", "%d"},
                              {"OMPI_COMM_WORLD_SIZE", "2"},
                              {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                              {"MASTER_PORT", port}},
                      .options = YK_OPTIONS(yk_init_options, .join_timeout = patience(10))};
    expect_joined(&mpirun, 2);
    joining no_address = {.set = {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", port}}};
    expect_refusal(&no_address, YK_ERR_ARGUMENT, "MASTER_ADDR is not set");
    joining no_rank = {.set = {{"WORLD_SIZE", "2"}}};
    expect_refusal(&no_rank, YK_ERR_ARGUMENT, "RANK is not set");
    joining bad_port = {
        .set = {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "70000"}}};
    expect_refusal(&bad_port, YK_ERR_ARGUMENT, "MASTER_PORT=70000");
}

/* ---- ranks that do not fit together ---------------------------------------------------------------------------- */
static void test_misfits(void **unused)
{
    (void)unused;
    char method[64];
    snprintf(method, sizeof(method), "tcp://127.0.0.1:%d", free_port());
    /* Rank 0 holds on for a while, so that the store is there for the others. */
    joining twice = {.options = YK_OPTIONS(yk_init_options, .init_method = method, .join_timeout = patience(3)),
                     .ranks = {0, 1, 1},
                     .worlds = {3, 3, 3}};
    twice.wait[2] = 0.4;
    run(&twice, 3);
    int second = twice.outcome[2].status == YK_ERR_ARGUMENT ? 2 : 1; /* a busy machine may have changed their order */
    expect_message(&twice, second, YK_ERR_ARGUMENT, "two processes have rank 1: pid ");
    /* The others hear of it at once, the one that was first included. */
    expect_message(&twice, 0, YK_ERR_ARGUMENT, "two processes have rank 1: pid ");
    expect_message(&twice, 3 - second, YK_ERR_ARGUMENT, "two processes have rank 1: pid ");
    end(&twice);
    snprintf(method, sizeof(method), "tcp://127.0.0.1:%d", free_port());
    joining worlds = {.options = YK_OPTIONS(yk_init_options, .init_method = method, .join_timeout = patience(2)),
                      .ranks = {0, 1},
                      .worlds = {2, 3}};
    worlds.wait[1] = 0.3;
    run(&worlds, 2);
    /* The first rank that sees it says so; when that is rank 0 its store may be gone before rank 1 has looked. */
    int seer = worlds.outcome[1].status == YK_ERR_MISMATCH ? 1 : 0;
    expect_message(&worlds, seer, YK_ERR_MISMATCH, "was given a world size of ");
    expect_message(&worlds, seer, YK_ERR_MISMATCH, " one of ");
    assert_int_not_equal(worlds.outcome[1 - seer].status, YK_OK);
    end(&worlds);
    snprintf(method, sizeof(method), "tcp://127.0.0.1:%d", free_port());
    joining alone = {.options = YK_OPTIONS(yk_init_options, .init_method = method, .join_timeout = 0.5), .worlds = {3}};
    expect_refusal(&alone, YK_ERR_TIMEOUT, "ranks 1, 2 of 3 did not join within 0.5 s");
}

/* ---- addresses that are wrong ---------------------------------------------------------------------------------- */
static void refuse_address(const char *host, int port, int rank, yk_status code, const char *text)
{
    char method[100];
    snprintf(method, sizeof(method), "tcp://%s:%d", host, port);
    joining j = {.options = YK_OPTIONS(yk_init_options, .init_method = method, .join_timeout = 0.6),
                 .ranks = {rank},
                 .worlds = {2}};
    expect_refusal(&j, code, text);
}

static void test_addresses(void **unused)
{
    (void)unused;
    char text[128];
    yk__address any = {.size = sizeof(struct sockaddr_in)}, bound;
    struct sockaddr_in *v4 = (struct sockaddr_in *)&any.storage;
    v4->sin_family = AF_INET;
    v4->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int holder = yk__listen(&any, 1, &bound), port = yk__address_port(&bound);
    assert_true(holder >= 0);
    int length = snprintf(text, sizeof(text), "listen on 127.0.0.1:%d: the port is in use", port);
    if (has_proc()) /* it says by whom */
        snprintf(text + length, sizeof(text) - (size_t)length, " by '%.15s' (pid %d)", program_invocation_short_name,
                 (int)getpid());
    refuse_address("127.0.0.1", port, 0, YK_ERR_IO, text);
    /* Its queue full, it answers no more, as behind a firewall that drops packets. */
    int clients[8], full = 0;
    for (int i = 0; i < 8; i++) {
        clients[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        assert_true(clients[i] >= 0);
        (void)!connect(clients[i], (const struct sockaddr *)&bound.storage, bound.size);
    }
    usleep(100000);
    refuse_address("127.0.0.1", port, 1, YK_ERR_CONNECTION, "does a firewall drop the packets?");
    for (int i = 0; i < 8; i++)
        full += close(clients[i]) == 0;
    assert_int_equal(full, 8);
    yk__socket_close(holder);
    refuse_address("203.0.113.7", 29500, 0, YK_ERR_ARGUMENT, "no interface of this host has this address; there are: ");
    refuse_address("no-such-host.invalid", 29500, 1, YK_ERR_CONNECTION, "name 'no-such-host.invalid' not resolved");
    port = free_port();
    snprintf(text, sizeof(text),
             "init_process_group: the store, that rank 0 serves: tcp_store: tcp://127.0.0.1:%d: connection refused: "
             "nothing listens there",
             port);
    refuse_address("127.0.0.1", port, 1, YK_ERR_CONNECTION, text);
}

static void *greet_strangely(void *arg)
{
    int listener = *(const int *)arg;
    for (;;) {
        struct sockaddr_storage from;
        socklen_t size = sizeof(from);
        if (!yk__wait_fd(listener, POLLIN, yk__now() + patience(10)))
            return NULL;
        int fd = accept(listener, (struct sockaddr *)&from, &size);
        if (fd < 0)
            return NULL;
        (void)!write(fd, "220 mail.example\r\n", 18);
        close(fd);
    }
}

static void test_strangers(void **unused)
{
    (void)unused;
    yk__address any = {.size = sizeof(struct sockaddr_in)}, bound;
    struct sockaddr_in *v4 = (struct sockaddr_in *)&any.storage;
    v4->sin_family = AF_INET;
    v4->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int listener = yk__listen(&any, 8, &bound);
    assert_true(listener >= 0);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, greet_strangely, &listener), 0);
    refuse_address("127.0.0.1", yk__address_port(&bound), 1, YK_ERR_CONNECTION, "does not speak yoke's protocol");
    char port[16];
    snprintf(port, sizeof(port), "%d", yk__address_port(&bound));
    joining agent = {.set = {{"RANK", "0"},
                             {"WORLD_SIZE", "2"},
                             {"MASTER_ADDR", "127.0.0.1"},
                             {"MASTER_PORT", port},
                             {"TORCHELASTIC_USE_AGENT_STORE", "True"}},
                     .options = YK_OPTIONS(yk_init_options, .join_timeout = patience(5))};
    expect_refusal(&agent, YK_ERR_CONNECTION, "torchrun's is not for yoke; start the program with `yoke run`");
    shutdown(listener, SHUT_RDWR);
    pthread_join(thread, NULL);
    yk__socket_close(listener);
    /* A store of another job, and of another secret: the child has those of its own spawn. */
    char path[] = "/tmp/yoke-joining-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, "secret of the job", 17) == 17);
    close(fd);
    char method[64];
    yk_scope scope = yk_scope_begin();
    yk_store *store = yk_tcp_store(YK_OPTIONS(yk_tcp_store_options, .is_server = true, .secret = "secret of the job",
                                              .secret_size = 17, .job_id = "day"));
    assert_non_null(store);
    snprintf(method, sizeof(method), "%s", yk_store_name(store));
    joining job = {.set = {{"YOKE_JOB_SECRET_FILE", path}, {"YOKE_JOB_ID", "night"}},
                   .options = YK_OPTIONS(yk_init_options, .init_method = method, .join_timeout = patience(5)),
                   .ranks = {1},
                   .worlds = {2}};
    expect_refusal(&job, YK_ERR_CONNECTION, "belongs to job 'night'");
    joining secret = {.set = {{"YOKE_JOB_ID", "day"}},
                      .options = YK_OPTIONS(yk_init_options, .init_method = method, .join_timeout = patience(5)),
                      .ranks = {1},
                      .worlds = {2}};
    expect_refusal(&secret, YK_ERR_CONNECTION, "wrong secret");
    joining none = {
        .clear = "YOKE_JOB_SECRET_FD",
        .options = YK_OPTIONS(yk_init_options, .init_method = "tcp://203.0.113.7:29500", .join_timeout = patience(5)),
        .ranks = {1},
        .worlds = {2}};
    expect_refusal(&none, YK_ERR_ARGUMENT, "which takes a job secret");
    yk_scope_end(scope);
    unlink(path);
}

/* ---- a store that stalls --------------------------------------------------------------------------------------- */
static pid_t join_by_store(int port, int rank, useconds_t later)
{
    pid_t pid = fork();
    if (pid)
        return pid;
    usleep(later);
    yk_scope_begin();
    yk_store *store =
        yk_tcp_store(YK_OPTIONS(yk_tcp_store_options, .host = "127.0.0.1", .port = port, .timeout = patience(30)));
    yk_status status = store ? yk_init_process_group(YK_OPTIONS(yk_init_options, .store = store, .rank = rank,
                                                                .world_size = 2, .join_timeout = patience(30)))
                             : YK_ERR_CONNECTION;
    if (status)
        fprintf(stderr, "rank %d: %s\n", rank, yk_last_error()->message);
    _exit(status ? 1 : 0);
}

/* The process that serves it stands still for 3 s while one rank waits for the other: the time-out is the user's 30 s.
 */
static void test_stalled_store(void **unused)
{
    (void)unused;
    int port = free_port(), status = 0;
    pid_t server = fork();
    if (server == 0) {
        yk_scope_begin();
        yk_store *store =
            yk_tcp_store(YK_OPTIONS(yk_tcp_store_options, .host = "127.0.0.1", .port = port, .is_server = true));
        while (store)
            pause();
        _exit(1);
    }
    pid_t ranks[2] = {join_by_store(port, 0, 0), join_by_store(port, 1, 2000000)};
    usleep(1000000);
    assert_int_equal(kill(server, SIGSTOP), 0);
    usleep(3000000);
    assert_int_equal(kill(server, SIGCONT), 0);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(waitpid(ranks[r], &status, 0), ranks[r]);
        assert_int_equal(status, 0);
    }
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
}

/* ---- a rank that is done at once -------------------------------------------------------------------------------- */
enum { TIMES = 60, LEAVING = 4 };

static void join_and_end(int rank, const char *method, int wait_for)
{
    char byte;
    bool told = read(wait_for, &byte, 1) == 0;
    yk_scope_begin();
    yk_init_options o = *YK_OPTIONS(yk_init_options, .init_method = method, .rank = rank, .world_size = LEAVING,
                                    .join_timeout = patience(30));
    yk_status status = told ? yk_init_process_group(&o) : YK_ERR_ARGUMENT;
    if (status)
        fprintf(stderr, "rank %d: %s\n", rank, yk_last_error()->message);
    _exit(status ? 1 : 0);
}

/* Ranks that have joined and ended while others still look for them have not failed. */
static void test_early_ends(void **unused)
{
    (void)unused;
    char method[100];
    for (int time = 0; time < TIMES; time++) {
        int begin[2], status = 0;
        pid_t ranks[LEAVING];
        snprintf(method, sizeof(method), "file:///tmp/yoke-joining-%d-%d", (int)getpid(), time);
        assert_int_equal(pipe(begin), 0);
        for (int r = 0; r < LEAVING; r++)
            if ((ranks[r] = fork()) == 0) {
                close(begin[1]);
                join_and_end(r, method, begin[0]);
            }
        close(begin[0]);
        close(begin[1]);
        for (int r = 0; r < LEAVING; r++) {
            assert_int_equal(waitpid(ranks[r], &status, 0), ranks[r]);
            assert_int_equal(status, 0);
        }
        unlink(method + strlen("file://"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tcp),       cmocka_unit_test(test_file),          cmocka_unit_test(test_methods),
        cmocka_unit_test(test_launchers), cmocka_unit_test(test_misfits),       cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_strangers), cmocka_unit_test(test_stalled_store), cmocka_unit_test(test_early_ends),
    };
    unsetenv("YOKE_COMM_BACKEND");
    return cmocka_run_group_tests_name("joining", tests, NULL, NULL);
}
