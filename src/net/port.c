/*
 * port.c - a port for a server that another process is about to start. Layer: net.
 *
 * Between the choice and the server's own bind nobody may take the port. Connections and servers that ask for any port
 * get theirs from the system's range (32768 on, unless it was changed), so the port is chosen below it; and of the
 * programs that choose here only one at a time can have a port: the claim is a socket of the name "yoke-port-N" among
 * the abstract ones, which are as unique in a network namespace as its ports. The port itself stays unbound: a server
 * that does not set SO_REUSEADDR could not take it otherwise.
 */
#include <errno.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/un.h>
#include <unistd.h>

#include "net/socket.h"

/* A range above the well-known ports and below the ephemeral ones (see above). TRIES: a port may be in use or claimed;
 * after so many in a row it is an error. */
enum { FIRST = 12000, PORTS = 8000, TRIES = 200 };

static bool bound(const void *address, socklen_t size)
{
    const struct sockaddr *to = address;
    int off = 0, fd = socket(to->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool done = fd >= 0 &&
                (to->sa_family != AF_INET6 || setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) == 0) &&
                bind(fd, to, size) == 0;
    int number = errno;
    if (fd >= 0)
        close(fd);
    errno = number;
    return done;
}

/* True if a server could be started on this port, on all addresses of both kinds where there is IPv6; errno says why
 * not. */
static bool can_bind(int port)
{
    const struct sockaddr_in6 all = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    const struct sockaddr_in old = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    return bound(&all, sizeof(all)) || (errno != EADDRINUSE && bound(&old, sizeof(old)));
}

static int claim(int port)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int length = snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1, "yoke-port-%d", port);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
    if (fd < 0 || bind(fd, (const struct sockaddr *)&name, size) == 0)
        return fd;
    int number = errno;
    close(fd);
    errno = number;
    return -1;
}

int yk__port_claim(int *held)
{
    unsigned start = 0;
    *held = -1;
    errno = 0;
    if (getrandom(&start, sizeof(start), 0) == sizeof(start)) {
        for (unsigned i = 0; i < TRIES; i++) {
            int port = FIRST + (int)((start % PORTS + i) % PORTS);
            if ((*held = claim(port)) < 0)
                continue;
            if (can_bind(port))
                return port;
            int number = errno;
            close(*held);
            *held = -1;
            errno = number;
        }
    }
    yk__fail_errno("no free port among %d tried from %d to %d", TRIES, FIRST, FIRST + PORTS - 1);
    return 0;
}
