/*
 * snapshot_json.c - a snapshot as JSON, for programs. Layer: observe.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_line.h"
#include "observe/holders.h"
#include "observe/snapshot_json.h"

static json_t *text_json(const char *text)
{
    return yk__json_text(text, strlen(text));
}

static json_t *known_json(bool known, double value)
{
    return known && isfinite(value) ? yk__json_number(value, YK__JSON_DIGITS) : json_null();
}

/* A loss may be no number, which is then a text: null is for what is not known. */
static json_t *loss_json(const yk__run_rank *r)
{
    if (!r->alive || !r->losses || isfinite(r->loss))
        return known_json(r->alive && r->losses, r->loss);
    return json_string(isnan(r->loss) ? "NaN" : r->loss > 0 ? "Infinity" : "-Infinity");
}

static json_t *count_json(bool known, uint64_t value)
{
    return known ? json_integer((json_int_t)value) : json_null();
}

const yk__run_rank *yk__snapshot_rank(const yk__snapshot *s, int pid, const yk__run **run)
{
    for (int i = 0; i < s->runs.count; i++) {
        for (int k = 0; k < s->runs.all[i].n_ranks; k++) {
            const yk__run_rank *rank = &s->runs.all[i].ranks[k];
            if (rank->alive && rank->pid == pid) {
                *run = &s->runs.all[i];
                return rank;
            }
        }
    }
    return NULL;
}

static json_t *rank_json(const yk__run_rank *r)
{
    bool alive = r->alive;
    json_t *counters = json_object(), *times = json_object();
    for (unsigned i = 0; alive && i < YK__PHASES; i++) {
        if (r->phase_times[i] > 0)
            json_object_set_new(times, yk__phase_name(i), known_json(true, r->phase_times[i]));
    }
    for (int i = 0; i < r->n_counters; i++)
        json_object_set_new(counters, r->counters[i].name, json_integer((json_int_t)r->counters[i].value));
    return json_pack("{s:i,s:o,s:i,s:o,s:b,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "rank", r->rank,
                     "role", text_json(r->role), "incarnation", r->incarnation, "pid",
                     r->pid > 0 ? json_integer(r->pid) : json_null(), "alive", alive, "phase",
                     alive ? json_string(yk__phase_name(r->phase)) : json_null(), "phase_text",
                     alive && r->phase == YK__PHASE_OWN ? text_json(r->phase_text) : json_null(), "phase_s",
                     known_json(alive && r->phase_age >= 0, r->phase_age), "steps", count_json(alive, r->steps),
                     "step_s_ago", known_json(alive && r->step_age >= 0, r->step_age), "progress_s_ago",
                     known_json(alive && r->progress_age >= 0, r->progress_age), "waiting_s",
                     known_json(alive, r->waiting), "waited_s", known_json(alive, r->waited), "phase_times_s", times,
                     "samples", count_json(alive && r->samples, r->samples), "loss", loss_json(r), "resident_bytes",
                     known_json(alive && r->resident >= 0, r->resident), "cpu_s",
                     known_json(alive && r->cpu_seconds >= 0, r->cpu_seconds), "counters", counters);
}

/* Seconds that are not known, or not awaited, are null. */
static json_t *change_json(const yk__member_change *change)
{
    return json_pack("{s:o,s:s,s:o,s:o}", "time", yk__json_fixed(change->time, 3), "cause",
                     yk__change_name((yk__change)change->kind), "what", text_json(change->what), "step_done_s",
                     known_json(change->seconds >= 0, change->seconds));
}

static json_t *run_json(const yk__run *run)
{
    json_t *ranks = json_array(), *changes = json_array();
    for (int i = 0; i < run->n_changes; i++)
        json_array_append_new(changes, change_json(&run->changes[i]));
    for (int i = 0; i < run->n_ranks; i++)
        json_array_append_new(ranks, rank_json(&run->ranks[i]));
    return json_pack("{s:o,s:i,s:i,s:o,s:i,s:i,s:i,s:i,s:i,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "job", text_json(run->job),
                     "pid", run->launcher, "supervisor_pid", run->supervisor, "host", text_json(run->host), "node",
                     run->node, "nodes", run->nodes, "world_size", run->world, "local_ranks", run->local, "restarts",
                     run->restart, "began", yk__json_fixed(run->began, 3), "program", text_json(run->program),
                     "problem", run->readable ? json_null() : text_json(run->why), "view",
                     run->view ? json_integer((json_int_t)run->view) : json_null(), "members",
                     run->view ? json_integer((json_int_t)run->members) : json_null(), "changes", changes, "ranks",
                     ranks);
}

static json_t *known_text(const char *text)
{
    return *text ? text_json(text) : json_null();
}

/* A process that is `served` has no command line, nor a name where it is another user's: that may say as much. */
static json_t *holder_json(const yk__snapshot *s, const yk__gpu_holder *h, bool served)
{
    const yk__run *run = NULL;
    const yk__run_rank *rank = yk__snapshot_rank(s, (int)h->pid, &run);
    yk__holder facts;
    yk__holder_read((int)h->pid, &facts);
    bool hidden = served && !facts.own;
    return json_pack("{s:i,s:o,s:o,s:o,s:b,s:o,s:o,s:o,s:o,s:o}", "pid", (int)h->pid, "user", known_text(facts.user),
                     "name", hidden ? json_null() : known_text(h->name), "bytes", known_json(h->bytes >= 0, h->bytes),
                     "in_this_pid_namespace", facts.here, "job", rank ? text_json(run->job) : json_null(), "rank",
                     rank ? json_integer(rank->rank) : json_null(), "since",
                     facts.since > 0 ? yk__json_fixed(facts.since, 3) : json_null(), "command",
                     served ? json_null() : known_text(facts.command), "launcher_gone",
                     facts.supervisor ? json_boolean(facts.launcher_gone) : json_null());
}

