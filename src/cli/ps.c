/*
 * ps.c - `yoke ps`: the runs of this user on this machine, who holds its GPUs, and what is left behind. Layer: cli.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/json_line.h"
#include "cli/options.h"
#include "observe/holders.h"
#include "observe/page.h"
#include "observe/snapshot_json.h"

/* A process of a run: the ports on which it listens. */
static void print_ports(int pid, const char *what)
{
    yk__holder h;
    yk__holder_read(pid, &h);
    for (int i = 0; i < h.n_ports; i++)
        printf("  port %s is held by the %s, pid %d\n", h.ports[i], what, pid);
}

/* Cores, where they are fewer than the machine has: "0-3,8". */
static void print_cores(const yk__holder *h)
{
    int cores = 0, first, last, n;
    for (const char *at = h->cores; *at; at += *at == ',') {
        if (sscanf(at, "%d-%d%n", &first, &last, &n) != 2 && sscanf(at, "%d%n", &first, &n) == 1)
            last = first;
        cores += last - first + 1;
        at += strcspn(at, ",");
    }
    if (cores > 0 && cores < sysconf(_SC_NPROCESSORS_ONLN))
        printf("; cores %s", h->cores);
}

static void print_rank(const yk__run_rank *r)
{
    yk__holder h;
    char step[32], waiting[32], loss[32] = "";
    if (!r->alive) {
        printf("  rank %-4d %-9s %s\n", r->rank, "", r->pid ? "has ended" : "has not called yoke yet");
        return;
    }
    if (r->losses)
        snprintf(loss, sizeof(loss), ", loss %.6g", r->loss);
    printf("  rank %-4d pid %-8d step %llu%s, %s", r->rank, r->pid, (unsigned long long)r->steps, loss,
           cli_plain(yk__rank_phase_text(r)));
    if (r->step_age >= 0)
        printf("; last step %s ago", yk__duration_format(r->step_age, step));
    if (r->waiting > 0)
        printf("; waits for %s", yk__duration_format(r->waiting, waiting));
    if (r->resident >= 0)
        printf("; %.0f MiB", r->resident / (1 << 20));
    yk__holder_read(r->pid, &h);
    print_cores(&h);
    putchar('\n');
    for (int i = 0; i < h.n_ports; i++)
        printf("            listens on %s\n", h.ports[i]);
}

static void print_run(const yk__run *run)
{
    struct timespec now;
    char since[32];
    int alive = 0;
    clock_gettime(CLOCK_REALTIME, &now);
    for (int i = 0; i < run->n_ranks; i++)
        alive += run->ranks[i].alive;
    printf("job %s, pid %d, for %s", cli_plain(run->job), run->launcher,
           yk__duration_format((double)now.tv_sec - run->began, since));
    if (run->nodes > 1)
        printf(", node %d of %d", run->node, run->nodes);
    if (run->restart)
        printf(", restart %d", run->restart);
    printf(", %d of %d ranks here: %s\n", run->readable ? alive : run->local, run->world, cli_plain(run->program));
    if (!run->readable)
        printf("  %s\n", cli_plain(run->why));
    print_ports(run->launcher, "launcher");
    print_ports(run->supervisor, "supervisor");
    for (int i = 0; i < run->n_ranks; i++)
        print_rank(&run->ranks[i]);
}

