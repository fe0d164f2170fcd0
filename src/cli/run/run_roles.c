/*
 * run_roles.c - the parts of the command line of `yoke run`. Layer: cli.
 *
 *   yoke run OPTIONS -n 1 --role ps ./server : -n 3 --role trainer ./trainer
 *
 * ":" separates parts only where the first has --role and an option follows a ":"; then each part needs a role of its
 * own. So a program may be given a ":" of its own. Ranks are given out node by node, and on a node part by part.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/core.h"
#include "cli/run/run_roles.h"
#include "cli/train/program_file.h"
#include "host/gpus.h"

/* ---- parts ------------------------------------------------------------------------------------------------------ */
/* The position of the ":" that ends the part, or argc. */
static int part_end(int argc, char **argv, int from)
{
    while (from < argc && strcmp(argv[from], ":") != 0)
        from++;
    return from;
}

/* True if this is a job of parts: with a role in the first, an option behind a ":" is enough, else one is --role. */
static bool has_parts(const job *j, int argc, char **argv)
{
    bool named = strcmp(j->role, "default") != 0;
    for (int at = part_end(argc, argv, 0); at + 1 < argc; at = part_end(argc, argv, at + 1)) {
        bool option = argv[at + 1][0] == '-';
        if (option && named)
            return true;
        for (int i = at + 1; option && i < part_end(argc, argv, at + 1); i++) {
            if (strcmp(argv[i], "--role") == 0 || strncmp(argv[i], "--role=", 7) == 0)
                return true;
        }
    }
    return false;
}

/* The options of a part that is not the first; those of the job stand in front. */
static int part_parse(const cli_verb *verb, run_role *role, int number, int argc, char **argv)
{
    const cli_option options[] = {{"nproc-per-node", "N", CLI_TEXT, &role->per_node, .help = "", .letter = 'n'},
                                  {"role", "NAME", CLI_TEXT, &role->name, .help = ""},
                                  {"on-failure", "WHAT", CLI_TEXT, &role->on_failure, .help = ""},
                                  {0}};
    const cli_verb part = {.name = verb->name, .summary = "", .options = options, .rest = verb->rest};
    int code;
    for (int i = 1; i < argc && argv[i][0] == '-' && strcmp(argv[i], "--") != 0; i++) {
        bool known = argv[i][1] == 'n';
        for (const cli_option *o = options; o->name && argv[i][1] == '-'; o++)
            known = known || strncmp(argv[i] + 2, o->name, strcspn(argv[i] + 2, "=")) == 0 ||
                    (o == options && strncmp(argv[i] + 2, "nproc_per_node", strcspn(argv[i] + 2, "=")) == 0) ||
                    (o == options + 2 && strncmp(argv[i] + 2, "on_failure", strcspn(argv[i] + 2, "=")) == 0);
        if (!known)
            return cli_usage_error(verb,
                                   "%s in part %d: a part has -n, --role and --on-failure; what holds for the job "
                                   "stands in front of the first part, once",
                                   argv[i], number);
        i += argv[i][1] == '-' ? !strchr(argv[i], '=') : argv[i][2] == '\0';
    }
    if (!cli_parse(&part, argc, argv, &code))
        return code;
    role->program = argv + optind;
    if (!role->name)
        return cli_usage_error(verb,
                               "part %d (%s) has no --role: each part of several has one, in front of its program",
                               number, role->program[0] ? role->program[0] : "without a program");
    return 0;
}

