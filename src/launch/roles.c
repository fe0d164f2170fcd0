/*
 * roles.c - what the failures of a role's processes come to. Layer: launch.
 */
#include <stdio.h>
#include <string.h>

#include "launch/roles.h"

/* Any number; a larger one is taken for a mistake. */
enum { MOST_RESTARTS = 1000000 };

bool yk__on_failure_parse(const char *text, yk__on_failure *on_failure, int *restarts)
{
    static const char again[] = "restart=";
    *restarts = strcmp(text, "restart") == 0 ? -1 : 0;
    *on_failure = YK__ON_FAILURE_END;
    if (strcmp(text, "end") == 0)
        return true;
    if (strcmp(text, "continue") == 0) {
        *on_failure = YK__ON_FAILURE_CONTINUE;
        return true;
    }
    *on_failure = YK__ON_FAILURE_RESTART;
    if (*restarts < 0)
        return true;
    if (strncmp(text, again, sizeof(again) - 1) != 0)
        return false;
    const char *digits = text + sizeof(again) - 1;
    if (!*digits || strlen(digits) > 7 || strspn(digits, "0123456789") != strlen(digits))
        return false;
    for (; *digits; digits++)
        *restarts = 10 * *restarts + (*digits - '0');
    return *restarts <= MOST_RESTARTS;
}

const char *yk__on_failure_format(const yk__role_rule *rule, char text[32])
{
    static const char *const names[] = {"end", "continue", "restart"};
    if (rule->on_failure == YK__ON_FAILURE_RESTART && rule->restarts >= 0)
        snprintf(text, 32, "restart=%d", rule->restarts);
    else
        snprintf(text, 32, "%s", names[rule->on_failure]);
    return text;
}

double yk__restart_delay(int restarts)
{
    const double first = 0.1, most = 30;
    double delay = first;
    for (int i = 0; i < restarts && delay < most; i++)
        delay *= 2;
    return delay < most ? delay : most;
}
