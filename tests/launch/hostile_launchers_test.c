/*
 * hostile_launchers_test.c - `yoke run` on several nodes among peers that send what they should not: to the launcher of
 * node 0 while it waits for the others and while the job runs, before and after they have proved that they have the
 * secret; from another node that has joined; and from a node 0 that is none, or that has the secret and says what no
 * launcher says. Launchers go on or end with a line that says why; none crashes or waits for ever, and no descriptor,
 * mapping or temporary file is left. A soak runs it with YOKE_HOSTILE=1000 messages.
 */
#include "tests/support/expect.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "launch/agents.h"
#include "net/store_session.h"
#include "tests/support/hostile.h"

static const char secret[] = "what only the job's launchers have";
static char folder[] = "/tmp/yoke-hostile-XXXXXX", secret_path[64], output_path[64];
static yk__identity of_stranger, of_member;

/* ---- a launcher -------------------------------------------------------------------------------------------------- */
/* `yoke run` as node `node` of two, which starts `program`; what it says goes to output_path. */
static pid_t launch(int port, int node, const char *join_timeout, const char *program, const char *argument)
{
    char number[16], rank[16];
    snprintf(number, sizeof(number), "%d", port);
    snprintf(rank, sizeof(rank), "%d", node);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid > 0)
        return pid;
    const char *yoke = getenv("YOKE");
    int out = open(output_path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    dup2(out, 1);
    dup2(out, 2);
    execl(yoke, yoke, "run", "--nnodes", "2", "--node-rank", rank, "--master-addr", "127.0.0.1", "--master-port",
          number, "--secret-file", secret_path, "--job-id", "job", "--grace", "0.2", "--node-timeout", "4",
          "--join-timeout", join_timeout, "--", program, argument, NULL);
    _exit(127);
}

/* The output of launchers so far; freed by the caller. */
static char *output(void)
{
    size_t size = 0;
    char *text = calloc(1, 1 << 20);
    FILE *file = fopen(output_path, "r");
    if (file) {
        size = fread(text, 1, (1 << 20) - 1, file);
        fclose(file);
    }
    text[size] = '\0';
    return text;
}

/* Its exit code; fails where it does not end in time, crashes, or a sanitizer has found something. */
static int expect_end(pid_t pid, double seconds, const char *what)
{
    int status = 0;
    double until = yk__now() + patience(seconds);
    pid_t ended;
    while ((ended = waitpid(pid, &status, WNOHANG)) == 0 && yk__now() < until)
        usleep(2000);
    char *text = output();
    bool sane = !strstr(text, "Sanitizer") && !strstr(text, "runtime error");
    if (ended != pid || !WIFEXITED(status) || !sane) {
        print_error("%s: %s\n%s\n", what, ended == pid ? "it crashed" : "it did not end", text);
        kill(pid, SIGKILL);
    }
    free(text);
    assert_true(ended == pid && WIFEXITED(status) && sane);
    return WEXITSTATUS(status);
}

static void expect_said(const char *wanted, const char *what)
{
    char *text = output();
    if (!strstr(text, wanted))
        print_error("%s: '%s' is not in: %s\n", what, wanted, text);
    assert_non_null(strstr(text, wanted));
    free(text);
}

static int connect_in_time(int port)
{
    int fd = -1;
    for (double until = yk__now() + patience(20); fd < 0 && yk__now() < until; usleep(2000))
        fd = connect_to(port);
    assert_true(fd >= 0);
    return fd;
}

/* The process that meets the others: a child of the one that was started. */
static pid_t supervisor_of(pid_t launcher)
{
    char path[64];
    int pid = 0;
    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)launcher, (int)launcher);
    for (double until = yk__now() + patience(10); !pid && yk__now() < until; usleep(2000)) {
        FILE *file = fopen(path, "r");
        if (file && fscanf(file, "%d", &pid) != 1)
            pid = 0;
        if (file)
            fclose(file);
    }
    assert_true(pid > 0);
    return pid;
}

static belongings belongings_of(pid_t pid)
{
    char process[40], files[50];
    snprintf(process, sizeof(process), "/proc/%d", (int)pid);
    snprintf(files, sizeof(files), "%s/fd", process);
    return (belongings){entries(files), shared_maps(process), entries(folder)};
}

/* ---- to node 0 --------------------------------------------------------------------------------------------------- */
/* A request of an agent: PUSH of a value to the list of reports. */
static yk__wire pushed(const yk__wire *report)
{
    yk__wire push = {0};
    yk__wire_put_key(&push, "reports", 7);
    yk__wire_put_value(&push, report->data, report->size);
    return push;
}

