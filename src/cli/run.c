/*
 * run.c - `yoke run`: starts a program once per rank, with its place in the job in the environment. Layer: cli.
 *
 * The command line is torchrun's; the program itself may be anything. Everything that can be wrong with it is found
 * before the first process is started. Uses base and net only: no tensor, no device.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/core.h"
#include "cli/options.h"
#include "cli/program_file.h"
#include "cli/run_report.h"
#include "net/socket.h"

enum { MOST_LOCAL = 4096, MOST_NODES = 4096 };

typedef struct job {
    /* as given */
    const char *per_node, *nodes, *master, *log_dir, *redirects, *tee, *error_file, *id, *secret_file, *role;
    const char *backend, *endpoint, *ignored;
    int64_t node, port, restarts;
    double grace;
    bool standalone, pass_local_rank, no_prefix, json, module, run_path, ignored_flag;
    char **program; /* argv of the program */
    /* what follows from it */
    int node_count, local, first, world; /* processes here, the rank of the first of them, of all nodes */
    int hidden;                          /* 1: stdout, 2: stderr goes to files alone */
    int secret;
    char host[YK__HOST_SIZE], id_text[40], path[4096];
    relay_sink out, err;
} job;

/* ---- environment --------------------------------------------------------------------------------------------------
 */

/* What the launcher sets: whatever it was itself started with under these names does not reach the program. */
static const char *const set_names[] = {"RANK",
                                        "LOCAL_RANK",
                                        "WORLD_SIZE",
                                        "LOCAL_WORLD_SIZE",
                                        "GROUP_RANK",
                                        "GROUP_WORLD_SIZE",
                                        "ROLE_RANK",
                                        "ROLE_WORLD_SIZE",
                                        "ROLE_NAME",
                                        "MASTER_ADDR",
                                        "MASTER_PORT",
                                        "TORCHELASTIC_RUN_ID",
                                        "TORCHELASTIC_RESTART_COUNT",
                                        "TORCHELASTIC_MAX_RESTARTS",
                                        "TORCHELASTIC_USE_AGENT_STORE",
                                        "TORCHELASTIC_ERROR_FILE",
                                        "YOKE_JOB_ID",
                                        "YOKE_JOB_SECRET_FD",
                                        "YOKE_JOB_SECRET_FILE"};
enum { SET_NAMES = sizeof(set_names) / sizeof(*set_names), ADDED = SET_NAMES + 2 };

static bool is_set_here(const char *entry)
{
    for (int i = 0; i < SET_NAMES; i++) {
        size_t length = strlen(set_names[i]);
        if (strncmp(entry, set_names[i], length) == 0 && entry[length] == '=')
            return true;
    }
    return false;
}

static char **environment(const job *j, const worker *w, int port, int64_t restart)
{
    size_t count = 0, kept = 0;
    for (char **e = environ; *e; e++)
        count++;
    char **envp = calloc(count + ADDED + 1, sizeof(*envp));
    if (!envp)
        return NULL;
    for (char **e = environ; *e; e++) {
        if (!is_set_here(*e))
            envp[kept++] = strdup(*e);
    }
    char **next = envp + kept;
    *next++ = yk__format("RANK=%d", w->rank);
    *next++ = yk__format("LOCAL_RANK=%d", w->local_rank);
    *next++ = yk__format("WORLD_SIZE=%d", j->world);
    *next++ = yk__format("LOCAL_WORLD_SIZE=%d", j->local);
    *next++ = yk__format("GROUP_RANK=%d", (int)j->node);
    *next++ = yk__format("GROUP_WORLD_SIZE=%d", j->node_count);
    *next++ = yk__format("ROLE_RANK=%d", w->rank);
    *next++ = yk__format("ROLE_WORLD_SIZE=%d", j->world);
    *next++ = yk__format("ROLE_NAME=%s", j->role);
    *next++ = yk__format("MASTER_ADDR=%s", j->master);
    *next++ = yk__format("MASTER_PORT=%d", port);
    *next++ = yk__format("TORCHELASTIC_RUN_ID=%s", j->id);
    *next++ = yk__format("TORCHELASTIC_RESTART_COUNT=%" PRId64, restart);
    *next++ = yk__format("TORCHELASTIC_MAX_RESTARTS=%" PRId64, j->restarts);
    *next++ = yk__format("TORCHELASTIC_USE_AGENT_STORE=False"); /* rank 0 serves the store itself */
    *next++ = yk__format("YOKE_JOB_ID=%s", j->id);
    if (j->secret_file)
        *next++ = yk__format("YOKE_JOB_SECRET_FILE=%s", j->secret_file);
    else if (j->secret >= 0)
        *next++ = yk__format("YOKE_JOB_SECRET_FD=%d", SECRET_FD);
    if (!getenv("OMP_NUM_THREADS")) {
        int cores = yk__cores() / j->local;
        *next++ = yk__format("OMP_NUM_THREADS=%d", cores > 1 ? cores : 1);
    }
    if (!getenv("PYTHONUNBUFFERED")) /* lines appear as they are printed, and are not lost with the process */
        *next++ = yk__format("PYTHONUNBUFFERED=1");
    return envp;
}

