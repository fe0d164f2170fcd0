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
#include <strings.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/core.h"
#include "cli/options.h"
#include "cli/run/run_etcd.h"
#include "cli/run/run_job.h"
#include "cli/run/run_roles.h"
#include "host/rank_info.h"
#include "launch/guard.h"
#include "net/handshake.h"

/* ---- the command line ------------------------------------------------------------------------------------------- */

/* Programs expect MASTER_ADDR without the brackets that a URL puts around an IPv6 address. */
static void strip_brackets(job *j)
{
    static char bare[YK__HOST_SIZE];
    size_t length = strlen(j->master);
    if (length > 2 && length < sizeof(bare) && j->master[0] == '[' && j->master[length - 1] == ']') {
        memcpy(bare, j->master + 1, length - 2);
        j->master = bare;
    }
}

/* --master-addr of several nodes names one of them, and nothing else. */
static int check_master(const cli_verb *verb, const job *j)
{
    static const char *const nobody[] = {"0.0.0.0", "::", "255.255.255.255"};
    for (size_t i = 0; i < sizeof(nobody) / sizeof(*nobody); i++) {
        if (strcmp(j->master, nobody[i]) == 0)
            return cli_usage_error(verb, "--master-addr %s: that is no node's address; expected that of node 0",
                                   j->master);
    }
    const char *colon = strchr(j->master, ':');
    if (strstr(j->master, "://") || (colon && !strchr(colon + 1, ':')))
        return cli_usage_error(verb, "--master-addr %s: expected a name or an address alone; the port is --master-port",
                               j->master);
    return 0;
}

/* Checks the options about nodes: their number, the address of node 0, and this one's place. */
static int check_nodes(const cli_verb *verb, job *j)
{
    const char *colon = strchr(j->nodes, ':');
    size_t length = colon ? (size_t)(colon - j->nodes) : strlen(j->nodes);
    j->node_count = run_whole(j->nodes, length, MOST_NODES);
    j->least = j->node_count;
    if (colon)
        j->node_count = run_whole(colon + 1, strlen(colon + 1), MOST_NODES);
    if (!j->least || !j->node_count)
        return cli_usage_error(verb, "--nnodes %s: expected a number from 1 to %d, or two, MIN:MAX", j->nodes,
                               MOST_NODES);
    if (j->least > j->node_count)
        return cli_usage_error(verb, "--nnodes %s: the least number of nodes, %d, is above the most, %d", j->nodes,
                               j->least, j->node_count);
    if (j->least < j->node_count && j->node > 0)
        return cli_usage_error(verb,
                               "--node-rank %" PRId64 ": nodes of --nnodes %s get their numbers as they come; 0 alone "
                               "may be given, to the node that keeps the list of them",
                               j->node, j->nodes);
    if (j->standalone && j->node_count > 1)
        return cli_usage_error(verb, "--standalone is for one node, --nnodes says %s", j->nodes);
    if (j->node_count == 1) {
        if (j->node > 0)
            return cli_usage_error(verb, "--node-rank %" PRId64 ": with one node it is 0", j->node);
        j->node = 0;
        if (!j->master || !*j->master || j->standalone)
            j->master = "127.0.0.1";
        strip_brackets(j);
        if (j->standalone || j->port < 0)
            j->port = 0;
        return 0;
    }
    if (j->port == 0)
        return cli_usage_error(verb, "--master-port 0: of several nodes all need to know the port");
    j->port = j->port < 0 ? 0 : j->port;
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
    if (j->node >= j->node_count)
        return cli_usage_error(verb, "--node-rank %" PRId64 ": expected 0 to %d for --nnodes %s", j->node,
                               j->node_count - 1, j->nodes);
    if (j->rdzv)
        return 0; /* node 0's address and port are found */
    if (!j->master)
        j->master = getenv("MASTER_ADDR");
    if (!j->master || !*j->master)
        return cli_usage_error(verb, "--nnodes %s needs --master-addr, the name or address of the node with rank 0",
                               j->nodes);
    strip_brackets(j);
    const char *port = getenv("MASTER_PORT");
    if (!j->port)
        j->port = port ? run_whole(port, strlen(port), 65535) : 29500;
    if (!j->port)
        return cli_usage_error(verb, "MASTER_PORT=%s: expected a port from 1 to 65535", port);
    return check_master(verb, j);
}

