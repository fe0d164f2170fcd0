/*
 * elastic_simulation.c - the useful time of a job on many members, by failure rates that others have published: going
 * on without whoever fails (docs/elastic.md) next to a restart of all from a checkpoint. An event simulation,
 * deterministic by its seed; nothing is trained.
 *
 * A *member* is a process with a GPU, and the 8 of a node fail together: all failures are taken for losses of a node,
 * though most lose less. Failures of a node come at random (exponentially distributed times), all nodes alike. Useful
 * is the time that the steps, which the job has in the end, would have taken on all its members; the share of it in the
 * time that has passed is printed.
 *
 *   restart     every failure ends all; the steps since the last checkpoint are lost. A node in place of the lost one
 * is there at once, so this is the best that a restart comes to. Saving holds the steps up. The time between two
 * checkpoints is the best one: J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart
 * dumps", Future Generation Computer Systems 22 (2006), equation 37. spares      the others go on after the change,
 * without the step that was under way; spare nodes wait, and one takes the place in the view that follows, with the
 * state from another's memory. The lost node is a spare again when it is repaired. no spares   likewise, and nobody
 * takes the place until the node is repaired: with v virtual ranks a member the step is ceil(v N / members there) / v
 * of its time on all.
 *
 * Survivors need a checkpoint only where the node is lost whose launcher keeps the store, which then ends the job and
 * restarts it as above: the time between two checkpoints is the best one for the failures of that node alone.
 *
 * Rates, in failures of a node of 8 GPUs in 1,000 days:
 *   3.8   419 unplanned interruptions in 54 days on 16,384 GPUs: The Llama 3 Herd of Models, arXiv 2407.21783, 3.3.4
 *   6.5   a mean time to failure of 1.8 hours at 16,384 GPUs: Revisiting Reliability in Large-Scale Machine Learning
 *         Research Clusters, arXiv 2410.21680
 *   23.7  7.9 hours at 1,024 GPUs, measured there with jobs of that size
 *
 * Usage: elastic_simulation [--days D] [--seed S]       default: 1,000 simulated days for each number, seed 1
 * It begins with cases that have a closed form (see check_all), and ends with 1 where these differ.
 */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NODE_MEMBERS = 8, MOST_NODES = 2000, KINDS = 3, RATES = 3 };

/* Seconds, but where it says otherwise. */
typedef struct setting {
    int nodes, spares;
    double node_mtbf;
    double step;
    double save, restart,
        interval; /* a checkpoint; from a failure to the first step after it; between two checkpoints */
    bool survive;
    double change;     /* from a failure to the first step of the others begun anew */
    double join;       /* that a joining node holds the others up */
    double repair;     /* of a node */
    int virtual_ranks; /* of a member */
    bool kept;         /* the loss of one certain node restarts all */
} setting;

typedef struct outcome {
    double wall, useful;
    int64_t failures, restarts;
} outcome;

/* ---- random numbers: splitmix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014) ------- */
static uint64_t random_state;

