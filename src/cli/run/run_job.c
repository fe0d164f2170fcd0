/*
 * run_job.c - one job of `yoke run`: the environment of its processes, attempts, reports. Layer: cli.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json_line.h"
#include "cli/options.h"
#include "cli/run/run_job.h"
#include "cli/run/run_pages.h"
#include "cli/run/run_roles.h"
#include "cli/run/run_trace.h"
#include "cli/train/program_file.h"
#include "host/file.h"
#include "host/gpus.h"
#include "host/rank_info.h"
#include "launch/announcement.h"
#include "launch/departures.h"
#include "launch/guard.h"
#include "launch/hang.h"
#include "launch/job_mapping.h"
#include "launch/job_store.h"
#include "launch/listeners.h"
#include "launch/member_changes.h"
#include "launch/rendezvous.h"
#include "launch/variables.h"

/* ---- environment ------------------------------------------------------------------------------------------------ */

/* The variables that the launcher sets: values under these names that it was itself started with do not reach the
 * program. */
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
                                        "YOKE_ELASTIC_JOIN",
                                        "YOKE_ELASTIC_MEMBERS",
                                        "YOKE_INCARNATION",
                                        "YOKE_JOB_ID",
                                        "YOKE_JOB_SECRET_FD",
                                        "YOKE_JOB_SECRET_FILE",
                                        "YOKE_LISTENER_FD",
                                        "YOKE_NNODES",
                                        "YOKE_RANK_LISTENERS",
                                        "YOKE_RANK_PAGE",
                                        "YOKE_STORE",
                                        "YOKE_STORE_GUIDE",
                                        "YOKE_TRACE",
                                        NULL};

/* The state that the processes of one attempt share. */
typedef struct attempt_state {
    job *job;
    const yk__agent_plan *plan;
    yk__hang_watch *hang;
    const char *listeners; /* of all ranks; NULL: none */
    const char *trace;     /* where ranks write what they do; NULL: nowhere */
    group *group;
    yk__rendezvous *nodes; /* NULL: there is one */
    char pages[4200];      /* where pages of ranks have been saved; "": nowhere yet */
} attempt_state;

/* NULL without memory. */
static char **environment(const attempt_state *a, const worker *w)
{
    const job *j = a->job;
    yk__variables v = {0};
    bool beyond = w->rank >= j->world && j->spares; /* a rank that is outside the world of those that begin */
    int world = beyond ? j->world + (int)j->spares : j->world;
    yk__variables_inherit(&v, set_names);
    yk__rank_variables_put(&(yk__rank_variables){.rank = w->rank,
                                                 .world_size = world,
                                                 .local_rank = w->local_rank,
                                                 .local_world_size = j->spares ? world : j->local,
                                                 .node = (int)j->node,
                                                 .nodes = a->plan->nodes,
                                                 .port = a->plan->port,
                                                 .address = j->master,
                                                 .job = j->id,
                                                 .role = w->rule->name,
                                                 .role_rank = w->role_rank,
                                                 .role_world_size = beyond ? world : w->role_world},
                           yk__variables_put, &v);
    yk__variables_put(&v, "TORCHELASTIC_RUN_ID", j->id);
    yk__variables_put_number(&v, "TORCHELASTIC_RESTART_COUNT", a->plan->restart);
    yk__variables_put_number(&v, "TORCHELASTIC_MAX_RESTARTS", j->restarts);
    if (j->secret_file)
        yk__variables_put(&v, "YOKE_JOB_SECRET_FILE", j->secret_file);
    else if (j->secret >= 0)
        yk__variables_put_number(&v, "YOKE_JOB_SECRET_FD", SECRET_FD);
    yk__variables_put_number(&v, "YOKE_INCARNATION", w->incarnation);
    if (w->joins_others ||
        (w->incarnation > 0 && w->rule->on_failure == YK__ON_FAILURE_END)) /* in place of one whose others go on */
        yk__variables_put(&v, "YOKE_ELASTIC_JOIN", "1");
    if (j->spares)
        yk__variables_put_number(&v, "YOKE_ELASTIC_MEMBERS", j->world);
    if (j->store || j->node_count > 1) {
        char store[YK__JOB_STORE_VARIABLE];
        yk__job_store_format(store, j->store ? "127.0.0.1" : j->master,
                             j->store ? yk__job_store_port(j->store) : (int)j->port, a->plan->attempt, a->plan->port);
        yk__variables_put(&v, "YOKE_STORE", store);
        if (yk__rendezvous_guide(a->nodes))
            yk__variables_put(&v, "YOKE_STORE_GUIDE", yk__rendezvous_guide(a->nodes));
    }
    if (j->least < j->node_count)
        yk__variables_put(&v, "YOKE_NNODES", j->nodes);
    if (a->listeners) {
        yk__variables_put(&v, "YOKE_RANK_LISTENERS", a->listeners);
        yk__variables_put_number(&v, "YOKE_LISTENER_FD", LISTENER_FD);
    }
    char page[YK__PAGES_VARIABLE];
    yk__variables_put(&v, "YOKE_RANK_PAGE", yk__hang_watch_variable(a->hang, w->local_rank, page));
    if (a->trace)
        yk__variables_put(&v, "YOKE_TRACE", a->trace);
    int cores = yk__cores() / (j->local - (int)j->spares);
    const char *threads = getenv("OMP_NUM_THREADS");
    if (!threads || !*threads)
        yk__variables_put_number(&v, "OMP_NUM_THREADS", cores > 1 ? cores : 1);
    if (!getenv("PYTHONUNBUFFERED")) /* lines appear as they are printed, and are not lost with the process */
        yk__variables_put(&v, "PYTHONUNBUFFERED", "1");
    return yk__variables_take(&v);
}

