/*
 * runs_test.c - the folder of runs, announcements in it, and what is read from the pages of ranks: launchers are forks
 * of this program, and so are their ranks.
 */
#include "tests/support/expect.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/process.h"
#include "host/progress.h"
#include "launch/announcement.h"
#include "launch/run_folder.h"
#include "observe/runs.h"

static char folder[64]; /* of the test, with a folder of runs in it */

static void path_of(const char *name, char path[200])
{
    snprintf(path, 200, "%s/%s", folder, name);
}

static int count_files(void)
{
    char command[300], text[16] = "";
    snprintf(command, sizeof(command), "ls '%s/runs' | wc -l", folder);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    assert_non_null(fgets(text, sizeof(text), pipe));
    pclose(pipe);
    return atoi(text);
}

/* ---- launchers --------------------------------------------------------------------------------------------------- */
typedef struct launcher {
    pid_t pid, rank; /* rank: of its rank 1, which has a process */
    int up, down;    /* a byte comes when it is ready; it ends when `down` is closed */
} launcher;

/* Rank 1: trains for three steps, and waits in an all_reduce. */
static void rank_run(yk__rank_page *page, int ready)
{
    yk__progress_adopt(page);
    yk__progress_join(1);
    for (int i = 0; i < 3; i++) {
        yk__progress_step();
        yk_progress_loss(1.5 - 0.25 * i, 32);
    }
    yk__progress_count(yk__progress_counter("rpc_calls_total"), 7);
    yk_progress_phase("reading \"tables\"");
    int entry = yk__progress_begin(&(yk__page_operation){.number = 12, .kind = "all_reduce", .peer = -1, .tag = -1});
    (void)entry;
    (void)!write(ready, "r", 1);
    for (;;)
        pause();
}

static void launcher_run(const char *job, int up, int down, bool tidy)
{
    char *program[] = {(char *)"train", (char *)"--data dir", NULL}, byte;
    yk__pages *pages = yk__pages_create(2);
    int ready[2];
    if (!pages || pipe(ready))
        _exit(1);
    for (int i = 0; i < 2; i++) {
        /* A first incarnation of rank 1 whose page is out of use. */
        yk__page_owner owner = {.rank = 4 + i, .world_size = 6, .local_rank = i, .node = 2, .role = "trainer"};
        for (owner.incarnation = 0; owner.incarnation <= i; owner.incarnation++) {
            if (yk__pages_renew(pages, i, &owner))
                _exit(2);
        }
    }
    pid_t rank = fork();
    if (rank == 0)
        rank_run(yk__pages_at(pages, 1), ready[1]);
    const yk__announcement run = {.job = job,
                                  .host = "host",
                                  .launcher = 4711,
                                  .node = 2,
                                  .nodes = 3,
                                  .first = 4,
                                  .local = 2,
                                  .world = 6,
                                  .restart = 1,
                                  .program = program,
                                  .pages = pages};
    if (rank < 0 || read(ready[0], &byte, 1) != 1 || yk__announce(&run) || yk__announce(&run))
        _exit(3);
    (void)!write(up, &rank, sizeof(rank));
    (void)!read(down, &byte, 1);
    kill(rank, SIGKILL);
    if (tidy)
        yk__announce_end();
    _exit(0);
}

static launcher launcher_begin(const char *job, bool tidy)
{
    int up[2], down[2];
    launcher l;
    assert_int_equal(pipe2(up, O_CLOEXEC) | pipe2(down, O_CLOEXEC), 0);
    l.pid = fork();
    assert_true(l.pid >= 0);
    if (l.pid == 0) {
        close(down[1]);
        launcher_run(job, up[1], down[0], tidy);
    }
    close(up[1]);
    close(down[0]);
    l.up = up[0];
    l.down = down[1];
    assert_int_equal(read(l.up, &l.rank, sizeof(l.rank)), sizeof(l.rank));
    return l;
}

