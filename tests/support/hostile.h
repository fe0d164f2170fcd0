/*
 * hostile.h - shared by the tests of hostile peers: random bits that are the same in every run, misuse of a socket, and
 * counts of descriptors, maps and files before and after.
 */
#ifndef YOKE_TESTS_SUPPORT_HOSTILE_H
#define YOKE_TESTS_SUPPORT_HOSTILE_H

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/channel.h"
#include "tests/support/machine.h"

/* ---- random bits ------------------------------------------------------------------------------------------------- */
static _Thread_local uint64_t random_state = 20260731;

static inline uint64_t random_bits(void) /* splitmix64 */
{
    uint64_t z = (random_state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline size_t below(size_t bound)
{
    return (size_t)(random_bits() % bound);
}

static inline void fill(void *to, size_t size)
{
    for (size_t i = 0; i < size; i++)
        ((unsigned char *)to)[i] = (unsigned char)random_bits();
}

/* Another value than it had. */
static inline void change(unsigned char *byte)
{
    *byte ^= (unsigned char)(1 + below(255));
}

/* The number of messages of each kind: a soak asks for more. */
static inline int hostile_messages(int usual)
{
    const char *many = getenv("YOKE_HOSTILE");
    return many ? atoi(many) : usual;
}

/* ---- one peer ---------------------------------------------------------------------------------------------------- */
static inline int connect_to(int port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    if (connect(fd, (struct sockaddr *)&to, sizeof(to))) {
        close(fd);
        return -1;
    }
    /* A connection that the other side has dropped is reset: no port is left waiting. */
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
    return fd;
}

/* Sends the bytes in pieces. */
static inline void put(int fd, const void *bytes, size_t size)
{
    for (size_t done = 0; done < size;) {
        size_t piece = below(4) ? size - done : 1 + below(size - done);
        ssize_t n = send(fd, (const char *)bytes + done, piece, MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN && yk__wait_fd(fd, POLLOUT, yk__now() + 5))
            continue;
        if (n <= 0)
            return;
        done += (size_t)n;
    }
}

/* Takes what comes until the other side says no more, for a moment at most. */
static inline void hear(int fd)
{
    char bytes[4096];
    double until = yk__now() + 0.02;
    while (yk__wait_fd(fd, POLLIN, until) && recv(fd, bytes, sizeof(bytes), 0) > 0)
        ;
}

/* Somebody without the secret. `recorded`: what a member has once sent. */
static inline void stranger(int port, const yk__identity *identity, const unsigned char *recorded, size_t recorded_size)
{
    unsigned char bytes[1200];
    int fd = connect_to(port);
    if (fd < 0)
        return;
    yk__channel c;
    yk__channel_init(&c, identity, false, 1000); /* its hello is in `out` */
    size_t size = c.out.size;
    memcpy(bytes, c.out.data, size);
    switch (below(8)) {
    case 0: fill(bytes, size = below(sizeof(bytes))); break;
    case 1: /* a hello with some bytes changed */
        for (size_t i = 1 + below(4); i > 0; i--)
            change(&bytes[below(size)]);
        break;
    case 2: size = below(size); break;
    case 3: /* of another length */
        fill(bytes + 4, 4);
        fill(bytes + size, 400);
        size += 400;
        break;
    case 4: /* a hello, and a proof that is made up */
        put(fd, bytes, size);
        hear(fd);
        size = 4 + below(600);
        fill(bytes, size);
        bytes[0] = (unsigned char)(size - 4);
        bytes[1] = (unsigned char)((size - 4) >> 8);
        bytes[2] = bytes[3] = 0;
        break;
    case 5: /* the bytes that a member sent in another session */
        put(fd, recorded, recorded_size);
        size = 0;
        break;
    case 6: /* frames before any proof */
        put(fd, bytes, size);
        fill(bytes, size = YK__FRAME_HEADER + below(200));
        break;
    default: /* another protocol */ bytes[8] ^= (unsigned char)(1 + below(7)); break;
    }
    put(fd, bytes, size);
    if (below(3))
        hear(fd);
    yk__channel_clear(&c);
    close(fd);
}

/* A member that sends nonsense: messages of the types 1 to `most` and some above. `valid` is a payload of type `of`. */
static inline void member(int port, const yk__identity *identity, unsigned most, unsigned of, const void *valid,
                          size_t valid_size)
{
    static _Thread_local unsigned char payload[70000];
    int fd = connect_to(port);
    yk__channel c;
    if (fd < 0)
        return;
    yk__channel_init(&c, identity, false, sizeof(payload));
    fcntl(fd, F_SETFL, O_NONBLOCK);
    if (yk__channel_wait_open(&c, fd, yk__now() + patience(20)) == YK__REACHED) {
        fcntl(fd, F_SETFL, 0);
        unsigned type = 1 + (unsigned)below(most + 2);
        size_t size = below(below(4) ? 60 : sizeof(payload)), begin = c.out.size;
        fill(payload, size);
        switch (below(6)) {
        case 0: break; /* nonsense of a right length and tag */
        case 1: /* lengths and counts of the largest kind */ memset(payload, 0xff, size < 16 ? size : 16); break;
        case 2: /* a right message, cut off or with more after it */
            memcpy(payload, valid, valid_size);
            size = below(valid_size + 9);
            type = of;
            break;
        case 3: /* a right message, changed */
            memcpy(payload, valid, size = valid_size);
            change(&payload[below(size)]);
            type = of;
            break;
        case 4: /* no payload */ size = 0; break;
        default: /* several messages at once */
            for (size_t i = below(20); i > 0; i--)
                yk__channel_send(&c, 1 + (unsigned)below(most), payload, below(40));
            break;
        }
        yk__channel_send(&c, type, payload, size);
        unsigned char *out = c.out.data;
        size_t left = c.out.size;
        switch (below(5)) {
        case 0: /* damaged on its way */ change(&out[begin + below(left - begin)]); break;
        case 1: /* it ends in the middle */ left = begin + below(left - begin); break;
        case 2: /* twice */ put(fd, out + c.sent, left - c.sent); break;
        default: break;
        }
        put(fd, out + c.sent, left - c.sent);
        if (below(3))
            hear(fd);
    }
    yk__channel_clear(&c);
    close(fd);
}

/* ---- the belongings of a process --------------------------------------------------------------------------------- */
typedef struct belongings {
    int files, maps, temporary;
} belongings;

static inline int entries(const char *folder)
{
    int count = 0;
    DIR *dir = opendir(folder);
    while (dir && readdir(dir))
        count++;
    if (dir)
        closedir(dir);
    return count;
}

/* Maps of files and of shared memory: what malloc keeps is its own affair. `process` is a folder of /proc. */
static inline int shared_maps(const char *process)
{
    char path[100], line[1000];
    int count = 0;
    snprintf(path, sizeof(path), "%s/maps", process);
    FILE *maps = fopen(path, "r");
    while (maps && fgets(line, sizeof(line), maps))
        count += strchr(line, '/') != NULL;
    if (maps)
        fclose(maps);
    return count;
}

/* A new folder, which is $TMPDIR until leave_folder; gives what that was before. */
static inline char *enter_folder(char *template)
{
    char *before = getenv("TMPDIR") ? strdup(getenv("TMPDIR")) : NULL;
    if (!mkdtemp(template))
        perror(template);
    setenv("TMPDIR", template, 1);
    return before;
}

/* Removes the folder; true if nothing was left in it. */
static inline bool leave_folder(const char *folder, char *before)
{
    if (before)
        setenv("TMPDIR", before, 1);
    else
        unsetenv("TMPDIR");
    free(before);
    return rmdir(folder) == 0;
}

/* The belongings of this process, and the entries of a folder. */
static inline belongings count_all(const char *folder)
{
    return (belongings){open_descriptors(), shared_maps("/proc/self"), entries(folder)};
}

#define expect_same(before, folder)                                                                                    \
    do {                                                                                                               \
        belongings now = count_all(folder);                                                                            \
        for (double until = yk__now() + patience(20); now.files != (before)->files && yk__now() < until;               \
             now = count_all(folder))                                                                                  \
            usleep(20000);                                                                                             \
        assert_int_equal(now.files, (before)->files);                                                                  \
        assert_int_equal(now.maps, (before)->maps);                                                                    \
        assert_int_equal(now.temporary, (before)->temporary);                                                          \
    } while (0)

#endif
