/*
 * metrics_yoke.c - runs and ranks in Prometheus' text format, in base units. Layer: observe.
 *
 * A rank is known by job and rank, a run by job and node: where two launchers of this machine have the same, the one
 * that began last is served, since two series with the same labels would have Prometheus refuse both. The label is
 * job_id, and not job, which Prometheus gives to every series itself.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "host/nvml.h"
#include "observe/metrics.h"

typedef struct served_rank {
    const yk__run *run;
    const yk__run_rank *rank;
    char *labels; /* with the braces open */
} served_rank;

/* One answer, and its parts. */
typedef struct answer {
    FILE *to;
    const yk__snapshot *shot;
    const yk__metrics_options *options;
    const yk__run **runs; /* by job and node */
    served_rank *ranks;   /* by job and rank */
    int n_runs, n_ranks;
    int left_out[3]; /* see leave_out_names */
} answer;
enum { OUT_RUNS, OUT_RANKS, OUT_COUNTERS };
static const char *const leave_out_names[] = {"runs", "ranks", "counters"};

/* ---- which runs and ranks ---------------------------------------------------------------------------------------- */
static int newer_run(const yk__run *x, const yk__run *y)
{
    return (x->began < y->began) - (x->began > y->began);
}

static int compare_runs(const void *a, const void *b)
{
    const yk__run *x = *(const yk__run *const *)a, *y = *(const yk__run *const *)b;
    int order = strcmp(x->job, y->job);
    order = order ? order : (x->node > y->node) - (x->node < y->node);
    return order ? order : newer_run(x, y);
}

static int compare_ranks(const void *a, const void *b)
{
    const served_rank *x = a, *y = b;
    int order = strcmp(x->run->job, y->run->job);
    order = order ? order : (x->rank->rank > y->rank->rank) - (x->rank->rank < y->rank->rank);
    return order ? order : newer_run(x->run, y->run);
}

static void choose_runs(answer *a)
{
    const yk__runs *runs = &a->shot->runs;
    a->runs = yk__calloc((size_t)runs->count + 1, sizeof(*a->runs));
    for (int i = 0; a->runs && i < runs->count; i++)
        a->runs[a->n_runs++] = &runs->all[i];
    if (a->n_runs)
        qsort(a->runs, (size_t)a->n_runs, sizeof(*a->runs), compare_runs);
    int kept = 0;
    for (int i = 0; i < a->n_runs; i++) {
        const yk__run *last = kept ? a->runs[kept - 1] : NULL, *run = a->runs[i];
        if (last && last->node == run->node && strcmp(last->job, run->job) == 0)
            a->left_out[OUT_RUNS]++;
        else
            a->runs[kept++] = run;
    }
    a->n_runs = kept;
}

/* "{job_id="...",role="...",host="...",rank="3"" */
static char *rank_labels(const answer *a, const served_rank *r)
{
    char *text = NULL, number[16];
    size_t size;
    FILE *to = open_memstream(&text, &size);
    if (!to)
        return NULL;
    fputc('{', to);
    yk__metrics_label(to, true, "job_id", r->run->job);
    yk__metrics_label(to, false, "role", r->rank->role);
    if (a->options->host)
        yk__metrics_label(to, false, "host", a->options->host);
    snprintf(number, sizeof(number), "%d", r->rank->rank);
    yk__metrics_label(to, false, "rank", number);
    fclose(to);
    return text;
}

static void choose_ranks(answer *a)
{
    const yk__runs *runs = &a->shot->runs;
    size_t most = 1;
    for (int i = 0; i < runs->count; i++)
        most += (size_t)runs->all[i].n_ranks;
    a->ranks = yk__calloc(most, sizeof(*a->ranks));
    for (int i = 0; a->ranks && i < runs->count; i++) {
        for (int k = 0; k < runs->all[i].n_ranks; k++) {
            if (runs->all[i].ranks[k].alive)
                a->ranks[a->n_ranks++] = (served_rank){.run = &runs->all[i], .rank = &runs->all[i].ranks[k]};
        }
    }
    if (a->n_ranks)
        qsort(a->ranks, (size_t)a->n_ranks, sizeof(*a->ranks), compare_ranks);
    int kept = 0;
    for (int i = 0; i < a->n_ranks; i++) {
        served_rank *last = kept ? &a->ranks[kept - 1] : NULL, one = a->ranks[i];
        bool again = last && last->rank->rank == one.rank->rank && strcmp(last->run->job, one.run->job) == 0;
        if (again || kept == YK__MOST_RANKS_SERVED || !(one.labels = rank_labels(a, &one)))
            a->left_out[OUT_RANKS]++;
        else
            a->ranks[kept++] = one;
    }
    a->n_ranks = kept;
}

