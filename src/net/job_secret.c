/*
 * job_secret.c - the identity of a process's job: the secret, from a file or an inherited descriptor, and the job's
 * name. Layer: net.
 *
 * A secret never comes on a command line or in a variable, where other users and crash reports see it. A descriptor
 * that can be sought (a memfd, a file) is read from its start each time, so children find it whole; a pipe can be read
 * once, and what it gave is kept.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sodium.h>

#include "host/rank_info.h"
#include "net/handshake.h"

/* Reads to the end; -1 and errno, or the size, YK__SECRET_MOST + 1 for more than a secret may have. */
static ssize_t read_secret(int fd, unsigned char *bytes, bool seekable)
{
    size_t have = 0;
    while (have <= YK__SECRET_MOST) {
        ssize_t got = seekable ? pread(fd, bytes + have, YK__SECRET_MOST + 1 - have, (off_t)have)
                               : read(fd, bytes + have, YK__SECRET_MOST + 1 - have);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -1;
        if (got == 0)
            break;
        have += (size_t)got;
    }
    return (ssize_t)have;
}

static const char *too_short(ssize_t size)
{
    return size == 0 ? "is empty" : "has fewer than 16 bytes, which can be guessed: make one with openssl rand -hex 32";
}

/* The length without the line end that an editor, echo, or a system with other line ends has put after the secret. */
static ssize_t without_line_end(const unsigned char *bytes, ssize_t got)
{
    got -= got > 0 && bytes[got - 1] == '\n';
    return got - (got > 0 && bytes[got - 1] == '\r');
}

static bool is_blank(const unsigned char *bytes, ssize_t got)
{
    for (ssize_t i = 0; i < got; i++)
        if (!memchr(" \t\r\n\v\f", bytes[i], 7)) /* the terminating 0 too */
            return false;
    return true;
}

static yk_status check_size(const char *where, const unsigned char *bytes, ssize_t got, size_t *size)
{
    if (got < 0)
        return yk__fail_errno("%s", where);
    if (got > YK__SECRET_MOST)
        return yk__fail(YK_ERR_FORMAT, "%s: the job secret is longer than %d bytes", where, YK__SECRET_MOST);
    if (got > 0 && got <= YK__SECRET_MOST && is_blank(bytes, got))
        return yk__fail(
            YK_ERR_FORMAT,
            "%s: the job secret has nothing but blanks and ends of lines, which anybody guesses: make one with "
            "openssl rand -hex 32",
            where);
    got = without_line_end(bytes, got);
    if (got < YK__SECRET_LEAST)
        return yk__fail(YK_ERR_FORMAT, "%s: the job secret %s", where, too_short(got));
    *size = (size_t)got;
    return YK_OK;
}

yk_status yk__secret_read(int fd, const char *where, unsigned char bytes[YK__SECRET_ROOM], size_t *size)
{
    return check_size(where, bytes, read_secret(fd, bytes, true), size);
}

const char *yk__secret_file_problem(const struct stat *about, size_t size)
{
    if (about->st_uid != geteuid())
        return "another user owns it: make one of your own (openssl rand -hex 32)";
    if (about->st_mode & 077)
        return "others may read or change it (chmod 600)";
    return size < YK__SECRET_LEAST ? too_short((ssize_t)size) : NULL;
}

static yk_status secret_of_file(const char *name, const char *path, unsigned char *bytes, size_t *size)
{
    char where[300];
    snprintf(where, sizeof(where), "%s%.250s", name, path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat info;
    if (fd < 0)
        return yk__fail_errno("%s", where);
    const char *problem = fstat(fd, &info) == 0 ? yk__secret_file_problem(&info, YK__SECRET_LEAST) : strerror(errno);
    if (problem) {
        close(fd);
        return yk__fail(YK_ERR_IO, "%s: %s", where, problem);
    }
    yk_status status = yk__secret_read(fd, where, bytes, size);
    close(fd);
    return status;
}

static struct {
    pthread_mutex_t lock;
    int fd; /* the pipe that `bytes` came from, -1: none */
    size_t size;
    unsigned char bytes[YK__SECRET_ROOM];
} piped = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1};

static yk_status secret_of_descriptor(unsigned char *bytes, size_t *size)
{
    int64_t fd;
    yk_status status = yk__env_int("YOKE_JOB_SECRET_FD", -1, 0, 1 << 20, &fd);
    if (status)
        return status;
    char where[60];
    snprintf(where, sizeof(where), "YOKE_JOB_SECRET_FD=%d", (int)fd);
    bool seekable = lseek((int)fd, 0, SEEK_CUR) >= 0;
    if (seekable || errno != ESPIPE)
        return yk__secret_read((int)fd, where, bytes, size);
    pthread_mutex_lock(&piped.lock);
    if (piped.fd != fd) {
        status = check_size(where, piped.bytes, read_secret((int)fd, piped.bytes, false), &piped.size);
        if (!status)
            piped.fd = (int)fd;
    }
    if (!status) {
        memcpy(bytes, piped.bytes, piped.size);
        *size = piped.size;
    }
    pthread_mutex_unlock(&piped.lock);
    return status;
}

static const char *variable(const char *name)
{
    const char *text = getenv(name);
    return text && *text ? text : NULL;
}

/* The user's own secret, for jobs of a cluster's launcher, which hands none to its processes: one file for all jobs.
 * False where there is none: then the secret is empty, and connections over a network are refused, with what to do. */
