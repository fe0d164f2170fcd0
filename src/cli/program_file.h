/*
 * program_file.h - which file a program's name stands for, and why it may not run. Layer: cli.
 */
#ifndef YOKE_CLI_PROGRAM_FILE_H
#define YOKE_CLI_PROGRAM_FILE_H

#include "cli/relay.h"

/* Exit codes of a program that is there but may not run, and of one that is not there, as shells have them. */
enum { EXIT_MAY_NOT_RUN = 126, EXIT_NOT_THERE = 127 };

/* The file of a name: itself where it has a slash, otherwise the first in PATH that may be executed. 0, or an exit code
 * after a message to stderr. */
int program_find(const char *name, char *path, size_t size);

/* A message why execve gave this errno for a file that program_find found; returns the exit code. */
int program_cannot_run(const char *path, int error, relay_sink *err);

#endif