/* ---- families of ranks ------------------------------------------------------------------------------------------- */
/* NAN, where a rank has no such series; a loss that is not a number has its own way. */
static double steps_of(const yk__run_rank *r)
{
    return (double)r->steps;
}
static double samples_of(const yk__run_rank *r)
{
    return r->samples ? (double)r->samples : NAN;
}
static double operations_of(const yk__run_rank *r)
{
    return (double)r->operations;
}
static double known_or_nan(double value)
{
    return value >= 0 ? value : NAN;
}
static double step_age_of(const yk__run_rank *r)
{
    return known_or_nan(r->step_age);
}
static double progress_age_of(const yk__run_rank *r)
{
    return known_or_nan(r->progress_age);
}
static double waiting_of(const yk__run_rank *r)
{
    return r->waiting;
}
static double waited_of(const yk__run_rank *r)
{
    return r->waited;
}
static double restarts_of(const yk__run_rank *r)
{
    return r->incarnation;
}
static double resident_of(const yk__run_rank *r)
{
    return known_or_nan(r->resident);
}
static double cpu_of(const yk__run_rank *r)
{
    return known_or_nan(r->cpu_seconds);
}

static const struct {
    const char *name, *type, *help;
    double (*value)(const yk__run_rank *rank);
} rank_families[] = {
    {"yoke_rank_steps_total", "counter", "Steps of optimizers that this process has applied.", steps_of},
    {"yoke_rank_last_step_age_seconds", "gauge", "Time since the last of them.", step_age_of},
    {"yoke_rank_last_progress_age_seconds", "gauge",
     "Time since the rank last began or ended an operation, took a batch, a step or a phase.", progress_age_of},
    {"yoke_rank_samples_total", "counter", "Samples that this process says it has trained on.", samples_of},
    {"yoke_rank_operations_total", "counter", "Collectives, messages, calls, loads and saves that the rank has begun.",
     operations_of},
    {"yoke_rank_waiting_seconds", "gauge",
     "Time for which the oldest collective or message of the rank has been under way; 0 where none is. The rank that "
     "the "
     "others wait for has the least.",
     waiting_of},
    {"yoke_rank_waiting_seconds_total", "counter",
     "Time that collectives and messages of the rank took until they ended, of each of them. The rank that the others "
     "wait for has the least.",
     waited_of},
    {"yoke_rank_restarts_total", "counter", "How often this rank alone was started again.", restarts_of},
    {"yoke_rank_resident_memory_bytes", "gauge", "Memory of the host that the process has resident.", resident_of},
    {"yoke_rank_cpu_seconds_total", "counter", "Processor time of the process, user and system.", cpu_of},
};
static const char phase_family[] = "yoke_rank_phase_seconds", times_family[] = "yoke_rank_phase_seconds_total",
                  loss_family[] = "yoke_rank_loss", gpu_family[] = "yoke_rank_gpu_memory_bytes";

static void write_value(FILE *to, double value)
{
    if (isnan(value))
        fputs(" NaN\n", to);
    else if (isinf(value))
        fputs(value > 0 ? " +Inf\n" : " -Inf\n", to);
    else if (fabs(value) < 1e15 && value == (double)(int64_t)value) /* the same digits, in less time */
        fprintf(to, " %" PRId64 "\n", (int64_t)value);
    else
        fprintf(to, " %.15g\n", value);
}

