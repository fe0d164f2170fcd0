/*
 * monitor_http.c - the server of `yoke monitor`. Layer: cli.
 *
 * libmicrohttpd is not linked: no other verb needs it, and it need not be there to build. What is used of it is
 * declared here as its header has it (0.9.71 to 1.0). It reads requests, keeps slow clients from holding anybody up,
 * ends connections that are silent, and has one thread, on which pages are made.
 */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cli/monitor/monitor_http.h"
#include "net/socket.h"

/* Numbers of microhttpd.h. */
enum { USE_EPOLL_THREAD = 512 | 8, USE_TLS = 2, FEATURE_TLS = 2 };
enum {
    OPTION_END = 0,
    OPTION_LIMIT = 2,
    OPTION_TIMEOUT = 3,
    OPTION_KEY = 8,
    OPTION_CERT = 9,
    OPTION_PRIORITIES = 11,
    OPTION_SOCKET = 12
};
enum { HEADER_KIND = 1, MUST_FREE = 1 };
/* CONNECTIONS: those that come beside Prometheus and a few browsers. SILENCE: seconds after which one is closed. */
enum { CONNECTIONS = 128, SILENCE = 10 };

typedef struct daemon daemon;
typedef struct connection connection;
typedef struct response response;
typedef int (*handler)(void *argument, connection *c, const char *path, const char *method, const char *version,
                       const char *data, size_t *size, void **state);

static struct {
    daemon *(*start)(unsigned flags, uint16_t port, void *accept, void *accept_argument, handler handle, void *argument,
                     ...);
    void (*stop)(daemon *d);
    response *(*create)(size_t size, void *data, int mode);
    int (*header)(response *r, const char *name, const char *value);
    int (*queue)(connection *c, unsigned code, response *r);
    void (*destroy)(response *r);
    const char *(*value)(connection *c, int kind, const char *name);
    int (*has)(int feature);
} mhd;

struct http_server {
    daemon *daemon;
    const http_options *options;
};

static bool load_library(void)
{
    static const char *const names[] = {
        "MHD_start_daemon",   "MHD_stop_daemon",      "MHD_create_response_from_buffer", "MHD_add_response_header",
        "MHD_queue_response", "MHD_destroy_response", "MHD_lookup_connection_value",     "MHD_is_feature_supported"};
    void *symbols[sizeof(names) / sizeof(*names)], *library = dlopen("libmicrohttpd.so.12", RTLD_NOW | RTLD_LOCAL);
    _Static_assert(sizeof(symbols) == sizeof(mhd), "one function for each name");
    for (size_t i = 0; library && i < sizeof(names) / sizeof(*names); i++) {
        if (!(symbols[i] = dlsym(library, names[i])))
            return false;
    }
    if (library)
        memcpy(&mhd, symbols, sizeof(symbols)); /* functions' addresses, which dlsym gives as objects' */
    return library != NULL;
}

/* True if the word is one of "A,B", in letters of any case. */
static bool word_is_in(const char *word, const char *list)
{
    for (size_t size; list && *list; list += size + (list[size] == ',')) {
        size = strcspn(list, ",");
        if (strlen(word) == size && strncasecmp(word, list, size) == 0)
            return true;
    }
    return false;
}

/* A request's Host is to name this machine's loopback, in numbers or as localhost, or by a name that is known: the
 * owner of any other name decides what it stands for. HTTP/1.0 has no Host, and no browser speaks it. */
static bool host_is_known(const http_options *o, const char *text)
{
    char host[YK__HOST_SIZE];
    struct in_addr v4;
    struct in6_addr v6;
    int port;
    YK__QUESTION;
    if (!text)
        return true;
    if (yk__host_port_parse(text, 80, host, &port))
        return false;
    if (strcasecmp(host, "localhost") == 0 || word_is_in(host, o->hosts))
        return true;
    if (inet_pton(AF_INET, host, &v4) == 1)
        return o->passwords || ntohl(v4.s_addr) >> 24 == 127;
    return inet_pton(AF_INET6, host, &v6) == 1 && (o->passwords || IN6_IS_ADDR_LOOPBACK(&v6));
}

