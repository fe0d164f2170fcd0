/*
 * slow_links_test.c - joining, working and leaving over links that are slow, or lose packets. The hosts are network
 * namespaces; what they send comes to this process (TUN devices), which hands it on after a delay, or not at all.
 */
#include "tests/support/expect.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <yoke/comm.h>

#include "base/core.h"

enum { MOST_HOSTS = 3, MOST_RANKS = 9, PACKET = 2048, MOST_PACKETS = 4096, PORT = 29500 };

/* What the ranks say; shared. */
typedef struct result {
    volatile double seconds; /* from the call to the joined group */
    volatile bool joined;
    yk_status status;
    char message[500];
} result;

typedef struct packet {
    double due;
    int to, size;
    unsigned char bytes[PACKET];
} packet;

typedef struct network {
    int hosts, tun[MOST_HOSTS];
    double delay; /* seconds, one way */
    int loss;     /* packets of 10, each way */
    unsigned random, seen[MOST_HOSTS], lost[MOST_HOSTS];
    bool drop[MOST_HOSTS][10]; /* which of the next 10 from each host are lost */
    packet *packets;           /* a ring: [first, last) are on their way */
    unsigned first, last;
} network;

/* ---- hosts ----------------------------------------------------------------------------------------------------- */
static bool set_interface(const char *name, const char *address, const char *mask)
{
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq request = {0};
    struct sockaddr_in *in = (struct sockaddr_in *)&request.ifr_addr;
    snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", name);
    in->sin_family = AF_INET;
    bool good = fd >= 0;
    if (good && address) {
        inet_pton(AF_INET, address, &in->sin_addr);
        good = ioctl(fd, SIOCSIFADDR, &request) == 0;
        inet_pton(AF_INET, mask, &in->sin_addr);
        good = good && ioctl(fd, SIOCSIFNETMASK, &request) == 0;
    }
    good = good && ioctl(fd, SIOCGIFFLAGS, &request) == 0;
    request.ifr_flags |= IFF_UP | IFF_RUNNING;
    good = good && ioctl(fd, SIOCSIFFLAGS, &request) == 0;
    if (fd >= 0)
        close(fd);
    return good;
}

/* This process is on the host from here on: a network of its own, with the address 10.215.0.(number + 1). The
 * descriptor takes and gives its packets; -1 where that is not possible here. */
static int enter_host(int number)
{
    char address[32];
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI};
    snprintf(request.ifr_name, sizeof(request.ifr_name), "yk0");
    snprintf(address, sizeof(address), "10.215.0.%d", number + 1);
    if (unshare(CLONE_NEWNET))
        return -1;
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0 && ioctl(fd, TUNSETIFF, &request) == 0 && set_interface("lo", NULL, NULL) &&
        set_interface("yk0", address, "255.255.255.0"))
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* ---- the network ------------------------------------------------------------------------------------------------- */
/* Of each ten packets from a host `loss` are lost, in an order that is made by chance: so a run of losses has an end,
 * and a test that is to pass needs no luck. */
static bool is_lost(network *n, int from)
{
    unsigned at = n->seen[from]++ % 10;
    for (int i = 0; i < 10 && at == 0; i++)
        n->drop[from][i] = i < n->loss;
    for (int i = 9; i > 0 && at == 0; i--) {
        int j = rand_r(&n->random) % (i + 1);
        bool swapped = n->drop[from][i];
        n->drop[from][i] = n->drop[from][j];
        n->drop[from][j] = swapped;
    }
    n->lost[from] += n->drop[from][at];
    return n->drop[from][at];
}

static void take_packets(network *n, int from)
{
    packet *p = &n->packets[n->last % MOST_PACKETS];
    while (n->last - n->first < MOST_PACKETS && (p->size = (int)read(n->tun[from], p->bytes, PACKET)) > 0) {
        p->to = p->size >= 20 && p->bytes[0] >> 4 == 4 ? p->bytes[19] - 1 : -1;
        p->due = yk__now() + n->delay;
        if (p->to >= 0 && p->to < n->hosts && !is_lost(n, from))
            n->last++;
        p = &n->packets[n->last % MOST_PACKETS];
    }
}

