/*
 * process.c - other processes of this machine. Layer: host.
 *
 * /proc is asked first. Where none is mounted (a chroot that debootstrap made), a pidfd tells whether a process has
 * ended, and pidfd_getfd (Linux 5.6) copies a descriptor, which takes the right to trace the process where /proc asks
 * for the right to read it.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/capability.h>
#include <netpacket/packet.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/hash.h"
#include "host/process.h"

static bool has_proc(void)
{
    int before = errno;
    bool there = access("/proc/self/stat", F_OK) == 0;
    errno = before;
    return there;
}

/* ---- whether it runs --------------------------------------------------------------------------------------------- */
static bool state_of_pidfd(int pid, char *state, uint64_t *start)
{
    *state = 'R';
    *start = 0;
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (fd < 0) /* ENOSYS, EPERM: an old system, a filter of system calls */
        return errno != ESRCH && errno != EMFILE && errno != ENFILE && (kill(pid, 0) == 0 || errno == EPERM);
    struct pollfd ended = {.fd = fd, .events = POLLIN};
    if (poll(&ended, 1, 0) == 1)
        *state = 'Z';
    close(fd);
    return true;
}

enum { STATE = 3, PARENT = 4, GROUP = 5, FLAGS = 9, START = 22 }; /* fields of /proc/PID/stat, as proc(5) counts them */

/* A file of /proc, or as much of it as there is room for; false and errno where it cannot be read. */
static bool read_text(const char *path, char *text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, text, size - 1);
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    return n > 0;
}

/* The fields from STATE on; NULL and errno where they cannot be read. */
static char *read_stat(const char *path, char *text, size_t size)
{
    char *at = read_text(path, text, size) ? strrchr(text, ')') : NULL; /* "pid (name) state ...": any name */
    return at && at[1] == ' ' ? at + 2 : NULL;
}

static char *field(char *at, int number)
{
    for (int i = STATE; i < number && at; i++) {
        at = strchr(at, ' ');
        at = at ? at + 1 : NULL;
    }
    return at;
}

bool yk__process_state(int pid, char *state, uint64_t *start)
{
    char path[40], text[1024];
    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    errno = 0;
    char *at = read_stat(path, text, sizeof(text));
    if (!at)
        return errno == ENOENT && !has_proc() && state_of_pidfd(pid, state, start);
    *state = *at;
    at = field(at, START);
    if (at)
        *start = strtoull(at, NULL, 10);
    return at != NULL;
}

static bool thread_is_ending(const char *process, const char *thread)
{
    const unsigned long exiting = 4; /* PF_EXITING of the kernel's sched.h, set before descriptors are closed */
    char path[80], text[4096];
    snprintf(path, sizeof(path), "%s/%.20s/stat", process, thread);
    char *at = read_stat(path, text, sizeof(text));
    if (!at || *at == 'Z' || *at == 'X')
        return true;
    at = field(at, FLAGS);
    if (at && (strtoul(at, NULL, 10) & exiting))
        return true;
    /* A thread of a process that another thread ends has a SIGKILL of its own, and may not have had a core since. */
    snprintf(path, sizeof(path), "%s/%.20s/status", process, thread);
    at = read_text(path, text, sizeof(text)) ? strstr(text, "\nSigPnd:") : NULL;
    return at && (strtoull(at + strlen("\nSigPnd:"), NULL, 16) >> (SIGKILL - 1) & 1);
}

bool yk__process_is_ending(int pid)
{
    char path[40];
    snprintf(path, sizeof(path), "/proc/%d/task", pid);
    DIR *threads = opendir(path);
    bool any = false, all = true;
    for (struct dirent *entry; threads && all && (entry = readdir(threads));) {
        if (entry->d_name[0] == '.')
            continue;
        any = true;
        all = thread_is_ending(path, entry->d_name);
    }
    if (threads)
        closedir(threads);
    return any && all;
}

bool yk__process_has_ended(int pid)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (fd < 0)
        return kill(pid, 0) != 0 && errno == ESRCH;
    struct pollfd ended = {.fd = fd, .events = POLLIN};
    int ready = poll(&ended, 1, 0);
    close(fd);
    return ready == 1;
}

/* A number among the fields of /proc/PID/stat; 0 where it cannot be read. */
static int stat_number(const char *pid, int which)
{
    char path[40], text[1024];
    snprintf(path, sizeof(path), "/proc/%.20s/stat", pid);
    char *at = field(read_stat(path, text, sizeof(text)), which);
    return at ? atoi(at) : 0;
}