/* One that asks to join a job of 300 nodes: it does not fit, and neither does one with a byte changed. */
static yk__wire misfit(void)
{
    int counts[] = {2};
    yk__agent_facts facts = {.nodes = 300,
                             .least = 300,
                             .wanted = 1,
                             .timeout = 4,
                             .grace = 1,
                             .listed = 1,
                             .counts = counts,
                             .host = "a",
                             .pid = 7};
    yk__wire join = yk__agent_report(REPORT_JOIN, random_bits()), push;
    yk__agent_put_facts(&join, &facts);
    push = pushed(&join);
    yk__wire_clear(&join);
    return push;
}

/* Strangers and members come, and nothing of them is left. */
static void besiege(int port, pid_t launcher)
{
    pid_t process = supervisor_of(launcher);
    unsigned char recorded[100];
    belongings before = {0};
    fill(recorded, sizeof(recorded));
    for (int i = 0; i < hostile_messages(100) / 2 + 20; i++) {
        if (i == 20) { /* memory that is made once is there now */
            usleep(100000);
            before = belongings_of(process);
        }
        stranger(port, &of_stranger, recorded, sizeof(recorded));
        yk__wire join = misfit();
        member(port, &of_member, YK__BROKEN, YK__PUSH, join.data, join.size);
        yk__wire_clear(&join);
    }
    belongings now = belongings_of(process);
    for (double until = yk__now() + patience(20); now.files != before.files && yk__now() < until;
         now = belongings_of(process))
        usleep(20000);
    assert_int_equal(now.files, before.files);
    assert_int_equal(now.maps, before.maps);
    assert_int_equal(now.temporary, before.temporary);
}

/* Node 0 under attack while it waits for node 1, and while the job runs. */
static void test_besieged_node_0(void **unused)
{
    (void)unused;
    int port = free_port();
    char script[80], started[80], go[80];
    snprintf(script, sizeof(script), "%s/script", folder);
    snprintf(started, sizeof(started), "%s/started", folder);
    snprintf(go, sizeof(go), "%s/go", folder);
    FILE *file = fopen(script, "w");
    assert_true(file && fprintf(file, ": > %s; until [ -e %s ]; do sleep 0.02; done\n", started, go) > 0 &&
                fclose(file) == 0);
    pid_t launcher = launch(port, 0, "900", "sh", script);
    close(connect_in_time(port));
    besiege(port, launcher);
    pid_t other = launch(port, 1, "60", "sh", script);
    for (double until = yk__now() + patience(60); access(started, F_OK) && yk__now() < until;)
        usleep(10000);
    besiege(port, launcher);
    fclose(fopen(go, "w"));
    assert_int_equal(expect_end(other, 60, "node 1"), 0);
    assert_int_equal(expect_end(launcher, 60, "node 0"), 0);
    expect_said("turned away: ", "node 0");
    assert_true(unlink(script) == 0 && unlink(started) == 0 && unlink(go) == 0);
}

/* ---- from a node that has joined --------------------------------------------------------------------------------- */
typedef struct fake_node {
    int fd;
    uint64_t id;
    yk__channel channel;
    yk__wire scratch;
} fake_node;

static void request(fake_node *f, unsigned type, const yk__wire *payload)
{
    yk__channel_send(&f->channel, type, payload->data, payload->size);
    assert_int_equal(yk__channel_wait_sent(&f->channel, f->fd, yk__now() + patience(20)), YK__REACHED);
}

static void report(fake_node *f, yk__wire *report)
{
    yk__wire push = pushed(report);
    yk__channel_send(&f->channel, YK__PUSH, push.data, push.size);
    yk__channel_flush(&f->channel, f->fd);
    yk__wire_clear(&push);
    yk__wire_clear(report);
}

