/*
 * doctor.h - the facts that `yoke doctor` finds out. Layer: cli.
 *
 * Facts are a JSON object of groups, in the order to show them: group -> name -> text. Problems are a JSON array of
 * texts. Whoever gets an object from here releases it.
 */
#ifndef YOKE_CLI_DOCTOR_DOCTOR_H
#define YOKE_CLI_DOCTOR_DOCTOR_H

#include <jansson.h>

/* This process's host, libraries, devices and limits; what is wrong with them is added to the problems. */
json_t *doctor_facts(json_t *problems);

typedef struct doctor_master {
    const char *address;     /* "host:port" */
    const char *secret_file; /* NULL: from the environment */
    const char *job;         /* NULL: from the environment, or "default" */
    double timeout;          /* seconds for each step */
} doctor_master;
/* Tries the address step by step: an array of {"step", "ok", "detail"}, the last of which may have failed. NULL after
 * an error (the address is none, the secret cannot be read). */
json_t *doctor_try_master(const doctor_master *what, json_t *problems);

#endif
