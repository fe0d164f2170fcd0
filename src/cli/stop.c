/*
 * stop.c - `yoke stop`: ends a run of this user in order, or the ranks that ended runs have left. Layer: cli.
 *
 * Who is signalled is certain: a descriptor of the process is opened first, then the process is looked at again, and
 * the signal goes to the descriptor. A number that has come to another process since is not hit. The launcher's front
 * is known by being the parent of the supervisor, whose start time is in the announcement (launch/announcement.h).
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cli/options.h"
#include "host/process.h"
#include "observe/leftovers.h"
#include "observe/page.h"
#include "observe/runs.h"

enum { MOST_TARGETS = 1000 };

/* A process that is to end. */
typedef struct target {
    int pid, fd; /* fd: a pidfd; -1: there is no such process */
    bool chosen, ended;
} target;

static target target_open(int pid)
{
    return (target){.pid = pid, .fd = (int)syscall(SYS_pidfd_open, pid, 0)};
}

static bool target_signal(const target *t, int number)
{
    return syscall(SYS_pidfd_send_signal, t->fd, number, NULL, 0) == 0;
}

/* Waits until all chosen ones have ended, at most until then (yk__now); how many have not. */
static int targets_wait(target *targets, int count, double until)
{
    for (;;) {
        int left = 0, last = -1;
        for (int i = 0; i < count; i++) {
            struct pollfd ready = {.fd = targets[i].fd, .events = POLLIN};
            targets[i].ended |= targets[i].chosen && poll(&ready, 1, 0) > 0;
            if (targets[i].chosen && !targets[i].ended) {
                left++;
                last = i;
            }
        }
        double now = yk__now();
        if (!left || now >= until)
            return left;
        struct pollfd ready = {.fd = targets[last].fd, .events = POLLIN};
        poll(&ready, 1, until - now < 0.1 ? (int)((until - now) * 1000) + 1 : 100);
    }
}

static void targets_close(target *targets, int count)
{
    for (int i = 0; i < count; i++) {
        if (targets[i].fd >= 0)
            close(targets[i].fd);
    }
}

/* ---- a run ------------------------------------------------------------------------------------------------------- */
/* "; there are 'night' (pid 12) and ..."; the caller frees. */
static char *runs_names(const yk__runs *runs, const char *name)
{
    char *text = NULL;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    int listed = 0;
    for (int i = 0; to && i < runs->count; i++) {
        if (!name || yk__run_is_called(&runs->all[i], name))
            fprintf(to, "%s'%s' (pid %d)", listed++ ? ", " : "", cli_plain(runs->all[i].job), runs->all[i].launcher);
    }
    if (to && !listed)
        fputs("no run", to);
    if (to && runs->elsewhere && !name)
        fprintf(to, ", and %d in another pid namespace, which are ended there", runs->elsewhere);
    if (to)
        fclose(to);
    return text;
}

/* Why nothing of that name is here. */
static yk_status run_missing(const yk__runs *runs, const char *name)
{
    char user[64];
    int pid = yk__run_pid(name);
    bool there = pid && yk__process_user(pid, user, sizeof(user));
    if (there && !yk__process_is_own(pid))
        return yk__fail(YK_ERR_STATE, "pid %d is a process of user %s, and not yours: it is not touched", pid, user);
    char *names = runs_names(runs, NULL);
    yk_status status =
        there ? yk__fail(YK_ERR_NOT_FOUND, "pid %d is there, and is no launcher of a run of yours; here is: %s", pid,
                         names ? names : "")
              : yk__fail(YK_ERR_NOT_FOUND, "no run of yours on this machine has the name or pid '%s'; here is: %s",
                         cli_plain(name), names ? names : "");
    free(names);
    return status;
}

/* Tells the launcher that the job is meant: where nodes come and go a SIGTERM has that node alone leave, and all are
 * meant. */