/* Each process computes a virtual rank at least, so those of one node beyond their number are spares. Where none can
 * take the place of another pass_virtual_ranks refuses them. */
static void spare_beyond_virtual_ranks(job *j)
{
    if (!j->virtual_ranks || j->virtual_ranks >= j->world || j->node_count > 1 || j->role_count > 1 ||
        j->roles[0].rule.on_failure != YK__ON_FAILURE_END)
        return;
    j->beyond = j->world - j->virtual_ranks;
    j->spares += j->beyond;
    j->local = j->world = (int)j->virtual_ranks;
    j->roles[0].part = (yk__role_part){.local = j->local, .world = j->world};
    fprintf(stderr,
            "yoke run: --virtual-ranks %" PRId64 ": each process computes a virtual rank at least, so %" PRId64
            " of the %" PRId64 " %s\n",
            j->virtual_ranks, j->beyond, j->virtual_ranks + j->beyond, j->beyond == 1 ? "is a spare" : "are spares");
}

/* Options for programs whose processes go on by themselves without one that ends. */
static int check_survivors(const cli_verb *verb, job *j)
{
    const char *of = j->role_count > 1                                   ? "several roles"
                     : j->roles[0].rule.on_failure != YK__ON_FAILURE_END ? "--on-failure"
                                                                         : NULL;
    if (of && (j->evict > 0 || j->spares))
        return cli_usage_error(verb,
                               "--%s: it is for a program whose processes go on by themselves without one that ends "
                               "(yoke train --elastic); with %s %s",
                               j->evict > 0 ? "evict-stalled" : "spares", of,
                               j->evict > 0 ? "give --hang-timeout" : "none takes the place of another");
    if (!j->spares)
        return 0;
    if (j->least < j->node_count) {
        j->spare_nodes = j->spares;
        j->spares = 0;
        return 0;
    }
    if (j->node_count > 1)
        return cli_usage_error(verb,
                               "--spares %" PRId64 ": spares are processes of a job of one node, or nodes beyond the "
                               "MAX of --nnodes MIN:MAX; here are %d",
                               j->spares, j->node_count);
    if (j->world + j->spares > YK__MOST_LOCAL)
        return cli_usage_error(verb, "--spares %" PRId64 ": with %d processes at most %d are possible", j->spares,
                               j->world, YK__MOST_LOCAL - j->world);
    j->local += (int)j->spares;
    j->roles[0].part.local = j->local;
    return 0;
}

/* Nodes that come and go have one number of processes each, and one program whose end is that of the attempt. */
static int check_elastic(const cli_verb *verb, const job *j)
{
    if (j->least == j->node_count)
        return 0;
    if (j->listed > 1)
        return cli_usage_error(verb,
                               "--nproc-per-node %s: with --nnodes %s a node's number is not known; give one, that "
                               "of this node",
                               j->per_node, j->nodes);
    if (j->role_count > 1)
        return cli_usage_error(verb, "--nnodes %s: the nodes of a job of several roles are a fixed number", j->nodes);
    if (j->roles[0].rule.on_failure != YK__ON_FAILURE_END)
        return cli_usage_error(verb, "--on-failure %s: with --nnodes %s all processes are started again together",
                               j->on_failure, j->nodes);
    return 0;
}

/* True if HOST, that of --witness, is this host: by its name, by YOKE_HOST_ID where that tells hosts apart, or by an
 * address of it. The reason in `why` where HOST cannot be found. */
static bool is_this_host(const char *host, char why[YK__WHY_SIZE])
{
    enum { MOST_ADDRESSES = 8 };
    yk__address addresses[MOST_ADDRESSES], bound;
    char own[YK__HOST_SIZE] = "";
    const char *id = getenv("YOKE_HOST_ID");
    *why = '\0';
    if (id && *id)
        return strcmp(id, host) == 0;
    gethostname(own, sizeof(own) - 1);
    if (strcasecmp(own, host) == 0)
        return true;
    own[strcspn(own, ".")] = '\0';
    if (strcasecmp(own, host) == 0)
        return true;
    size_t count = yk__resolve(host, 0, yk__now() + 10, addresses, MOST_ADDRESSES, why);
    for (size_t i = 0; i < count; i++) {
        int fd = yk__listen(&addresses[i], 1, &bound); /* which the addresses of this host alone allow */
        if (fd >= 0)
            yk__socket_close(fd);
        yk_clear_error();
        if (fd >= 0)
            return true;
    }
    if (count)
        *why = '\0';
    return false;
}

