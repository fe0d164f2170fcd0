/*
 * rank_info_test.c - the rank of a process under each launcher, for which all parts of the library have one answer.
 */
#include "tests/support/expect.h"

#include <stdlib.h>
#include <string.h>

#include <yoke/yoke.h>

#include "host/rank_info.h"

static const char *const all[] = {"RANK",
                                  "WORLD_SIZE",
                                  "LOCAL_RANK",
                                  "LOCAL_WORLD_SIZE",
                                  "GROUP_RANK",
                                  "MASTER_ADDR",
                                  "MASTER_PORT",
                                  "OMPI_COMM_WORLD_RANK",
                                  "OMPI_COMM_WORLD_SIZE",
                                  "OMPI_COMM_WORLD_LOCAL_RANK",
                                  "OMPI_COMM_WORLD_LOCAL_SIZE",
                                  "PMIX_NAMESPACE",
                                  "PMI_RANK",
                                  "PMI_SIZE",
                                  "MPI_LOCALRANKID",
                                  "MPI_LOCALNRANKS",
                                  "SLURM_PROCID",
                                  "SLURM_NTASKS",
                                  "SLURM_LOCALID",
                                  "SLURM_TASKS_PER_NODE",
                                  "SLURM_NODEID",
                                  "SLURM_JOB_ID",
                                  "SLURM_STEP_ID",
                                  "SLURM_STEP_NODELIST",
                                  "SLURM_JOB_NODELIST"};

/* "NAME=value NAME=value": these and no others. */
static void set(const char *text)
{
    char copy[400], *save = NULL;
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        unsetenv(all[i]);
    snprintf(copy, sizeof(copy), "%s", text);
    for (char *word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        char *equals = strchr(word, '=');
        *equals = '\0';
        setenv(word, equals + 1, 1);
    }
}

typedef struct expectation {
    const char *variables, *launcher;
    int rank, world_size, local_rank, node;
    bool one_host;
    const char *job;
} expectation;

static void test_launchers(void **unused)
{
    (void)unused;
    static const expectation expectations[] = {
        {"SHELL=sh", NULL, 0, 1, 0, 0, true, NULL},
        {"RANK=5 WORLD_SIZE=6 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 GROUP_RANK=2", "yoke run or torchrun", 5, 6, 1, 2, false,
         NULL},
        {"RANK=1 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 SLURM_PROCID=9 SLURM_NTASKS=10", "yoke run or torchrun", 1, 2, 0, 0,
         true, NULL},
        {"OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=3 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=3 "
         "PMIX_NAMESPACE=prterun-7",
         "Open MPI", 2, 3, 1, 0, true, "prterun-7"},
        {"PMI_RANK=1 PMI_SIZE=4 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2", "MPICH", 1, 4, 1, 0, false, NULL},
        /* srun with PMI-2, mpirun inside a job of Slurm, and the shell of one that salloc gave */
        {"PMI_RANK=1 PMI_SIZE=4 SLURM_PROCID=1 SLURM_NTASKS=4 SLURM_LOCALID=1 SLURM_NODEID=3 "
         "SLURM_TASKS_PER_NODE=2(x2) "
         "SLURM_JOB_ID=77",
         "Slurm", 1, 4, 1, 3, false, "77"},
        {"SLURM_PROCID=0 SLURM_NTASKS=8 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2", "Open MPI", 1, 2, 0, 0, false,
         NULL},
        {"SLURM_NTASKS=8", NULL, 0, 1, 0, 0, true, NULL},
        {"LOCAL_RANK=3", NULL, 0, 1, 3, 0, true, NULL},
    };
    for (size_t i = 0; i < sizeof(expectations) / sizeof(*expectations); i++) {
        const expectation *e = &expectations[i];
        yk__rank_info info;
        set(e->variables);
        assert_int_equal(yk__rank_info_read(&info), YK_OK);
        assert_int_equal(info.rank, e->rank);
        assert_int_equal(info.world_size, e->world_size);
        assert_int_equal(info.local_rank, e->local_rank);
        assert_int_equal(info.node, e->node);
        assert_int_equal(info.one_host, e->one_host);
        assert_true(e->launcher ? info.launcher && strcmp(info.launcher, e->launcher) == 0 : !info.launcher);
        assert_true(e->job ? info.job && strcmp(info.job, e->job) == 0 : !info.job);
    }
    set("");
}