static void run_end_all(const yk__run *run)
{
    YK__QUESTION;
    yk__run_open_pages open;
    if (yk__run_pages_open(run, &open) == YK_OK) {
        if (open.requests)
            atomic_store(&open.requests->end_all, true);
        yk__run_pages_close(&open);
    }
}

/* Sends SIGTERM to the launcher of a run; false where that is gone already. */
static bool run_signal(const yk__run *run, target *front)
{
    *front = target_open(run->launcher);
    yk__runs again;
    yk__runs_read(&again); /* with the start time of its supervisor */
    for (int i = 0; i < again.count && front->fd >= 0; i++)
        front->chosen |= again.all[i].supervisor == run->supervisor && again.all[i].launcher == run->launcher &&
                         yk__process_parent(run->supervisor) == run->launcher && yk__process_is_own(run->launcher);
    yk__runs_clear(&again);
    if (front->chosen) {
        run_end_all(run);
        front->chosen = target_signal(front, SIGTERM);
    }
    if (front->chosen)
        target_signal(front, SIGCONT); /* one that is stopped would not hear it */
    return front->chosen;
}

/* Ends all launchers of a run here: of a job of several nodes there may be more than one. */
static yk_status run_stop(const char *name, double timeout)
{
    yk__runs runs;
    target fronts[MOST_TARGETS];
    char took[32];
    int found = 0, single = 0, count = 0;
    yk_status status = YK_OK;
    yk__runs_read(&runs);
    for (int i = 0; i < runs.count; i++) {
        found += yk__run_is_called(&runs.all[i], name);
        single += yk__run_is_called(&runs.all[i], name) && runs.all[i].nodes == 1;
    }
    if (!found) {
        status = runs.problem[0] ? yk__fail(YK_ERR_STATE, "%s", runs.problem) : run_missing(&runs, name);
    } else if (found > 1 && single) {
        char *names = runs_names(&runs, name);
        status = yk__fail(YK_ERR_ARGUMENT, "%d runs are called '%s': give the pid of one of %s", found, cli_plain(name),
                          names ? names : "");
        free(names);
    }
    double began = yk__now();
    const yk__run *chosen[MOST_TARGETS];
    for (int i = 0; i < runs.count && !status && count < MOST_TARGETS; i++) {
        if (yk__run_is_called(&runs.all[i], name)) {
            chosen[count] = &runs.all[i];
            run_signal(&runs.all[i], &fronts[count++]);
        }
    }
    targets_wait(fronts, count, began + timeout);
    for (int i = 0; i < count; i++) {
        const yk__run *run = chosen[i];
        if (!fronts[i].chosen)
            printf("job %s, pid %d, had ended already\n", cli_plain(run->job), run->launcher);
        else if (fronts[i].ended)
            printf("job %s, pid %d, has ended within %s with its %d %s here\n", cli_plain(run->job), run->launcher,
                   yk__duration_format(yk__now() - began, took), run->local, run->local == 1 ? "rank" : "ranks");
        else
            status = yk__fail(YK_ERR_TIMEOUT,
                              "job %s, pid %d, got SIGTERM and goes on after %g s: its ranks may be saving, and are "
                              "killed after the --grace of yoke run; kill -KILL %d ends them at once",
                              cli_plain(run->job), run->launcher, timeout, run->launcher);
    }
    targets_close(fronts, count);
    yk__runs_clear(&runs);
    return status;
}

/* ---- what ended runs have left ----------------------------------------------------------------------------------- */
static const yk__orphan *orphan_find(const yk__leftovers *l, int pid)
{
    for (int i = 0; i < l->n_orphans; i++) {
        if (l->orphans[i].pid == pid)
            return &l->orphans[i];
    }
    return NULL;
}

/* Ends ranks without a launcher, of this user: SIGTERM, and SIGKILL after the time. Those that this process was started
 * by, as a shell in which a rank has put its user, go on. */
