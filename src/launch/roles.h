/*
 * roles.h - the programs that are one job: what each is called, how many processes it has, and what its failures come
 * to. Layer: launch.
 */
#ifndef YOKE_LAUNCH_ROLES_H
#define YOKE_LAUNCH_ROLES_H

#include <stdbool.h>

enum { YK__MOST_ROLES = 32, YK__ROLE_NAME = 64 };

/* The consequence of a failure of a process of the role. */
typedef enum yk__on_failure {
    YK__ON_FAILURE_END,      /* the job ends */
    YK__ON_FAILURE_CONTINUE, /* the others go on */
    YK__ON_FAILURE_RESTART   /* it is started again, as another incarnation of its rank */
} yk__on_failure;

typedef struct yk__role_rule {
    char name[YK__ROLE_NAME];
    yk__on_failure on_failure;
    int restarts; /* at most, of each process; -1: any number */
} yk__role_rule;

/* The processes of a role on one node. */
typedef struct yk__role_part {
    int local, first, world; /* here, the number in the role of the first of them, on all nodes */
} yk__role_part;

/* "end", "continue", "restart", "restart=3". False for anything else. */
bool yk__on_failure_parse(const char *text, yk__on_failure *on_failure, int *restarts);
/* The same as text. */
const char *yk__on_failure_format(const yk__role_rule *rule, char text[32]);
/* Seconds before a process that was started again `restarts` times is started once more: 0.1, doubled each time, 30 at
 * most. */
double yk__restart_delay(int restarts);

#endif