static void write_rank_families(const answer *a)
{
    for (size_t f = 0; f < sizeof(rank_families) / sizeof(*rank_families); f++) {
        bool any = false;
        for (int i = 0; i < a->n_ranks; i++) {
            double value = rank_families[f].value(a->ranks[i].rank);
            if (isnan(value))
                continue;
            if (!any)
                yk__metrics_family(a->to, rank_families[f].name, rank_families[f].type, rank_families[f].help);
            any = true;
            fprintf(a->to, "%s%s}", rank_families[f].name, a->ranks[i].labels);
            write_value(a->to, value);
        }
    }
}

static void write_losses(const answer *a)
{
    bool any = false;
    for (int i = 0; i < a->n_ranks; i++) {
        if (!a->ranks[i].rank->losses)
            continue;
        if (!any)
            yk__metrics_family(a->to, loss_family, "gauge", "The loss of the last step that the program has given.");
        any = true;
        fprintf(a->to, "%s%s}", loss_family, a->ranks[i].labels);
        write_value(a->to, a->ranks[i].rank->loss);
    }
}

/* One series for each rank: the phase that it is in. A text of the program's own is no label, since there is no end of
 * texts. */
static void write_phases(const answer *a)
{
    bool any = false;
    for (int i = 0; i < a->n_ranks; i++) {
        const yk__run_rank *rank = a->ranks[i].rank;
        if (rank->phase_age < 0)
            continue;
        if (!any)
            yk__metrics_family(a->to, phase_family, "gauge",
                               "Time since the rank entered the phase that it is in, which is the label.");
        any = true;
        fprintf(a->to, "%s%s", phase_family, a->ranks[i].labels);
        yk__metrics_label(a->to, false, "phase", yk__phase_name(rank->phase));
        fputc('}', a->to);
        write_value(a->to, rank->phase_age);
    }
}

static void write_phase_times(const answer *a)
{
    bool any = false;
    for (int i = 0; i < a->n_ranks; i++) {
        for (unsigned phase = 0; phase < YK__PHASES; phase++) {
            double time = a->ranks[i].rank->phase_times[phase];
            if (time <= 0)
                continue;
            if (!any)
                yk__metrics_family(
                    a->to, times_family, "counter",
                    "Time that the rank was in the phase of the label; what it is in counts when it ends.");
            any = true;
            fprintf(a->to, "%s%s", times_family, a->ranks[i].labels);
            yk__metrics_label(a->to, false, "phase", yk__phase_name(phase));
            fputc('}', a->to);
            write_value(a->to, time);
        }
    }
}

/* Memory of GPUs that ranks hold, as far as NVML tells: its pids are those of the host, and mean nothing in a
 * container. */
static void write_gpu_memory(const answer *a)
{
    bool any = false;
    for (int i = 0; i < a->n_ranks; i++) {
        for (int g = 0; g < a->shot->n_gpus; g++) {
            const yk__gpu *gpu = &a->shot->gpus[g].gpu;
            for (int h = 0; h < gpu->n_holders; h++) {
                if ((int)gpu->holders[h].pid != a->ranks[i].rank->pid || gpu->holders[h].bytes < 0)
                    continue;
                if (!any)
                    yk__metrics_family(a->to, gpu_family, "gauge", "Memory of the GPU that the process holds.");
                any = true;
                fprintf(a->to, "%s%s,gpu=\"%d\"}", gpu_family, a->ranks[i].labels, g);
                write_value(a->to, gpu->holders[h].bytes);
            }
        }
    }
}

/* ---- counters of parts of yoke ----------------------------------------------------------------------------------- */
static bool ends_in_total(const char *name)
{
    size_t size = strlen(name);
    return size > 6 && strcmp(name + size - 6, "_total") == 0;
}

/* The family of a counter. Counters are integers: those of nanoseconds are served as seconds, and true is returned. */
static bool counter_family(const char *name, char family[80])
{
    static const char nanoseconds[] = "_nanoseconds_total";
    size_t size = strnlen(name, 60), end = sizeof(nanoseconds) - 1;
    bool time = size > end && strcmp(name + size - end, nanoseconds) == 0;
    snprintf(family, 80, "yoke_rank_%.*s%s", time ? (int)(size - end) : 60, name, time ? "_seconds_total" : "");
    return time;
}

