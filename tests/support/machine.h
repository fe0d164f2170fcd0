/*
 * machine.h - facts that tests ask of the machine that they run on: its speed, /proc, the path of the test program, the
 * number of open descriptors, a free port.
 */
#ifndef YOKE_TESTS_SUPPORT_MACHINE_H
#define YOKE_TESTS_SUPPORT_MACHINE_H

#include <fcntl.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

/*
 * Seconds that something takes at most which takes far fewer than `quiet` on an idle machine: time-outs that a test
 * which passes does not reach, and what bounds the time of an error. scripts/run-test measures the machine.
 */
static inline double patience(double quiet)
{
    const char *slowness = getenv("YOKE_TEST_SLOWNESS");
    double times = slowness ? atof(slowness) : 0;
    return quiet * (times > 1 ? times : 1);
}

/*
 * The size of a test's work: `usual`, or less with a sanitizer, where each step takes three to ten times as long, and
 * what the rest of them compute is computed without one. With YOKE_TEST_WHOLE=1 (make nightly) it is `usual` there,
 * too.
 */
static inline int sanitized_size(int usual, int sanitized)
{
#ifdef YK__SANITIZED
    const char *whole = getenv("YOKE_TEST_WHOLE");
    return whole && *whole == '1' ? usual : sanitized;
#else
    (void)sanitized;
    return usual;
#endif
}

/* True if there is /proc; a chroot that debootstrap made may have none. */
static inline bool has_proc(void)
{
    return access("/proc/self/stat", F_OK) == 0;
}

/* The file of this program. */
static inline const char *own_program(void)
{
    static char program[4096];
    ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 1);
    program[n > 0 ? n : 0] = 0;
    if (n <= 0 && !realpath((const char *)getauxval(AT_EXECFN), program)) {
        perror("the path of the test program");
        exit(1);
    }
    return program;
}

static inline int open_descriptors(void)
{
    struct rlimit files;
    int count = 0,
        limit = getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < 65536 ? (int)files.rlim_cur : 65536;
    for (int fd = 0; fd < limit; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

/* A TCP port of loopback that was free a moment ago; ends the test program if there is none. */
static inline int free_port(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, size) || getsockname(fd, (struct sockaddr *)&at, &size)) {
        perror("a free port of loopback");
        exit(1);
    }
    close(fd);
    return ntohs(at.sin_port);
}

#endif