static int answer(connection *c, unsigned code, const char *type, char *body, size_t size)
{
    static const char *const headers[][2] = {
        {"X-Content-Type-Options", "nosniff"},
        {"Content-Security-Policy",
         "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
         "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
        {"Cross-Origin-Resource-Policy", "same-origin"},
        {"Referrer-Policy", "no-referrer"},
        {"Cache-Control", "no-store"},
    };
    response *r = body ? mhd.create(size, body, MUST_FREE) : NULL;
    if (!r) {
        free(body);
        return 0; /* closes the connection */
    }
    mhd.header(r, "Content-Type", type);
    if (code == 405)
        mhd.header(r, "Allow", "GET, HEAD");
    if (code == 401)
        mhd.header(r, "WWW-Authenticate", "Basic realm=\"monitor\", charset=\"UTF-8\"");
    for (size_t i = 0; i < sizeof(headers) / sizeof(*headers); i++)
        mhd.header(r, headers[i][0], headers[i][1]);
    int queued = mhd.queue(c, code, r);
    mhd.destroy(r);
    return queued;
}

static int answer_line(connection *c, unsigned code, const char *line)
{
    char *body = strdup(line);
    return answer(c, code, "text/plain; charset=utf-8", body, body ? strlen(body) : 0);
}

static int handle_request(void *argument, connection *c, const char *path, const char *method, const char *version,
                          const char *data, size_t *size, void **state)
{
    const http_server *server = argument;
    static char begun; /* its address marks a request whose head was seen */
    char *body = NULL;
    size_t length = 0;
    (void)version, (void)data;
    /* The first call is for the head; an answer there would close the connection. What a client sends behind it is left
     * out. */
    if (!*state || *size) {
        *state = &begun;
        *size = 0;
        return 1;
    }
    const http_options *o = server->options;
    if (o->passwords && !password_is_right(o->passwords, mhd.value(c, HEADER_KIND, "Authorization")))
        return answer_line(c, 401, "a name and a password are needed, and these are none\n");
    if (!host_is_known(o, mhd.value(c, HEADER_KIND, "Host")))
        return answer_line(c, 403,
                           o->passwords
                               ? "the Host of this request is no name of this machine that it was told (--hosts)\n"
                               : "the Host of this request is none of this machine's loopback names: localhost, "
                                 "127.0.0.1, [::1]\n");
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
        return answer_line(c, 405, "only GET and HEAD are answered\n");
    FILE *to = open_memstream(&body, &length);
    if (to)
        __fsetlocking(to, FSETLOCKING_BYCALLER); /* no other thread writes to it, and it is written in many pieces */
    const char *type = to ? o->page(o->argument, path, to) : NULL;
    if (!to || fclose(to)) {
        free(body);
        return answer_line(c, 500, "out of memory\n");
    }
    if (type)
        return answer(c, 200, type, body, length);
    free(body);
    return answer_line(c, 404, "there is /metrics, /metrics/yoke, /metrics/dcgm, /api/snapshot, /health and /\n");
}

/* NULL where it could not be started. */
static daemon *daemon_start(http_server *s, int socket)
{
    const web_config *c = s->options->config;
    if (!c || !c->cert)
        return mhd.start(USE_EPOLL_THREAD, 0, NULL, NULL, handle_request, s, OPTION_SOCKET, socket, OPTION_LIMIT,
                         (unsigned)CONNECTIONS, OPTION_TIMEOUT, (unsigned)SILENCE, OPTION_END);
    const char *versions = c->tls13 ? "NORMAL:-VERS-ALL:+VERS-TLS1.3" : "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2";
    return mhd.start(USE_EPOLL_THREAD | USE_TLS, 0, NULL, NULL, handle_request, s, OPTION_SOCKET, socket, OPTION_LIMIT,
                     (unsigned)CONNECTIONS, OPTION_TIMEOUT, (unsigned)SILENCE, OPTION_KEY, c->key, OPTION_CERT, c->cert,
                     OPTION_PRIORITIES, versions, OPTION_END);
}

http_server *http_server_start(int socket, const http_options *options)
{
    http_server *s = NULL;
    bool tls = options->config && options->config->cert;
    if (!load_library())
        yk__fail(YK_ERR_NOT_FOUND,
                 "the library libmicrohttpd is needed to serve, and is not there: Debian's package is "
                 "libmicrohttpd12 (apt-get install libmicrohttpd12)");
    else if (tls && mhd.has(FEATURE_TLS) != 1)
        yk__fail(
            YK_ERR_UNSUPPORTED,
            "the libmicrohttpd of this system was built without TLS (GnuTLS), which the web configuration asks for");
    else if ((s = yk__calloc(1, sizeof(*s)))) {
        *s = (http_server){.options = options};
        if ((s->daemon = daemon_start(s, socket)))
            return s; /* the socket is its own from here on */
        if (tls)
            yk__fail(
                YK_ERR_FORMAT,
                "libmicrohttpd could not be started with the certificate %s and the key %s: both are to be PEM, the "
                "key without a passphrase, and they are to belong to each other",
                options->config->cert_file, options->config->key_file);
        else
            yk__fail_errno("libmicrohttpd could not be started");
    }
    free(s);
    yk__socket_close(socket);
    return NULL;
}

void http_server_stop(http_server *s)
{
    mhd.stop(s->daemon);
    free(s);
}