/* A counter can be a metric where its name is one that Prometheus takes, and none of those above. */
static bool counter_is_served(const char *name)
{
    char whole[80];
    counter_family(name, whole);
    if (name[0] < 'a' || name[0] > 'z' || strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != strlen(name))
        return false;
    for (size_t f = 0; f < sizeof(rank_families) / sizeof(*rank_families); f++) {
        if (strcmp(whole, rank_families[f].name) == 0)
            return false;
    }
    return strcmp(whole, phase_family) != 0 && strcmp(whole, times_family) != 0 && strcmp(whole, loss_family) != 0 &&
           strcmp(whole, gpu_family) != 0;
}

/* The entry of this name among those of the rank that are served; -1: none. */
static int counter_find(const yk__run_rank *rank, const char *name)
{
    for (int i = 0, served = 0; i < rank->n_counters && served < YK__MOST_COUNTERS_SERVED; i++) {
        if (!counter_is_served(rank->counters[i].name))
            continue;
        served++;
        if (strcmp(rank->counters[i].name, name) == 0)
            return i;
    }
    return -1;
}

/* Lines of one name from all ranks, from this one on, which is the first that has it. */
static void write_counter(const answer *a, int first, const char *name)
{
    char family[80], help[128];
    bool time = counter_family(name, family);
    snprintf(help, sizeof(help), "The counter %.60s of the rank's page.", name);
    yk__metrics_family(a->to, family, ends_in_total(name) ? "counter" : "gauge", help);
    for (int i = first; i < a->n_ranks; i++) {
        int at = counter_find(a->ranks[i].rank, name);
        long long value = at >= 0 ? (long long)a->ranks[i].rank->counters[at].value : 0;
        if (at >= 0 && time)
            fprintf(a->to, "%s%s} %.9f\n", family, a->ranks[i].labels, 1e-9 * (double)value);
        else if (at >= 0)
            fprintf(a->to, "%s%s} %lld\n", family, a->ranks[i].labels, value);
    }
}

static void write_counters(answer *a)
{
    for (int i = 0; i < a->n_ranks; i++) {
        const yk__run_rank *rank = a->ranks[i].rank;
        for (int k = 0; k < rank->n_counters; k++) {
            const char *name = rank->counters[k].name;
            bool before = false;
            if (counter_find(rank, name) != k) {
                a->left_out[OUT_COUNTERS]++;
                continue;
            }
            for (int j = 0; j < i && !before; j++)
                before = counter_find(a->ranks[j].rank, name) >= 0;
            if (!before)
                write_counter(a, i, name);
        }
    }
}

/* ---- families of runs, and of the monitor ------------------------------------------------------------------------ */
static int alive_of(const yk__run *run)
{
    int count = 0;
    for (int i = 0; i < run->n_ranks; i++)
        count += run->ranks[i].alive;
    return count;
}

static void run_labels(const answer *a, const yk__run *run)
{
    char node[16];
    snprintf(node, sizeof(node), "%d", run->node);
    fputc('{', a->to);
    yk__metrics_label(a->to, true, "job_id", run->job);
    if (a->options->host)
        yk__metrics_label(a->to, false, "host", a->options->host);
    yk__metrics_label(a->to, false, "node", node);
}

static void write_runs(const answer *a)
{
    static const struct {
        const char *name, *type, *help;
    } families[] = {
        {"yoke_run_world_size", "gauge", "Ranks of the run on all machines."},
        {"yoke_run_ranks", "gauge", "Ranks of the run that run on this machine and have called yoke."},
        {"yoke_run_nodes", "gauge", "Machines of the run."},
        {"yoke_run_restarts_total", "counter", "How often all its ranks were started again after a failure."},
        {"yoke_run_start_time_seconds", "gauge", "When its launcher began, in seconds since 1970."},
    };
    for (size_t f = 0; f < sizeof(families) / sizeof(*families) && a->n_runs; f++) {
        yk__metrics_family(a->to, families[f].name, families[f].type, families[f].help);
        for (int i = 0; i < a->n_runs; i++) {
            const yk__run *run = a->runs[i];
            const double values[] = {run->world, alive_of(run), run->nodes, run->restart, run->began};
            fputs(families[f].name, a->to);
            run_labels(a, run);
            fputc('}', a->to);
            write_value(a->to, values[f]);
        }
    }
}

