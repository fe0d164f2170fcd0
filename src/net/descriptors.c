/*
 * descriptors.c - the limit of open files: raised at the start, checked before a job needs it, kept from
 * unauthenticated connections. Layer: net.
 *
 * Strangers (connections that have not proved anything) may take an eighth of the limit, and no connection may take the
 * last ones: a process that listens must always be able to open its data and write its checkpoint. The lowest free
 * number is what the system gives, so a number above all but the reserve says that the others are taken.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>

#include "net/socket.h"

/* ENOUGH: open files that a process asks the system for; taken for enough for any job, so that with so many nothing is
 * counted. Connections that have not proved that they know the secret may take an eighth of the limit, within the two
 * bounds: so that they can neither use it up nor be shut out by a low one. MOST_RESERVE: descriptors that servers leave
 * to the rest of the process, an eighth where the limit is low. */
enum { ENOUGH = 1 << 16, UNAUTHENTICATED_LEAST = 8, UNAUTHENTICATED_MOST = 4096, MOST_RESERVE = 64 };

static long limit_now(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur > (1 << 30))
        return 1 << 30;
    return (long)limit.rlim_cur;
}

void yk__descriptors_raise(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit))
        return;
    rlim_t wanted = limit.rlim_max < ENOUGH ? limit.rlim_max : ENOUGH;
    if (limit.rlim_cur >= wanted)
        return;
    limit.rlim_cur = wanted;
    (void)!setrlimit(RLIMIT_NOFILE, &limit);
}

yk_status yk__descriptors_need(const char *what, int count)
{
    yk__descriptors_raise();
    long limit = limit_now(), taken = 0;
    if (limit >= ENOUGH)
        return YK_OK;
    for (long fd = 0; fd < limit; fd++) { /* a system call each: no more than it takes */
        taken += fcntl((int)fd, F_GETFD) >= 0;
        if (fd + 1 - taken >= count)
            return YK_OK;
    }
    return yk__fail(YK_ERR_IO,
                    "%s: %d open files are needed, and %ld are left: the limit is %ld (ulimit -n), %ld are open", what,
                    count, limit - taken, limit, taken);
}

int yk__unauthenticated_limit(void)
{
    long most = limit_now() / 8;
    return most < UNAUTHENTICATED_LEAST  ? UNAUTHENTICATED_LEAST
           : most > UNAUTHENTICATED_MOST ? UNAUTHENTICATED_MOST
                                         : (int)most;
}

bool yk__descriptor_is_reserved(int fd)
{
    long limit = limit_now(), reserve = limit / 8 < MOST_RESERVE ? limit / 8 : MOST_RESERVE;
    return fd >= limit - reserve;
}
