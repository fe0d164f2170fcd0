/*
 * run_etcd.c - `yoke run --rdzv etcd://H1,H2,H3/PREFIX --rdzv-conf cacert=FILE,...`. Layer: cli.
 *
 * The names of --rdzv-conf are those that torchrun has for etcd; others of torchrun's mean nothing here, and any that
 * neither knows is an error. A password comes in a file, since other users see command lines.
 */
#include "cli/run/run_etcd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CONF_ROOM = 4096, PASSWORD_ROOM = 1024 };

/* The password in a file that nobody else can read; the end of its line is no part of it. */
static int read_password(const cli_verb *verb, const char *path, char password[PASSWORD_ROOM])
{
    struct stat about;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 && fstat(fd, &about) == 0 ? read(fd, password, PASSWORD_ROOM) : -1;
    int error = errno;
    if (fd >= 0)
        close(fd);
    if (got < 0)
        return cli_usage_error(verb, "--rdzv-conf password_file=%s: %s", path, strerror(error));
    if (about.st_mode & 077)
        return cli_usage_error(verb, "--rdzv-conf password_file=%s: others may read or change it (chmod 600)", path);
    while (got > 0 && (password[got - 1] == '\n' || password[got - 1] == '\r'))
        got--;
    if (got == 0 || got == PASSWORD_ROOM)
        return cli_usage_error(verb, "--rdzv-conf password_file=%s: expected a password of 1 to %d bytes", path,
                               PASSWORD_ROOM - 1);
    password[got] = '\0';
    return 0;
}

static int read_conf(const cli_verb *verb, job *j)
{
    static char text[CONF_ROOM], password[PASSWORD_ROOM];
    static const char *const torchruns[] = {
        "join_timeout", "last_call_timeout",   "close_timeout",          "timeout",          "read_timeout",
        "is_host",      "keep_alive_interval", "keep_alive_max_attempt", "heartbeat_timeout"};
    const char *password_file = NULL;
    struct {
        const char *name, **value;
    } const ours[] = {{"protocol", &j->etcd.protocol}, {"cacert", &j->etcd.ca}, {"cert", &j->etcd.certificate},
                      {"key", &j->etcd.key},           {"user", &j->etcd.user}, {"password_file", &password_file}};
    if (strlen(j->conf) >= sizeof(text))
        return cli_usage_error(verb, "--rdzv-conf: it has more than %d characters", CONF_ROOM - 1);
    snprintf(text, sizeof(text), "%s", j->conf);
    char *rest = NULL;
    for (char *one = strtok_r(text, ",", &rest); one; one = strtok_r(NULL, ",", &rest)) {
        char *value = strchr(one, '=');
        bool known = false;
        if (!value || !value[1])
            return cli_usage_error(verb, "--rdzv-conf %s: expected NAME=VALUE, or several with commas between", one);
        *value++ = '\0';
        for (size_t i = 0; i < sizeof(ours) / sizeof(*ours); i++) {
            if (strcmp(one, ours[i].name) != 0)
                continue;
            *ours[i].value = value;
            known = true;
        }
        for (size_t i = 0; i < sizeof(torchruns) / sizeof(*torchruns); i++)
            known |= strcmp(one, torchruns[i]) == 0;
        if (!known)
            return cli_usage_error(verb,
                                   "--rdzv-conf %s=%s: for etcd there are protocol, cacert, cert, key, user and "
                                   "password_file",
                                   one, value);
    }
    if (!j->etcd.user != !password_file)
        return cli_usage_error(verb, "--rdzv-conf: user and password_file go together");
    if (j->etcd.key && !j->etcd.certificate)
        return cli_usage_error(verb, "--rdzv-conf key=%s: it goes with cert=FILE, this node's certificate",
                               j->etcd.key);
    int code = password_file ? read_password(verb, password_file, password) : 0;
    j->etcd.password = password_file ? password : NULL;
    return code;
}

int run_etcd_check(const cli_verb *verb, job *j)
{
    static const char scheme[] = "etcd://";
    static char members[2048];
    if (!j->rdzv)
        return j->local_address && strcmp(j->local_address, "") == 0
                   ? cli_usage_error(verb, "--local-addr: it is empty")
                   : 0;
    const char *list = j->rdzv + sizeof(scheme) - 1;
    if (strncmp(j->rdzv, scheme, sizeof(scheme) - 1) != 0)
        return cli_usage_error(verb, "--rdzv %s: expected etcd://HOST[:PORT],.../PREFIX", j->rdzv);
    const char *slash = strchr(list, '/');
    size_t length = slash ? (size_t)(slash - list) : strlen(list);
    if (length >= sizeof(members))
        return cli_usage_error(verb, "--rdzv: the members have more than %zu characters", sizeof(members) - 1);
    snprintf(members, sizeof(members), "%.*s", (int)length, list);
    j->etcd_prefix = slash && slash[1] ? slash + 1 : "yoke";
    j->etcd.members = members;
    if (j->node_count == 1)
        return cli_usage_error(verb, "--rdzv: it is for several nodes, --nnodes says %s", j->nodes);
    if (j->master)
        return cli_usage_error(verb,
                               "--master-addr %s: with --rdzv the first node is found through etcd; the address at "
                               "which others reach this node is --local-addr",
                               j->master);
    int code = j->conf ? read_conf(verb, j) : 0;
    if (code)
        return code;
    yk__etcd *etcd = yk__etcd_open(&j->etcd);
    if (!etcd) {
        code = cli_usage_error(verb, "--rdzv: %s", yk_last_error()->message);
        yk_clear_error();
    }
    yk__etcd_close(etcd);
    return code;
}