/* ---- one attempt ------------------------------------------------------------------------------------------------ */

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

/* Opens DIR/rank_N/NAME.log, or with roles DIR/rank_N.ROLE_K/NAME.log; a restart goes on in the file. -1 after a
 * message. */
static int open_log(job *j, const worker *w, const char *name, bool again)
{
    char path[4200];
    run_pages_folder(j, w, path, sizeof(path) - 16);
    int fd = -1;
    if (make_folder(path)) {
        size_t end = strlen(path);
        snprintf(path + end, sizeof(path) - end, "/%s.log", name);
        fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (again ? 0 : O_TRUNC), 0666);
    }
    if (fd < 0)
        yk__relay_say(&j->err, "yoke run: --log-dir: %s: %s\n", path, strerror(errno));
    return fd;
}

static bool prepare_stream(job *j, relay_stream *s, const worker *w, int number, int64_t restart)
{
    *s = (relay_stream){.fd = -1, .log = -1, .instead = number == 1 ? &j->out : &j->err, .complain = &j->err};
    if (!(j->hidden & number))
        s->sink = s->instead;
    if (!j->no_prefix && w->role)
        s->prefix_length = (size_t)snprintf(s->prefix, sizeof(s->prefix), "[%.30s:%d %.30s %d] ", j->host, w->rank,
                                            w->role, w->role_rank);
    else if (!j->no_prefix)
        s->prefix_length = (size_t)snprintf(s->prefix, sizeof(s->prefix), "[%.60s:%d] ", j->host, w->rank);
    if (number == 2)
        s->tail = malloc(RELAY_TAIL);
    if (j->log_dir && (s->log = open_log(j, w, number == 1 ? "stdout" : "stderr", restart > 0)) < 0)
        return false;
    return true;
}

/* The program's arguments for one rank; borrows the strings but for the last. */
static char **arguments(const job *j, const worker *w)
{
    char *const *program = run_role_of((job *)j, w->local_rank)->program;
    int count = 0;
    while (program[count])
        count++;
    char **argv = calloc((size_t)count + 2, sizeof(*argv));
    if (!argv)
        return NULL;
    memcpy(argv, program, (size_t)count * sizeof(*argv));
    if (j->pass_local_rank)
        argv[count] = yk__format("--local_rank=%d", w->local_rank);
    return argv;
}