/* The families of runs whose processes come and go. */
static void write_members(const answer *a)
{
    static const struct {
        const char *name, *type, *help;
    } families[] = {
        {"yoke_run_view", "gauge", "The number of the list of members that the run is in."},
        {"yoke_run_members", "gauge", "Processes that take part in the run, on all machines."},
        {"yoke_run_change_seconds_total", "counter",
         "Time from ends of members to the first steps that were done without them."},
        {"yoke_run_changes_total", "counter",
         "Changes of members since all ranks were started, by their cause, as far as this machine's launcher says "
         "them."},
    };
    enum { SINGLE = 3 };
    bool any = false;
    for (int i = 0; i < a->n_runs; i++)
        any |= a->runs[i]->view > 0;
    for (int f = 0; f <= SINGLE && any; f++) {
        yk__metrics_family(a->to, families[f].name, families[f].type, families[f].help);
        for (int i = 0; i < a->n_runs; i++) {
            const yk__run *run = a->runs[i];
            const double values[SINGLE] = {(double)run->view, (double)run->members, run->change_seconds};
            for (int kind = 0; kind < (f == SINGLE ? YK__CHANGE_KINDS : 1) && run->view; kind++) {
                fputs(families[f].name, a->to);
                run_labels(a, run);
                if (f == SINGLE)
                    yk__metrics_label(a->to, false, "cause", yk__change_name((yk__change)kind));
                fputc('}', a->to);
                write_value(a->to, f == SINGLE ? (double)run->changes_of[kind] : values[f]);
            }
        }
    }
}

static void write_monitor(const answer *a)
{
    FILE *to = a->to;
    double now = yk__now();
    char why[YK__NVML_PROBLEM];
    bool asked = !yk__nvml_problem(why), gpus = a->shot->n_gpus > 0 || !asked;
    yk__metrics_family(to, "yoke_build_info", "gauge", "1, with the version of yoke monitor as the label.");
    fprintf(to, "yoke_build_info{version=\"%s\"} 1\n", YK_VERSION);
    for (int i = 0; i < a->shot->n_gpus; i++)
        asked = asked && a->shot->gpus[i].known;
    yk__metrics_family(to, "yoke_monitor_collect_success", "gauge",
                       "1 where a source could be asked, 0 where its values are missing. A machine without NVML has no "
                       "GPUs to ask.");
    fprintf(to, "yoke_monitor_collect_success{source=\"runs\"} %d\n", !a->shot->runs.problem[0]);
    if (gpus)
        fprintf(to, "yoke_monitor_collect_success{source=\"gpus\"} %d\n", asked);
    yk__metrics_family(to, "yoke_monitor_sample_age_seconds", "gauge", "How old the values of a source are.");
    fprintf(to, "yoke_monitor_sample_age_seconds{source=\"runs\"} %.6f\n", now - a->shot->taken);
    if (gpus)
        fprintf(to, "yoke_monitor_sample_age_seconds{source=\"gpus\"} %.6f\n", now - a->shot->gpus_taken);
    yk__metrics_family(
        to, "yoke_monitor_left_out", "gauge",
        "Runs, ranks and counters that are there and not served: their labels are those of a newer run, or "
        "they are too many.");
    for (int i = 0; i < 3; i++)
        fprintf(to, "yoke_monitor_left_out{kind=\"%s\"} %d\n", leave_out_names[i], a->left_out[i]);
}

void yk__metrics_yoke(FILE *to, const yk__snapshot *snapshot, const yk__metrics_options *options)
{
    answer a = {.to = to, .shot = snapshot, .options = options};
    choose_runs(&a);
    choose_ranks(&a);
    write_runs(&a);
    write_members(&a);
    write_rank_families(&a);
    write_losses(&a);
    write_phases(&a);
    write_phase_times(&a);
    write_gpu_memory(&a);
    write_counters(&a);
    write_monitor(&a);
    for (int i = 0; i < a.n_ranks; i++)
        free(a.ranks[i].labels);
    free(a.ranks);
    free(a.runs);
}