/* The number of ranks on this host, from the variables of each launcher. */
static void test_local_size(void **unused)
{
    (void)unused;
    static const struct {
        const char *variables;
        int size;
    } cases[] = {
        {"SHELL=sh", 1},
        {"RANK=5 WORLD_SIZE=6 LOCAL_WORLD_SIZE=2", 2},
        {"RANK=5 WORLD_SIZE=6", 0},
        {"OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=9 OMPI_COMM_WORLD_LOCAL_SIZE=3", 3},
        {"SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_TASKS_PER_NODE=4", 4},
        {"SLURM_PROCID=5 SLURM_NTASKS=8 SLURM_NODEID=2 SLURM_TASKS_PER_NODE=2(x4)", 2},
        {"SLURM_PROCID=5 SLURM_NTASKS=7 SLURM_NODEID=1 SLURM_TASKS_PER_NODE=4(x1),3", 3},
        {"SLURM_PROCID=5 SLURM_NTASKS=12 SLURM_NODEID=2 SLURM_TASKS_PER_NODE=4(x2),3,1", 3},
        {"SLURM_PROCID=5 SLURM_NTASKS=12 SLURM_NODEID=3 SLURM_TASKS_PER_NODE=4(x2),3,1", 1},
        {"SLURM_PROCID=5 SLURM_NTASKS=12 SLURM_NODEID=9 SLURM_TASKS_PER_NODE=4(x2),3,1", 0},
        {"RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=many", 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        yk__rank_info info;
        set(cases[i].variables);
        assert_int_equal(yk__rank_info_read(&info), YK_OK);
        if (info.local_size != cases[i].size)
            fail_msg("%s: %d, not %d", cases[i].variables, info.local_size, cases[i].size);
    }
    set("");
}

/* The node of rank 0, where the launcher's list says it. */
static void test_master(void **unused)
{
    (void)unused;
    static const struct {
        const char *variables, *master, *error;
    } cases[] = {
        {"SHELL=sh", "", NULL},
        {"RANK=0 WORLD_SIZE=2 SLURM_STEP_NODELIST=n[1-2]", "", NULL}, /* somebody else's ranks */
        {"OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=4 SLURM_STEP_NODELIST=n[1-2]", "", NULL},
        {"SLURM_PROCID=0 SLURM_NTASKS=4", "", NULL},
        {"SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_STEP_NODELIST=n[08-11]", "n08", NULL},
        {"SLURM_PROCID=3 SLURM_NTASKS=4 SLURM_NODEID=1 SLURM_STEP_NODELIST=n[08-11]", "n08", NULL},
        {"SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_JOB_NODELIST=a,b", "a", NULL},
        {"SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_STEP_NODELIST=b SLURM_JOB_NODELIST=a,b", "b", NULL},
        {"SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_STEP_NODELIST=n[1- SLURM_JOB_NODELIST=a,b", NULL,
         "SLURM_STEP_NODELIST=n[1- is no list of nodes: a bracket has no end"},
        {"SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_NODEID=1 SLURM_STEP_NODELIST=n[1-2]", NULL,
         "rank 0 is on node 1 of SLURM_STEP_NODELIST=n[1-2] (SLURM_NODEID), and not on the first, n1, where the others "
         "look for it: set MASTER_ADDR to its node"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        yk__rank_info info;
        char host[YK__NODE_NAME];
        set(cases[i].variables);
        assert_int_equal(yk__rank_info_read(&info), YK_OK);
        yk_status status = yk__rank_master(&info, host);
        if (cases[i].error) {
            expect_error(status, cases[i].error);
        } else {
            assert_int_equal(status, YK_OK);
            assert_string_equal(host, cases[i].master);
        }
    }
    set("SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_JOB_ID=77 SLURM_STEP_ID=3");
    yk__rank_info info;
    assert_int_equal(yk__rank_info_read(&info), YK_OK);
    assert_string_equal(info.job, "77");
    assert_string_equal(info.step, "3");
    set("");
}

/* A missing or wrong variable is the same error for the group, for a loader and for the local device. */
static void test_one_answer(void **unused)
{
    (void)unused;
    static const char *const wrong[][2] = {{"WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=1", "RANK is not set"},
                                           {"RANK=1", "WORLD_SIZE is not set"},
                                           {"RANK=2 WORLD_SIZE=2", "RANK=2 is outside a world of WORLD_SIZE=2"},
                                           {"RANK=-1 WORLD_SIZE=2", "RANK=-1"},
                                           {"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE is not set"},
                                           {"SLURM_PROCID=4 SLURM_NTASKS=4", "SLURM_PROCID=4 is outside"}};
    yk_scope scope = yk_scope_begin();
    yk_dataset *glyphs = yk_glyphs(YK_TEST, NULL, 0);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        set(wrong[i][0]);
        assert_int_equal(yk_init_process_group(NULL), YK_ERR_ARGUMENT);
        expect_error(YK_ERR_ARGUMENT, wrong[i][1]);
        assert_null(yk_loader_create(glyphs, YK_OPTIONS(yk_loader_options, .batch_size = 1, .distributed = true)));
        expect_error(YK_ERR_ARGUMENT, wrong[i][1]);
        (void)yk_device_local();
        expect_error(YK_ERR_ARGUMENT, wrong[i][1]);
    }
    set("");
    yk_scope_end(scope);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_launchers), cmocka_unit_test(test_local_size),
                                       cmocka_unit_test(test_master), cmocka_unit_test(test_one_answer)};
    return cmocka_run_group_tests_name("launchers' variables", tests, NULL, NULL);
}
