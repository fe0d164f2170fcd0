/*
 * socket.h - addresses, connecting, listening, and moving bytes with deadlines. Layer: net.
 *
 * Deadlines are times of yk__now. Functions that try something a caller may try again give the reason of a failure as
 * text in `why` and leave the error record alone; the others set the record.
 */
#ifndef YOKE_NET_SOCKET_H
#define YOKE_NET_SOCKET_H

#include <sys/socket.h>

#include "base/core.h"

/* ---- addresses (address.c) ------------------------------------------------------------------------------- */
/* A DNS name has at most 253 characters; an address with scope and port fits into 80 (address.c cuts it there); a
 * reason fits into an error message with what stands around it. */
enum { YK__HOST_SIZE = 256, YK__ADDRESS_TEXT = 80, YK__WHY_SIZE = 480 };

typedef struct yk__address {
    struct sockaddr_storage storage;
    socklen_t size;
} yk__address;

/* Splits "host:port", "[v6]:port", or a host alone when default_port is 0 or more. Errors quote the text. */
yk_status yk__host_port_parse(const char *text, int default_port, char host[YK__HOST_SIZE], int *port);
/* Up to `capacity` addresses of a name or number (brackets allowed), in the order to try them; 0 and `why` when there
 * is none by the deadline. This host's own name, where it stands for a loopback address in /etc/hosts, gives first the
 * address that other hosts see: Note [A host's own name]. */
size_t yk__resolve(const char *host, int port, double deadline, yk__address *addresses, size_t capacity,
                   char why[YK__WHY_SIZE]);
/* The same for a server of that name; `everywhere`: other hosts are to reach it, so where the name is this host's own
 * and stands for loopback the one address is that of all interfaces. */
size_t yk__resolve_to_listen(const char *host, int port, bool everywhere, double deadline, yk__address *addresses,
                             size_t capacity, char why[YK__WHY_SIZE]);
/* "127.0.0.1:80" or "[::1]:80"; the first without port: "127.0.0.1". Returns text. */
const char *yk__address_format(const yk__address *address, char text[YK__ADDRESS_TEXT]);
const char *yk__address_host(const yk__address *address, char text[YK__ADDRESS_TEXT]);
int yk__address_port(const yk__address *address);
/* "the connection from 10.0.0.2:4711 to 10.0.0.1:29500 damages what is sent over it: ..."; in front of the addresses
 * stand the names of both ends, "" or "the server at ". Returns text. */
const char *yk__damaged_connection(const char *sender, const yk__address *from, const char *receiver,
                                   const yk__address *to, const char *why, char text[YK__WHY_SIZE]);
bool yk__address_is_loopback(const yk__address *address);
bool yk__address_is_any(const yk__address *address); /* 0.0.0.0 or :: */
/* The address of all interfaces, for both families by one socket where the system has IPv6. */
void yk__address_any(int port, yk__address *address);
void yk__address_set_port(yk__address *address, int port);
bool yk__address_equal(const yk__address *a, const yk__address *b);
/* The address of this host from which packets to `peer` leave, port 0; asks the kernel's routes, sends nothing. */
bool yk__route_to(const yk__address *peer, yk__address *local, char why[YK__WHY_SIZE]);
/* The name of the interface that has this address, "" when none has. */
void yk__interface_of(const yk__address *address, char *name, size_t size);

/* ---- sockets (socket.c) ---------------------------------------------------------------------------------- */
/* All are non-blocking and closed on exec; those that are marked private close in the child of a fork as well, so
 * that a peer sees the end of the process that it is connected to. */
void yk__socket_private(int fd);
void yk__socket_close(int fd); /* marked or not; -1 is allowed */
/* Closes it so that the peer sees a reset, and not the orderly end that a process leaves behind which has ended. */
void yk__socket_reset(int fd);

typedef enum yk__reason {
    YK__REACHED,
    YK__NOT_RESOLVED,
    YK__REFUSED,
    YK__NO_ANSWER, /* until the deadline */
    YK__UNREACHABLE,
    YK__REJECTED,  /* it answered, and one side does not want the other: see handshake.h */
    YK__DAMAGED,   /* the bytes that came are not those that were sent: see frame.h */
    YK__EXHAUSTED, /* this process or host has no descriptor left: trying again does not help */
    YK__LOST       /* anything else, also after connecting: closed, reset */
} yk__reason;

/* A connected private socket with no delay and keep-alive, or -1, a reason and its text. */
int yk__connect(const yk__address *address, double deadline, yk__reason *reason, char why[YK__WHY_SIZE]);
/* The same in two steps, for many at once: a socket that becomes writable when it is connected, or cannot be; then
 * YK__REACHED, or the reason with its text (`late`: the time is over), after which the caller closes it. */
int yk__connect_begin(const yk__address *address, yk__reason *reason, char why[YK__WHY_SIZE]);
yk__reason yk__connect_end(int fd, bool late, char why[YK__WHY_SIZE]);
/* The settings of yk__connect for an accepted socket. */
void yk__socket_tune(int fd);
/* Sets for how long the system sends again bytes that a connected peer's system does not acknowledge, before it gives
 * the connection up, and for how long it probes a silent one: 25 s at least. A user's longer time-out must not end
 * earlier. */
void yk__socket_patience(int fd, double seconds);
/* A private listening socket on this one address; port 0 takes a free one; *bound is what it became. -1 and an error:
 * the port's holder where it can be seen, the host's addresses when it has not this one. */
int yk__listen(const yk__address *address, int backlog, yk__address *bound);
/* "'python3' (pid 123)" or "this process": the process that listens on that port and address, "" where /proc does not
 * show it. */
void yk__port_holder(const yk__address *address, char *text, size_t size);
/* A port on which nobody listens, for a server that another process is to start (port.c): no other call in any process
 * of this host gives the same until *held, a descriptor, is closed. 0 and an error when there is none; *held is -1
 * then. */
int yk__port_claim(int *held);

/* ---- the limit of open files (descriptors.c) ------------------------------------------------------------------ */
/* The soft limit becomes the hard one, or 65,536 where that is less. */
void yk__descriptors_raise(void);
/* The same; an error in the name of `what` unless `count` more can be opened. */
yk_status yk__descriptors_need(const char *what, int count) YK_MUST_CHECK;
/* The number of connections without a proof so far that a listener keeps; of one address half as many. */
int yk__unauthenticated_limit(void);
/* True if this number is one of the last, which no connection from outside may take. */
bool yk__descriptor_is_reserved(int fd);

/* Waits until the descriptor has `events` (POLLIN, POLLOUT) or an error: false when the deadline came first. */
bool yk__wait_fd(int fd, int events, double deadline);
/* Sends or receives, from data + *done on, as much as goes without waiting: YK__REACHED when *done is `size`,
 * YK__NO_ANSWER when the rest has to wait, YK__LOST; with the text. */
yk__reason yk__send_some(int fd, const void *data, size_t size, size_t *done, char why[YK__WHY_SIZE]);
yk__reason yk__receive_some(int fd, void *data, size_t size, size_t *done, char why[YK__WHY_SIZE]);
/* All or nothing: YK__REACHED, or YK__NO_ANSWER or YK__LOST with the text. */
yk__reason yk__send_all(int fd, const void *data, size_t size, double deadline, char why[YK__WHY_SIZE]);
yk__reason yk__receive_all(int fd, void *data, size_t size, double deadline, char why[YK__WHY_SIZE]);

#endif
