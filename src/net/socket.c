/*
 * socket.c - connecting with a reason, listening on one interface, sending and receiving with deadlines. Layer: net.
 *
 * Invariant: a private socket is open in one process only. A child that is forked and runs on without exec would keep
 * its parent's connections open, and a peer would wait for a process that is gone; so the child closes them, from a
 * list that is locked while a process forks.
 */
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "net/socket.h"

enum {
    LEAST_PATIENCE = 25, /* seconds without an acknowledgement before a connection is given up */
    RTO_MAX_MS = 44      /* TCP_RTO_MAX_MS, which the C library's headers need not know */
};

/* ---- sockets that a fork does not copy ------------------------------------------------------------------------- */
static pthread_mutex_t private_lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned char *private_marks; /* one per descriptor */
static size_t private_size;

static void before_fork(void)
{
    pthread_mutex_lock(&private_lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&private_lock);
}

static void after_fork_child(void)
{
    for (size_t fd = 0; fd < private_size; fd++) {
        if (private_marks[fd]) {
            close((int)fd);
            private_marks[fd] = 0;
        }
    }
    pthread_mutex_unlock(&private_lock);
}

static void private_start(void)
{
    pthread_atfork(before_fork, after_fork, after_fork_child);
}

void yk__socket_private(int fd)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, private_start);
    size_t at = (size_t)fd;
    pthread_mutex_lock(&private_lock);
    if (at >= private_size) {
        size_t size = 2 * at + 64;
        unsigned char *marks = realloc(private_marks, size);
        if (marks) { /* without memory the socket is only not private */
            memset(marks + private_size, 0, size - private_size);
            private_marks = marks;
            private_size = size;
        }
    }
    if (at < private_size)
        private_marks[at] = 1;
    pthread_mutex_unlock(&private_lock);
}

void yk__socket_close(int fd)
{
    if (fd < 0)
        return;
    pthread_mutex_lock(&private_lock);
    if ((size_t)fd < private_size)
        private_marks[fd] = 0;
    close(fd);
    pthread_mutex_unlock(&private_lock);
}

void yk__socket_reset(int fd)
{
    const struct linger at_once = {.l_onoff = 1, .l_linger = 0};
    if (fd >= 0)
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    yk__socket_close(fd);
}

/* ---- waiting, sending, receiving --------------------------------------------------------------------------------- */
bool yk__wait_fd(int fd, int events, double deadline)
{
    for (;;) {
        double left = deadline - yk__now();
        /* Rounded up, so that what is waited for one last millisecond is not polled for many times. */
        int milliseconds = left <= 0 ? 0 : left > 1e6 ? 1000000000 : (int)(left * 1e3) + 1;
        struct pollfd entry = {.fd = fd, .events = (short)events};
        int ready = poll(&entry, 1, milliseconds);
        if (ready > 0)
            return true;
        if (ready == 0 && left <= 0)
            return false;
    }
}

/* errno is EPIPE afterwards where the other system has closed the connection in order. */
static yk__reason lost(bool ended, char why[YK__WHY_SIZE])
{
    int error = ended ? EPIPE : errno;
    bool gone = error == EPIPE || error == ECONNRESET;
    snprintf(why, YK__WHY_SIZE, gone ? "the connection was closed by the other side" : "the connection broke: %s",
             strerror(error));
    errno = error;
    return YK__LOST;
}

yk__reason yk__send_some(int fd, const void *data, size_t size, size_t *done, char why[YK__WHY_SIZE])
{
    while (*done < size) {
        ssize_t sent = send(fd, (const char *)data + *done, size - *done, MSG_NOSIGNAL);
        if (sent >= 0) {
            *done += (size_t)sent;
        } else if (errno == EAGAIN) {
            snprintf(why, YK__WHY_SIZE, "no answer: %zu bytes could not be sent in time", size - *done);
            return YK__NO_ANSWER;
        } else if (errno != EINTR) {
            return lost(false, why);
        }
    }
    return YK__REACHED;
}