static bool find_users_secret(char *path, size_t size)
{
    YK__QUESTION;
    yk__rank_info info;
    const char *folder = variable("HOME");
    return folder && !yk__rank_info_read(&info) && info.shares_home &&
           (size_t)snprintf(path, size, "%s/" YK__USERS_SECRET, folder) < size && !access(path, F_OK);
}

/* The job of a launcher that has a name for it: ranks of two jobs with one secret, whose ports are the same by chance,
 * tell each other apart. */
static const char *launchers_job(void)
{
    YK__QUESTION;
    yk__rank_info info;
    return !yk__rank_info_read(&info) && info.shares_home ? info.job : NULL;
}

static atomic_bool encrypts;

void yk__encrypt_from_now_on(void)
{
    atomic_store(&encrypts, true);
}

yk_status yk__encryption_wished(bool *wished)
{
    int64_t variable;
    yk_status status = yk__env_int("YOKE_ENCRYPT", 0, 0, 1, &variable);
    *wished = variable || atomic_load(&encrypts);
    return status;
}

yk_status yk__identity_init(yk__identity *identity, const char *service, const void *secret, size_t secret_size,
                            const char *job)
{
    memset(identity, 0, sizeof(*identity));
    if (sodium_init() < 0)
        return yk__fail(YK_ERR_INTERNAL, "libsodium does not start");
    unsigned char bytes[YK__SECRET_ROOM];
    bool encrypt;
    yk_status status = yk__encryption_wished(&encrypt);
    char users[4096];
    if (!status && !secret) {
        const char *path = variable("YOKE_JOB_SECRET_FILE");
        secret_size = 0;
        if (path)
            status = secret_of_file("YOKE_JOB_SECRET_FILE=", path, bytes, &secret_size);
        else if (variable("YOKE_JOB_SECRET_FD"))
            status = secret_of_descriptor(bytes, &secret_size);
        else if (find_users_secret(users, sizeof(users)))
            status = secret_of_file("", users, bytes, &secret_size);
        secret = bytes;
    }
    if (!job)
        job = variable("YOKE_JOB_ID") ? variable("YOKE_JOB_ID") : launchers_job();
    if (!job)
        job = "default";
    if (!status && strlen(job) >= sizeof(identity->job))
        status = yk__fail(YK_ERR_ARGUMENT, "job id '%.40s...': %zu bytes, at most %zu are possible", job, strlen(job),
                          sizeof(identity->job) - 1);
    char plain[sizeof(identity->job)];
    if (!status && strcmp(yk__escape(job, strlen(job), plain, sizeof(plain)), job) != 0)
        status =
            yk__fail(YK_ERR_ARGUMENT, "job id '%s': there are control characters in it, or it is not UTF-8", plain);
    if (!status) {
        static const unsigned char purpose[] = "yoke job secret 1";
        crypto_generichash_state hash;
        crypto_generichash_init(&hash, purpose, sizeof(purpose) - 1, YK__KEY_SIZE);
        crypto_generichash_update(&hash, secret, secret_size);
        crypto_generichash_final(&hash, identity->key, YK__KEY_SIZE);
        identity->has_secret = secret_size > 0;
        identity->encrypt = encrypt;
        snprintf(identity->service, sizeof(identity->service), "%s", service);
        snprintf(identity->job, sizeof(identity->job), "%s", job);
        snprintf(identity->version, sizeof(identity->version), "%s", YK_VERSION);
        identity->protocol = YK__PROTOCOL;
        identity->pid = (uint32_t)getpid();
        if (gethostname(identity->host, sizeof(identity->host) - 1) || !identity->host[0])
            snprintf(identity->host, sizeof(identity->host), "an unnamed host");
    }
    sodium_memzero(bytes, sizeof(bytes));
    return status;
}

void yk__identity_clear(yk__identity *identity)
{
    sodium_memzero(identity, sizeof(*identity));
}

size_t yk__identity_narrow(const yk__identity *identity, yk__address *addresses, size_t count)
{
    size_t kept = 0;
    for (size_t i = 0; i < count && !identity->has_secret; i++)
        if (yk__address_is_loopback(&addresses[i]))
            addresses[kept++] = addresses[i];
    return kept ? kept : count;
}

yk_status yk__identity_allows(const yk__identity *identity, const yk__address *address, const char *what)
{
    if (identity->has_secret || yk__address_is_loopback(address))
        return YK_OK;
    char text[YK__ADDRESS_TEXT];
    if (launchers_job())
        return yk__fail(YK_ERR_ARGUMENT,
                        "%s: %s is reached over a network, which takes a job secret: make one, once for all your jobs, "
                        "in your home folder: (umask 077; openssl rand -hex 32 > ~/" YK__USERS_SECRET
                        "); where the nodes have no common home, YOKE_JOB_SECRET_FILE names a file that all see",
                        what, yk__address_format(address, text));
    return yk__fail(
        YK_ERR_ARGUMENT,
        "%s: %s is reached over a network, which takes a job secret: let YOKE_JOB_SECRET_FILE, or "
        "`yoke run --secret-file`, name a file with the same content on every host (once: openssl rand -hex 32 > "
        "job.secret; chmod 600 job.secret; copy it to all of them)",
        what, yk__address_format(address, text));
}