/* Until all children have ended. */
static void carry(network *n)
{
    for (double looked = 0;;) {
        double now = yk__now();
        if (now - looked > 0.02) {
            pid_t pid;
            while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
                ;
            if (pid < 0)
                return;
            looked = now;
        }
        for (; n->first != n->last && n->packets[n->first % MOST_PACKETS].due <= now; n->first++) {
            const packet *p = &n->packets[n->first % MOST_PACKETS];
            if (write(n->tun[p->to], p->bytes, (size_t)p->size) < 0 && errno != EIO) /* its host may be gone */
                return;
        }
        struct pollfd fds[MOST_HOSTS];
        for (int i = 0; i < n->hosts; i++)
            fds[i] = (struct pollfd){.fd = n->tun[i], .events = POLLIN};
        poll(fds, (nfds_t)n->hosts, n->first != n->last ? 1 : 10);
        for (int i = 0; i < n->hosts; i++)
            if (fds[i].revents & POLLIN)
                take_packets(n, i);
    }
}

/* ---- ranks ------------------------------------------------------------------------------------------------------- */
static void set_number(const char *name, int number)
{
    char text[16];
    snprintf(text, sizeof(text), "%d", number);
    setenv(name, text, 1);
}

/* Collectives of all sizes, messages, and a last collective, whose values must come though the others leave at once. */
static yk_status work(int size)
{
    int rank = yk_rank(NULL);
    for (int i = 0; i < 6; i++) {
        yk_scope scope = yk_scope_begin();
        int64_t count = i == 5 ? 3 : (int64_t)1 << (4 * i); /* up to 65,536 */
        yk_tensor *x = yk_full(YK_SHAPE(count), rank + i, NULL), *y = yk_full(YK_SHAPE(count), rank, NULL);
        yk_work *sent = yk_isend(y, (rank + 1) % size, i, NULL);
        yk_tensor *came = yk_zeros(YK_SHAPE(count), NULL);
        yk_status status = YK_OK;
        if (!sent || yk_recv(came, (rank + size - 1) % size, i, NULL) || yk_work_wait(sent) ||
            yk_all_reduce(x, YK_OP_SUM, NULL))
            status = yk_last_error()->code;
        else if (yk_get(x, (int64_t[]){count - 1}) != size * (size - 1) / 2 + size * i ||
                 yk_get(came, (int64_t[]){count - 1}) != (rank + size - 1) % size)
            status = yk__fail(YK_ERR_INTERNAL, "round %d: a sum of %g, a message of %g", i,
                              yk_get(x, (int64_t[]){count - 1}), yk_get(came, (int64_t[]){count - 1}));
        yk_scope_end(scope);
        if (status)
            return status;
    }
    return YK_OK;
}

static void run_rank(int rank, int size, int host, result *results)
{
    result *r = &results[rank];
    char name[16];
    snprintf(name, sizeof(name), "host%d", host);
    setenv("YOKE_HOST_ID", name, 1);
    setenv("MASTER_ADDR", "10.215.0.1", 1);
    set_number("MASTER_PORT", PORT);
    set_number("RANK", rank);
    set_number("WORLD_SIZE", size);
    usleep(rank ? 400000 : 100000); /* the store is there when the others come: else they try again */
    yk_scope_begin();
    double begin = yk__now();
    yk_status status = yk_init_process_group(&(yk_init_options){.join_timeout = 150, .timeout = 150});
    r->seconds = yk__now() - begin;
    r->joined = !status;
    r->status = status ? status : work(size);
    if (r->status)
        snprintf(r->message, sizeof(r->message), "%.490s", yk_last_error()->message);
    /* Nothing is waited for: who leaves does not take along what another still needs, though its host ends with it. */
    yk_destroy_process_group();
    _exit(0);
}