/* Those that nobody has waited for are members too, so a group of which some are there is looked through. */
bool yk__process_group_has_ended(int group)
{
    if (kill(-group, 0) != 0)
        return errno == ESRCH;
    DIR *all = opendir("/proc");
    bool ended = all && has_proc();
    for (struct dirent *entry; ended && (entry = readdir(all));) {
        if (entry->d_name[0] > '0' && entry->d_name[0] <= '9' && stat_number(entry->d_name, GROUP) == group)
            ended = yk__process_has_ended(atoi(entry->d_name));
    }
    if (all)
        closedir(all);
    return ended;
}

bool yk__process_descends(int pid)
{
    siginfo_t unused;
    const int generations = 1000; /* more than there are: no way round in circles while processes come and go */
    if (pid <= 1 || waitid(P_PID, (id_t)pid, &unused, WEXITED | WNOHANG | WNOWAIT) == 0)
        return pid > 1;
    for (int i = 0; i < generations && pid > 1; i++) {
        char text[16];
        snprintf(text, sizeof(text), "%d", pid);
        pid = stat_number(text, PARENT);
        if (pid == getpid())
            return true;
    }
    return false;
}

void yk__process_kill(int pid)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (yk__process_descends(pid)) {
        if (fd >= 0)
            syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0);
        else
            kill(pid, SIGKILL);
    }
    if (fd >= 0)
        close(fd);
}

/* ---- its descriptors --------------------------------------------------------------------------------------------- */
static int copy_descriptor(int pid, int fd)
{
    int process = (int)syscall(SYS_pidfd_open, pid, 0);
    if (process < 0)
        return -1;
    int copy = (int)syscall(SYS_pidfd_getfd, process, fd, 0);
    int why = errno == EBADF ? ENOENT : errno;
    close(process);
    errno = why;
    return copy;
}

int yk__process_open(int pid, int fd)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, fd);
    int own = open(path, O_RDWR | O_CLOEXEC);
    return own < 0 && errno == ENOENT && !has_proc() ? copy_descriptor(pid, fd) : own;
}

bool yk__process_stat(int pid, int fd, struct stat *about)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, fd);
    if (stat(path, about) == 0)
        return true;
    int own = errno == ENOENT && !has_proc() ? copy_descriptor(pid, fd) : -1;
    bool known = own >= 0 && fstat(own, about) == 0;
    if (own >= 0)
        close(own);
    return known;
}

/* ---- who may open them ------------------------------------------------------------------------------------------- */
typedef struct open_attempt {
    int pid, fd;
} open_attempt;

/* In a process of its own, which has this one's descriptors; its exit code: errno of the attempt, 0 where it went well.
 */
static int try_to_open(void *arg)
{
    const open_attempt *attempt = arg;
    int own = yk__process_open(attempt->pid, attempt->fd), number = own < 0 ? errno : 0;
    if (own >= 0)
        close(own);
    return number;
}

/*
 * Returns 0 if a process with this one's rights may open this one's descriptors, else errno. The reasons to refuse are
 * of many kinds (a program with capabilities of its own, which the kernel keeps closed; a security module; Yama's
 * ptrace_scope where there is no /proc), so it is tried: by a process that shares the memory, which is made in 50 us
 * whatever the size of this one, and about whose end no signal tells the program.
 */
static int refusal(void)
{
#ifdef YK__SANITIZED /* keeps what it knows of a thread in memory that a child which shares it would write to */
    enum { STACK = 256 << 10, SHARED = 0 };
#else
    enum { STACK = 64 << 10, SHARED = CLONE_VM | CLONE_VFORK };
#endif
    open_attempt attempt = {.pid = (int)getpid(), .fd = memfd_create("yoke", MFD_CLOEXEC)};
    char *stack = attempt.fd < 0 ? NULL : malloc(STACK);
    int number = errno, status = 0;
    if (stack) {
        int child = clone(try_to_open, stack + STACK, SHARED, &attempt);
        number = errno;
        while (child >= 0 && waitpid(child, &status, __WCLONE) < 0 && errno == EINTR)
            ;
        if (child >= 0)
            number = WIFEXITED(status) ? WEXITSTATUS(status) : EACCES;
        free(stack);
    }
    if (attempt.fd >= 0)
        close(attempt.fd);
    return number;
}