static void free_list(char **list)
{
    for (char **e = list; e && *e; e++)
        free(*e);
    free(list);
}

/* ---- one attempt --------------------------------------------------------------------------------------------------
 */

static bool make_folder(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        int failed = mkdir(path, 0777) && errno != EEXIST;
        *slash = '/';
        if (failed)
            return false;
    }
    return mkdir(path, 0777) == 0 || errno == EEXIST;
}

/* Opens DIR/rank_N/NAME.log; a restart goes on in the file. -1 after a message. */
static int open_log(job *j, int rank, const char *name, bool again)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/rank_%d", j->log_dir, rank);
    int fd = -1;
    if (make_folder(path)) {
        size_t end = strlen(path);
        snprintf(path + end, sizeof(path) - end, "/%s.log", name);
        fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (again ? 0 : O_TRUNC), 0666);
    }
    if (fd < 0)
        relay_say(&j->err, "yoke run: --log-dir: %s: %s\n", path, strerror(errno));
    return fd;
}

static bool prepare_stream(job *j, relay_stream *s, const worker *w, int number, int64_t restart)
{
    *s = (relay_stream){.fd = -1, .log = -1};
    if (!(j->hidden & number))
        s->sink = number == 1 ? &j->out : &j->err;
    if (!j->no_prefix)
        s->prefix_length = (size_t)snprintf(s->prefix, sizeof(s->prefix), "[%.60s:%d] ", j->host, w->rank);
    if (number == 2)
        s->tail = malloc(RELAY_TAIL);
    if (j->log_dir && (s->log = open_log(j, w->rank, number == 1 ? "stdout" : "stderr", restart > 0)) < 0)
        return false;
    return true;
}

/* The program's arguments for one rank; borrows the strings but for the last. */
static char **arguments(const job *j, const worker *w)
{
    int count = 0;
    while (j->program[count])
        count++;
    char **argv = calloc((size_t)count + 2, sizeof(*argv));
    if (!argv)
        return NULL;
    memcpy(argv, j->program, (size_t)count * sizeof(*argv));
    if (j->pass_local_rank)
        argv[count] = yk__format("--local_rank=%d", w->local_rank);
    return argv;
}

static void clear_workers(const job *j, worker *workers)
{
    for (int i = 0; i < j->local; i++) {
        worker *w = &workers[i];
        relay_stream_clear(&w->out);
        relay_stream_clear(&w->err);
        if (w->argv && j->pass_local_rank) {
            char **last = w->argv;
            while (last[1])
                last++;
            free(*last);
        }
        free(w->argv);
        free_list(w->envp);
    }
    free(workers);
}

static bool prepare(job *j, worker *workers, int port, int64_t restart)
{
    for (int i = 0; i < j->local; i++) {
        worker *w = &workers[i];
        w->rank = j->first + i;
        w->local_rank = i;
        w->input = w->rank == 0 && !isatty(0);
        w->out.fd = w->out.log = w->err.fd = w->err.log = -1;
        w->argv = arguments(j, w);
        w->envp = environment(j, w, port, restart);
        if (!w->argv || !w->envp) {
            relay_say(&j->err, "yoke run: out of memory\n");
            return false;
        }
        if (!prepare_stream(j, &w->out, w, 1, restart) || !prepare_stream(j, &w->err, w, 2, restart))
            return false;
    }
    return true;
}

static void report(job *j, group *g, int64_t restarts)
{
    run_facts facts = {j->host, j->id, restarts};
    char *json = g->failed ? run_report_json(g, &facts) : NULL;
    if (json && j->error_file) {
        yk__file_writer *file = yk__file_create(j->error_file);
        if (!file || yk__file_write(file, json, strlen(json)) || yk__file_commit(file)) {
            relay_say(&j->err, "yoke run: --error-file: %s\n", yk_last_error()->message);
            yk_clear_error();
        }
    }
    if (json && j->json)
        relay_say(&j->err, "%s", json);
    else
        run_report_text(g, &facts);
    free(json);
}