static void clear_workers(const job *j, worker *workers)
{
    for (int i = 0; i < j->local; i++) {
        worker *w = &workers[i];
        yk__relay_stream_clear(&w->out);
        yk__relay_stream_clear(&w->err);
        if (w->argv && j->pass_local_rank) {
            char **last = w->argv;
            while (last[1])
                last++;
            free(*last);
        }
        free(w->argv);
        yk__variables_free(w->envp);
    }
    free(workers);
}

/* A page and the variables of the process's next incarnation. False after a message. */
static bool worker_renew(void *argument, worker *w)
{
    attempt_state *a = argument;
    job *j = a->job;
    const yk__page_owner owner = {.rank = w->rank,
                                  .world_size = j->world + (w->spare ? (int)j->spares : 0),
                                  .local_rank = w->local_rank,
                                  .node = (int)j->node,
                                  .role_rank = w->role_rank,
                                  .incarnation = w->incarnation,
                                  .role = w->rule->name};
    if (yk__pages_renew(yk__hang_pages(a->hang), w->local_rank, &owner)) {
        yk__relay_say(&j->err, "yoke run: %s\n", yk_last_error()->message);
        yk_clear_error();
        return false;
    }
    yk__variables_free(w->envp);
    w->envp = environment(a, w);
    if (!w->envp)
        yk__relay_say(&j->err, "yoke run: out of memory\n");
    return w->envp != NULL;
}

static bool attempt_prepare(attempt_state *a, worker *workers, const yk__rendezvous *n)
{
    job *j = a->job;
    for (int i = 0; i < j->local; i++) {
        worker *w = &workers[i];
        const run_role *role = run_role_of(j, i);
        w->rank = j->first + i;
        w->local_rank = i;
        w->spare = j->spares && i >= j->world;
        w->joins_others = a->plan->joins || w->spare;
        w->path = role->path;
        w->rule = &role->rule;
        w->role = j->role_count > 1 ? role->rule.name : NULL;
        w->role_rank = j->role_count > 1 ? role->part.first + i : w->rank;
        for (const run_role *before = j->roles; before < role && j->role_count > 1; before++)
            w->role_rank -= before->part.local;
        w->role_world = role->part.world;
        w->input = w->rank == 0 && !isatty(0);
        w->out.fd = w->out.log = w->err.fd = w->err.log = -1;
        a->listeners = n ? yk__rendezvous_listeners(n, i, &w->listener) : NULL;
        w->listener = a->listeners ? w->listener : 0;
        if (!worker_renew(a, w))
            return false;
        w->argv = arguments(j, w);
        if (!w->argv) {
            yk__relay_say(&j->err, "yoke run: out of memory\n");
            return false;
        }
        int64_t restart = a->plan->attempt;
        if (!prepare_stream(j, &w->out, w, 1, restart) || !prepare_stream(j, &w->err, w, 2, restart))
            return false;
    }
    return true;
}

/* Says which GPUs have the job, where dcgm-exporter is to know: of several processes each has the GPU of its
 * LOCAL_RANK, and one alone may use all that it sees. A run that cannot say it goes on. */
static void run_map(job *j)
{
    int gpus[YK__MOST_LOCAL], count = j->mapping_dir && *j->mapping_dir ? yk__gpus_list(gpus, YK__MOST_LOCAL) : 0;
    count = count > j->local && j->local != 1 ? j->local : count;
    if (count <= 0 || !yk__job_mapping_begin(j->mapping_dir, j->id, gpus, count))
        return;
    yk__relay_say(&j->err, "yoke run: %s; dcgm-exporter will not know this job\n", yk_last_error()->message);
    yk_clear_error();
}

/* Says that the run is there, once its processes run, which then do not wait for it. A run that cannot be seen goes on.
 */
static void run_announce(void *argument)
{
    const attempt_state *a = argument;
    job *j = a->job;
    const yk__announcement run = {.job = j->id,
                                  .host = j->host,
                                  .launcher = (int)getppid(),
                                  .node = (int)j->node,
                                  .nodes = a->plan->nodes,
                                  .first = j->first,
                                  .local = j->local,
                                  .world = j->world,
                                  .restart = (int)a->plan->restart,
                                  .program = j->roles[0].program,
                                  .pages = yk__hang_pages(a->hang)};
    run_map(j);
    if (!yk__announce(&run))
        return;
    if (yk_last_error()->code == YK_ERR_STATE && !a->plan->restart)
        yk__relay_say(&j->err, "yoke run: %s; yoke ps and yoke monitor will not see this run\n",
                      yk_last_error()->message);
    yk_clear_error();
}