/* The kernel compares these of two processes, ptrace(2) "Ptrace access mode checking". */
static uint64_t hash_of_rights(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct capabilities[_LINUX_CAPABILITY_U32S_3] = {0};
    struct {
        uint64_t user_space, device;
        uint32_t users[3], groups[3], permitted[_LINUX_CAPABILITY_U32S_3];
    } rights = {0};
    struct stat space;
    if (stat("/proc/self/ns/user", &space) == 0) {
        rights.user_space = (uint64_t)space.st_ino;
        rights.device = (uint64_t)space.st_dev;
    }
    if (getresuid(&rights.users[0], &rights.users[1], &rights.users[2]) ||
        getresgid(&rights.groups[0], &rights.groups[1], &rights.groups[2]) || syscall(SYS_capget, &head, capabilities))
        return 0;
    for (int i = 0; i < _LINUX_CAPABILITY_U32S_3; i++)
        rights.permitted[i] = capabilities[i].permitted;
    return yk__hash(YK__HASH_BASIS, &rights, sizeof(rights));
}

void yk__process_rights(char text[YK__RIGHTS_SIZE])
{
    int before = errno, number = refusal();
    if (number)
        snprintf(text, YK__RIGHTS_SIZE, "process%d", (int)getpid());
    else
        snprintf(text, YK__RIGHTS_SIZE, "%016llx", (unsigned long long)hash_of_rights());
    errno = before;
}

/* ---- which machine ----------------------------------------------------------------------------------------------- */
/* The hardware addresses of the network's interfaces, and the root folder: neither of them alone tells two machines
 * apart that were made from one image, or two containers of one machine. */
static bool name_of_hardware(char *name, size_t size)
{
    char host[65] = "";
    struct ifaddrs *all = NULL;
    struct stat root;
    if (stat("/", &root) || gethostname(host, sizeof(host) - 1) || getifaddrs(&all))
        return false;
    uint64_t sum = 0;
    for (const struct ifaddrs *one = all; one; one = one->ifa_next) {
        if (!one->ifa_addr || one->ifa_addr->sa_family != AF_PACKET)
            continue;
        const struct sockaddr_ll *link = (const void *)one->ifa_addr;
        uint64_t address = 0;
        for (int i = 0; i < link->sll_halen && i < 8; i++)
            address = address << 8 | link->sll_addr[i];
        sum += address * 0x9E3779B97F4A7C15u; /* in whatever order they come */
    }
    freeifaddrs(all);
    const uint64_t parts[] = {sum, (uint64_t)root.st_dev, (uint64_t)root.st_ino};
    uint64_t hash = yk__hash(YK__HASH_BASIS, parts, sizeof(parts));
    snprintf(name, size, "%s/%016llx", host, (unsigned long long)hash);
    return true;
}

bool yk__machine_name(char *name, size_t size)
{
    char boot[64] = "", space[64] = "unknown";
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (f) {
        if (!fgets(boot, sizeof(boot), f))
            boot[0] = 0;
        fclose(f);
    }
    boot[strcspn(boot, "\n")] = 0;
    if (!*boot)
        return name_of_hardware(name, size);
    ssize_t n = readlink("/proc/self/ns/pid", space, sizeof(space) - 1);
    if (n >= 0)
        space[n] = 0;
    snprintf(name, size, "%s/%s", boot, space);
    return true;
}

/* ---- children ---------------------------------------------------------------------------------------------------- */
/* True if there was one among the numbers from `first` to `last`: every number is asked for. */
static bool signal_range(int first, int last, int number)
{
    bool any = false;
    siginfo_t info;
    for (int pid = first; pid <= last; pid++) {
        if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0) {
            kill(pid, number);
            any = true;
        }
    }
    return any;
}

static void *store_thread_id(void *number)
{
    *(int *)number = (int)syscall(SYS_gettid);
    return NULL;
}

/* Children were born after this process and before the thread that takes the next number, unless the numbers began
 * anew since: then all are asked for, in half a second. */
static void signal_by_number(int number)
{
    enum { PID_LIMIT = 1 << 22 };
    int own = (int)getpid(), newest = 0;
    pthread_t thread;
    if (pthread_create(&thread, NULL, store_thread_id, &newest) == 0)
        pthread_join(thread, NULL);
    if (newest <= own || !signal_range(own + 1, newest, number))
        signal_range(1, PID_LIMIT, number);
}

void yk__signal_children(int number)
{
    char path[64];
    int pid;
    snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
    FILE *children = fopen(path, "re");
    siginfo_t info;
    if (!children) {
        if (errno == ENOENT && waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0)
            signal_by_number(number);
        return;
    }
    while (fscanf(children, "%d", &pid) == 1)
        kill(pid, number);
    fclose(children);
}