/* Where a process could not be started: why, and the exit code. */
static int start_failed(job *j, const group *g)
{
    if (g->start_exec)
        return program_cannot_run(j->path, g->start_error, &j->err);
    relay_say(&j->err, "yoke run: cannot start %d processes: %s%s\n", j->local, strerror(g->start_error),
              g->start_error == EAGAIN   ? " (the limit of processes: ulimit -u)"
              : g->start_error == EMFILE ? " (the limit of open files: ulimit -n)"
                                         : "");
    return EXIT_FAILED;
}

/* A port that nobody listens on now. */
static int free_port(relay_sink *err)
{
    yk__address any, bound;
    char why[YK__WHY_SIZE];
    int fd = -1;
    if (yk__resolve("127.0.0.1", 0, yk__now() + 1, &any, 1, why) && (fd = yk__listen(&any, 1, &bound)) >= 0) {
        yk__socket_close(fd);
        return yk__address_port(&bound);
    }
    relay_say(err, "yoke run: no free port on 127.0.0.1: %s\n", yk_last_error() ? yk_last_error()->message : why);
    return 0;
}

/* In the supervisor: runs the group, again after a failure while restarts are left; returns the exit code. */
static int run_job(void *arg)
{
    job *j = arg;
    int code = EXIT_FAILED, interrupted = 0;
    relay_sink_open(&j->out, 1);
    relay_sink_open(&j->err, 2);
    for (int64_t restart = 0;; restart++) {
        int port = j->port ? (int)j->port : free_port(&j->err);
        worker *workers = calloc((size_t)j->local, sizeof(*workers));
        group g = {.workers = workers,
                   .count = j->local,
                   .path = j->path,
                   .grace = j->grace,
                   .secret = j->secret,
                   .out = &j->out,
                   .err = &j->err};
        bool again = false;
        if (workers && port && prepare(j, workers, port, restart)) {
            group_run(&g);
            if (g.start_error)
                code = start_failed(j, &g);
            else if (g.failed)
                code = run_exit_code(g.failed->status);
            else if (g.interrupted)
                code = EXIT_SIGNAL + g.interrupted;
            else
                code = EXIT_DONE;
            interrupted = g.interrupted;
            if (g.failed || g.interrupted)
                report(j, &g, restart);
            again = g.failed && !g.interrupted && !g.left && restart < j->restarts;
            if (again)
                relay_say(&j->err, "yoke run: restart %" PRId64 " of %" PRId64 "\n", restart + 1, j->restarts);
        }
        if (workers)
            clear_workers(j, workers);
        if (!again)
            break;
    }
    group_drain(&j->out, &j->err, interrupted ? 1 : 0);
    if (j->out.error) {
        relay_say(&j->err, "yoke run: stdout: %s\n", strerror(j->out.error));
        code = EXIT_FAILED; /* that the processes then got SIGPIPE is the effect */
    }
    relay_sink_clear(&j->out);
    relay_sink_clear(&j->err);
    return code;
}

/* ---- the command line ---------------------------------------------------------------------------------------------
 */

/* A whole number in [1, most] and nothing else, or 0. */
static int whole(const char *text, size_t length, int most)
{
    int value = 0;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9' || value > most)
            return 0;
        value = 10 * value + (text[i] - '0');
    }
    return value <= most ? value : 0;
}

/* GPUs that this process may use: those that CUDA_VISIBLE_DEVICES lists, or all that the driver shows. */
static int count_gpus(void)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    int count = 0;
    if (visible) {
        for (const char *at = visible; *at && *at != '-'; at += strcspn(at, ","), at += *at == ',')
            count++;
        return count;
    }
    char path[32];
    do
        snprintf(path, sizeof(path), "/dev/nvidia%d", count);
    while (access(path, F_OK) == 0 && ++count < MOST_LOCAL);
    return count;
}