/* Joins as a launcher does, and returns when it has been given its ranks. */
static void join(fake_node *f, int port, bool leased, double grace)
{
    *f = (fake_node){.fd = connect_in_time(port), .id = random_bits()};
    yk__channel_init(&f->channel, &of_member, false, YK__REQUEST_LIMIT);
    fcntl(f->fd, F_SETFL, O_NONBLOCK);
    assert_int_equal(yk__channel_wait_open(&f->channel, f->fd, yk__now() + patience(20)), YK__REACHED);
    yk__wire lease = {0}, await = {0};
    yk__wire_put_key(&lease, "reports", 7);
    for (unsigned how = 0; how <= YK__LEASE_DAMAGED; how++) {
        yk__wire lost = yk__agent_report(REPORT_LOST, f->id);
        yk__wire_put_u8(&lost, how);
        yk__wire_put_value(&lease, lost.data, lost.size);
        yk__wire_clear(&lost);
    }
    yk__wire_put_u32(&lease, 60000);
    if (leased)
        request(f, YK__LEASE, &lease);
    int counts[] = {1};
    yk__agent_facts facts = {.nodes = 2,
                             .least = 2,
                             .wanted = 1,
                             .timeout = 4,
                             .grace = grace,
                             .listed = 1,
                             .counts = counts,
                             .host = "h",
                             .pid = 7};
    yk__wire asks = yk__agent_report(REPORT_JOIN, f->id);
    yk__agent_put_facts(&asks, &facts);
    report(f, &asks);
    char key[32];
    yk__agent_plan_key(key, f->id, 0);
    yk__wire_put_key(&await, key, strlen(key));
    request(f, YK__AWAIT, &await);
    yk__wire_clear(&lease);
    yk__wire_clear(&await);
    unsigned type = 0;
    yk__reader value;
    while (type != YK__ARRIVED)
        assert_int_equal(yk__channel_wait_message(&f->channel, f->fd, yk__now() + patience(20), &type, &value),
                         YK__REACHED);
}

static void part(fake_node *f)
{
    yk__channel_clear(&f->channel);
    close(f->fd);
}

static yk__outcome odd_end(void)
{
    yk__outcome end = {.kind = (int)below(8),
                       .code = (int)below(3) ? (int)below(300) : (int)random_bits(),
                       .rank = (int)random_bits(),
                       .local_rank = (int)random_bits(),
                       .pid = (int)random_bits(),
                       .status = (int)random_bits(),
                       .signal = below(2) ? (int)below(70) : (int)random_bits(),
                       .seconds = below(2) ? 1.5 : 1e12};
    fill(end.host, below(sizeof(end.host)));
    fill(end.text, below(sizeof(end.text)));
    return end;
}

/* A report of one node of the job about itself: anything. */
static void odd_report(fake_node *f)
{
    unsigned kind = 1 + (unsigned)below(REPORT_RECALL + 1);
    uint64_t id = below(8) ? f->id : random_bits();
    yk__wire wire = yk__agent_report(kind, id);
    unsigned char noise[300];
    size_t size = below(sizeof(noise));
    fill(noise, sizeof(noise));
    yk__outcome end = odd_end();
    switch (below(5)) {
    case 0: /* a failure of a kind that there is or not */
        wire.data[0] = REPORT_CAUSE;
        yk__wire_put_u64(&wire, below(2) ? 1000 : random_bits());
        yk__wire_put_u8(&wire, (unsigned)below(3));
        yk__agent_put_end(&wire, &end);
        break;
    case 1: /* the same cut off, or with more after it */
        wire.data[0] = REPORT_CAUSE;
        yk__wire_put_u64(&wire, 1000);
        yk__wire_put_u8(&wire, (unsigned)below(2));
        yk__agent_put_end(&wire, &end);
        yk__wire_put(&wire, noise, below(20));
        wire.size = below(wire.size + 1);
        break;
    case 2: /* nothing after its kind, or not even that */ wire.size = below(10); break;
    case 3: /* sizes of the largest kind */
        memset(noise, 0xff, sizeof(noise));
        yk__wire_put(&wire, noise, size);
        break;
    default: yk__wire_put(&wire, noise, size); break;
    }
    report(f, &wire);
}

static void test_hostile_node_1(void **unused)
{
    (void)unused;
    int rounds = (hostile_messages(60) + 4) / 5;
    for (int i = 0; i < rounds; i++) {
        random_state = (uint64_t)i + 1;
        int port = free_port();
        pid_t launcher = launch(port, 0, "60", "sleep", "60");
        fake_node f;
        char what[40];
        snprintf(what, sizeof(what), "node 0, round %d", i);
        join(&f, port, true, 0.1);
        for (int k = 0; k < 5; k++)
            odd_report(&f);
        usleep((useconds_t)below(30000));
        part(&f);
        assert_int_not_equal(expect_end(launcher, 20, what), 0);
        expect_said("yoke run: ", what);
        unlink(output_path);
    }
}

/* A node that nobody watches (it has asked for no lease) and that never says that it has ended: it is waited for as
 * long as its processes may take to be stopped, not for ever. */
