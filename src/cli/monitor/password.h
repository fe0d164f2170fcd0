/*
 * password.h - passwords against their hashes of bcrypt, by the crypt(3) of libcrypt, which is loaded when it is
 * needed. Layer: cli.
 */
#ifndef YOKE_CLI_MONITOR_PASSWORD_H
#define YOKE_CLI_MONITOR_PASSWORD_H

#include "cli/monitor/web_config.h"

/* For one thread. */
typedef struct password_check password_check;
/* NULL and an error: there is no libcrypt (YK_ERR_NOT_FOUND), or none that knows bcrypt. The configuration has
 * users, stays the caller's, and longer than this. */
password_check *password_check_create(const web_config *config);
void password_check_free(password_check *check); /* NULL is allowed */
/* True if a header "Authorization" (NULL: there is none) has a name and a password that are right. It takes as long for
 * a name that is not there. Passwords that were right once take no time, and are right also while others are guessed,
 * of which a few a second are compared. */
bool password_is_right(password_check *check, const char *authorization);

#endif