static void launcher_end(launcher *l)
{
    int status;
    close(l->down);
    close(l->up);
    assert_int_equal(waitpid(l->pid, &status, 0), l->pid);
    assert_int_equal(status, 0);
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */
static void announced_and_read(void **state)
{
    (void)state;
    yk__runs runs;
    launcher l = launcher_begin("night \"shift\"", true);
    yk__runs_read(&runs);
    assert_string_equal(runs.problem, "");
    assert_int_equal(runs.count, 1);
    const yk__run *run = &runs.all[0];
    assert_string_equal(run->job, "night \"shift\"");
    assert_string_equal(run->host, "host");
    assert_string_equal(run->program, "train --data dir");
    assert_int_equal(run->supervisor, l.pid);
    assert_int_equal(run->launcher, 4711);
    assert_int_equal(run->node, 2);
    assert_int_equal(run->nodes, 3);
    assert_int_equal(run->first, 4);
    assert_int_equal(run->world, 6);
    assert_int_equal(run->restart, 1);
    assert_true(run->began > 1.6e9);
    assert_true(run->readable);
    assert_int_equal(run->n_ranks, 2);
    /* Rank 0 has not called yoke: nothing is known of it. */
    assert_int_equal(run->ranks[0].rank, 4);
    assert_false(run->ranks[0].alive);
    assert_int_equal(run->ranks[0].pid, 0);
    assert_true(run->ranks[0].step_age < 0 && run->ranks[0].phase_age < 0 && run->ranks[0].resident < 0);
    const yk__run_rank *r = &run->ranks[1];
    assert_int_equal(r->rank, 5);
    assert_int_equal(r->incarnation, 1);
    assert_int_equal(r->pid, l.rank);
    assert_true(r->alive);
    assert_string_equal(r->role, "trainer");
    assert_int_equal(r->phase, YK__PHASE_OWN);
    assert_string_equal(r->phase_text, "reading \"tables\"");
    assert_int_equal(r->steps, 3);
    assert_int_equal(r->samples, 96);
    assert_int_equal(r->losses, 3);
    assert_float_equal(r->loss, 1, 0);
    assert_int_equal(r->operations, 1);
    assert_true(r->waiting > 0 && r->waiting < 60);
    assert_true(r->step_age >= r->waiting && r->step_age < 60);
    assert_true(r->progress_age >= 0 && r->phase_age >= 0);
    if (access("/proc/self/statm", R_OK) == 0) {
        assert_true(r->resident > 0 && r->cpu_seconds >= 0);
    } else {
        print_message("# what a process uses is known where there is a /proc\n");
        assert_true(r->resident < 0 && r->cpu_seconds < 0);
    }
    assert_int_equal(r->n_counters, 1);
    assert_string_equal(r->counters[0].name, "rpc_calls_total");
    assert_int_equal(r->counters[0].value, 7);
    yk__runs_clear(&runs);
    launcher_end(&l);
    assert_int_equal(count_files(), 0);
}

/* A rank that was killed is gone at the next look, and so is a launcher, with what it has left. */
static void gone_at_the_next_look(void **state)
{
    (void)state;
    yk__runs runs;
    launcher tidy = launcher_begin("first", true), killed = launcher_begin("second", false);
    yk__runs_read(&runs);
    assert_int_equal(runs.count, 2);
    assert_string_equal(runs.all[0].job, "first"); /* the older */
    assert_string_equal(runs.all[1].job, "second");
    yk__runs_clear(&runs);
    kill(killed.rank, SIGKILL);
    char status;
    uint64_t start;
    while (yk__process_state(killed.rank, &status, &start) && status != 'Z')
        usleep(1000);
    yk__runs_read(&runs);
    assert_int_equal(runs.count, 2);
    assert_true(runs.all[0].ranks[1].alive);
    assert_false(runs.all[1].ranks[1].alive);
    assert_int_equal(runs.all[1].ranks[1].pid, killed.rank);
    yk__runs_clear(&runs);
    launcher_end(&killed);
    assert_int_equal(count_files(), 2);
    yk__runs_read(&runs);
    assert_int_equal(runs.count, 1);
    assert_int_equal(count_files(), 1);
    yk__runs_clear(&runs);
    launcher_end(&tidy);
    assert_int_equal(count_files(), 0);
}

static void write_file(const char *name, const char *text)
{
    char path[200];
    path_of(name, path);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

/* Files that are none, processes that have the number of another, other boots and namespaces. */
static void not_trusted(void **state)
{
    (void)state;
    char machine[256], text[1024], path[200], own;
    uint64_t start = 0;
    yk__runs runs;
    if (!yk__machine_name(machine, sizeof(machine)) || !yk__process_state((int)getpid(), &own, &start) || !start)
        skip();
    char *space = strchr(machine, '/');
    assert_non_null(space);
    write_file("runs/empty.json", "");
    write_file("runs/half.json", "{\"version\":1,\"pid\":");
    write_file("runs/list.json", "[1,2]");
    write_file("runs/zero.json", "{\"pid\":0,\"start\":1,\"machine\":\"x\",\"host\":\"h\"}");
    write_file("runs/notes.txt", "{}");
    path_of("runs/link.json", path);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    path_of("runs/pipe.json", path);
    assert_int_equal(mkfifo(path, 0600), 0);
    int others = count_files();
    /* This process's number, with another start: it is gone. */
    snprintf(text, sizeof(text), "{\"pid\":%d,\"start\":%llu,\"machine\":\"%s\",\"host\":\"h\",\"job\":\"reused\"}",
             (int)getpid(), (unsigned long long)start - 1, machine);
    write_file("runs/reused.json", text);
    /* Another namespace's, another host's: not looked at, and left. */
    snprintf(text, sizeof(text), "{\"pid\":1,\"start\":1,\"machine\":\"%.*s/pid:[1]\",\"host\":\"h\"}",
             (int)(space - machine), machine);
    write_file("runs/container.json", text);
    write_file("runs/host.json", "{\"pid\":1,\"start\":1,\"machine\":\"other/pid:[1]\",\"host\":\"no-such-host\"}");
    /* One that runs, whose pages are no pages. */
    snprintf(text, sizeof(text),
             "{\"pid\":%d,\"start\":%llu,\"launcher\":1,\"machine\":\"%s\",\"host\":\"h\",\"job\":\"odd\",\"node\":0,"
             "\"nodes\":1,\"first\":0,\"local\":999999,\"world\":1,\"restart\":0,\"began\":1,\"pages\":0,"
             "\"page_version\":%d,\"page_size\":%d}",
             (int)getpid(), (unsigned long long)start, machine, YK__PAGE_VERSION, YK__PAGE_SIZE);
    write_file("runs/odd.json", text);
    snprintf(text, sizeof(text),
             "{\"pid\":%d,\"start\":%llu,\"machine\":\"%s\",\"host\":\"h\",\"job\":\"newer\",\"page_version\":99}",
             (int)getpid(), (unsigned long long)start, machine);
    write_file("runs/version.json", text);
    yk__runs_read(&runs);
    assert_int_equal(runs.count, 2);
    assert_int_equal(runs.elsewhere, 1);
    for (int i = 0; i < 2; i++) {
        bool odd = strcmp(runs.all[i].job, "odd") == 0;
        assert_false(runs.all[i].readable);
        assert_true(expect_says(runs.all[i].why, odd ? "pages cannot read" : "another version of yoke"));
    }
    assert_int_equal(count_files(), others + 4);
    yk__runs_clear(&runs);
    snprintf(text, sizeof(text), "rm -f '%s'/runs/*", folder);
    assert_int_equal(system(text), 0);
}

/* A folder that others may enter, a link, a file, and one that is not there yet. */
static void folders(void **state)
{
    (void)state;
    char path[200], made[YK__RUN_FOLDER_PATH];
    yk__runs runs;
    struct stat about;
    path_of("wide", path);
    assert_int_equal(mkdir(path, 0755), 0);
    setenv("YOKE_RUN_DIR", path, 1);
    assert_int_equal(yk__run_folder_make(made), -1);
    expect_error(YK_ERR_STATE, "others enter mode 755 700");
    yk__runs_read(&runs);
    assert_true(expect_says(runs.problem, "others enter mode 755"));
    yk__runs_clear(&runs);
    assert_null(yk_last_error());

    path_of("runs", made);
    path_of("link", path);
    assert_int_equal(symlink(made, path), 0);
    setenv("YOKE_RUN_DIR", path, 1);
    assert_int_equal(yk__run_folder_make(made), -1);
    expect_error(YK_ERR_STATE, "it is no folder, or a link");

    write_file("file", "");
    path_of("file", path);
    setenv("YOKE_RUN_DIR", path, 1);
    assert_int_equal(yk__run_folder_make(made), -1);
    expect_error(YK_ERR_STATE, "it is no folder, or a link");

    path_of("nowhere/runs", path);
    setenv("YOKE_RUN_DIR", path, 1);
    yk__runs_read(&runs);
    assert_string_equal(runs.problem, "");
    yk__runs_clear(&runs);
    assert_int_equal(yk__run_folder_make(made), -1);
    expect_error(YK_ERR_IO, "folder of runs cannot be made No such file");

    path_of("new", path);
    setenv("YOKE_RUN_DIR", path, 1);
    int fd = yk__run_folder_make(made);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &about), 0);
    assert_int_equal(about.st_mode & 0777, 0700);
    close(fd);

    /* Without the variable: the session's folder where it is this user's, and always /tmp. */
    unsetenv("YOKE_RUN_DIR");
    setenv("XDG_RUNTIME_DIR", folder, 1);
    assert_true(yk__run_folder_path(0, made));
    path_of("yoke", path);
    assert_string_equal(made, path);
    int count = 1;
    while (yk__run_folder_path(count, made))
        count++;
    assert_in_range(count, 2, YK__RUN_FOLDERS);
    assert_true(yk__run_folder_path(count - 1, made));
    snprintf(path, sizeof(path), "/tmp/yoke-%u", (unsigned)geteuid());
    assert_string_equal(made, path);
    setenv("XDG_RUNTIME_DIR", "relative", 1);
    assert_true(yk__run_folder_path(0, made));
    assert_null(strstr(made, "relative"));
    unsetenv("XDG_RUNTIME_DIR");
    path_of("runs", path);
    setenv("YOKE_RUN_DIR", path, 1);
}

static int begin(void **state)
{
    (void)state;
    char path[200];
    strcpy(folder, "/tmp/yoke-runs-test-XXXXXX");
    if (!mkdtemp(folder))
        return 1;
    path_of("runs", path);
    return mkdir(path, 0700) || setenv("YOKE_RUN_DIR", path, 1);
}

static int end(void **state)
{
    (void)state;
    char command[100];
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(announced_and_read), cmocka_unit_test(gone_at_the_next_look),
                                       cmocka_unit_test(not_trusted), cmocka_unit_test(folders)};
    return cmocka_run_group_tests_name("runs", tests, begin, end);
}
