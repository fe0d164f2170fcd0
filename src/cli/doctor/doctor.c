/*
 * doctor.c - `yoke doctor`: what is here, whether a job's address answers, and whether the nodes of a job are alike.
 * Layer: cli.
 *
 * Started by `yoke run`, the first process of each node gives its facts to rank 0 over the job's store, and rank 0
 * prints one report for all.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <yoke/store.h>

#include "base/core.h"
#include "cli/doctor/doctor.h"
#include "cli/options.h"
#include "host/rank_info.h"

typedef struct doctor {
    const char *master, *secret_file, *job;
    double timeout;
    bool json;
    int64_t rank, local_rank, world; /* world 0: not in a job */
    json_t *nodes;                   /* array of {"node", "facts", "problems"} */
    json_t *steps;                   /* of --master, or NULL */
    json_t *problems;                /* of all */
} doctor;

/* ---- the nodes of a job ---------------------------------------------------------------------------------------- */
static yk_status find_rank(doctor *d)
{
    yk__rank_info info;
    yk_status status = yk__rank_info_read(&info);
    if (status || !info.launcher || !getenv("MASTER_ADDR"))
        return status;
    d->rank = info.rank;
    d->local_rank = info.local_rank;
    d->world = info.world_size;
    json_object_set_new(json_array_get(d->nodes, 0), "node", json_integer(info.node));
    return YK_OK;
}

static yk_status send_facts(doctor *d, yk_store *store)
{
    char key[32];
    snprintf(key, sizeof(key), "doctor/%lld", (long long)d->rank);
    char *text = d->local_rank == 0 ? json_dumps(json_array_get(d->nodes, 0), JSON_COMPACT) : NULL;
    yk_status status = yk_store_set(store, key, text ? text : "", text ? strlen(text) : 0);
    free(text);
    return status;
}

/* Rank 0 waits for all; the last that it needs is there before it ends the store. */
static yk_status gather_facts(doctor *d, yk_store *store)
{
    for (int64_t rank = 1; rank < d->world; rank++) {
        char key[32], *text = NULL;
        size_t size = 0;
        snprintf(key, sizeof(key), "doctor/%lld", (long long)rank);
        yk_status status = yk_store_get(store, key, (void **)&text, &size, d->timeout);
        if (status)
            return status;
        json_t *node = size ? json_loadb(text, size, 0, NULL) : NULL;
        free(text);
        if (json_is_object(node) && json_is_object(json_object_get(node, "facts")))
            json_array_append_new(d->nodes, node);
        else if (size)
            return yk__fail(YK_ERR_FORMAT, "the facts of rank %lld are no JSON object", (long long)rank);
    }
    return YK_OK;
}

static yk_status meet(doctor *d)
{
    int64_t port;
    if (d->world < 2)
        return YK_OK;
    if (yk__env_int("MASTER_PORT", 0, 1, 65535, &port))
        return yk__error_code();
    yk_scope scope = yk_scope_begin();
    yk_store *store = yk_tcp_store(YK_OPTIONS(yk_tcp_store_options, .host = getenv("MASTER_ADDR"), .port = (int)port,
                                              .is_server = d->rank == 0, .timeout = 60));
    yk_status status = !store ? yk__error_code() : d->rank ? send_facts(d, store) : gather_facts(d, store);
    yk_scope_end(scope);
    return status;
}

/* "nodes 0, 2" that have this value, or NULL for a node without it. */
static void name_nodes(const doctor *d, const char *group, const char *name, const char *value, char *text, size_t size)
{
    size_t used = 0, at, count = 0;
    json_t *node;
    *text = '\0';
    json_array_foreach(d->nodes, at, node)
    {
        const char *other =
            json_string_value(json_object_get(json_object_get(json_object_get(node, "facts"), group), name));
        if (strcmp(other ? other : "", value) != 0 || used + 24 > size)
            continue;
        used += (size_t)snprintf(text + used, size - used, "%s%lld", count++ ? ", " : "",
                                 json_integer_value(json_object_get(node, "node")));
    }
}

