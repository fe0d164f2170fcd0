/*
 * variables.h - the environment of a process that is to be started, made beside this process's own. Layer: launch.
 */
#ifndef YOKE_LAUNCH_VARIABLES_H
#define YOKE_LAUNCH_VARIABLES_H

#include "base/core.h"

/* "NAME=value" texts, NULL behind the last. Zero memory is an empty list. A failure to grow sticks. */
typedef struct yk__variables {
    char **list;
    size_t count, room;
    bool failed;
} yk__variables;

/* This process's variables but for the `dropped` ones, a list of names that ends with NULL. */
void yk__variables_inherit(yk__variables *variables, const char *const *dropped);
/* As a yk__variable_fn: `variables` is a yk__variables. A name that is there already stays in front. */
void yk__variables_put(void *variables, const char *name, const char *value);
void yk__variables_put_number(yk__variables *variables, const char *name, int64_t number);
/* The list, for execve and yk__variables_free; NULL where any of it is missing for lack of memory: a process with half
 * of its variables would be another rank, or run without the user's settings. Leaves `variables` empty. */
char **yk__variables_take(yk__variables *variables);
void yk__variables_free(char **list); /* NULL is allowed */

#endif