/* The others of a program that survives wait for this word, in the store where they are. */
static void tell_gone(void *argument, const worker *w)
{
    const attempt_state *a = argument;
    job *j = a->job;
    char key[60];
    if (a->nodes) {
        yk__rendezvous_gone(a->nodes, w->rank, w->incarnation);
        return;
    }
    snprintf(key, sizeof(key), "elastic/gone/%d.%d", w->rank, w->incarnation);
    if (!yk__job_store_put(j->store, a->plan->attempt, key, "1"))
        return;
    yk__relay_say(&j->err, "yoke run: the others cannot be told that rank %d has ended: %s\n", w->rank,
                  yk_last_error()->message);
    yk_clear_error();
}

/* Those who watch a worker of rpc/ read how its process ended in the store: the status of waitpid, why the launcher
 * killed it, if it did, and its last lines on stderr. A worker that has come to its shutdown has no number any more. */
static void tell_ended(void *argument, const worker *w)
{
    const attempt_state *a = argument;
    job *j = a->job;
    const yk__rank_page *page = yk__pages_at(yk__hang_pages(a->hang), (int)(w - a->group->workers));
    int number = page ? atomic_load(&page->worker) : 0;
    char *tail = number > 0 && w->err.tail ? yk__relay_tail(&w->err, YK__LAST_LINES) : NULL;
    size_t room = (tail ? strlen(tail) : 0) + WORKER_WHY + 40;
    char *value = number > 0 ? malloc(room) : NULL, key[40];
    if (value) {
        snprintf(value, room, "%d %s\n%s", w->status, w->why, tail ? tail : "");
        snprintf(key, sizeof(key), "rpc/ended/%d", number);
        if (a->nodes)
            yk__rendezvous_put(a->nodes, key, value);
        else if (j->store && yk__job_store_put(j->store, a->plan->attempt, key, value))
            yk_clear_error(); /* without the record they hear that it has ended, and not how */
    }
    free(value);
    free(tail);
}

/* Saves the pages of a job that hangs as they are then: ranks that are stopped do other things before they end. */
static void save_hang(void *argument)
{
    attempt_state *a = argument;
    run_pages_save(a->job, a->group, a->pages, sizeof(a->pages));
}

static void job_report(attempt_state *a, const yk__outcome *end, int64_t restarts, const yk__rendezvous *n)
{
    job *j = a->job;
    group *g = a->group;
    char departed[80];
    yk__outcome_context facts = {.host = j->host, .job = j->id, .restarts = restarts, .pages = a->pages};
    facts.departed = yk__rendezvous_departed(n, &facts.departed_count);
    yk__departures_count(g, facts.departed, facts.departed_count, departed);
    if (end->kind == YK__RUN_DONE) { /* no report, unless there is more to say */
        char *json = j->json && *departed ? yk__outcome_json(g, end, &facts) : NULL;
        if (json)
            yk__relay_say(&j->err, "%s", json);
        else
            yk__departures_print(g, facts.departed, facts.departed_count);
        free(json);
        return;
    }
    if (end->kind != YK__RUN_INTERRUPTED && !a->pages[0])
        run_pages_save(j, g, a->pages, sizeof(a->pages));
    char *json = end->kind != YK__RUN_INTERRUPTED ? yk__outcome_json(g, end, &facts) : NULL;
    if (json && j->error_file) {
        yk__file_writer *file = yk__file_create(j->error_file);
        if (!file || yk__file_write(file, json, strlen(json)) || yk__file_commit(file)) {
            yk__relay_say(&j->err, "yoke run: --error-file: %s\n", yk_last_error()->message);
            yk_clear_error();
        }
    }
    if (json && j->json) {
        yk__relay_say(&j->err, "%s", json);
    } else {
        yk__outcome_print(g, end, &facts);
        yk__departures_print(g, facts.departed, facts.departed_count);
    }
    free(json);
}