static const char *value_at(const doctor *d, size_t at, const char *group, const char *name)
{
    json_t *facts = json_object_get(json_array_get(d->nodes, at), "facts");
    const char *value = json_string_value(json_object_get(json_object_get(facts, group), name));
    return value ? value : "";
}

/* Reports facts that have to be the same on all nodes and are not. */
static void nodes_compare(doctor *d)
{
    const char *group, *name;
    json_t *values, *value, *facts = json_object_get(json_array_get(d->nodes, 0), "facts");
    json_object_foreach(facts, group, values)
    {
        bool libraries = strcmp(group, "libraries") == 0;
        json_object_foreach(values, name, value)
        {
            if (!libraries && strcmp(name, "version") != 0)
                continue;
            for (size_t at = 1; at < json_array_size(d->nodes); at++) {
                const char *own = json_string_value(value), *other = value_at(d, at, group, name);
                if (strcmp(own, other) == 0)
                    continue;
                char text[1400];
                snprintf(text, sizeof(text), "%s differs: %.500s on node 0, %.500s on node %lld",
                         libraries ? name : "yoke", own, *other ? other : "not here",
                         json_integer_value(json_object_get(json_array_get(d->nodes, at), "node")));
                json_array_append_new(d->problems, json_string(text));
                break;
            }
        }
    }
}

/* ---- printing -------------------------------------------------------------------------------------------------- */
/* One fact: its value where all nodes agree, otherwise each value and the nodes that have it. */
static void print_fact(const doctor *d, const char *group, const char *name)
{
    enum { COLUMN = 22 };
    bool first = true;
    for (size_t at = 0; at < json_array_size(d->nodes); at++) {
        const char *value = value_at(d, at, group, name);
        bool seen = false, differs = false;
        for (size_t k = 0; k < json_array_size(d->nodes); k++) {
            bool equal = strcmp(value_at(d, k, group, name), value) == 0;
            seen |= equal && k < at;
            differs |= !equal;
        }
        if (seen)
            continue;
        char who[600];
        name_nodes(d, group, name, value, who, sizeof(who));
        printf("  %-*s %s", COLUMN, first ? cli_plain(name) : "", *value ? cli_plain(value) : "not here");
        if (differs)
            printf("   (node%s %s)", strchr(who, ',') ? "s" : "", who);
        putchar('\n');
        first = false;
    }
}

/* Names of a group on any node, in the order in which they come. */
static json_t *names_of(const doctor *d, const char *group)
{
    json_t *names = json_object(), *node, *value;
    const char *name;
    size_t at;
    json_array_foreach(d->nodes, at, node)
    {
        json_object_foreach(json_object_get(json_object_get(node, "facts"), group), name, value)
            json_object_set_new(names, name, json_true());
    }
    return names;
}

static void print_text(const doctor *d)
{
    const char *group, *name;
    json_t *values, *value;
    size_t at;
    if (json_array_size(d->nodes) > 1)
        printf("%zu nodes, %lld processes\n", json_array_size(d->nodes), (long long)d->world);
    json_object_foreach(json_object_get(json_array_get(d->nodes, 0), "facts"), group, values)
    {
        printf("%s\n", group);
        json_t *names = names_of(d, group);
        json_object_foreach(names, name, value) print_fact(d, group, name);
        json_decref(names);
    }
    if (d->steps)
        printf("address %s\n", d->master);
    json_array_foreach(d->steps, at, value)
        printf("  %-10s %-6s %s\n", json_string_value(json_object_get(value, "step")),
               json_is_true(json_object_get(value, "ok")) ? "ok" : "FAILED",
               cli_plain(json_string_value(json_object_get(value, "detail"))));
    json_array_foreach(d->problems, at, value)
        printf("%s%s\n", at ? "         " : "problem: ", cli_plain(json_string_value(value)));
    if (!json_array_size(d->problems))
        printf("no problems found\n");
}

