/*
 * monitor_http.h - the server of `yoke monitor`: libmicrohttpd, loaded when it is needed. Layer: cli.
 */
#ifndef YOKE_CLI_MONITOR_HTTP_H
#define YOKE_CLI_MONITOR_HTTP_H

#include <stdio.h>

#include "cli/monitor/password.h"

typedef struct http_server http_server;

/* Writes what stands at `path` to `body`; NULL: there is nothing. Returns its media type. One call at a time, on a
 * thread of the server's. */
typedef const char *(*http_page_fn)(void *argument, const char *path, FILE *body);

typedef struct http_options {
    http_page_fn page;
    void *argument;
    const web_config *config;  /* its certificate; without one there is no TLS */
    password_check *passwords; /* NULL: none is asked for */
    const char *hosts;         /* "NAME,NAME": names of this machine by which clients may call it */
} http_options;

/*
 * Serves GET and HEAD on a listening socket, which it takes over, failing or not. Only requests whose Host is a name of
 * this machine's loopback, or one of `hosts`, are answered, so that no page of another origin can have a browser read
 * it by a name of its own; with passwords, which a browser has for one origin alone, also an address in numbers. Who
 * has no password gets the same answer whatever was asked for. The options are kept. NULL and an error: the library is
 * not there (YK_ERR_NOT_FOUND), or it could not be started.
 */
http_server *http_server_start(int socket, const http_options *options);
void http_server_stop(http_server *server);

#endif