/* Says why a process could not be started; returns the exit code. */
static int start_failed(job *j, const group *g)
{
    if (g->start_exec)
        return program_cannot_run(g->start_path, g->start_error, &j->err);
    yk__relay_say(&j->err, "yoke run: cannot start %d processes: %s%s\n", j->local, strerror(g->start_error),
                  g->start_error == EAGAIN   ? " (the limit of processes: ulimit -u)"
                  : g->start_error == EMFILE ? " (the limit of open files: ulimit -n)"
                                             : "");
    return EXIT_FAILED;
}

/* The port on which rank 0 of a job of one node is to listen; nobody else gets it while the attempt lasts. */
static int port_for_rank_0(job *j)
{
    if (j->port)
        return (int)j->port;
    if (j->port_held >= 0)
        close(j->port_held);
    int port = yk__port_claim(&j->port_held);
    if (!port) {
        yk__relay_say(&j->err, "yoke run: %s\n", yk_last_error()->message);
        yk_clear_error();
    }
    return port;
}

/* The connections of ranks to the store that this process serves, two each. */
static int store_files(const job *j)
{
    return j->node == 0 && (j->store || j->node_count > 1) ? 2 * (j->world + (int)j->spares) : 0;
}

/* Fails unless this process may have the descriptors that it needs: the pipes of all processes and their logs; while
 * one is started, its ends of the pipes, /dev/null and the secret; and the store's. */
static yk_status need_files(const job *j)
{
    int each = 2 + (j->log_dir ? 2 : 0), starting = 4;
    return yk__descriptors_need("yoke run", j->local * each + starting + store_files(j));
}

/* Sees to it that there are descriptors enough: where the job's store takes too many it is closed, and rank 0 serves
 * one, as it does without a launcher. False after a message. */
static bool settle_files(job *j)
{
    yk_status status = need_files(j);
    if (status && j->store) {
        yk_clear_error();
        yk__job_store_close(j->store);
        j->store = NULL;
        status = need_files(j);
    }
    if (!status)
        return true;
    yk__relay_say(&j->err, "%s\n", yk_last_error()->message);
    yk_clear_error();
    return false;
}

/* Says why there have been no spares, where their time never came. */
static void tell_spares(job *j, group *g)
{
    char message[300];
    if (!j->spares || g->workers[j->world].pid || g->start_error)
        return;
    snprintf(message, sizeof(message),
             "%s %" PRId64 ": %snone was started, since the program's processes never said that they go on without one "
             "that ends (yoke train --elastic; yk_elastic_create with survive)",
             j->beyond ? "--virtual-ranks" : "--spares", j->beyond ? j->virtual_ranks : j->spares,
             j->beyond ? "of the spares " : "");
    yk__event_say(g, "spare", message, NULL);
}

