/*
 * web_config.h - certificate and passwords of `yoke monitor`, as exporter-toolkit's web configuration has them.
 * Layer: cli.
 */
#ifndef YOKE_CLI_MONITOR_WEB_CONFIG_H
#define YOKE_CLI_MONITOR_WEB_CONFIG_H

#include "base/core.h"

typedef struct web_user {
    char *name, *hash; /* hash: bcrypt's, as "$2y$10$..." */
} web_user;

typedef struct web_config {
    char *cert_file, *key_file; /* paths; NULL: there is no TLS */
    char *cert, *key;           /* their contents */
    bool tls13;                 /* min_version: TLS13; else 1.2 */
    int n_users;
    web_user *users;
} web_config;

/*
 * Reads the file, and the certificate and the key that it names, by paths that are relative to its folder. It is YAML
 * of mappings in lines, two deep, with plain or quoted texts; what is anything else, or a setting that is not served
 * here, is an error (YK_ERR_FORMAT) with its line, so that nobody believes in a protection that is not there.
 */
yk_status web_config_read(const char *path, web_config *config);
void web_config_clear(web_config *config);

#endif