static int role_check(const cli_verb *verb, const job *j, run_role *role, int number)
{
    if (!role->program[0] || !*role->program[0])
        return j->role_count > 1 ? cli_usage_error(verb, "part %d (--role %s): no program to run", number, role->name)
                                 : cli_usage_error(verb, "no program to run");
    if (!*role->name || strlen(role->name) >= YK__ROLE_NAME)
        return cli_usage_error(verb, "--role %s: expected 1 to %d characters", *role->name ? role->name : "''",
                               YK__ROLE_NAME - 1);
    for (const char *c = role->name; *c && j->role_count > 1; c++) { /* they are in names of files and groups */
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-", *c))
            return cli_usage_error(verb, "--role %s: expected letters, digits, '_', '.' and '-'", role->name);
    }
    if (!yk__on_failure_parse(role->on_failure, &role->rule.on_failure, &role->rule.restarts))
        return cli_usage_error(
            verb, "--on-failure %s%s%s: expected end, continue, restart, or restart=N with N up to 1000000",
            role->on_failure, j->role_count > 1 ? " of role " : "", j->role_count > 1 ? role->name : "");
    snprintf(role->rule.name, sizeof(role->rule.name), "%s", role->name);
    for (const run_role *other = j->roles; other < role; other++) {
        if (strcmp(other->name, role->name) == 0)
            return cli_usage_error(verb, "--role %s: parts %d and %d have the same name, and each needs one of its own",
                                   role->name, (int)(other - j->roles) + 1, number);
    }
    return 0;
}

int run_roles_split(const cli_verb *verb, job *j, int argc, char **argv)
{
    static run_role roles[YK__MOST_ROLES];
    static char *arguments[1 << 16]; /* of all parts: the words, and a NULL behind each part's */
    int used = 0, code = 0;
    bool parts = has_parts(j, argc, argv);
    if (argc + 2 * YK__MOST_ROLES >= (int)(sizeof(arguments) / sizeof(*arguments)))
        parts = false;
    j->roles = roles;
    roles[0].name = j->role;
    roles[0].per_node = j->per_node;
    roles[0].on_failure = j->on_failure;
    roles[0].program = argv;
    j->role_count = 1;
    if (parts && strcmp(j->role, "default") == 0)
        return cli_usage_error(verb, "part 1 (%s) has no --role: each part of several has one, in front of its program",
                               argv[0]);
    for (int at = 0; parts && at <= argc;) {
        int end = part_end(argc, argv, at), first = used, number = at ? j->role_count + 1 : 1;
        if (number > YK__MOST_ROLES)
            return cli_usage_error(verb, "%d parts, and at most %d are possible", number, YK__MOST_ROLES);
        if (at)
            arguments[used++] = (char *)verb->name;
        for (; at < end; at++)
            arguments[used++] = argv[at];
        arguments[used++] = NULL;
        at++;
        run_role *role = &j->roles[number - 1];
        if (number == 1) {
            role->program = arguments;
            continue;
        }
        role->per_node = "1";
        role->on_failure = "end";
        j->role_count = number;
        if ((code = part_parse(verb, role, number, used - first - 1, arguments + first)))
            return code;
    }
    for (int r = 0; r < j->role_count && !code; r++)
        code = role_check(verb, j, &j->roles[r], r + 1);
    return code;
}

/* ---- numbers ---------------------------------------------------------------------------------------------------- */
/* A whole number in [1, most] and nothing else, or 0. */
int run_whole(const char *text, size_t length, int most)
{
    int value = 0;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9' || value > most)
            return 0;
        value = 10 * value + (text[i] - '0');
    }
    return value <= most ? value : 0;
}

/* GPUs that this process may use; where the driver does not tell, those that CUDA_VISIBLE_DEVICES lists, or all that
 * have a device file. */
static int count_gpus(void)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    int count = yk__gpus_count();
    if (count >= 0)
        return count;
    count = 0;
    if (visible) {
        for (const char *at = visible; *at && *at != '-'; at += strcspn(at, ","), at += *at == ',')
            count++;
        return count;
    }
    char path[32];
    do
        snprintf(path, sizeof(path), "/dev/nvidia%d", count);
    while (access(path, F_OK) == 0 && ++count < YK__MOST_LOCAL);
    return count;
}

