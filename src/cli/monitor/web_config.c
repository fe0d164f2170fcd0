/*
 * web_config.c - certificate and passwords of `yoke monitor`, as exporter-toolkit's web configuration has them.
 * Layer: cli.
 *
 * The reader knows the part of YAML that such files are written in, and refuses the rest: a line is empty, a comment,
 * or "key: value", whose indentation says whether it is a section or within one.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/monitor/web_config.h"
#include "cli/options.h"
#include "host/file.h"

enum { MOST_BYTES = 1 << 20, MOST_USERS = 1000, HASH_SIZE = 60 };

typedef struct reader {
    const char *path;
    int line;
    char section[64];
    int indentation; /* of the lines of the section; 0: none was seen yet */
    char seen[16][64];
    int n_seen;
    web_config *config;
} reader;

#define wrong(r, ...) wrong_at((r), __FILE__, __LINE__, __VA_ARGS__)
static yk_status wrong_at(const reader *r, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static yk_status wrong_at(const reader *r, const char *file, int line, const char *format, ...)
{
    char text[600];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    return yk__fail_at(YK_ERR_FORMAT, file, line, "%s:%d: %s", cli_plain(r->path), r->line, text);
}

/* ---- texts ------------------------------------------------------------------------------------------------------- */
/* Reads a plain or quoted text up to `end` (':' of a key, 0 of a value) or a comment into `to`; *at is behind it. */
static yk_status text_read(const reader *r, const char **at, char end, char *to, size_t size)
{
    const char *from = *at;
    size_t used = 0;
    char quote = *from == '\'' || *from == '"' ? *from++ : '\0';
    if (!quote && *from && strchr("{}[]&*!|>%@`,?", *from))
        return wrong(
            r, "'%c' begins a form of YAML that is not read here: write sections with a 'name: value' in each line",
            *from);
    for (; *from; from++) {
        if (quote && *from == quote && !(quote == '\'' && from[1] == quote))
            break;
        if (!quote && ((end && *from == end && (!from[1] || from[1] == ' ')) ||
                       (*from == '#' && used && from[-1] == ' ') || (!end && *from == ':' && from[1] == ' ')))
            break;
        if (quote == '"' && *from == '\\' && from[1] != '"' && from[1] != '\\')
            return wrong(r, "of escapes only \\\" and \\\\ are read here");
        from += (quote == '"' && *from == '\\') || (quote == '\'' && *from == '\'');
        if (used + 1 >= size)
            return wrong(r, "a text of more than %zu bytes", size - 1);
        to[used++] = *from;
    }
    if (quote && *from++ != quote)
        return wrong(r, "the %c of a text has no end", quote);
    while (!quote && used && to[used - 1] == ' ')
        used--;
    to[used] = '\0';
    *at = from + strspn(from, " ");
    return YK_OK;
}

/* ---- settings ---------------------------------------------------------------------------------------------------- */
/* Keeps a path, relative to the folder of the configuration. */
static yk_status path_keep(const reader *r, const char *value, char **to)
{
    const char *slash = strrchr(r->path, '/');
    int folder = *value == '/' || !slash ? 0 : (int)(slash + 1 - r->path);
    size_t size = (size_t)folder + strlen(value) + 1;
    *to = yk__calloc(1, size);
    if (!*to)
        return yk__error_code();
    snprintf(*to, size, "%.*s%s", folder, r->path, value);
    return YK_OK;
}

static yk_status tls_set(const reader *r, const char *key, const char *value)
{
    web_config *c = r->config;
    if (strcmp(key, "cert_file") == 0)
        return path_keep(r, value, &c->cert_file);
    if (strcmp(key, "key_file") == 0)
        return path_keep(r, value, &c->key_file);
    if (strcmp(key, "min_version") == 0 && (strcmp(value, "TLS12") == 0 || strcmp(value, "TLS13") == 0)) {
        c->tls13 = value[4] == '3';
        return YK_OK;
    }
    if (strcmp(key, "min_version") == 0)
        return wrong(r, "min_version: '%s' is not served: TLS12 or TLS13", cli_plain(value));
    return wrong(r, "tls_server_config: '%s' is not served here: there are cert_file, key_file and min_version",
                 cli_plain(key));
}

static yk_status user_add(const reader *r, const char *name, const char *hash)
{
    web_config *c = r->config;
    bool bcrypt = strlen(hash) == HASH_SIZE && strncmp(hash, "$2", 2) == 0 && strchr("aby", hash[2]) &&
                  hash[3] == '$' && strspn(hash + 4, "0123456789") == 2 && hash[6] == '$' &&
                  strspn(hash + 7, "./ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789") == HASH_SIZE - 7;
    if (!bcrypt)
        return wrong(
            r,
            "basic_auth_users: what '%s' has is no hash of bcrypt, as $2y$10$ and 53 characters: htpasswd -nBC "
            "10 %s (Debian: apache2-utils) makes one of a password",
            cli_plain(name), cli_plain(name));
    for (int i = 0; i < c->n_users; i++) {
        if (strcmp(c->users[i].name, name) == 0)
            return wrong(r, "basic_auth_users: '%s' is there twice", cli_plain(name));
    }
    if (!*name || strchr(name, ':') || c->n_users == MOST_USERS)
        return wrong(r, "basic_auth_users: a name is not empty and has no colon, and there are at most %d", MOST_USERS);
    web_user *more = yk__realloc(c->users, ((size_t)c->n_users + 1) * sizeof(*more));
    if (!more)
        return yk__error_code();
    c->users = more;
    more[c->n_users] = (web_user){yk__strdup(name), yk__strdup(hash)};
    c->n_users++;
    return more[c->n_users - 1].name && more[c->n_users - 1].hash ? YK_OK : yk__error_code();
}

/* A key of this section, or a section, is there once. */
static yk_status key_note(reader *r, const char *key)
{
    char name[64];
    snprintf(name, sizeof(name), "%.30s.%.30s", r->section, key);
    for (int i = 0; i < r->n_seen; i++) {
        if (strcmp(r->seen[i], name) == 0)
            return wrong(r, "'%s' is there twice", cli_plain(key));
    }
    if (r->n_seen < (int)(sizeof(r->seen) / sizeof(*r->seen)))
        memcpy(r->seen[r->n_seen++], name, sizeof(name));
    return YK_OK;
}

static yk_status section_begin(reader *r, const char *key, const char *value)
{
    static const char *const sections[] = {"tls_server_config", "basic_auth_users", "http_server_config"};
    r->section[0] = '\0';
    r->indentation = 0;
    if (key_note(r, key))
        return yk__error_code();
    if (*value)
        return wrong(r, "'%s' is a section: its settings stand in lines of their own below it, indented",
                     cli_plain(key));
    for (int i = 0; i < 3; i++) {
        if (strcmp(key, sections[i]) == 0)
            snprintf(r->section, sizeof(r->section), "%s", sections[i]);
    }
    const char *near = yk__nearest(key, sections, 3);
    return r->section[0] ? YK_OK
                         : wrong(r, "unknown section '%s'%s%s%s; there are tls_server_config and basic_auth_users",
                                 cli_plain(key), near ? ", did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static yk_status setting_take(reader *r, const char *key, const char *value)
{
    if (!r->section[0])
        return wrong(r, "'%s' is indented, and belongs to no section", cli_plain(key));
    if (!*value)
        return wrong(r, "'%s' has no value", cli_plain(key));
    if (strcmp(r->section, "basic_auth_users") == 0)
        return user_add(r, key, value);
    if (key_note(r, key))
        return yk__error_code();
    if (strcmp(r->section, "tls_server_config") == 0)
        return tls_set(r, key, value);
    /* HTTP 2 is not spoken here, whatever the file says, and that takes nothing from anybody's safety. */
    return strcmp(key, "http2") == 0
               ? YK_OK
               : wrong(r, "http_server_config: '%s' is not served here: there is http2", cli_plain(key));
}

/* ---- lines ------------------------------------------------------------------------------------------------------- */
static yk_status line_take(reader *r, char *line)
{
    char key[300], value[2000];
    size_t size = strlen(line), indentation = strspn(line, " ");
    while (size && strchr(" \r", line[size - 1]))
        line[--size] = '\0';
    const char *at = line + indentation;
    if (!*at || *at == '#' || (r->line == 1 && strcmp(line, "---") == 0))
        return YK_OK;
    if (strchr(line, '\t'))
        return wrong(r, "there is a tab in it: YAML is indented by spaces");
    if (text_read(r, &at, ':', key, sizeof(key)))
        return yk__error_code();
    if (*at != ':')
        return wrong(r, "expected 'name: value', or 'section:'");
    at++;
    at += strspn(at, " ");
    value[0] = '\0';
    if (*at && *at != '#' && text_read(r, &at, '\0', value, sizeof(value)))
        return yk__error_code();
    if (*at && *at != '#')
        return wrong(r, "'%s': there is something behind its value", cli_plain(key));
    if (!indentation)
        return section_begin(r, key, value);
    if (r->indentation && (int)indentation != r->indentation)
        return wrong(r, "'%s' is indented by %zu spaces, and the lines of this section above it by %d", cli_plain(key),
                     indentation, r->indentation);
    r->indentation = (int)indentation;
    return setting_take(r, key, value);
}

/* The contents of a file as a text. */
static yk_status contents_read(const char *path, char **text)
{
    unsigned char *data;
    size_t size;
    if (yk__file_read(path, MOST_BYTES, &data, &size))
        return yk__error_code();
    *text = yk__calloc(1, size + 1);
    if (*text)
        memcpy(*text, data, size);
    free(data);
    return *text ? YK_OK : yk__error_code();
}

static yk_status config_complete(const char *path, web_config *c)
{
    if (!c->cert_file != !c->key_file)
        return yk__fail(YK_ERR_FORMAT, "%s: tls_server_config has %s and no %s", cli_plain(path),
                        c->cert_file ? "cert_file" : "key_file", c->cert_file ? "key_file" : "cert_file");
    if (!c->cert_file)
        return YK_OK;
    if (contents_read(c->cert_file, &c->cert))
        return yk__error_code();
    return contents_read(c->key_file, &c->key);
}

yk_status web_config_read(const char *path, web_config *config)
{
    char *text;
    *config = (web_config){0};
    if (contents_read(path, &text))
        return yk__error_code();
    reader r = {.path = path, .config = config};
    yk_status status = YK_OK;
    for (char *line = text, *next; line && !status; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        r.line++;
        status = line_take(&r, line);
    }
    free(text);
    status = status ? status : config_complete(path, config);
    if (status)
        web_config_clear(config);
    return status;
}

/* Forgets a text that is nobody's business. */
static void secret_free(char *text)
{
    if (text)
        explicit_bzero(text, strlen(text));
    free(text);
}

void web_config_clear(web_config *c)
{
    for (int i = 0; i < c->n_users; i++) {
        free(c->users[i].name);
        secret_free(c->users[i].hash);
    }
    free(c->users);
    free(c->cert_file);
    free(c->key_file);
    free(c->cert);
    secret_free(c->key);
    *c = (web_config){0};
}