/* Ranks on hosts, `each` per host. False where hosts cannot be made here. */
static bool join(int hosts, int each, double delay, int loss, result *results)
{
    network n = {.hosts = hosts, .delay = delay, .loss = loss, .random = 7};
    n.packets = calloc(MOST_PACKETS, sizeof(*n.packets));
    assert_non_null(n.packets);
    memset(results, 0, MOST_RANKS * sizeof(*results));
    bool made = true;
    for (int h = 0; h < hosts && made; h++) {
        n.tun[h] = enter_host(h);
        made = n.tun[h] >= 0;
        for (int i = 0; i < each && made; i++) {
            pid_t pid = fork();
            assert_true(pid >= 0);
            if (pid == 0)
                run_rank(h * each + i, hosts * each, h, results);
        }
    }
    if (made)
        carry(&n);
    for (int h = 0; h < hosts && made; h++)
        close(n.tun[h]);
    free(n.packets);
    return made;
}

static result *shared_results(void)
{
    void *memory = mmap(NULL, MOST_RANKS * sizeof(result), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    return memory;
}

static void expect_joined(const result *results, int ranks)
{
    for (int r = 0; r < ranks; r++) {
        if (!results[r].joined || results[r].message[0])
            print_error("rank %d: %s\n", r, results[r].message);
        assert_true(results[r].joined && !results[r].message[0]);
    }
}

/* Of the ranks that came when the store was there. */
static double slowest(const result *results, int ranks)
{
    double most = 0;
    for (int r = 1; r < ranks; r++)
        most = results[r].seconds > most ? results[r].seconds : most;
    return most;
}

static void test_round_trips(void **unused)
{
    (void)unused;
    const double trip = 0.3;
    static const int layouts[][2] = {{2, 1}, {2, 2}, {3, 3}}; /* hosts, and ranks on each */
    result *results = shared_results();
    for (size_t i = 0; i < sizeof(layouts) / sizeof(*layouts); i++) {
        int hosts = layouts[i][0], each = layouts[i][1];
        double trips = 1000; /* of three tries the best: a busy machine adds its own delays */
        for (int tries = 0; tries < 3 && trips >= 6.9; tries++) {
            if (!join(hosts, each, trip / 2, 0, results))
                skip();
            expect_joined(results, hosts * each);
            double took = slowest(results, hosts * each) / trip;
            trips = took < trips ? took : trips;
        }
        print_message("# %d hosts, %d ranks each: %.2f round trips\n", hosts, each, trips);
        assert_true(trips > 3 && trips < 6.9); /* six, and what the processes themselves take */
    }
}

/* ---- launchers --------------------------------------------------------------------------------------------------- */
static char this_program[4096], secret_path[64];

/* What a launcher of the test below starts: joins, and says so in a file. */
static int joined_rank(void)
{
    yk_scope_begin();
    yk_status status = yk_init_process_group(NULL);
    double now = yk__now();
    if (status || yk_barrier(NULL))
        return yk_report_error(stderr);
    FILE *file = fopen(getenv("JOINED"), "a");
    if (!file || fprintf(file, "%.6f\n", now) < 0 || fclose(file))
        return 1;
    yk_destroy_process_group();
    return 0;
}

static void run_launcher(int hosts, int each, int host)
{
    char nodes[16], node[16], ranks[16], name[16];
    snprintf(nodes, sizeof(nodes), "%d", hosts);
    snprintf(node, sizeof(node), "%d", host);
    snprintf(ranks, sizeof(ranks), "%d", each);
    snprintf(name, sizeof(name), "host%d", host);
    setenv("YOKE_HOST_ID", name, 1);
    usleep(host ? 400000 : 100000); /* node 0 is there when the others come: else they try again */
    const char *yoke = getenv("YOKE");
    execl(yoke, yoke, "run", "--nnodes", nodes, "--node-rank", node, "-n", ranks, "--master-addr", "10.215.0.1",
          "--secret-file", secret_path, "--", this_program, "joined-rank", NULL);
    _exit(127);
}

/* Seconds from the start of the last launcher to a group that all ranks have joined; 0 where hosts cannot be made. */
static double launched(int hosts, int each, double delay)
{
    char path[] = "/tmp/yk-joined-XXXXXX";
    close(mkstemp(path));
    setenv("JOINED", path, 1);
    network n = {.hosts = hosts, .delay = delay, .random = 7};
    n.packets = calloc(MOST_PACKETS, sizeof(*n.packets));
    assert_non_null(n.packets);
    double begin = yk__now() + 0.4;
    bool made = true;
    for (int h = 0; h < hosts && made; h++) {
        n.tun[h] = enter_host(h);
        made = n.tun[h] >= 0;
        pid_t pid = made ? fork() : -1;
        assert_true(!made || pid >= 0);
        if (pid == 0)
            run_launcher(hosts, each, h);
    }
    if (made)
        carry(&n);
    for (int h = 0; h < hosts && made; h++)
        close(n.tun[h]);
    free(n.packets);
    FILE *file = fopen(path, "r");
    double last = 0, at;
    int joined = 0;
    for (; file && fscanf(file, "%lf", &at) == 1; joined++)
        last = at > last ? at : last;
    if (file)
        fclose(file);
    unlink(path);
    assert_int_equal(joined, made ? hosts * each : 0);
    return made ? last - begin : 0;
}

/* Three round trips for the launchers and three for the ranks, which connect to one another while they ask the store.
 * What the processes themselves take is the same with a short delay and with a long one. */
static void test_launchers(void **unused)
{
    (void)unused;
    const double shorter = 0.1, longer = 0.7;
    static const int layouts[][2] = {{2, 1}, {3, 2}};
    if (!getenv("YOKE"))
        skip();
    for (size_t i = 0; i < sizeof(layouts) / sizeof(*layouts); i++) {
        int hosts = layouts[i][0], each = layouts[i][1];
        double least[2] = {1000, 1000}, trips = 1000;
        for (int tries = 0; tries < 4 && (trips < 5 || trips >= 6.6); tries++) {
            for (int k = 0; k < 2; k++) {
                double took = launched(hosts, each, (k ? longer : shorter) / 2);
                if (took <= 0)
                    skip();
                least[k] = took < least[k] ? took : least[k];
            }
            trips = (least[1] - least[0]) / (longer - shorter);
        }
        print_message("# yoke run, %d nodes, %d ranks each: %.2f round trips\n", hosts, each, trips);
        assert_true(trips >= 5 && trips < 6.6); /* six, and what is measured too much on a busy machine */
    }
}

static void test_loss(void **unused)
{
    (void)unused;
    result *results = shared_results();
    for (int hosts = 2; hosts <= 3; hosts++) {
        double begin = yk__now();
        int each = 4 - hosts; /* ranks */
        if (!join(hosts, each, 0.001, 3, results))
            skip();
        expect_joined(results, each * hosts);
        print_message("# %d hosts that lose 30 of 100 packets each way: joined in %.1f s, done in %.1f s\n", hosts,
                      slowest(results, each * hosts), yk__now() - begin);
    }
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "joined-rank") == 0)
        return joined_rank();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_round_trips), cmocka_unit_test(test_launchers),
                                       cmocka_unit_test(test_loss)};
    char *path = strcpy(secret_path, "/tmp/yk-secret-XXXXXX");
    int fd = mkstemp(path);
    if (!realpath(argv[0], this_program))
        return 1;
    if (fd < 0 || write(fd, "0123456789abcdef0123456789abcdef", 32) != 32)
        return 1;
    close(fd);
    setenv("YOKE_JOB_SECRET_FILE", path, 1);
    unsetenv("YOKE_COMM_BACKEND");
    int failed = cmocka_run_group_tests_name("slow links", tests, NULL, NULL);
    unlink(path);
    return failed;
}