/* Processes here: "4", "auto", "cpu", "gpu", or one number per node, of which some may be 0. */
static int role_count(const cli_verb *verb, const job *j, run_role *role)
{
    static int counts[YK__MOST_ROLES][MOST_NODES];
    const char *text = role->per_node;
    role->counts = counts[role - j->roles];
    int gpus = strcmp(text, "auto") == 0 || strcmp(text, "gpu") == 0 ? count_gpus() : 0, sum = 0;
    role->listed = 0;
    if (strcmp(text, "gpu") == 0 && !gpus)
        return cli_usage_error(verb, "--nproc-per-node gpu: no GPU is here");
    if (strcmp(text, "auto") == 0 || strcmp(text, "cpu") == 0 || gpus) {
        sum = role->counts[role->listed++] = gpus ? gpus : yk__cores();
    } else {
        const char *item = text;
        bool list = strchr(text, ',') != NULL;
        do {
            size_t length = strcspn(item, ",");
            bool keeper = !list && (j->node == 0 || j->is_witness) && j->least < j->node_count; /* without processes */
            bool none = (list || keeper) && length == 1 && *item == '0';
            int count = run_whole(item, length, YK__MOST_LOCAL);
            if ((!count && !none) || role->listed == MOST_NODES)
                return cli_usage_error(verb,
                                       "--nproc-per-node %s: expected a number from 1 to %d, one for each node with "
                                       "commas between (0 for a node without), auto, cpu or gpu; or 0 with "
                                       "--node-rank 0 and --nnodes MIN:MAX, for a node 0 that only keeps the list "
                                       "(another node: --witness HOST)",
                                       text, YK__MOST_LOCAL);
            role->counts[role->listed++] = count;
            sum += count;
            item += length;
        } while (*item++);
    }
    if (role->listed > 1 && role->listed != j->node_count)
        return cli_usage_error(
            verb, "--nproc-per-node %s%s%s: %d numbers for --nnodes %s; expected 1, or one for each node", text,
            j->role_count > 1 ? " of role " : "", j->role_count > 1 ? role->name : "", role->listed, j->nodes);
    if (!sum && role->listed > 1)
        return cli_usage_error(verb, "--nproc-per-node %s: role %s has no process on any node", text, role->name);
    return 0;
}

int run_roles_count(const cli_verb *verb, job *j)
{
    int code = 0;
    j->listed = 1;
    for (int r = 0; r < j->role_count && !code; r++) {
        code = role_count(verb, j, &j->roles[r]);
        j->listed = j->roles[r].listed > 1 ? j->roles[r].listed : j->listed;
    }
    for (int n = 0; n < j->listed && !code; n++) {
        j->counts[n] = 0;
        for (int r = 0; r < j->role_count; r++) {
            run_role *role = &j->roles[r];
            role->counts[n] = role->listed > 1 ? role->counts[n] : role->counts[0];
            j->counts[n] += role->counts[n];
        }
        if (j->counts[n] > YK__MOST_LOCAL)
            return cli_usage_error(verb, "%d processes on node %d, and at most %d are possible", j->counts[n], n,
                                   YK__MOST_LOCAL);
    }
    if (code)
        return code;
    if (!j->counts[0] && j->least == j->node_count) /* nodes that come and go meet in the store of the launcher */
        return cli_usage_error(verb,
                               "--nproc-per-node %s: node 0 has no process; rank 0 has to be there, since "
                               "MASTER_ADDR is its address",
                               j->roles[0].per_node);
    for (int r = 0; r < j->role_count; r++) { /* of several nodes: until the plan is there */
        run_role *role = &j->roles[r];
        role->listed = j->listed;
        role->part = (yk__role_part){.local = role->counts[0], .world = role->counts[0]};
    }
    j->local = j->world = j->counts[0];
    return 0;
}

int run_roles_find(job *j)
{
    int first = 0;
    for (int r = 0; r < j->role_count && j->world > 0; r++) { /* a node that only keeps the list needs none */
        run_role *role = &j->roles[r];
        role->cannot = program_find(*role->program, role->path, sizeof(role->path));
        first = first ? first : role->cannot;
    }
    return first;
}

run_role *run_role_of(job *j, int local_rank)
{
    run_role *role = j->roles;
    for (; local_rank >= role->part.local; role++)
        local_rank -= role->part.local;
    return role;
}