/* --witness HOST: that host's launcher has no processes. */
static int check_witness(const cli_verb *verb, job *j)
{
    char why[YK__WHY_SIZE];
    if (!j->witness)
        return 0;
    if (!*j->witness)
        return cli_usage_error(verb, "--witness: the value is empty; expected the name or address of a host");
    if (j->rdzv)
        return cli_usage_error(verb, "--witness %s: with --rdzv etcd settles which of two nodes goes on; leave one out",
                               j->witness);
    if (j->least == j->node_count)
        return cli_usage_error(
            verb,
            "--witness %s: it has a say in who goes on where nodes come and go, which needs --nnodes "
            "MIN:MAX; here are %d",
            j->witness, j->node_count);
    if (j->node_count < 3)
        return cli_usage_error(verb,
                               "--witness %s: it is one of the nodes, and --nnodes %s has %d; for two that train give "
                               "--nnodes 2:3",
                               j->witness, j->nodes, j->node_count);
    j->is_witness = is_this_host(j->witness, why);
    if (*why) {
        fprintf(stderr, "yoke run: --witness %s: %s\n", j->witness, why);
        return EXIT_FAILED;
    }
    if (j->is_witness)
        j->roles[0].per_node = "0";
    return 0;
}

/* --fail-cooldown FIRST:MOST, of nodes that come and go. */
static int check_cooldown(const cli_verb *verb, job *j)
{
    enum { MOST_SECONDS = 1000000 };
    if (!j->cooldown)
        return 0;
    char *end = NULL, *rest = NULL;
    double first = strtod(j->cooldown, &end), most = *end == ':' ? strtod(end + 1, &rest) : 0;
    bool two = end != j->cooldown && *end == ':' && rest != end + 1 && !*rest;
    if (!two || !(first > 0) || !(most <= MOST_SECONDS))
        return cli_usage_error(verb,
                               "--fail-cooldown %s: expected FIRST:MOST, seconds above 0 and at most %d, as in 10:600",
                               j->cooldown, MOST_SECONDS);
    if (first > most)
        return cli_usage_error(verb, "--fail-cooldown %s: the first wait, %g s, is above the longest, %g s",
                               j->cooldown, first, most);
    if (j->least == j->node_count)
        return cli_usage_error(verb,
                               "--fail-cooldown %s: it is for nodes that come back, which needs --nnodes MIN:MAX; "
                               "here are %d",
                               j->cooldown, j->node_count);
    j->fail_first = first;
    j->fail_most = most;
    return 0;
}

static int check_streams(const cli_verb *verb, job *j)
{
    const char *values[2] = {j->redirects, j->tee};
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "tee" : "redirects";
        if (strlen(values[i]) != 1 || values[i][0] < '0' || values[i][0] > '3')
            return cli_usage_error(verb, "--%s %s: expected 0, 1 (stdout), 2 (stderr) or 3 (both)", name, values[i]);
    }
    j->hidden = (j->redirects[0] - '0') & ~(j->tee[0] - '0');
    if (j->hidden && !j->log_dir)
        return cli_usage_error(verb, "--redirects %s needs --log-dir", j->redirects);
    if (j->log_dir && (!*j->log_dir || strlen(j->log_dir) > 4000))
        return cli_usage_error(verb, "--log-dir: expected the path of a folder");
    return 0;
}