static void process_add(json_t *list, int pid, const char *what, const char *job, json_t *rank)
{
    yk__holder h;
    yk__holder_read(pid, &h);
    if (!h.here) {
        json_decref(rank);
        return;
    }
    json_t *ports = json_array();
    for (int i = 0; i < h.n_ports; i++)
        json_array_append_new(ports, text_json(h.ports[i]));
    json_array_append_new(
        list, json_pack("{s:i,s:s,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "pid", pid, "what", what, "job",
                        text_json(job), "rank", rank, "user", known_text(h.user), "name", known_text(h.name), "command",
                        known_text(h.command), "since", h.since > 0 ? yk__json_fixed(h.since, 3) : json_null(),
                        "resident_bytes", known_json(h.resident >= 0, h.resident), "cores", known_text(h.cores),
                        "ports", ports, "launcher_gone", h.supervisor ? json_boolean(h.launcher_gone) : json_null()));
}

/* The processes of runs, and those that they have left. */
static json_t *processes_json(const yk__snapshot *s, const yk__leftovers *l)
{
    json_t *list = json_array();
    for (int i = 0; i < s->runs.count; i++) {
        const yk__run *run = &s->runs.all[i];
        process_add(list, run->launcher, "launcher", run->job, json_null());
        process_add(list, run->supervisor, "supervisor", run->job, json_null());
        for (int k = 0; k < run->n_ranks; k++) {
            if (run->ranks[k].alive)
                process_add(list, run->ranks[k].pid, "rank", run->job, json_integer(run->ranks[k].rank));
        }
    }
    for (int i = 0; i < l->n_orphans; i++)
        process_add(list, l->orphans[i].pid, "left over", l->orphans[i].job,
                    *l->orphans[i].rank ? json_integer(atoi(l->orphans[i].rank)) : json_null());
    return list;
}

static json_t *gpu_json(const yk__snapshot *s, int index, bool served)
{
    const yk__gpu_sample *gpu = &s->gpus[index];
    json_t *holders = json_array();
    for (int i = 0; i < gpu->gpu.n_holders; i++)
        json_array_append_new(holders, holder_json(s, &gpu->gpu.holders[i], served));
    return json_pack("{s:i,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "gpu", index, "name", text_json(gpu->gpu.name), "uuid",
                     gpu->uuid[0] ? text_json(gpu->uuid) : json_null(), "total_bytes",
                     known_json(gpu->known, gpu->gpu.total), "used_bytes", known_json(gpu->known, gpu->gpu.used),
                     "utilization_percent", known_json(true, gpu->values[YK__GPU_UTIL]), "power_w",
                     known_json(true, gpu->values[YK__GPU_POWER_USAGE]), "temperature_c",
                     known_json(true, gpu->values[YK__GPU_TEMP]), "holders", holders);
}

static json_t *machine_json(const yk__machine *m)
{
    return json_pack("{s:i,s:o,s:o,s:o}", "cores", m->cores, "busy_percent", known_json(true, m->busy), "total_bytes",
                     known_json(true, m->memory), "available_bytes", known_json(true, m->available));
}

json_t *yk__snapshot_json(const yk__snapshot *s, const yk__leftovers *l)
{
    json_t *runs = json_array(), *gpus = json_array(), *orphans = json_array(), *segments = json_array();
    for (int i = 0; i < s->runs.count; i++)
        json_array_append_new(runs, run_json(&s->runs.all[i]));
    for (int i = 0; i < s->n_gpus; i++)
        json_array_append_new(gpus, gpu_json(s, i, !l));
    for (int i = 0; l && i < l->n_orphans; i++)
        json_array_append_new(orphans, json_pack("{s:i,s:i,s:o,s:o,s:o}", "pid", l->orphans[i].pid, "supervisor_pid",
                                                 l->orphans[i].launcher, "job", text_json(l->orphans[i].job), "rank",
                                                 text_json(l->orphans[i].rank), "name", text_json(l->orphans[i].name)));
    for (int i = 0; l && i < l->n_segments; i++) {
        json_t *pids = json_array();
        for (int k = 0; k < l->segments[i].n_holders; k++)
            json_array_append_new(pids, json_integer(l->segments[i].holders[k]));
        json_array_append_new(segments, json_pack("{s:o,s:o,s:o,s:o}", "path", text_json(l->segments[i].path), "bytes",
                                                  yk__json_number(l->segments[i].bytes, YK__JSON_DIGITS), "user",
                                                  text_json(l->segments[i].user), "held_by", pids));
    }
    if (!l) {
        json_decref(orphans);
        json_decref(segments);
        orphans = json_null();
        segments = json_null();
    }
    return json_pack("{s:o,s:o,s:o,s:o,s:o,s:o,s:f,s:i,s:o}", "runs", runs, "gpus",
                     s->n_gpus < 0 ? (json_decref(gpus), json_null()) : gpus, "left_over", orphans, "segments",
                     segments, "processes", l ? processes_json(s, l) : json_null(), "machine",
                     machine_json(&s->machine), "taken_s", s->taken, "in_other_pid_namespaces", s->runs.elsewhere,
                     "problem", s->runs.problem[0] ? text_json(s->runs.problem) : json_null());
}