yk__reason yk__receive_some(int fd, void *data, size_t size, size_t *done, char why[YK__WHY_SIZE])
{
    while (*done < size) {
        ssize_t got = recv(fd, (char *)data + *done, size - *done, 0);
        if (got > 0) {
            *done += (size_t)got;
        } else if (got < 0 && errno == EAGAIN) {
            snprintf(why, YK__WHY_SIZE, "no answer in time");
            return YK__NO_ANSWER;
        } else if (got == 0 || errno != EINTR) {
            return lost(got == 0, why);
        }
    }
    return YK__REACHED;
}

yk__reason yk__send_all(int fd, const void *data, size_t size, double deadline, char why[YK__WHY_SIZE])
{
    yk__reason reason;
    size_t done = 0;
    do
        reason = yk__send_some(fd, data, size, &done, why);
    while (reason == YK__NO_ANSWER && yk__wait_fd(fd, POLLOUT, deadline));
    return reason;
}

yk__reason yk__receive_all(int fd, void *data, size_t size, double deadline, char why[YK__WHY_SIZE])
{
    yk__reason reason;
    size_t done = 0;
    do
        reason = yk__receive_some(fd, data, size, &done, why);
    while (reason == YK__NO_ANSWER && yk__wait_fd(fd, POLLIN, deadline));
    return reason;
}

/* ---- connecting ------------------------------------------------------------------------------------------------ */
void yk__socket_tune(int fd)
{
    /* A peer that vanished without a word (power, cable) is noticed after 10 + 3 * 5 s, unless yk__socket_patience says
     * otherwise. */
    int on = 1, idle = 10, interval = 5, probes = 3;
    unsigned unacknowledged_ms = LEAST_PATIENCE * 1000;
    /* The pauses before packets are sent again double from 0.2 s on, up to two minutes: where many are lost, that is
     * all of the user's time. They end at two seconds where the kernel has this (Linux 6.15), and for a few packets,
     * which is what most messages are, six are of one length before they double. */
    int longest_ms = 2000;
    setsockopt(fd, IPPROTO_TCP, RTO_MAX_MS, &longest_ms, sizeof(longest_ms));
    setsockopt(fd, IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacknowledged_ms, sizeof(unacknowledged_ms));
}

void yk__socket_patience(int fd, double seconds)
{
    double longest = seconds < LEAST_PATIENCE ? LEAST_PATIENCE : seconds > 1e6 ? 1e6 : seconds;
    unsigned milliseconds = (unsigned)(longest * 1e3);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, sizeof(milliseconds));
}

static yk__reason explain(int number, char why[YK__WHY_SIZE])
{
    switch (number) {
    case ECONNREFUSED: snprintf(why, YK__WHY_SIZE, "connection refused: nothing listens there"); return YK__REFUSED;
    case ETIMEDOUT:
        snprintf(why, YK__WHY_SIZE, "no answer (is the host up, does a firewall drop the packets?)");
        return YK__NO_ANSWER;
    case EHOSTUNREACH:
    case ENETUNREACH:
    case ENETDOWN:
    case EHOSTDOWN: snprintf(why, YK__WHY_SIZE, "unreachable: %s", strerror(number)); return YK__UNREACHABLE;
    case EPERM:
    case EACCES:
        snprintf(why, YK__WHY_SIZE, "unreachable: %s (a firewall rule of this host?)", strerror(number));
        return YK__UNREACHABLE;
    case EMFILE:
    case ENFILE:
        snprintf(why, YK__WHY_SIZE, "cannot connect: %s (the limit of open files: ulimit -n)", strerror(number));
        return YK__EXHAUSTED;
    default: snprintf(why, YK__WHY_SIZE, "cannot connect: %s", strerror(number)); return YK__LOST;
    }
}

/* True if the socket is connected to itself, which happens where nothing listens on a port that the kernel may also
 * give to clients. */