/* One attempt: starts the processes of this node and waits for the end. True when there is to be another. */
static bool attempt_run(job *j, yk__rendezvous *n, yk__agent_plan *plan, int *code, int *interrupted)
{
    worker *workers = calloc((size_t)j->local + 1, sizeof(*workers)); /* a node may have none */
    bool enough = settle_files(j);
    double began = yk__now();
    group g = {.workers = workers,
               .count = j->local,
               .grace = j->grace,
               .secret = j->secret,
               .job = j->id,
               .host = j->host,
               .json = j->json,
               .out = &j->out,
               .err = &j->err,
               .store = j->store,
               .link = n ? yk__rendezvous_link(n) : NULL};
    bool again = false;
    *code = EXIT_FAILED;
    if (!(g.hang = yk__hang_watch_create(j->local, j->hang_timeout, j->hang_stacks))) {
        yk__relay_say(&j->err, "yoke run: %s\n", yk_last_error()->message);
        yk_clear_error();
    } else {
        yk__hang_evict_after(g.hang, j->evict);
    }
    attempt_state state = {
        .job = j, .plan = plan, .hang = g.hang, .group = &g, .nodes = n, .trace = run_trace_begin(j)};
    g.renew = worker_renew;
    g.started = run_announce;
    g.hung = save_hang;
    g.gone = j->store || n ? tell_gone : NULL;
    g.ended = j->store || n ? tell_ended : NULL;
    g.again = plan->restarts - plan->restart - j->started_again;
    g.argument = &state;
    if (workers && plan->port && g.hang && enough && attempt_prepare(&state, workers, n)) {
        yk__outcome end;
        yk__supervisor_run(&g);
        double over = yk__now();
        *interrupted = g.interrupted;
        tell_spares(j, &g);
        j->started_again = plan->restarts - plan->restart - g.again;
        if (n) {
            again = yk__rendezvous_ended(n, &g, &end);
        } else {
            yk__outcome_of_group(&end, &g, j->host);
            if (end.kind != YK__RUN_HUNG && yk__group_saved(&g))
                yk__outcome_saved(&end);
            again = yk__outcome_restarts(&end) && !g.interrupted && !g.left && g.again > 0;
        }
        if (!again && !g.start_error)
            yk__run_time_say(&g, began - j->earlier, j->earlier);
        if (g.start_error) {
            *code = start_failed(j, &g);
        } else if (end.kind == YK__RUN_SAVED) {
            *code = EXIT_AGAIN;
            yk__relay_say(&j->err,
                          "yoke run: every process ended with exit code %d: it can be started again to go on\n",
                          EXIT_AGAIN);
        } else if (again && yk__rendezvous_change(n, &j->changed)) {
            snprintf(j->change, sizeof(j->change), "%s", yk__rendezvous_change(n, &j->changed));
        } else {
            *code = end.code;
            job_report(&state, &end, plan->restart, n);
        }
        again = again && !g.start_error;
        if (again)
            j->earlier += over - began;
        if (again && !j->change[0])
            yk__relay_say(&j->err, "yoke run: restart %" PRId64 " of %" PRId64 "\n", plan->restart + 1, plan->restarts);
        yk__outcome_clear(&end);
    } else if (n) {
        yk__rendezvous_give_up(n, EXIT_FAILED, "its launcher cannot prepare the processes");
    }
    run_trace_end(j, n, again);
    if (workers)
        clear_workers(j, workers);
    yk__hang_watch_free(g.hang);
    return again;
}

/* A program is not on this node: the others, which have it, end as well. */
static bool program_missing(job *j, yk__rendezvous *n, int *code)
{
    char why[400];
    for (int r = 0; r < j->role_count; r++) {
        const run_role *role = &j->roles[r];
        if (!role->cannot || !role->part.local)
            continue;
        *code = role->cannot;
        snprintf(why, sizeof(why), "%.300s: %s", *role->program,
                 role->cannot == EXIT_NOT_THERE ? "no such program there" : "may not be executed there");
        if (n)
            yk__rendezvous_give_up(n, role->cannot, why);
        return true;
    }
    return false;
}

/* Takes over this node's part of an attempt. */
static void take_plan(job *j, const yk__agent_plan *plan)
{
    j->node = plan->node;
    j->local = plan->local;
    j->first = plan->first;
    j->world = plan->world;
    j->restarts = plan->restarts;
    for (int r = 0; r < plan->roles; r++)
        j->roles[r].part = plan->role[r];
    if (!plan->roles)
        j->roles[0].part = (yk__role_part){.local = j->local, .first = j->first, .world = j->world};
}

/* Says that other nodes make up the attempt that begins: when, who, why, and how long it took. */
static void tell_change(job *j, const yk__agent_plan *plan)
{
    group as = {.json = j->json, .job = j->id, .host = j->host, .err = &j->err};
    char message[1000];
    double seconds = yk__now() - j->changed;
    snprintf(message, sizeof(message),
             "%.700s; attempt %" PRId64 " begins after %.3g s: %d node%s with %d rank%s, of which this one is node %d",
             j->change, plan->attempt + 1, seconds, plan->nodes, plan->nodes > 1 ? "s" : "", plan->world,
             plan->world > 1 ? "s" : "", plan->node);
    json_t *members = j->json
                          ? json_pack("{s:o,s:I,s:i,s:i,s:i,s:o}", "why", yk__json_text(j->change, strlen(j->change)),
                                      "attempt", (json_int_t)plan->attempt, "nodes", plan->nodes, "ranks", plan->world,
                                      "node", plan->node, "seconds", yk__json_fixed(seconds, 3))
                          : NULL;
    yk__event_say(&as, "members", message, members);
    j->change[0] = '\0';
}

