/*
 * run_roles.h - the parts of the command line of `yoke run`, each of which is a role. Layer: cli.
 */
#ifndef YOKE_CLI_RUN_RUN_ROLES_H
#define YOKE_CLI_RUN_RUN_ROLES_H

#include "cli/options.h"
#include "cli/run/run_job.h"

/* All of these return 0, or an exit code after a message. */

/* The roles of the job, from what follows the options in front: the program, and where they are, further parts. */
int run_roles_split(const cli_verb *verb, job *j, int argc, char **argv);
/* Counts the processes of each role and each node; the number of nodes is known. */
int run_roles_count(const cli_verb *verb, job *j);
/* The files of the programs. Where several nodes have to be told, the job goes on. */
int run_roles_find(job *j);

/* A whole number in [1, most] and nothing else, or 0. */
int run_whole(const char *text, size_t length, int most);
/* The role of a process of this node, by its number there. */
run_role *run_role_of(job *j, int local_rank);

#endif
