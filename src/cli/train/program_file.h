/*
 * program_file.h - which file a program's name stands for, and why it may not run. Layer: cli.
 */
#ifndef YOKE_CLI_TRAIN_PROGRAM_FILE_H
#define YOKE_CLI_TRAIN_PROGRAM_FILE_H

#include "launch/exit_codes.h"
#include "launch/relay.h"

/* The file of a name: itself where it has a slash, otherwise the first in PATH that may be executed. 0, or an exit code
 * after a message to stderr. */
int program_find(const char *name, char *path, size_t size);

/* A message why execve gave this errno for a file that program_find found; returns the exit code. */
int program_cannot_run(const char *path, int error, relay_sink *err);

#endif