static bool is_itself(int fd)
{
    yk__address near = {.size = sizeof(near.storage)}, far = {.size = sizeof(far.storage)};
    return getsockname(fd, (struct sockaddr *)&near.storage, &near.size) == 0 &&
           getpeername(fd, (struct sockaddr *)&far.storage, &far.size) == 0 && yk__address_equal(&near, &far);
}

int yk__connect_begin(const yk__address *address, yk__reason *reason, char why[YK__WHY_SIZE])
{
    int fd = socket(address->storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        *reason = explain(errno, why);
        return -1;
    }
    yk__socket_private(fd);
    if (connect(fd, (const struct sockaddr *)&address->storage, address->size) < 0 && errno != EINPROGRESS &&
        errno != EINTR) {
        *reason = explain(errno, why);
        yk__socket_close(fd);
        return -1;
    }
    *reason = YK__REACHED;
    return fd;
}

yk__reason yk__connect_end(int fd, bool late, char why[YK__WHY_SIZE])
{
    int number = 0;
    socklen_t size = sizeof(number);
    if (late)
        number = ETIMEDOUT;
    else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &number, &size) < 0)
        number = errno;
    if (!number && is_itself(fd))
        number = ECONNREFUSED;
    if (number)
        return explain(number, why);
    yk__socket_tune(fd);
    return YK__REACHED;
}

int yk__connect(const yk__address *address, double deadline, yk__reason *reason, char why[YK__WHY_SIZE])
{
    int fd = yk__connect_begin(address, reason, why);
    if (fd < 0)
        return -1;
    *reason = yk__connect_end(fd, !yk__wait_fd(fd, POLLOUT, deadline), why);
    if (*reason == YK__REACHED)
        return fd;
    yk__socket_close(fd);
    return -1;
}

/* ---- listening ------------------------------------------------------------------------------------------------- */
/* "lo 127.0.0.1, eth0 10.0.0.2" */
static void list_addresses(int family, char *text, size_t size)
{
    struct ifaddrs *all;
    *text = 0;
    if (getifaddrs(&all) < 0)
        return;
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        if (!i->ifa_addr || i->ifa_addr->sa_family != family)
            continue;
        yk__address address = {.size = family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6)};
        memcpy(&address.storage, i->ifa_addr, address.size);
        char host[YK__ADDRESS_TEXT];
        size_t used = strlen(text);
        snprintf(text + used, size - used, "%s%s %s", used ? ", " : "", i->ifa_name, yk__address_host(&address, host));
    }
    freeifaddrs(all);
}

static void listen_failed(const yk__address *address, int number)
{
    char text[YK__ADDRESS_TEXT], detail[300];
    yk__address_format(address, text);
    if (number == EADDRINUSE) {
        yk__port_holder(address, detail, sizeof(detail));
        yk__fail(YK_ERR_IO, "listen on %s: the port is in use%s%s", text, *detail ? " by " : "", detail);
    } else if (number == EADDRNOTAVAIL) {
        list_addresses(address->storage.ss_family, detail, sizeof(detail));
        yk__fail(YK_ERR_ARGUMENT, "listen on %s: no interface of this host has this address; there are: %s", text,
                 *detail ? detail : "none");
    } else {
        errno = number;
        yk__fail_errno("listen on %s", text);
    }
}

int yk__listen(const yk__address *address, int backlog, yk__address *bound)
{
    int fd = socket(address->storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int on = 1, off = 0;
    if (fd >= 0 && address->storage.ss_family == AF_INET6 && yk__address_is_any(address))
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)); /* whatever the system's default is */
    *bound = (yk__address){.size = sizeof(bound->storage)};
    if (fd >= 0)
        yk__socket_private(fd);
    /* Ports that only wait for stray packets of an earlier connection can be taken again. */
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
        bind(fd, (const struct sockaddr *)&address->storage, address->size) < 0 || listen(fd, backlog) < 0 ||
        getsockname(fd, (struct sockaddr *)&bound->storage, &bound->size) < 0) {
        int number = errno;
        yk__socket_close(fd);
        listen_failed(address, number);
        return -1;
    }
    return fd;
}
