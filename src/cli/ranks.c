/*
 * ranks.c - what the processes of one run agree on. Layer: cli.
 *
 * A signal reaches the processes at different steps, if all of them at all. Each step sums the loss over the ranks
 * anyway; how many ranks have caught which signal is summed with it, so all end after the same step.
 */
#include "cli/ranks.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <yoke/comm.h>

#include "base/core.h"
#include "cli/options.h"
#include "comm/agreement.h"
#include "host/rank_info.h"
#include "nn/module.h"

static const int signals[] = {SIGINT, SIGTERM, SIGUSR1}; /* if there are several, the first counts */
enum { SIGNALS = sizeof(signals) / sizeof(*signals), MOST_NUMBERS = 8 + SIGNALS };

yk_status ranks_join(ranks *r)
{
    *r = (ranks){.world = 1};
    yk__rank_info info;
    yk_status status = yk__rank_info_read(&info);
    if (status || !info.launcher) /* without one there is nobody to find, and no group is made */
        return status;
    status = yk_init_process_group(NULL);
    if (status)
        return status;
    return ranks_renew(r);
}

yk_status ranks_renew(ranks *r)
{
    yk_scope scope = yk_scope_begin();
    r->rank = yk_rank(NULL);
    r->world = yk_world_size(NULL);
    yk_tensor_release(r->numbers); /* its memory is that of the ranks there were */
    r->numbers = NULL;
    if (r->world > 1)
        r->numbers = yk_tensor_retain(
            yk_comm_alloc(1, (int64_t[]){MOST_NUMBERS}, YK_OPTIONS(yk_tensor_options, .dtype = YK_F64)));
    yk_scope_end(scope);
    return r->world > 1 && !r->numbers ? yk__error_code() : YK_OK;
}

void ranks_leave(ranks *r)
{
    yk_tensor_release(r->numbers);
    r->numbers = NULL;
    yk_destroy_process_group();
}

yk_status ranks_sum(ranks *r, double *numbers, int count)
{
    if (r->world == 1)
        return YK_OK;
    double all[MOST_NUMBERS] = {0};
    memcpy(all, numbers, (size_t)count * sizeof(*all));
    for (int i = 0; i < SIGNALS; i++)
        all[8 + i] = cli_interrupted() == signals[i] || r->stop == signals[i];
    memcpy(yk_tensor_data(r->numbers), all, sizeof(all));
    yk_status status = YK__HOST_TENSORS(yk_all_reduce(r->numbers, YK_OP_SUM, NULL));
    if (status)
        return status;
    memcpy(all, yk_tensor_data(r->numbers), sizeof(all));
    memcpy(numbers, all, (size_t)count * sizeof(*all));
    for (int i = 0; i < SIGNALS && !r->stop; i++)
        r->stop = all[8 + i] > 0 ? signals[i] : 0;
    return YK_OK;
}

yk_status ranks_sum_list(const ranks *r, double *numbers, int64_t count)
{
    if (r->world == 1)
        return YK_OK;
    yk_scope scope = yk_scope_begin();
    yk_tensor *all = yk_from_data(numbers, 1, &count, YK_OPTIONS(yk_tensor_options, .dtype = YK_F64));
    yk_status status = all ? YK__HOST_TENSORS(yk_all_reduce(all, YK_OP_SUM, NULL)) : yk__error_code();
    if (!status)
        status = yk_tensor_read(all, numbers, (size_t)count * sizeof(*numbers));
    yk_scope_end(scope);
    return status;
}

int ranks_stop(const ranks *r)
{
    return r->world == 1 && !r->stop ? cli_interrupted() : r->stop;
}

yk_status ranks_broadcast_buffers(const ranks *r, yk_module *m)
{
    yk_scope scope = yk_scope_begin();
    yk_status status = YK_OK;
    yk_parameters *parameters = r->world > 1 ? yk_module_parameters(m) : NULL;
    yk_state_dict *all = parameters ? yk_module_state_dict(m) : NULL;
    for (int64_t i = 0; !status && i < yk_state_dict_count(all); i++)
        if (yk_state_dict_find(yk__parameters_list(parameters), yk_state_dict_name(all, i)) < 0)
            status = YK__HOST_TENSORS(yk_broadcast(yk_state_dict_at(all, i), 0, NULL));
    yk_scope_end(scope);
    return status ? status : yk__error_code();
}

/* A rank's process, host and settings, as the others compare them. */
typedef struct rank_settings {
    int pid;
    char host[64], lines[RANKS_LINES];
} rank_settings;

static yk_status compare(int rank, const rank_settings *one, const rank_settings *first)
{
    const char *a = one->lines, *b = first->lines;
    while (*a && *a == *b) {
        const char *end = strchr(a, '\n');
        if (!end || strncmp(a, b, (size_t)(end + 1 - a)) != 0)
            break;
        b += end + 1 - a;
        a = end + 1;
    }
    if (strcmp(a, b) == 0)
        return YK_OK;
    return yk_set_error(YK_ERR_MISMATCH, "rank %d (host %s, pid %d) has %.*s, but rank 0 (host %s, pid %d) has %.*s",
                        rank, one->host, one->pid, (int)strcspn(a, "\n"), a, first->host, first->pid,
                        (int)strcspn(b, "\n"), b);
}

yk_status ranks_compare(const ranks *r, const char *lines)
{
    if (r->world == 1)
        return YK_OK;
    rank_settings own = {.pid = getpid()};
    if (gethostname(own.host, sizeof(own.host) - 1))
        snprintf(own.host, sizeof(own.host), "unknown");
    snprintf(own.lines, sizeof(own.lines), "%s", lines);
    rank_settings *all = yk__calloc((size_t)r->world, sizeof(*all));
    yk_status status = all ? yk__gather_bytes(&own, all, sizeof(own), NULL) : yk__error_code();
    for (int i = 1; i < r->world && !status; i++)
        status = compare(i, &all[i], &all[0]);
    free(all);
    return status;
}

/* True if the error is that of a link, and this rank the one that saw it break, or waited in vain. */
static bool saw_link_break(const ranks *r)
{
    char seen[48], waited[48];
    snprintf(seen, sizeof(seen), "(seen by rank %d)", r->rank);
    snprintf(waited, sizeof(waited), "pid %d) waited ", (int)getpid());
    return strstr(yk_last_error()->message, seen) || strstr(yk_last_error()->message, waited);
}

int ranks_failed(const ranks *r)
{
    yk_status status = yk__error_code();
    bool effect = r->world > 1 && (status == YK_ERR_CONNECTION || status == YK_ERR_STALLED) && !saw_link_break(r);
    if (r->world > 1)
        yk__error_prefix("rank %d", r->rank);
    int code = cli_failed();
    /* The launcher blames the process that ends first: that is to be the one whose end is all that went wrong here, or
     * the one that saw a link break. Once it asks this one to end, it has decided. */
    for (double until = yk__now() + 0.2; effect && !cli_interrupted() && yk__now() < until;)
        usleep(5000);
    return code;
}