/* Processes here and before here: "4", "auto", "cpu", "gpu", or one number per node. */
static int place(const cli_verb *verb, job *j)
{
    const char *text = j->per_node;
    int gpus = strcmp(text, "auto") == 0 || strcmp(text, "gpu") == 0 ? count_gpus() : 0;
    if (strcmp(text, "gpu") == 0 && !gpus)
        return cli_usage_error(verb, "--nproc-per-node gpu: no GPU is here");
    if (strcmp(text, "auto") == 0 || strcmp(text, "cpu") == 0 || gpus) {
        j->local = gpus ? gpus : yk__cores();
        j->first = (int)j->node * j->local;
        j->world = j->node_count * j->local;
        return 0;
    }
    int at = 0, last = 0;
    for (const char *item = text;; item++, at++) {
        size_t length = strcspn(item, ",");
        int count = whole(item, length, MOST_LOCAL);
        if (!count)
            return cli_usage_error(verb,
                                   "--nproc-per-node %s: expected a number from 1 to %d, one for each node with "
                                   "commas between, auto, cpu or gpu",
                                   text, MOST_LOCAL);
        if (at < j->node)
            j->first += count;
        if (at == j->node)
            j->local = count;
        j->world += count;
        last = count;
        item += length;
        if (!*item)
            break;
    }
    if (at + 1 == j->node_count)
        return 0;
    if (at > 0)
        return cli_usage_error(verb, "--nproc-per-node %s: %d numbers for --nnodes %s", text, at + 1, j->nodes);
    j->local = last;
    j->first = (int)j->node * last;
    j->world = j->node_count * last;
    return 0;
}

/* Where the nodes are and which this is. */
static int check_nodes(const cli_verb *verb, job *j)
{
    const char *colon = strchr(j->nodes, ':');
    size_t length = colon ? (size_t)(colon - j->nodes) : strlen(j->nodes);
    j->node_count = whole(j->nodes, length, MOST_NODES);
    if (!j->node_count || (colon && !whole(colon + 1, strlen(colon + 1), MOST_NODES)))
        return cli_usage_error(verb, "--nnodes %s: expected a number from 1 to %d", j->nodes, MOST_NODES);
    if (colon && whole(colon + 1, strlen(colon + 1), MOST_NODES) != j->node_count)
        return cli_usage_error(verb, "--nnodes %s: the number of nodes is fixed; give one number", j->nodes);
    if (j->standalone && j->node_count > 1)
        return cli_usage_error(verb, "--standalone is for one node, --nnodes says %s", j->nodes);
    if (j->node_count == 1) {
        if (j->node > 0)
            return cli_usage_error(verb, "--node-rank %" PRId64 ": with one node it is 0", j->node);
        j->node = 0;
        if (!j->master || j->standalone)
            j->master = "127.0.0.1";
        if (j->standalone)
            j->port = 0;
        return 0;
    }
    static char endpoint_host[YK__HOST_SIZE];
    if (j->endpoint && *j->endpoint && !j->master) {
        int port;
        if (yk__host_port_parse(j->endpoint, 29500, endpoint_host, &port)) {
            int code = cli_usage_error(verb, "--rdzv-endpoint: %s", yk_last_error()->message);
            yk_clear_error();
            return code;
        }
        j->master = endpoint_host;
        j->port = j->port ? j->port : port;
    }
    if (j->node < 0)
        return cli_usage_error(verb, "--nnodes %s needs --node-rank, from 0 to %d", j->nodes, j->node_count - 1);
    if (j->node >= j->node_count)
        return cli_usage_error(verb, "--node-rank %" PRId64 ": expected 0 to %d for --nnodes %s", j->node,
                               j->node_count - 1, j->nodes);
    if (!j->master)
        j->master = getenv("MASTER_ADDR");
    if (!j->master || !*j->master)
        return cli_usage_error(verb, "--nnodes %s needs --master-addr, the name or address of the node with rank 0",
                               j->nodes);
    const char *port = getenv("MASTER_PORT");
    if (!j->port)
        j->port = port ? whole(port, strlen(port), 65535) : 29500;
    if (!j->port)
        return cli_usage_error(verb, "MASTER_PORT=%s: expected a port from 1 to 65535", port);
    return 0;
}

static int check_streams(const cli_verb *verb, job *j)
{
    const char *values[2] = {j->redirects, j->tee};
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "tee" : "redirects";
        if (strlen(values[i]) != 1 || values[i][0] < '0' || values[i][0] > '3')
            return cli_usage_error(verb, "--%s %s: expected 0, 1 (stdout), 2 (stderr) or 3 (both)", name, values[i]);
        if (values[i][0] != '0' && !j->log_dir)
            return cli_usage_error(verb, "--%s %s needs --log-dir", name, values[i]);
    }
    j->hidden = (j->redirects[0] - '0') & ~(j->tee[0] - '0');
    if (j->log_dir && (!*j->log_dir || strlen(j->log_dir) > 4000))
        return cli_usage_error(verb, "--log-dir: expected the path of a folder");
    return 0;
}

