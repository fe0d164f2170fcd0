/*
 * nccl_plugin.c - the plug-in yoke-nccl.so: its table and its description. Layer: comm/nccl.
 */
#include "comm/nccl/nccl_backend.h"

const yk__base_services *nccl_base;
const yk__comm_services *nccl_yoke;

static yk_status plugin_check(void *state)
{
    const nccl_group *g = state;
    return nccl_yoke->native->check(g->control);
}

static yk_status plugin_look(void *state)
{
    const nccl_group *g = state;
    return nccl_yoke->native->look(g->control);
}

static void abort_group(void *state, yk_status code, const char *cause)
{
    const nccl_group *g = state;
    nccl_yoke->native->abort_group(g->control, code, cause);
}

static const yk__comm_backend backend = {
    .name = "nccl",
    .join = nccl_join,
    .collective = {[YK__COMM_ALL_REDUCE] = nccl_host_collective,
                   [YK__COMM_REDUCE] = nccl_host_collective,
                   [YK__COMM_BROADCAST] = nccl_host_collective,
                   [YK__COMM_ALL_GATHER] = nccl_host_collective,
                   [YK__COMM_GATHER] = nccl_host_collective,
                   [YK__COMM_SCATTER] = nccl_host_collective,
                   [YK__COMM_REDUCE_SCATTER] = nccl_host_collective,
                   [YK__COMM_ALL_TO_ALL] = nccl_host_collective,
                   [YK__COMM_BARRIER] = nccl_host_collective},
    .mark = nccl_mark_queue,
    .queue_collective = nccl_queue_collective,
    .queue_replay = nccl_queue_replay,
    .queue_behind = nccl_queue_behind,
    .queue_until = nccl_queue_until,
    .queued_done = nccl_queued_done,
    .queued_free = nccl_queued_free,
    .post = nccl_post,
    .message_queued = nccl_message_queued,
    .wait = nccl_wait,
    .forget = nccl_forget,
    .check = plugin_check,
    .look = plugin_look,
    .abort_group = abort_group,
    .leave = nccl_leave,
};

static const void *start_plugin(const yk__base_services *base, const void *services)
{
    nccl_base = base;
    nccl_yoke = services;
    return &backend;
}

#ifndef YK__NCCL_BUILT_WITH
#error "the Makefile says which NCCL this is built with"
#endif

const yk__plugin yk__plugin_description = {
    .format = YK__PLUGIN_FORMAT,
    .name = "nccl",
    .version = YK_VERSION,
    .interface = YK__COMM_PLUGIN_INTERFACE,
    .sizes = YK__COMM_PLUGIN_SIZES,
    .built_with = YK__NCCL_BUILT_WITH,
    .start = start_plugin,
};