static void print_json(const doctor *d)
{
    json_t *all = json_object();
    if (json_array_size(d->nodes) > 1)
        json_object_set(all, "nodes", d->nodes);
    else
        json_object_update(all, json_object_get(json_array_get(d->nodes, 0), "facts"));
    if (d->steps)
        json_object_set_new(all, "master", json_pack("{s:s, s:O}", "address", d->master, "steps", d->steps));
    json_object_set(all, "problems", d->problems);
    json_dumpf(all, stdout, JSON_INDENT(2) | JSON_ENSURE_ASCII); /* no control characters */
    putchar('\n');
    json_decref(all);
}

static int examine(doctor *d)
{
    json_t *own = json_array();
    json_t *facts = doctor_facts(own);
    json_array_append_new(d->nodes, json_pack("{s:i, s:o, s:o}", "node", 0, "facts", facts, "problems", own));
    if (d->master) {
        d->steps = doctor_try_master(&(doctor_master){d->master, d->secret_file, d->job, d->timeout}, d->problems);
        if (!d->steps)
            return cli_not_found(yk__error_code());
    }
    if (find_rank(d) || meet(d))
        return cli_failed();
    if (d->rank > 0)
        return EXIT_DONE;
    size_t at, k;
    json_t *node, *text;
    bool several = json_array_size(d->nodes) > 1;
    json_array_foreach(d->nodes, at, node)
    {
        json_array_foreach(json_object_get(node, "problems"), k, text)
        {
            const char *value = json_string_value(text);
            if (several)
                json_array_append_new(
                    d->problems,
                    json_sprintf("node %lld: %s", json_integer_value(json_object_get(node, "node")), value));
            else
                json_array_append(d->problems, text);
        }
    }
    nodes_compare(d);
    if (d->json)
        print_json(d);
    else
        print_text(d);
    return json_array_size(d->problems) ? EXIT_FAILED : EXIT_DONE;
}

int cli_doctor(int argc, char **argv)
{
    doctor d = {.timeout = 10};
    const cli_option options[] = {
        {"master", "HOST:PORT", CLI_TEXT, &d.master, .help = "try this address of a job, step by step"},
        {"secret-file", "FILE", CLI_TEXT, &d.secret_file, .help = "with this secret",
         .default_text = "$YOKE_JOB_SECRET_FILE"},
        {"job-id", "NAME", CLI_TEXT, &d.job, .help = "and this name of the job",
         .default_text = "$YOKE_JOB_ID, or default"},
        {"timeout", "SECONDS", CLI_REAL, &d.timeout, .help = "for each step", .least = 0.1, .most = 3600},
        {"json", NULL, CLI_FLAG, &d.json, .help = "one JSON object instead of text"},
        {0}};
    const cli_verb verb = {
        .name = "yoke doctor",
        .summary = "Shows which libraries, devices and limits there are, and what is wrong with them.",
        .about = "With --master it tries the address where the processes or the launchers of a job meet: is the name\n"
                 "resolved, which interface leads there, does it answer, do version, job and secret agree. Under\n"
                 "`yoke run` it compares the nodes of the job. Exit code 1 says that a problem was found.\n",
        .examples = "  yoke doctor\n"
                    "  yoke doctor --master node0:29500 --secret-file job.secret\n"
                    "  yoke run --nnodes 2 --master-addr node0 --secret-file job.secret \\\n"
                    "      -- yoke doctor\n",
        .options = options,
    };
    int code;
    if (!cli_parse(&verb, argc, argv, &code))
        return code;
    if (d.secret_file && !d.master)
        return cli_usage_error(&verb, "--secret-file needs --master");
    d.nodes = json_array();
    d.problems = json_array();
    code = examine(&d);
    json_decref(d.nodes);
    json_decref(d.problems);
    json_decref(d.steps);
    return code;
}