static void test_node_that_stays(void **unused)
{
    (void)unused;
    int port = free_port();
    pid_t launcher = launch(port, 0, "60", "false", NULL);
    fake_node f;
    join(&f, port, false, 0.1);
    assert_int_equal(expect_end(launcher, 30, "node 0"), 1);
    expect_said("did not say that its processes ended within 9.1 s of being asked to stop them", "node 0");
    part(&f);
}

/* ---- from a node 0 that is none ---------------------------------------------------------------------------------- */
static int listen_at(int port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;
    at.sin_port = htons((uint16_t)port);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof(at)) == 0 && listen(fd, 8) == 0);
    return fd;
}

static int accept_in_time(int listener)
{
    assert_true(yk__wait_fd(listener, POLLIN, yk__now() + patience(20)));
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    assert_true(fd >= 0);
    return fd;
}

/* A listener that has not the secret answers: with bytes of any kind, or a hello and then those. */
static void stranger_answers(int listener, int round)
{
    unsigned char noise[600];
    int fd = accept_in_time(listener);
    yk__channel c;
    yk__channel_init(&c, &of_stranger, true, 1000);
    fill(noise, sizeof(noise));
    for (double until = yk__now() + 0.3; round % 3 && !yk__channel_unsent(&c) && yk__wait_fd(fd, POLLIN, until);)
        if (yk__channel_receive_exactly(&c, fd) != YK__REACHED)
            break;
    yk__channel_flush(&c, fd);
    send(fd, noise, below(sizeof(noise)), MSG_NOSIGNAL);
    if (round % 2)
        hear(fd);
    yk__channel_clear(&c);
    close(fd);
}

static yk__agent_plan odd_plan(bool right)
{
    static const int odd[] = {0, -1, 1, 2, 5000, 1 << 30, INT32_MAX, INT32_MIN, 70000};
    yk__agent_plan plan = {.node = 1, .local = 1, .first = 1, .world = 2, .port = 4000, .nodes = 2};
    if (right)
        return plan;
    int *numbers[] = {&plan.node, &plan.local, &plan.first, &plan.world, &plan.port, &plan.nodes};
    *numbers[below(6)] = odd[below(sizeof(odd) / sizeof(*odd))];
    *numbers[below(6)] = odd[below(sizeof(odd) / sizeof(*odd))];
    plan.restart = below(2) ? 0 : (int64_t)random_bits();
    plan.attempt = below(2) ? plan.restart : (int64_t)random_bits();
    plan.orders = below(2) ? 0 : (int64_t)random_bits();
    return plan;
}

static void arrive(yk__channel *c, int fd, const yk__wire *value)
{
    yk__channel_begin(c, YK__ARRIVED);
    yk__wire_put_value(&c->message, value->data, value->size);
    yk__channel_end(c);
    yk__channel_flush(c, fd);
}

static void odd_order(yk__channel *c, int fd)
{
    unsigned char noise[300];
    yk__wire order = {0};
    yk__outcome end = odd_end();
    fill(noise, sizeof(noise));
    yk__wire_put_u8(&order, (unsigned)below(ORDER_VIEW + 2));
    switch (below(4)) {
    case 0:
        yk__wire_put_u8(&order, (unsigned)below(3));
        yk__agent_put_end(&order, &end);
        break;
    case 1:
        yk__wire_put_u32(&order, below(2) ? (uint32_t)below(70) : (uint32_t)random_bits());
        yk__wire_put_u8(&order, 1);
        break;
    case 2:
        memset(noise, 0xff, sizeof(noise));
        yk__wire_put(&order, noise, below(sizeof(noise)));
        break;
    default: yk__wire_put(&order, noise, below(sizeof(noise))); break;
    }
    arrive(c, fd, &order);
    yk__wire_clear(&order);
}

/* A launcher comes, and asks for its plan. */
static int let_in(int listener, yk__channel *c)
{
    int fd = accept_in_time(listener);
    yk__channel_init(c, &of_member, true, YK__REQUEST_LIMIT);
    unsigned type = 0;
    yk__reader payload;
    while (type != YK__AWAIT)
        if (yk__channel_wait_message(c, fd, yk__now() + patience(20), &type, &payload) != YK__REACHED)
            break;
    assert_int_equal(type, YK__AWAIT);
    return fd;
}