/* Meets the other nodes' launchers; NULL after a message, with the exit code. */
static yk__rendezvous *join_nodes(job *j, yk__agent_plan *plan, int *code)
{
    static yk__role_rule rules[YK__MOST_ROLES];
    static int role_counts[YK__MOST_ROLES * MOST_NODES];
    bool alone = j->role_count > 1; /* one role needs no word, unless its ranks may end alone */
    for (int r = 0; r < j->role_count; r++) {
        rules[r] = j->roles[r].rule;
        alone |= rules[r].on_failure != YK__ON_FAILURE_END;
        memcpy(role_counts + r * j->listed, j->roles[r].counts, (size_t)j->listed * sizeof(int));
    }
    const yk__rendezvous_settings settings = {.host = j->rdzv ? j->local_address : j->master,
                                              .port = (int)j->port,
                                              .node_count = j->node_count,
                                              .least = j->least,
                                              .last_call = j->last_call,
                                              .spares = j->spare_nodes,
                                              .fail_first = j->fail_first,
                                              .fail_most = j->fail_most,
                                              .witness = j->witness,
                                              .node = (int)j->node,
                                              .counts = j->counts,
                                              .listed = j->listed,
                                              .roles = alone ? j->role_count : 0,
                                              .rules = rules,
                                              .role_counts = role_counts,
                                              .restarts = j->restarts,
                                              .join_timeout = j->join_timeout,
                                              .node_timeout = j->node_timeout,
                                              .grace = j->grace,
                                              .job = j->id,
                                              .name = j->host,
                                              .etcd = j->rdzv ? &j->etcd : NULL,
                                              .etcd_prefix = j->etcd_prefix};
    int port = 0;
    yk__rendezvous *n = yk__rendezvous_join(&settings, &j->err, plan, code);
    if (n) {
        j->master = yk__rendezvous_address(n, &port);
        j->port = port;
        take_plan(j, plan);
    }
    return n;
}

/* In the supervisor: runs the group, again after a failure while restarts are left; returns the exit code. */
int run_job(void *arg)
{
    job *j = arg;
    int code = EXIT_FAILED, interrupted = 0;
    j->port_held = -1;
    yk__rendezvous *n = NULL;
    yk__relay_sink_open(&j->out, 1);
    yk__relay_sink_open(&j->err, 2);
    yk__agent_plan plan = {.restarts = j->restarts, .nodes = 1};
    bool going = j->node_count == 1 || (n = join_nodes(j, &plan, &code));
    going = !program_missing(j, n, &code) && going;
    if (going && !n && !(j->store = yk__job_store_open(j->id, j->secret)))
        yk_clear_error(); /* rank 0 serves it, as it does without a launcher */
    while (going) {
        if (!n)
            plan.port = port_for_rank_0(j);
        going = attempt_run(j, n, &plan, &code, &interrupted);
        if (going && n)
            going = yk__rendezvous_next(n, &plan, &code);
        else
            plan.attempt = ++plan.restart;
        if (going && n)
            take_plan(j, &plan);
        if (going && j->change[0])
            tell_change(j, &plan);
    }
    yk__announce_end();
    yk__job_mapping_end();
    yk__rendezvous_close(n);
    yk__job_store_close(j->store);
    yk__supervisor_drain(&j->out, &j->err, interrupted ? 1 : 0);
    if (j->out.error) {
        yk__relay_say(&j->err, "yoke run: stdout: %s\n", strerror(j->out.error));
        code = EXIT_FAILED; /* that the processes then got SIGPIPE is the effect */
    }
    yk__relay_sink_clear(&j->out);
    yk__relay_sink_clear(&j->err);
    return code;
}
