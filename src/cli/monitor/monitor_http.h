/*
 * monitor_http.h - the server of `yoke monitor`: libmicrohttpd, loaded when it is needed. Layer: cli.
 */
#ifndef YOKE_CLI_MONITOR_HTTP_H
#define YOKE_CLI_MONITOR_HTTP_H

#include <stdio.h>

#include "base/core.h"

typedef struct http_server http_server;

/* Writes what stands at `path` to `body`; NULL: there is nothing. Returns its media type. One call at a time, on a
 * thread of the server's. */
typedef const char *(*http_page_fn)(void *argument, const char *path, FILE *body);

/*
 * Serves GET and HEAD on a listening socket, which it takes over, failing or not. Only requests to a name of this
 * machine's loopback are answered, so that no page of another origin can have a browser read it by a name of its own.
 * NULL and an error: the library is not there (YK_ERR_NOT_FOUND), or it could not be started.
 */
http_server *http_server_start(int socket, http_page_fn page, void *argument);
void http_server_stop(http_server *server);

#endif