/* A given port on the node that is to serve it: free, or whose it is. */
static int check_port(const job *j)
{
    yk__address any, bound;
    char why[YK__WHY_SIZE];
    if (!j->port || j->node != 0 || !yk__resolve("0.0.0.0", (int)j->port, yk__now() + 1, &any, 1, why))
        return 0;
    int fd = yk__listen(&any, 1, &bound);
    if (fd < 0) {
        fprintf(stderr, "yoke run: --master-port %" PRId64 ": %s\n", j->port, yk_last_error()->message);
        yk_clear_error();
        return EXIT_FAILED;
    }
    yk__socket_close(fd);
    return 0;
}

static int make_secret(job *j)
{
    unsigned char secret[32];
    j->secret = -1;
    if (j->secret_file) {
        static char whole_path[4096];
        struct stat about;
        if (!realpath(j->secret_file, whole_path) || stat(whole_path, &about) || access(whole_path, R_OK)) {
            fprintf(stderr, "yoke run: --secret-file %s: %s\n", j->secret_file, strerror(errno));
            return EXIT_FAILED;
        }
        if (!S_ISREG(about.st_mode) || about.st_size == 0 || (about.st_mode & 077)) {
            fprintf(stderr, "yoke run: --secret-file %s: %s\n", j->secret_file,
                    !S_ISREG(about.st_mode) ? "not a file"
                    : about.st_size == 0    ? "it is empty"
                                            : "others may read or change it (chmod 600)");
            return EXIT_FAILED;
        }
        j->secret_file = whole_path;
        return 0;
    }
    if (j->node_count > 1)
        return 0; /* one that is made here would not be known there */
    j->secret = memfd_create("yoke-job-secret", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (j->secret < 0 || getrandom(secret, sizeof(secret), 0) != sizeof(secret) ||
        write(j->secret, secret, sizeof(secret)) != sizeof(secret) ||
        fcntl(j->secret, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL)) {
        fprintf(stderr, "yoke run: no secret for the job: %s\n", strerror(errno));
        return EXIT_FAILED;
    }
    return 0;
}

static int name_job(job *j)
{
    unsigned char random[8];
    gethostname(j->host, sizeof(j->host) - 1);
    j->host[strcspn(j->host, ".")] = '\0';
    if (!j->id && j->node_count > 1)
        j->id = "default";
    if (j->id)
        return 0;
    if (getrandom(random, sizeof(random), 0) != sizeof(random)) {
        fprintf(stderr, "yoke run: no random numbers: %s\n", strerror(errno));
        return EXIT_FAILED;
    }
    for (size_t i = 0; i < sizeof(random); i++)
        sprintf(j->id_text + 2 * i, "%02x", random[i]);
    j->id = j->id_text;
    return 0;
}

int cli_run(int argc, char **argv)
{
    static job j; /* large, and shared with the supervisor by fork */
    j = (job){.per_node = "1", .nodes = "1", .node = -1, .grace = 10, .redirects = "0", .tee = "0", .role = "default"};
    const cli_option options[] = {
        {"nproc-per-node", "N", CLI_TEXT, &j.per_node,
         .help = "processes on each node; auto, cpu, gpu; 4,2: one per node", .letter = 'n'},
        {"nnodes", "N", CLI_TEXT, &j.nodes, .help = "nodes of the job"},
        {"node-rank", "N", CLI_INT, &j.node, .help = "which of them this is, from 0", .most = MOST_NODES,
         .default_text = ""},
        {"master-addr", "HOST", CLI_TEXT, &j.master, .help = "name or address of node 0",
         .default_text = "127.0.0.1 for one node"},
        {"master-port", "PORT", CLI_INT, &j.port, .help = "its port for joining", .least = 1, .most = 65535,
         .default_text = "a free one; 29500 for several nodes"},
        {"standalone", NULL, CLI_FLAG, &j.standalone, .help = "one node, whatever the address and port say"},
        {"max-restarts", "N", CLI_INT, &j.restarts, .help = "start the group again after a failure, this often",
         .most = 1e9},
        {"grace", "SECONDS", CLI_REAL, &j.grace, .help = "from SIGTERM to SIGKILL when processes are stopped",
         .most = 1e6},
        {"pass-local-rank", NULL, CLI_FLAG, &j.pass_local_rank,
         .help = "add --local_rank=N to the program's arguments"},
        {"log-dir", "DIR", CLI_TEXT, &j.log_dir, .help = "also write DIR/rank_N/stdout.log and stderr.log"},
        {"redirects", "0-3", CLI_TEXT, &j.redirects, .help = "only to these files: 1 stdout, 2 stderr, 3 both",
         .letter = 'r'},
        {"no-prefix", NULL, CLI_FLAG, &j.no_prefix, .help = "lines without [host:rank] in front"},
        {"error-file", "FILE", CLI_TEXT, &j.error_file, .help = "write a failure there as JSON",
         .default_text = "$TORCHELASTIC_ERROR_FILE"},
        {"json", NULL, CLI_FLAG, &j.json, .help = "report a failure on stderr as JSON instead of text"},
        {"job-id", "NAME", CLI_TEXT, &j.id, .help = "name of the job",
         .default_text = "random; default for several nodes"},
        {"secret-file", "FILE", CLI_TEXT, &j.secret_file,
         .help = "the secret of a job of several nodes; the same on each"},
        {"role", "NAME", CLI_TEXT, &j.role, .help = "ROLE_NAME of the processes"},
        /* torchrun's, understood so that its command lines work */
        {"rdzv-id", "NAME", CLI_TEXT, &j.id, .help = "--job-id", .hidden = true},
        {"rdzv-backend", "NAME", CLI_TEXT, &j.backend, .help = "", .hidden = true},
        {"rdzv-endpoint", "HOST:PORT", CLI_TEXT, &j.endpoint, .help = "", .hidden = true},
        {"rdzv-conf", "TEXT", CLI_TEXT, &j.ignored, .help = "", .hidden = true},
        {"monitor-interval", "SECONDS", CLI_TEXT, &j.ignored, .help = "", .hidden = true},
        {"start-method", "NAME", CLI_TEXT, &j.ignored, .help = "", .hidden = true},
        {"tee", "0-3", CLI_TEXT, &j.tee, .help = "", .letter = 't', .hidden = true},
        {"no-python", NULL, CLI_FLAG, &j.ignored_flag, .help = "", .hidden = true},
        {"use-env", NULL, CLI_FLAG, &j.ignored_flag, .help = "", .hidden = true},
        {"module", NULL, CLI_FLAG, &j.module, .help = "", .letter = 'm', .hidden = true},
        {"run-path", NULL, CLI_FLAG, &j.run_path, .help = "", .hidden = true},
        {0}};
    const cli_verb verb = {
        .name = "yoke run",
        .summary =
            "Starts a program as several processes and tells each its place in the job by environment variables\n"
            "(RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, ...), as torchrun does. Any program can be started.",
        .about =
            "The first process that fails ends the run: its exit code (128 plus the signal where it was killed) is\n"
            "that of the run, and the others are stopped. No process is left when yoke run has ended.\n",
        .examples = "  yoke run -n 2 -- yoke train --model resnet18\n"
                    "  yoke run -n 4 python3 train.py --epochs 10\n"
                    "  yoke run -n 4 --nnodes 2 --node-rank 1 --master-addr node0 --secret-file job.secret ./train\n"
                    "  yoke run -n 2 --max-restarts 3 --log-dir logs python3 train.py\n",
        .options = options,
        .rest = "PROGRAM [ARGUMENT...]",
    };
    int code;
    if (!cli_parse(&verb, argc, argv, &code))
        return code;
    j.program = argv + optind;
    if (j.module || j.run_path)
        return cli_usage_error(&verb, "%s: write the interpreter: yoke run python3 %s%s",
                               j.module ? "-m" : "--run-path", j.module ? "-m " : "",
                               *j.program ? *j.program : "SCRIPT");
    if (!*j.program || !**j.program)
        return cli_usage_error(&verb, "no program to run");
    if (j.id && (!*j.id || strlen(j.id) > 127))
        return cli_usage_error(&verb, "--job-id: expected 1 to 127 characters");
    if ((code = check_nodes(&verb, &j)) || (code = place(&verb, &j)) || (code = check_streams(&verb, &j)))
        return code;
    if ((code = program_find(*j.program, j.path, sizeof(j.path))) || (code = check_port(&j)) || (code = name_job(&j)) ||
        (code = make_secret(&j)))
        return code;
    if (!j.error_file)
        j.error_file = getenv("TORCHELASTIC_ERROR_FILE");
    if (j.error_file)
        unlink(j.error_file); /* one of an earlier run would be taken for this one's */
    return supervise(run_job, &j);
}