static double random_unit(void) /* above 0, below 1 */
{
    uint64_t x = (random_state += 0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return ((double)((x ^ x >> 31) >> 11) + 0.5) * 0x1p-53;
}

static double random_exponential(double mean)
{
    return -mean * log(random_unit());
}

/* ---- a job ------------------------------------------------------------------------------------------------------- */
typedef struct job {
    const setting *s;
    double now, failure; /* the next failure of any node that takes part */
    int members, spares; /* nodes */
    double back[MOST_NODES];
    int lost;             /* nodes that are repaired, until back[i] */
    double kept, unsaved; /* useful seconds: in the last checkpoint, and since */
    double since;         /* seconds of steps since then */
    outcome out;
} job;

static void failure_draw(job *j)
{
    j->failure = j->now + random_exponential(j->s->node_mtbf / j->members);
}

/* Passes the time, unless a failure comes before it is over: then false, at that moment. */
static bool pass(job *j, double seconds)
{
    bool over = j->now + seconds <= j->failure;
    j->now = over ? j->now + seconds : j->failure;
    return over;
}

/* Repaired nodes are spares; as far as places are free, they take them. Returns how many do. */
static int nodes_join(job *j)
{
    int joined = 0;
    for (int i = 0; i < j->lost; i++) {
        if (j->back[i] > j->now)
            continue;
        j->back[i--] = j->back[--j->lost];
        j->spares++;
    }
    while (j->members < j->s->nodes && j->spares > 0) {
        j->members++;
        j->spares--;
        joined++;
    }
    return joined;
}

/* A failure has come: of which node, and what is left of the job's progress. True where all restart. */
static bool node_fails(job *j)
{
    const setting *s = j->s;
    bool restarts = !s->survive || (s->kept && random_unit() * j->members < 1) || j->members == 1;
    j->out.failures++;
    if (s->survive) {
        j->members--;
        if (j->lost < MOST_NODES)
            j->back[j->lost++] = j->now + s->repair;
    }
    if (restarts) {
        j->out.restarts++;
        j->unsaved = j->since = 0;
    }
    return restarts;
}

/* The job gets on again after a failure, and after those that come meanwhile. */
static void recover(job *j)
{
    bool restarts = node_fails(j);
    for (;;) {
        int joined = nodes_join(j);
        while (j->members == 0) { /* all are repaired at once */
            j->now += j->s->repair;
            joined = nodes_join(j);
        }
        failure_draw(j);
        if (pass(j, restarts ? j->s->restart : j->s->change + (joined ? j->s->join : 0)))
            return;
        restarts |= node_fails(j);
    }
}

/* The seconds of a step on the members that there are. */
static double step_now(const job *j)
{
    const setting *s = j->s;
    if (j->members == s->nodes)
        return s->step;
    double most = ceil((double)s->virtual_ranks * s->nodes / j->members);
    return s->step * most / s->virtual_ranks;
}

static outcome simulate(const setting *s, double seconds, uint64_t seed)
{
    static job j;
    random_state = seed;
    memset(&j, 0, sizeof(j));
    j.s = s;
    j.members = s->nodes;
    j.spares = s->spares;
    failure_draw(&j);
    while (j.now < seconds) {
        if (s->survive && j.members < s->nodes && nodes_join(&j)) {
            failure_draw(&j);
            if (!pass(&j, s->join)) {
                recover(&j);
                continue;
            }
        }
        double step = step_now(&j);
        if (!pass(&j, step)) {
            recover(&j);
            continue;
        }
        j.unsaved += s->step;
        j.since += step;
        if (s->interval <= 0 || j.since < s->interval)
            continue;
        if (pass(&j, s->save)) {
            j.kept += j.unsaved;
            j.unsaved = j.since = 0;
        } else {
            recover(&j);
        }
    }
    j.out.wall = j.now;
    j.out.useful = j.kept + j.unsaved;
    return j.out;
}

/* ---- closed forms ------------------------------------------------------------------------------------------------ */
/* Daly's time between two checkpoints, for a mean time between failures. */
static double best_interval(double save, double mtbf)
{
    if (save >= 2 * mtbf)
        return mtbf;
    double root = sqrt(save / (2 * mtbf));
    return sqrt(2 * save * mtbf) * (1 + root / 3 + root * root / 9) - save;
}

/* The share of useful time where `part` seconds of work, with `save` behind them, are made again until no failure comes
 * between, each failure taking a `restart` that another may interrupt: Daly's expectation, exact for exponentially
 * distributed times. */
static double expected_share(double part, double save, double restart, double mtbf)
{
    return part / (mtbf * exp(restart / mtbf) * expm1((part + save) / mtbf));
}

static bool check(const char *what, double share, double expected, double tolerance)
{
    bool good = fabs(share - expected) < tolerance;
    printf("%-52s simulated %.3f%%, by the formula %.3f%%%s\n", what, 100 * share, 100 * expected,
           good ? "" : ": WRONG");
    return good;
}

static double share_of(const outcome *o)
{
    return o->useful / o->wall;
}

/* Each within 0.3 percent, over some 40,000 failures. */
static bool check_all(uint64_t seed)
{
    bool good = true;
    const double hour = 3600;
    setting s = {.nodes = 10, .node_mtbf = 10 * 2 * hour, .step = 10, .save = 30, .restart = 300};
    s.interval = 10 * round(best_interval(s.save, 2 * hour) / 10); /* whole steps */
    outcome o = simulate(&s, 4e4 * 2 * hour, seed);
    good &= check("restart, a failure each 2 hours, the best interval", share_of(&o),
                  expected_share(s.interval, s.save, s.restart, 2 * hour), 3e-3);
    double young = 1 - sqrt(2 * s.save / (2 * hour)) - s.restart / (2 * hour); /* to the first order (Young, 1974) */
    good &= check("the same, Young's estimate", share_of(&o), young, 1e-2);
    setting half = s, twice = s;
    half.interval = 10 * round(s.interval / 20);
    twice.interval = 2 * s.interval;
    outcome shorter = simulate(&half, 4e4 * 2 * hour, seed), longer = simulate(&twice, 4e4 * 2 * hour, seed);
    bool best = share_of(&o) > share_of(&shorter) && share_of(&o) > share_of(&longer);
    printf("%-52s %.3f%% and %.3f%%%s\n", "half the interval, and twice", 100 * share_of(&shorter),
           100 * share_of(&longer), best ? "" : ": WRONG");
    good &= best;
    s.nodes = 1;
    s.node_mtbf = 600;
    s.interval = 10 * round(best_interval(s.save, 600) / 10);
    o = simulate(&s, 4e4 * 600, seed);
    good &= check("restart, a failure each 10 minutes", share_of(&o),
                  expected_share(s.interval, s.save, s.restart, 600), 3e-3);
    setting e = {.nodes = 100,
                 .spares = 100,
                 .node_mtbf = 100 * 600,
                 .step = 4,
                 .survive = true,
                 .change = 6,
                 .virtual_ranks = 1};
    o = simulate(&e, 4e4 * 600, seed);
    good &= check("survivors, a spare at once, each 10 minutes", share_of(&o), expected_share(4, 0, 6, 600), 3e-3);
    return good;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */
static const struct {
    double per_thousand_days;
    const char *of;
} rates[RATES] = {{3.8, "Llama 3"}, {6.5, "RSC, 16,384 GPUs"}, {23.7, "RSC, 1,024 GPUs"}};

static setting setting_of(int kind, int members, double node_mtbf)
{
    /* The model: 12 GB of state, steps of 10 s. A checkpoint of it holds the steps up for 30 s; a restart takes 5
     * minutes: finding the failure, starting all, reading the checkpoint. */
    setting s = {.nodes = members / NODE_MEMBERS,
                 .node_mtbf = node_mtbf,
                 .step = 10,
                 .save = 30,
                 .restart = 300,
                 .repair = 24 * 3600,
                 .virtual_ranks = 12};
    double mtbf = node_mtbf / s.nodes;
    if (kind == 0) {
        s.interval = best_interval(s.save, mtbf);
        return s;
    }
    /* A lost node is found after --node-timeout, 15 s; the change itself took 0.05 to 0.14 s among 4 members here
     * (bench/survive.c), of which there is more with their number, a millisecond for each as launchers meet (64 in 0.92
     * s). The state comes from another's memory at 3 GB/s, as over a network of 25 Gbit/s. */
    s.survive = true;
    s.kept = true;
    s.change = 15 + 0.14 + 1e-3 * members;
    s.join = 12 / 3.0;
    s.spares = kind == 1 ? 4 + s.nodes / 20 : 0;
    s.interval = best_interval(s.save, node_mtbf);
    return s;
}

int main(int argc, char **argv)
{
    static const int sizes[] = {100, 1000, 10000};
    double days = 1000;
    uint64_t seed = 1;
    for (int i = 1; i < argc; i += 2) {
        char *end = NULL;
        if (i + 1 < argc && strcmp(argv[i], "--days") == 0)
            days = strtod(argv[i + 1], &end);
        else if (i + 1 < argc && strcmp(argv[i], "--seed") == 0)
            seed = strtoull(argv[i + 1], &end, 10);
        if (!end || *end || !(days > 0) || days > 1e6) {
            fprintf(stderr, "usage: elastic_simulation [--days D] [--seed S]\n");
            return 2;
        }
    }
    if (!check_all(seed)) {
        fprintf(stderr, "elastic_simulation: it differs from what can be computed\n");
        return 1;
    }
    printf("\nuseful time over %g days; failures of a node of %d members in 1,000 days\n", days, NODE_MEMBERS);
    printf("%8s  %-24s %14s %10s %10s %10s\n", "members", "failures", "one every", "restart", "spares", "no spares");
    for (size_t n = 0; n < sizeof(sizes) / sizeof(*sizes); n++) {
        for (int r = 0; r < RATES; r++) {
            double node_mtbf = 1000 * 86400.0 / rates[r].per_thousand_days, share[KINDS];
            int members = sizes[n] / NODE_MEMBERS * NODE_MEMBERS;
            for (int kind = 0; kind < KINDS; kind++) {
                setting s = setting_of(kind, members, node_mtbf);
                outcome o = simulate(&s, days * 86400, seed);
                share[kind] = share_of(&o);
            }
            char rate[40];
            snprintf(rate, sizeof(rate), "%.1f (%s)", rates[r].per_thousand_days, rates[r].of);
            printf("%8d  %-24s %12.1f h %9.2f%% %9.2f%% %9.2f%%\n", members, rate,
                   node_mtbf / (members / NODE_MEMBERS) / 3600, 100 * share[0], 100 * share[1], 100 * share[2]);
        }
    }
    return 0;
}