static yk_status orphans_stop(double timeout)
{
    yk__leftovers first, now;
    target targets[MOST_TARGETS];
    int count = 0, chosen = 0;
    yk__leftovers_read(&first);
    for (int i = 0; i < first.n_orphans && count < MOST_TARGETS; i++) {
        if (!yk__process_is_below(getpid(), first.orphans[i].pid))
            targets[count++] = target_open(first.orphans[i].pid);
    }
    yk__leftovers_read(&now); /* what is one now, and has not ended since the descriptor was opened, was one then */
    for (int i = 0; i < count; i++) {
        if (targets[i].fd < 0 || !orphan_find(&now, targets[i].pid))
            continue;
        targets[i].chosen = target_signal(&targets[i], SIGTERM);
        target_signal(&targets[i], SIGCONT);
        chosen += targets[i].chosen;
    }
    int killed = targets_wait(targets, count, yk__now() + timeout), left = 0;
    bool late[MOST_TARGETS];
    for (int i = 0; i < count; i++) {
        late[i] = targets[i].chosen && !targets[i].ended;
        if (late[i])
            target_signal(&targets[i], SIGKILL);
    }
    if (killed)
        left = targets_wait(targets, count, yk__now() + 5);
    for (int i = 0; i < count; i++) {
        const yk__orphan *o = orphan_find(&now, targets[i].pid);
        if (targets[i].chosen && o)
            printf("pid %d (%s), rank %s of job %s, %s\n", o->pid, cli_plain(o->name), cli_plain(o->rank),
                   cli_plain(o->job),
                   !targets[i].ended ? "did not end of SIGKILL: it waits for a disk or a driver"
                   : late[i]         ? "was killed"
                                     : "has ended");
    }
    if (!chosen)
        printf("no rank without a launcher is here\n");
    targets_close(targets, count);
    yk__leftovers_clear(&first);
    yk__leftovers_clear(&now);
    return left ? yk__fail(YK_ERR_TIMEOUT, "%d of %d processes did not end", left, chosen) : YK_OK;
}

int cli_stop(int argc, char **argv)
{
    double timeout = 30;
    bool orphans = false;
    const cli_option options[] = {
        {"timeout", "SECONDS", CLI_REAL, &timeout, .help = "how long to wait for the end", .most = 1e6},
        {"orphans", NULL, CLI_FLAG, &orphans, .help = "end ranks whose launcher is gone: SIGKILL after the timeout"},
        {0}};
    const cli_verb verb = {
        .name = "yoke stop",
        .summary = "Ends a run of this user in order, as SIGTERM to its `yoke run` does, and waits for the end.",
        .about = "JOB is the name of a run on this machine, PID that of its launcher; `yoke ps` lists both. A job of\n"
                 "several nodes ends on all of them. Exit code 1 says that the run goes on after the time, or is\n"
                 "another user's, whose processes are never touched; 2 that there is no such run.\n",
        .examples = "  yoke stop night\n"
                    "  yoke stop 26616 --timeout 120\n"
                    "  yoke stop --orphans\n",
        .options = options,
        .rest = "JOB|PID",
        .mixed = true,
    };
    int code;
    if (!cli_parse(&verb, argc, argv, &code))
        return code;
    const char *name = argv[optind];
    if (name && (argv[optind + 1] || orphans))
        return cli_usage_error(
            &verb, orphans ? "--orphans takes no run: give one or the other" : "expected one run; %s is one too many",
            argv[optind + 1]);
    if (!name && !orphans)
        return cli_usage_error(&verb, "expected the name or pid of a run, or --orphans; yoke ps lists them");
    if (name && !*name)
        return cli_usage_error(&verb, "the name of the run is empty; yoke ps lists those that are here");
    yk_status status = orphans ? orphans_stop(timeout) : run_stop(name, timeout);
    return status == YK_ERR_NOT_FOUND ? cli_not_found(status) : status ? cli_failed() : EXIT_DONE;
}
