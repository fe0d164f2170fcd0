/*
 * run_etcd.h - `yoke run --rdzv etcd://...`: what the command line says of etcd. Layer: cli.
 */
#ifndef YOKE_CLI_RUN_RUN_ETCD_H
#define YOKE_CLI_RUN_RUN_ETCD_H

#include "cli/options.h"
#include "cli/run/run_job.h"

/* Reads --rdzv and --rdzv-conf into j->etcd and j->etcd_prefix; 0, or the exit code after a message. */
int run_etcd_check(const cli_verb *verb, job *j);

#endif