/* A given port of a job on this node alone: free, or whose it is. */
static int check_port(const job *j)
{
    yk__address any, bound;
    char why[YK__WHY_SIZE];
    if (!j->port || j->node_count > 1 || !yk__resolve("0.0.0.0", (int)j->port, yk__now() + 1, &any, 1, why))
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
    const char *name = "--secret-file ", *variable = getenv("YOKE_JOB_SECRET_FILE");
    if (!j->secret_file && j->node_count > 1 && variable && *variable) {
        j->secret_file = variable;
        name = "YOKE_JOB_SECRET_FILE=";
    }
    if (j->secret_file) {
        static char whole_path[4096];
        struct stat about;
        if (!realpath(j->secret_file, whole_path) || stat(whole_path, &about) || access(whole_path, R_OK)) {
            fprintf(stderr, "yoke run: %s%s: %s\n", name, j->secret_file, strerror(errno));
            return EXIT_FAILED;
        }
        const char *problem =
            S_ISREG(about.st_mode) ? yk__secret_file_problem(&about, (size_t)about.st_size) : "not a file";
        if (problem) {
            fprintf(stderr, "yoke run: %s%s: %s\n", name, j->secret_file, problem);
            return EXIT_FAILED;
        }
        j->secret_file = whole_path;
        unsetenv("YOKE_JOB_SECRET_FD");
        setenv("YOKE_JOB_SECRET_FILE", whole_path, 1); /* for the launchers' own connections */
        yk__identity identity;
        if (yk__identity_init(&identity, "launch", NULL, 0, j->id)) {
            fprintf(stderr, "yoke run: %s\n", yk_last_error()->message);
            yk_clear_error();
            return EXIT_FAILED;
        }
        yk__identity_clear(&identity);
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

/* A report of an earlier run would be taken for this one's. What cannot be written is said before anything starts. */
static int clear_report(job *j)
{
    const char *name = j->error_file ? "--error-file " : "TORCHELASTIC_ERROR_FILE=";
    const char *variable = getenv("TORCHELASTIC_ERROR_FILE");
    if (!j->error_file && variable && *variable)
        j->error_file = variable;
    if (!j->error_file)
        return 0;
    struct stat about;
    const char *why = NULL;
    if (stat(j->error_file, &about) == 0) {
        if (!S_ISREG(about.st_mode))
            why = "not a file"; /* /dev/null is everyone's */
        else if (unlink(j->error_file))
            why = strerror(errno);
    } else {
        const char *slash = strrchr(j->error_file, '/');
        char *folder = slash ? yk__format("%.*s", (int)(slash - j->error_file) + 1, j->error_file) : strdup(".");
        if (!*j->error_file || !folder || access(folder, W_OK | X_OK))
            why = strerror(*j->error_file ? errno : ENOENT);
        free(folder);
    }
    if (why)
        fprintf(stderr, "yoke run: %s%s: %s\n", name, j->error_file, why);
    return why ? EXIT_FAILED : 0;
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

/* A closed 0, 1 or 2 must not become a file of ours: the job's secret as standard output. */
static bool fill_standard(void)
{
    int fd;
    while ((fd = open("/dev/null", O_RDWR)) >= 0 && fd < 3)
        ;
    if (fd < 0) /* the standard input of processes that have none of the launcher's */
        fprintf(stderr, "yoke run: /dev/null cannot be opened: %s\n", strerror(errno));
    else
        close(fd);
    return fd >= 0;
}

/* Sets the variable that yk_elastic_create reads in the processes. Other nodes' numbers of processes may not be known
 * here. */
static int pass_virtual_ranks(const cli_verb *verb, const job *j)
{
    char text[24];
    if (!j->virtual_ranks)
        return 0;
    if (j->node_count == 1 && j->role_count == 1 && j->virtual_ranks < j->world)
        return cli_usage_error(verb,
                               "--virtual-ranks %" PRId64 ": there are %d processes, each of which computes a virtual "
                               "rank at least; start %" PRId64 " or fewer, or give --virtual-ranks %d or more",
                               j->virtual_ranks, j->world, j->virtual_ranks, j->world);
    snprintf(text, sizeof(text), "%" PRId64, j->virtual_ranks);
    setenv("YOKE_VIRTUAL_RANKS", text, 1);
    return 0;
}

int cli_run(int argc, char **argv)
{
    if (!fill_standard())
        return EXIT_FAILED;
    static job j; /* large, and shared with the supervisor by fork */
    j = (job){.per_node = "1",
              .nodes = "1",
              .node = -1,
              .port = -1,
              .grace = 10,
              .join_timeout = 60,
              .node_timeout = 15,
              .etcd.patience = 1,
              .last_call = 3,
              .redirects = "0",
              .tee = "0",
              .role = "default",
              .on_failure = "end"};
    const cli_option options[] = {
        {"nproc-per-node", "N", CLI_TEXT, &j.per_node,
         .help = "processes on each node; auto, cpu, gpu; 4,2: one per node", .letter = 'n',
         .variable = "PET_NPROC_PER_NODE"},
        {"nnodes", "N|MIN:MAX", CLI_TEXT, &j.nodes,
         .help = "nodes of the job; so many that they may come and go while it runs", .variable = "PET_NNODES"},
        {"node-rank", "N", CLI_INT, &j.node, .help = "which of them this is, from 0", .most = MOST_NODES,
         .default_text = "as they come", .variable = "PET_NODE_RANK"},
        {"master-addr", "HOST", CLI_TEXT, &j.master, .help = "name or address of node 0",
         .default_text = "127.0.0.1 for one node", .variable = "PET_MASTER_ADDR"},
        {"rdzv", "URL", CLI_TEXT, &j.rdzv,
         .help = "in place of it: etcd://HOST[:PORT],.../PREFIX, where the nodes find each other", .default_text = ""},
        {"rdzv-conf", "NAME=VALUE,...", CLI_TEXT, &j.conf,
         .help = "of etcd: cacert, cert, key: files; user, password_file; protocol: http, https", .default_text = ""},
        {"local-addr", "HOST", CLI_TEXT, &j.local_address,
         .help = "with --rdzv: the address at which other nodes reach this one", .default_text = "by the way to etcd",
         .variable = "PET_LOCAL_ADDR"},
        {"master-port", "PORT", CLI_INT, &j.port, .help = "its port where the nodes meet", .most = 65535,
         .default_text = "a free one; 29500 for several nodes", .variable = "PET_MASTER_PORT"},
        {"standalone", NULL, CLI_FLAG, &j.standalone, .help = "one node, whatever the address and port say",
         .variable = "PET_STANDALONE"},
        {"max-restarts", "N", CLI_INT, &j.restarts, .help = "start all processes again after a failure, this often",
         .most = 1e9, .variable = "PET_MAX_RESTARTS"},
        {"grace", "SECONDS", CLI_REAL, &j.grace, .help = "from SIGTERM to SIGKILL when processes are stopped",
         .most = 1e6},
        {"join-timeout", "SECONDS", CLI_REAL, &j.join_timeout, .help = "until all nodes must have come", .least = 0.1,
         .most = 1e6},
        {"last-call", "SECONDS", CLI_REAL, &j.last_call, .help = "with MIN:MAX: for more nodes, when MIN have come",
         .least = 0, .most = 1e6},
        {"node-timeout", "SECONDS", CLI_REAL, &j.node_timeout,
         .help = "after which a node that is not heard of is lost", .least = 0.5, .most = 1e6},
        {"fail-cooldown", "FIRST:MOST", CLI_TEXT, &j.cooldown,
         .help = "with MIN:MAX: seconds for which a host whose node failed is not let in again, doubled each time",
         .default_text = "it is at once"},
        {"witness", "HOST", CLI_TEXT, &j.witness,
         .help = "with MIN:MAX: the node on HOST has no processes, and settles which of two others goes on",
         .default_text = "no node is one"},
        {"hang-timeout", "SECONDS", CLI_REAL, &j.hang_timeout,
         .help = "end a job, or by --on-failure a rank, that does nothing for so long; say where each stands",
         .least = 0, .most = 1e6, .default_text = "0: never"},
        {"hang-stacks", NULL, CLI_FLAG, &j.hang_stacks, .help = "and print the stacks of its ranks"},
        {"evict-stalled", "SECONDS", CLI_REAL, &j.evict,
         .help = "of programs that survive: kill a rank that stands still while others wait for it", .least = 0,
         .most = 1e6, .default_text = "0: never"},
        {"pass-local-rank", NULL, CLI_FLAG, &j.pass_local_rank,
         .help = "add --local_rank=N to the program's arguments"},
        {"log-dir", "DIR", CLI_TEXT, &j.log_dir, .help = "also write DIR/rank_N/stdout.log and stderr.log",
         .variable = "PET_LOG_DIR"},
        {"redirects", "0-3", CLI_TEXT, &j.redirects, .help = "only to these files: 1 stdout, 2 stderr, 3 both",
         .letter = 'r', .variable = "PET_REDIRECTS"},
        {"no-prefix", NULL, CLI_FLAG, &j.no_prefix, .help = "lines without [host:rank] in front"},
        {"error-file", "FILE", CLI_TEXT, &j.error_file, .help = "write a failure there as JSON",
         .default_text = "$TORCHELASTIC_ERROR_FILE"},
        {"json", NULL, CLI_FLAG, &j.json, .help = "report failures on stderr as JSON instead of text"},
        {"job-id", "NAME", CLI_TEXT, &j.id, .help = "name of the job",
         .default_text = "random; default for several nodes"},
        {"hpc-job-mapping-dir", "DIR", CLI_TEXT, &j.mapping_dir,
         .help = "tell dcgm-exporter there which GPUs have the job", .default_text = "",
         .variable = "DCGM_HPC_JOB_MAPPING_DIR"},
        {"trace", "FILE", CLI_TEXT, &j.trace,
         .help = "write what every rank does, moment by moment: for ui.perfetto.dev and yoke trace report",
         .default_text = "", .also = "profile,profiler"},
        {"secret-file", "FILE", CLI_TEXT, &j.secret_file,
         .help = "the secret of a job of several nodes; the same on each"},
        {"encrypt", NULL, CLI_FLAG, &j.encrypt,
         .help = "encrypt what processes and launchers send to other hosts, and to the store"},
        {"virtual-ranks", "V", CLI_INT, &j.virtual_ranks,
         .help = "shards of a training step, on up to V processes, with the results of V", .least = 1,
         .most = YK__MOST_VIRTUAL_RANKS, .default_text = "", .variable = "YOKE_VIRTUAL_RANKS"},
        {"spares", "N", CLI_INT, &j.spares,
         .help = "of programs that survive: more processes, which take the place of one that ends; with MIN:MAX nodes",
         .most = YK__MOST_LOCAL, .default_text = ""},
        {"role", "NAME", CLI_TEXT, &j.role, .help = "ROLE_NAME of the processes", .variable = "PET_ROLE"},
        {"on-failure", "WHAT", CLI_TEXT, &j.on_failure,
         .help = "of a process: end (the job), continue (without it), restart[=N] (it, N times at most)"},
        /* torchrun's, understood so that its command lines work */
        {"rdzv-id", "NAME", CLI_TEXT, &j.id, .help = "--job-id", .hidden = true, .variable = "PET_RDZV_ID"},
        {"rdzv-backend", "NAME", CLI_TEXT, &j.backend, .help = "", .hidden = true},
        {"rdzv-endpoint", "HOST:PORT", CLI_TEXT, &j.endpoint, .help = "", .hidden = true,
         .variable = "PET_RDZV_ENDPOINT"},
        {"shutdown-timeout", "SECONDS", CLI_REAL, &j.grace, .help = "--grace", .most = 1e6, .hidden = true,
         .variable = "PET_SHUTDOWN_TIMEOUT"},
        {"event-log-handler", "NAME", CLI_TEXT, &j.ignored, .help = "", .hidden = true},
        {"signals-to-handle", "LIST", CLI_TEXT, &j.ignored, .help = "", .hidden = true},
        {"monitor-interval", "SECONDS", CLI_TEXT, &j.ignored, .help = "", .hidden = true},
        {"start-method", "NAME", CLI_TEXT, &j.ignored, .help = "", .hidden = true},
        {"tee", "0-3", CLI_TEXT, &j.tee, .help = "", .letter = 't', .hidden = true, .variable = "PET_TEE"},
        {"no-python", NULL, CLI_FLAG, &j.ignored_flag, .help = "", .hidden = true},
        {"use-env", NULL, CLI_FLAG, &j.ignored_flag, .help = "", .hidden = true},
        {"module", NULL, CLI_FLAG, &j.module, .help = "", .letter = 'm', .hidden = true, .variable = "PET_MODULE"},
        {"run-path", NULL, CLI_FLAG, &j.run_path, .help = "", .hidden = true, .variable = "PET_RUN_PATH"},
        {0}};
    const cli_verb verb = {
        .name = "yoke run",
        .summary =
            "Starts a program as several processes and tells each its place in the job by environment variables\n"
            "(RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, ...), as torchrun does. Any program can be started.",
        .about =
            "The first process that fails ends the run, unless --on-failure says otherwise: its exit code (128 plus\n"
            "the signal where it was killed) is that of the run, and the others are stopped. No process is left when\n"
            "yoke run has ended.\n",
        .examples = "  yoke run -n 2 -- yoke train --model resnet18\n"
                    "  yoke run -n 4 python3 train.py --epochs 10\n"
                    "  yoke run -n 4 --nnodes 2 --master-addr node0 --secret-file job.secret \\\n"
                    "      ./train                                             (on both nodes)\n"
                    "  yoke run -n 4 --nnodes 2:4 --master-addr node0 --secret-file job.secret \\\n"
                    "      python3 train.py                      (on two to four nodes)\n"
                    "  yoke run -n 4 --nnodes 2:3 --witness hostc --master-addr hosta \\\n"
                    "      --secret-file job.secret ./train      (on hosta, hostb and hostc)\n"
                    "  yoke run -n 4 --nnodes 2 --rdzv etcd://e1,e2,e3 --rdzv-conf cacert=ca.pem \\\n"
                    "      --secret-file job.secret ./train      (on both, which meet through etcd)\n"
                    "  yoke run -n 2 --max-restarts 3 --log-dir logs python3 train.py\n"
                    "  yoke run -n 1 --role ps ./server : \\\n"
                    "      -n 3 --role trainer --on-failure restart=2 ./trainer\n",
        .options = options,
        .rest = "PROGRAM [ARGUMENT...]\n"
                "                [: -n N --role NAME PROGRAM [ARGUMENT...]]",
    };
    int code;
    if (!cli_parse(&verb, argc, argv, &code))
        return code;
    if (j.module || j.run_path)
        return cli_usage_error(&verb, "%s: write the interpreter: yoke run python3 %s%s",
                               j.module ? "-m" : "--run-path", j.module ? "-m " : "",
                               argv[optind] ? argv[optind] : "SCRIPT");
    if ((code = run_roles_split(&verb, &j, argc - optind, argv + optind)))
        return code;
    if (j.trace && !*j.trace)
        return cli_usage_error(&verb, "--trace: the value is empty");
    if (j.id && (!*j.id || strlen(j.id) > 127))
        return cli_usage_error(&verb, "--job-id: expected 1 to 127 characters");
    for (const char *c = j.id ? j.id : ""; *c; c++) {
        if ((unsigned char)*c < 32 || *c == 127)
            return cli_usage_error(&verb, "--job-id: there is a control character in it");
    }
    if ((code = check_nodes(&verb, &j)) || (code = check_witness(&verb, &j)) || (code = run_etcd_check(&verb, &j)) ||
        (code = run_roles_count(&verb, &j)) || (code = check_elastic(&verb, &j)))
        return code;
    spare_beyond_virtual_ranks(&j);
    if ((code = check_survivors(&verb, &j)) || (code = check_cooldown(&verb, &j)) || (code = check_streams(&verb, &j)))
        return code;
    int cannot = run_roles_find(&j);
    if (cannot && j.node_count == 1)
        return cannot;
    enum {
        LEAST_FILES = 64
    }; /* the secret's descriptor is number 60; more processes need more, and find out at once */
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_max < LEAST_FILES) {
        fprintf(stderr, "yoke run: the limit of open files is %llu (ulimit -n), and at least %d are needed\n",
                (unsigned long long)files.rlim_max, LEAST_FILES);
        return EXIT_FAILED;
    }
    if ((code = pass_virtual_ranks(&verb, &j)))
        return code;
    if (j.encrypt)
        setenv("YOKE_ENCRYPT", "1", 1); /* for the processes, and for the store */
    if ((code = check_port(&j)) || (code = name_job(&j)) || (code = make_secret(&j)) || (code = clear_report(&j)))
        return code;
    if (cannot)
        fprintf(stderr, "yoke run: the other nodes are told when they come, within %g s\n", j.join_timeout);
    return yk__supervise(run_job, &j);
}