/* A listener that has the secret answers with a message that no launcher sends. */
static void member_answers(int listener)
{
    yk__channel c;
    int fd = let_in(listener, &c);
    bool right = below(2);
    yk__wire value = {0};
    yk__agent_plan plan = odd_plan(right);
    unsigned char noise[400];
    fill(noise, sizeof(noise));
    yk__wire_put_u8(&value, right || below(3) ? 2 : (unsigned)below(5));
    yk__agent_put_plan(&value, &plan, below(3) ? "127.0.0.1:4001 127.0.0.1:4002" : "-,-,- \n");
    if (!right && below(3) == 0)
        value.size = below(value.size);
    if (!right && below(4) == 0) /* another reply, or none of the kinds */
        yk__channel_send(&c, (unsigned)below(12), noise, below(sizeof(noise)));
    arrive(&c, fd, &value);
    yk__wire_clear(&value);
    for (size_t i = 1 + below(4); right && i > 0; i--)
        odd_order(&c, fd);
    if (below(2))
        hear(fd);
    usleep((useconds_t)below(40000));
    yk__channel_clear(&c);
    close(fd);
}

static void test_hostile_node_0(void **unused)
{
    (void)unused;
    int rounds = hostile_messages(40);
    for (int i = 0; i < rounds; i++) {
        random_state = 7919 * (uint64_t)i;
        int port = free_port(), listener = listen_at(port);
        char what[40];
        snprintf(what, sizeof(what), "node 1, round %d", i);
        bool unknown = i % 4 == 0; /* tried again until the time is over; the other is gone when its connection ends */
        pid_t launcher = launch(port, 1, unknown ? "0.3" : "60", "sleep", "60");
        if (unknown)
            stranger_answers(listener, i / 4);
        else
            member_answers(listener);
        close(listener);
        assert_int_not_equal(expect_end(launcher, 20, what), 0);
        expect_said("yoke run: ", what);
        unlink(output_path);
    }
}

/* The other node says that the job is over, while this node's processes run: they are stopped, and nothing waits for
 * their end. */
static void test_early_result(void **unused)
{
    (void)unused;
    int port = free_port(), listener = listen_at(port);
    pid_t launcher = launch(port, 1, "60", "sleep", "300");
    yk__channel c;
    int fd = let_in(listener, &c);
    yk__agent_plan plan = odd_plan(true);
    yk__outcome end = {.kind = YK__RUN_FAILED, .code = 3, .status = 3 << 8};
    yk__wire given = {0}, result = {0};
    yk__wire_put_u8(&given, PLAN_GIVEN);
    yk__agent_put_plan(&given, &plan, "");
    arrive(&c, fd, &given);
    yk__wire_put_u8(&result, ORDER_RESULT);
    yk__wire_put_u8(&result, 0);
    yk__agent_put_end(&result, &end);
    arrive(&c, fd, &result);
    assert_int_equal(expect_end(launcher, 20, "node 1"), 1);
    expect_said("it sent a malformed result: processes of this node run", "node 1");
    yk__wire_clear(&given);
    yk__wire_clear(&result);
    yk__channel_clear(&c);
    close(fd);
    close(listener);
}

static int make_folder(void **unused)
{
    (void)unused;
    if (!mkdtemp(folder))
        return 1;
    snprintf(secret_path, sizeof(secret_path), "%s/secret", folder);
    snprintf(output_path, sizeof(output_path), "%s/output", folder);
    int fd = open(secret_path, O_WRONLY | O_CREAT, 0600);
    bool written = fd >= 0 && write(fd, secret, sizeof(secret) - 1) == sizeof(secret) - 1;
    close(fd);
    setenv("TMPDIR", folder, 1);
    return written && !yk__identity_init(&of_stranger, "launch", "another secret altogether", 25, "job") &&
                   !yk__identity_init(&of_member, "launch", secret, sizeof(secret) - 1, "job")
               ? 0
               : 1;
}

static int remove_folder(void **unused)
{
    (void)unused;
    unlink(output_path);
    unlink(secret_path);
    return rmdir(folder); /* nothing else is left there */
}

static int forget_output(void **unused)
{
    (void)unused;
    unlink(output_path);
    return 0;
}

int main(void)
{
    if (!getenv("YOKE") || !has_proc()) {
        puts("1..0 # SKIP it takes $YOKE, the program, and /proc");
        return 0;
    }
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_besieged_node_0, forget_output),
        cmocka_unit_test_teardown(test_hostile_node_1, forget_output),
        cmocka_unit_test_teardown(test_node_that_stays, forget_output),
        cmocka_unit_test_teardown(test_hostile_node_0, forget_output),
        cmocka_unit_test_teardown(test_early_result, forget_output),
    };
    return cmocka_run_group_tests_name("hostile launchers", tests, make_folder, remove_folder);
}