static void print_gpu(const yk__snapshot *s, int index)
{
    const yk__gpu *gpu = &s->gpus[index].gpu;
    struct timespec now;
    char since[32];
    clock_gettime(CLOCK_REALTIME, &now);
    printf("GPU %d, %s: %.1f of %.1f GiB used\n", index, cli_plain(gpu->name), gpu->used / (1 << 30),
           gpu->total / (1 << 30));
    for (int i = 0; i < gpu->n_holders; i++) {
        const yk__gpu_holder *h = &gpu->holders[i];
        const yk__run *run = NULL;
        const yk__run_rank *rank = yk__snapshot_rank(s, (int)h->pid, &run);
        printf("  pid %u", h->pid);
        if (h->name[0])
            printf(" (%s)", cli_plain(h->name));
        yk__holder facts;
        yk__holder_read((int)h->pid, &facts);
        if (facts.here)
            printf(", of user %s", cli_plain(facts.user));
        else
            printf(" (in another pid namespace)");
        if (facts.since > 0)
            printf(", for %s", yk__duration_format((double)now.tv_sec - facts.since, since));
        if (h->bytes >= 0)
            printf(", %.1f GiB", h->bytes / (1 << 30));
        if (rank)
            printf(", rank %d of job %s", rank->rank, cli_plain(run->job));
        if (facts.launcher_gone)
            printf("; its launcher (pid %d) is gone", facts.supervisor);
        if (facts.command[0])
            printf(": %s", cli_plain(facts.command));
        putchar('\n');
    }
}

static void print_text(const yk__snapshot *s, const yk__leftovers *l)
{
    for (int i = 0; i < s->runs.count; i++)
        print_run(&s->runs.all[i]);
    if (!s->runs.count)
        printf("no run of yoke run is there\n");
    if (s->runs.elsewhere)
        printf("%d more in another pid namespace, as a container's\n", s->runs.elsewhere);
    for (int i = 0; i < s->n_gpus; i++)
        print_gpu(s, i);
    for (int i = 0; i < l->n_orphans; i++)
        printf("left over: pid %d (%s), rank %s of job %s, whose launcher (pid %d) is gone\n", l->orphans[i].pid,
               cli_plain(l->orphans[i].name), cli_plain(l->orphans[i].rank), cli_plain(l->orphans[i].job),
               l->orphans[i].launcher);
    for (int i = 0; i < l->n_orphans; i++)
        print_ports(l->orphans[i].pid, "rank that is left over");
    for (int i = 0; i < l->n_segments; i++) {
        const yk__segment *one = &l->segments[i];
        printf("left over: %s, %.1f MiB, of user %s", cli_plain(one->path), one->bytes / (1 << 20),
               cli_plain(one->user));
        for (int k = 0; k < one->n_holders; k++)
            printf(k ? ", %d" : ", held by pid %d", one->holders[k]);
        putchar('\n');
    }
}

static int print_json(const yk__snapshot *s, const yk__leftovers *l)
{
    char *line = yk__json_line(yk__snapshot_json(s, l), YK__JSON_DIGITS);
    if (!line)
        fprintf(stderr, "yoke ps: out of memory\n");
    else
        fputs(line, stdout);
    free(line);
    return line ? EXIT_DONE : EXIT_FAILED;
}

int cli_ps(int argc, char **argv)
{
    bool json = false;
    const cli_option options[] = {{"json", NULL, CLI_FLAG, &json, .help = "one JSON object instead of text"}, {0}};
    const cli_verb verb = {
        .name = "yoke ps",
        .summary = "Lists the runs that `yoke run` of this user has on this machine, and what each rank does; who\n"
                   "holds the GPUs; and what ended runs have left behind.",
        .about = "A rank is shown from its first call of yoke on. Exit code 1 says that the folder in which runs are\n"
                 "announced cannot be read.\n",
        .examples = "  yoke ps\n"
                    "  yoke ps --json\n",
        .options = options,
    };
    int code;
    if (!cli_parse(&verb, argc, argv, &code))
        return code;
    yk__sampler *sampler = yk__sampler_create(0);
    if (!sampler)
        return cli_failed();
    yk__leftovers leftovers;
    yk__leftovers_read(&leftovers);
    const yk__snapshot *s = yk__sampler_take(sampler);
    code = EXIT_DONE;
    if (json)
        code = print_json(s, &leftovers);
    else
        print_text(s, &leftovers);
    if (s->runs.problem[0]) {
        fprintf(stderr, "yoke ps: %s\n", cli_plain(s->runs.problem));
        code = EXIT_FAILED;
    }
    yk__leftovers_clear(&leftovers);
    yk__sampler_free(sampler);
    return code;
}
