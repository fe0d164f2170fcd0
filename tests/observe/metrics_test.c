/*
 * metrics_test.c - snapshots made here, as Prometheus' text: that of dcgm-exporter for the same values, byte by byte;
 * what is not known is left out; labels that are hostile; series that would be the same; too many ranks.
 */
#include "tests/support/expect.h"

#include <stdio.h>
#include <unistd.h>

#include "base/json_line.h"
#include "observe/metrics.h"
#include "observe/page.h"
#include "observe/snapshot_json.h"

static char *render(void (*write)(FILE *, const yk__snapshot *, const yk__metrics_options *), const yk__snapshot *s,
                    const yk__metrics_options *o)
{
    char *text = NULL;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    assert_non_null(to);
    write(to, s, o);
    assert_int_equal(fclose(to), 0);
    return text;
}

/* Counts the lines that begin so. */
static int count_lines(const char *text, const char *beginning)
{
    int count = 0;
    for (const char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        count += strncmp(line, beginning, strlen(beginning)) == 0;
    return count;
}

#define expect_line(text, line)                                                                                        \
    do {                                                                                                               \
        if (!strstr(text, line "\n"))                                                                                  \
            fail_msg("no line %s in\n%s", line, text);                                                                 \
    } while (0)

/* ---- GPUs -------------------------------------------------------------------------------------------------------- */
static void fill_gpus(yk__gpu_sample gpus[2])
{
    for (int i = 0; i < 2; i++) {
        gpus[i] = (yk__gpu_sample){.known = true, .gpu = {.name = "NVIDIA H100 80GB HBM3"}};
        snprintf(gpus[i].uuid, sizeof(gpus[i].uuid), "GPU-0000000%d", i);
        snprintf(gpus[i].bus, sizeof(gpus[i].bus), "00000000:0%d:00.0", 7 + i);
        for (int v = 0; v < YK__GPU_VALUES; v++)
            gpus[i].values[v] = NAN;
        gpus[i].values[YK__GPU_TEMP] = 41 + i;
    }
    gpus[0].values[YK__GPU_POWER_USAGE] = 123.5;
    gpus[0].values[YK__GPU_ENERGY] = 9007199254740991;
    gpus[1].values[YK__GPU_TENSOR_ACTIVE] = 0.25;
}

static void as_dcgm_exporter(void **state)
{
    (void)state;
    yk__gpu_sample gpus[2];
    yk__dcgm_collectors collectors;
    fill_gpus(gpus);
    expect_ok(yk__dcgm_collectors_read(NULL, &collectors));
    yk__snapshot s = {.n_gpus = 2, .driver = "580.95.05", .gpus = gpus};
    yk__metrics_options o = {.host = "node-7", .collectors = &collectors};
    char *text = render(yk__metrics_dcgm, &s, &o);
#define LABELS(i, bus)                                                                                                 \
    "{gpu=\"" #i "\",UUID=\"GPU-0000000" #i "\",pci_bus_id=\"00000000:" bus ":00.0\",device=\"nvidia" #i               \
    "\",modelName=\"NVIDIA H100 80GB HBM3\",Hostname=\"node-7\",DCGM_FI_DRIVER_VERSION=\"580.95.05\"} "
    assert_string_equal(
        text, "# HELP DCGM_FI_DEV_GPU_TEMP GPU temperature (in C).\n"
              "# TYPE DCGM_FI_DEV_GPU_TEMP gauge\n"
              "DCGM_FI_DEV_GPU_TEMP" LABELS(
                  0, "07") "41\n"
                           "DCGM_FI_DEV_GPU_TEMP" LABELS(
                               1, "08") "42\n"
                                        "# HELP DCGM_FI_DEV_POWER_USAGE Power draw (in W).\n"
                                        "# TYPE DCGM_FI_DEV_POWER_USAGE gauge\n"
                                        "DCGM_FI_DEV_POWER_USAGE" LABELS(
                                            0, "07") "123.500000\n"
                                                     "# HELP DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION Total energy "
                                                     "consumption since boot (in mJ).\n"
                                                     "# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION counter\n"
                                                     "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION" LABELS(
                                                         0, "07") "9007199254740991\n"
                                                                  "# HELP DCGM_FI_PROF_PIPE_TENSOR_ACTIVE Ratio of "
                                                                  "cycles the tensor (HMMA) pipe is active.\n"
                                                                  "# TYPE DCGM_FI_PROF_PIPE_TENSOR_ACTIVE gauge\n"
                                                                  "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE" LABELS(
                                                                      1, "08") "0.250000\n");
    free(text);
    o.label = YK__HOST_LABEL_NEW;
    text = render(yk__metrics_dcgm, &s, &o);
    assert_non_null(strstr(text, "HBM3\",hostname=\"node-7\",DCGM"));
    assert_null(strstr(text, "Hostname"));
    free(text);
    o.label = YK__HOST_LABEL_BOTH;
    text = render(yk__metrics_dcgm, &s, &o);
    assert_non_null(strstr(text, "HBM3\",Hostname=\"node-7\",hostname=\"node-7\",DCGM"));
    free(text);
    o.host = NULL;
    text = render(yk__metrics_dcgm, &s, &o);
    assert_non_null(strstr(text, "HBM3\",DCGM"));
    free(text);
    /* A GPU that has gone away, and none at all. */
    gpus[0].known = false;
    text = render(yk__metrics_dcgm, &s, &o);
    assert_null(strstr(text, "gpu=\"0\""));
    free(text);
    s.n_gpus = -1;
    text = render(yk__metrics_dcgm, &s, &o);
    assert_string_equal(text, "");
    free(text);
    yk__dcgm_collectors_clear(&collectors);
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */
static yk__run_rank rank_of(int number)
{
    return (yk__run_rank){.rank = number,
                          .local_rank = number,
                          .pid = 100 + number,
                          .alive = true,
                          .role = "default",
                          .phase = YK__PHASE_FORWARD,
                          .phase_age = 0.5,
                          .progress_age = 0.25,
                          .step_age = 1.5,
                          .waiting = 2,
                          .waited = 7.5,
                          .phase_times = {[YK__PHASE_LOADING] = 0.5, [YK__PHASE_BACKWARD] = 4},
                          .steps = 12,
                          .samples = 384,
                          .losses = 12,
                          .loss = 0.125,
                          .operations = 99,
                          .resident = 1 << 20,
                          .cpu_seconds = 3.25};
}

static yk__run run_of(const char *job, double began, yk__run_rank *ranks, int count)
{
    return (yk__run){.job = (char *)job,
                     .host = (char *)"host",
                     .program = (char *)"train",
                     .launcher = 1,
                     .supervisor = 2,
                     .nodes = 1,
                     .local = count,
                     .world = count,
                     .began = began,
                     .readable = true,
                     .n_ranks = count,
                     .ranks = ranks};
}

static void known_and_unknown(void **state)
{
    (void)state;
    yk__run_rank ranks[4];
    for (int i = 0; i < 4; i++)
        ranks[i] = rank_of(i);
    /* 1: knows nothing of a step yet. 2: its loss is no number, and it has a text of its own. 3: has ended. */
    ranks[1].step_age = ranks[1].resident = ranks[1].cpu_seconds = ranks[1].phase_age = -1;
    ranks[1].steps = ranks[1].samples = ranks[1].losses = 0;
    ranks[2].loss = NAN;
    ranks[2].phase = YK__PHASE_OWN;
    strcpy(ranks[2].phase_text, "secret plans");
    ranks[3].alive = false;
    yk__run run = run_of("night", 1.7e9, ranks, 4);
    yk__snapshot s = {.n_gpus = -1, .driver = "", .taken = yk__now(), .runs = {.count = 1, .all = &run}};
    yk__metrics_options o = {.host = "h"};
    char *text = render(yk__metrics_yoke, &s, &o);
    expect_line(text, "yoke_run_world_size{job_id=\"night\",host=\"h\",node=\"0\"} 4");
    expect_line(text, "yoke_run_ranks{job_id=\"night\",host=\"h\",node=\"0\"} 3");
    expect_line(text, "yoke_run_start_time_seconds{job_id=\"night\",host=\"h\",node=\"0\"} 1700000000");
#define RANK(i) "{job_id=\"night\",role=\"default\",host=\"h\",rank=\"" #i "\""
    expect_line(text, "# TYPE yoke_rank_steps_total counter");
    expect_line(text, "yoke_rank_steps_total" RANK(0) "} 12");
    expect_line(text, "yoke_rank_steps_total" RANK(1) "} 0");
    expect_line(text, "yoke_rank_last_step_age_seconds" RANK(0) "} 1.5");
    expect_line(text, "yoke_rank_last_progress_age_seconds" RANK(0) "} 0.25");
    expect_line(text, "yoke_rank_samples_total" RANK(0) "} 384");
    expect_line(text, "yoke_rank_loss" RANK(0) "} 0.125");
    expect_line(text, "yoke_rank_loss" RANK(2) "} NaN");
    expect_line(text, "yoke_rank_phase_seconds" RANK(0) ",phase=\"forward\"} 0.5");
    expect_line(text, "yoke_rank_phase_seconds" RANK(2) ",phase=\"own\"} 0.5");
    expect_line(text, "yoke_rank_waiting_seconds" RANK(0) "} 2");
    expect_line(text, "yoke_rank_resident_memory_bytes" RANK(0) "} 1048576");
    expect_line(text, "yoke_rank_waiting_seconds_total" RANK(0) "} 7.5");
    expect_line(text, "yoke_rank_phase_seconds_total" RANK(1) ",phase=\"loading\"} 0.5");
    expect_line(text, "yoke_rank_phase_seconds_total" RANK(1) ",phase=\"backward\"} 4");
    assert_int_equal(count_lines(text, "yoke_rank_phase_seconds_total{"), 6);
    expect_line(text, "yoke_rank_cpu_seconds_total" RANK(0) "} 3.25");
    assert_int_equal(count_lines(text, "yoke_rank_last_step_age_seconds{"), 2);
    assert_int_equal(count_lines(text, "yoke_rank_samples_total{"), 2);
    assert_int_equal(count_lines(text, "yoke_rank_loss{"), 2);
    assert_int_equal(count_lines(text, "yoke_rank_phase_seconds{"), 2);
    assert_int_equal(count_lines(text, "yoke_rank_resident_memory_bytes{"), 2);
    assert_null(strstr(text, "rank=\"3\""));
    assert_null(strstr(text, "secret"));
    assert_null(strstr(text, "source=\"gpus\""));
    expect_line(text, "yoke_monitor_collect_success{source=\"runs\"} 1");
    free(text);
    /* No run: no families of runs and ranks, not even their heads. */
    s.runs.count = 0;
    strcpy(s.runs.problem, "x");
    text = render(yk__metrics_yoke, &s, &o);
    assert_null(strstr(text, "yoke_ru"));
    assert_null(strstr(text, "yoke_rank"));
    expect_line(text, "yoke_monitor_collect_success{source=\"runs\"} 0");
    free(text);
}

/* A run whose processes come and go has series of that, and one whose do not has none. */
static void members(void **state)
{
    (void)state;
    yk__run_rank ranks[] = {rank_of(0), rank_of(1)};
    yk__member_change changes[] = {{1.5e9, 0.25, YK__CHANGE_NODE_LOST, "node \"b\" is lost"},
                                   {1.6e9, -1, YK__CHANGE_LEFT, "rank 1 has left"}};
    yk__run runs[] = {run_of("comes", 10, ranks, 2), run_of("stays", 20, ranks, 2)};
    yk__snapshot s = {.n_gpus = -1, .driver = "", .runs = {.count = 2, .all = runs}};
    char *text = render(yk__metrics_yoke, &s, &(yk__metrics_options){0});
    assert_int_equal(count_lines(text, "yoke_run_view") + count_lines(text, "yoke_run_change"), 0);
    free(text);
    runs[0].view = 7;
    runs[0].members = 5;
    runs[0].changes = changes;
    runs[0].n_changes = 2;
    runs[0].changes_of[YK__CHANGE_NODE_LOST] = 3;
    runs[0].change_seconds = 0.75;
    text = render(yk__metrics_yoke, &s, &(yk__metrics_options){0});
    expect_line(text, "yoke_run_view{job_id=\"comes\",node=\"0\"} 7");
    expect_line(text, "yoke_run_members{job_id=\"comes\",node=\"0\"} 5");
    expect_line(text, "yoke_run_change_seconds_total{job_id=\"comes\",node=\"0\"} 0.75");
    expect_line(text, "# TYPE yoke_run_changes_total counter");
    expect_line(text, "yoke_run_changes_total{job_id=\"comes\",node=\"0\",cause=\"node_lost\"} 3");
    expect_line(text, "yoke_run_changes_total{job_id=\"comes\",node=\"0\",cause=\"joined\"} 0");
    assert_int_equal(count_lines(text, "yoke_run_changes_total{"), YK__CHANGE_KINDS);
    assert_int_equal(count_lines(text, "yoke_run_view{"), 1);
    free(text);
    json_t *all = yk__snapshot_json(&s, NULL);
    const json_t *run = json_array_get(json_object_get(all, "runs"), 0);
    assert_int_equal(json_integer_value(json_object_get(run, "members")), 5);
    const json_t *change = json_array_get(json_object_get(run, "changes"), 0);
    assert_string_equal(json_string_value(json_object_get(change, "cause")), "node_lost");
    assert_string_equal(json_string_value(json_object_get(change, "what")), "node \"b\" is lost");
    assert_float_equal(json_number_value(json_object_get(change, "step_done_s")), 0.25, 0);
    change = json_array_get(json_object_get(run, "changes"), 1);
    assert_true(json_is_null(json_object_get(change, "step_done_s")));
    assert_true(json_is_null(json_object_get(json_array_get(json_object_get(all, "runs"), 1), "view")));
    json_decref(all);
}

static void same_labels(void **state)
{
    (void)state;
    yk__run_rank old_ranks[] = {rank_of(0), rank_of(1)}, new_ranks[] = {rank_of(0), rank_of(2)};
    old_ranks[0].steps = 1;
    new_ranks[0].steps = 2;
    yk__run runs[] = {run_of("j", 10, old_ranks, 2), run_of("j", 20, new_ranks, 2), run_of("k", 5, old_ranks, 2)};
    yk__snapshot s = {.n_gpus = -1, .driver = "", .runs = {.count = 3, .all = runs}};
    char *text = render(yk__metrics_yoke, &s, &(yk__metrics_options){0});
    assert_int_equal(count_lines(text, "yoke_rank_steps_total{"), 5);
    expect_line(text, "yoke_rank_steps_total{job_id=\"j\",role=\"default\",rank=\"0\"} 2");
    expect_line(text, "yoke_rank_steps_total{job_id=\"k\",role=\"default\",rank=\"0\"} 1");
    assert_int_equal(count_lines(text, "yoke_run_world_size{"), 2);
    expect_line(text, "yoke_run_start_time_seconds{job_id=\"j\",node=\"0\"} 20");
    expect_line(text, "yoke_monitor_left_out{kind=\"runs\"} 1");
    expect_line(text, "yoke_monitor_left_out{kind=\"ranks\"} 1");
    free(text);
}

static void too_many(void **state)
{
    (void)state;
    enum { RANKS = YK__MOST_RANKS_SERVED + 100 };
    yk__run_rank *ranks = calloc(RANKS, sizeof(*ranks));
    assert_non_null(ranks);
    for (int i = 0; i < RANKS; i++)
        ranks[i] = rank_of(i);
    yk__run run = run_of("wide", 1, ranks, RANKS);
    yk__snapshot s = {.n_gpus = -1, .driver = "", .runs = {.count = 1, .all = &run}};
    char *text = render(yk__metrics_yoke, &s, &(yk__metrics_options){0});
    assert_int_equal(count_lines(text, "yoke_rank_steps_total{"), YK__MOST_RANKS_SERVED);
    assert_int_equal(count_lines(text, "yoke_rank_"), 14 * YK__MOST_RANKS_SERVED);
    expect_line(text, "yoke_monitor_left_out{kind=\"ranks\"} 100");
    free(text);
    free(ranks);
}

static void counters(void **state)
{
    (void)state;
    static const char *const names[] = {"rpc_calls_total", "rpc_queue", "steps_total", "Odd", "", "a b",
                                        "phase_seconds"};
    yk__run_rank ranks[] = {rank_of(0), rank_of(1)};
    for (int i = 0; i < 7; i++) {
        strcpy(ranks[0].counters[i].name, names[i]);
        ranks[0].counters[i].value = 10 + i;
    }
    strcpy(ranks[0].counters[7].name, "rpc_call_nanoseconds_total");
    ranks[0].counters[7].value = 1234567890123;
    strcpy(ranks[0].counters[8].name, "phase_nanoseconds_total");
    ranks[0].n_counters = 9;
    strcpy(ranks[1].counters[0].name, "rpc_queue");
    ranks[1].counters[0].value = -5;
    for (int i = 1; i <= 30; i++)
        snprintf(ranks[1].counters[i].name, sizeof(ranks[1].counters[i].name), "more_%d", i);
    ranks[1].n_counters = 31;
    yk__run run = run_of("j", 1, ranks, 2);
    yk__snapshot s = {.n_gpus = -1, .driver = "", .runs = {.count = 1, .all = &run}};
    char *text = render(yk__metrics_yoke, &s, &(yk__metrics_options){0});
    expect_line(text, "# TYPE yoke_rank_rpc_calls_total counter");
    expect_line(text, "yoke_rank_rpc_calls_total{job_id=\"j\",role=\"default\",rank=\"0\"} 10");
    expect_line(text, "# TYPE yoke_rank_rpc_queue gauge");
    expect_line(text, "yoke_rank_rpc_queue{job_id=\"j\",role=\"default\",rank=\"0\"} 11\n"
                      "yoke_rank_rpc_queue{job_id=\"j\",role=\"default\",rank=\"1\"} -5");
    assert_int_equal(count_lines(text, "# TYPE yoke_rank_steps_total"), 1);
    assert_int_equal(count_lines(text, "# TYPE yoke_rank_rpc_queue"), 1);
    assert_int_equal(count_lines(text, "yoke_rank_more_"), YK__MOST_COUNTERS_SERVED - 1);
    expect_line(text, "# TYPE yoke_rank_rpc_call_seconds_total counter");
    expect_line(text, "yoke_rank_rpc_call_seconds_total{job_id=\"j\",role=\"default\",rank=\"0\"} 1234.567890123");
    assert_int_equal(count_lines(text, "# TYPE yoke_rank_phase_seconds_total"), 1);
    expect_line(text, "yoke_monitor_left_out{kind=\"counters\"} 21");
    free(text);
}

/* Names that would end a label, a line or an element; bytes that are no UTF-8. */
static void hostile_texts(void **state)
{
    (void)state;
    static const char job[] = "a\"b\\c\nd\xff<script>&'";
    yk__run_rank ranks[] = {rank_of(0)};
    strcpy(ranks[0].role, "r\"} 1\nx{y=\"");
    ranks[0].phase = YK__PHASE_OWN;
    strcpy(ranks[0].phase_text, "<b>\x1b[31m");
    yk__run run = run_of(job, 1, ranks, 1);
    run.program = (char *)"</code><script>alert(1)</script>";
    yk__gpu_sample gpu = {.known = true, .gpu = {.name = "G\"\n<i>", .n_holders = 1}};
    gpu.gpu.holders[0] = (yk__gpu_holder){.pid = 100, .bytes = 4096};
    yk__dcgm_collectors collectors;
    expect_ok(yk__dcgm_collectors_read(NULL, &collectors));
    yk__snapshot s = {.n_gpus = 1, .driver = "5\"", .gpus = &gpu, .runs = {.count = 1, .all = &run}};
    yk__metrics_options o = {.host = "h\\", .collectors = &collectors};
    char *text = render(yk__metrics_yoke, &s, &o);
    expect_line(
        text,
        "yoke_rank_loss{job_id=\"a\\\"b\\\\c\\nd\xef\xbf\xbd<script>&'\",role=\"r\\\"} 1\\nx{y=\\\"\",host=\"h\\\\\","
        "rank=\"0\"} 0.125");
    expect_line(text, "yoke_rank_gpu_memory_bytes{job_id=\"a\\\"b\\\\c\\nd\xef\xbf\xbd<script>&'\",role=\"r\\\"} "
                      "1\\nx{y=\\\"\",host=\"h\\\\\",rank=\"0\",gpu=\"0\"} 4096");
    assert_int_equal(count_lines(text, "x{"), 0);
    free(text);
    text = render(yk__metrics_dcgm, &s, &o);
    expect_line(text,
                "DCGM_FI_DEV_SM_CLOCK{gpu=\"0\",UUID=\"\",pci_bus_id=\"\",device=\"nvidia0\",modelName=\"G\\\"\\n<i>\","
                "Hostname=\"h\\\\\",DCGM_FI_DRIVER_VERSION=\"5\\\"\"} 0");
    free(text);
    /* The page makes text of these names, and no markup. */
    text = yk__json_line(yk__snapshot_json(&s, NULL), YK__JSON_DIGITS);
    assert_non_null(text);
    assert_null(strchr(text, '\x1b'));
    assert_null(strchr(text, '\xff'));
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
    json_t *shot = json_loads(text, 0, NULL);
    assert_non_null(json_object_get(shot, "runs"));
    json_decref(shot);
    free(text);
    yk__dcgm_collectors_clear(&collectors);
}

static void durations(void **state)
{
    (void)state;
    char text[32];
    assert_string_equal(yk__duration_format(-1, text), "-");
    assert_string_equal(yk__duration_format(0, text), "0.0 s");
    assert_string_equal(yk__duration_format(4.14, text), "4.1 s");
    assert_string_equal(yk__duration_format(61, text), "1 min 1 s");
    assert_string_equal(yk__duration_format(7380, text), "2 h 3 min");
    assert_string_equal(yk__duration_format(90000, text), "1 d 1 h");
}

/* The page is whole, small, and has nothing of its own in another place. */
static void page_parts(void **state)
{
    (void)state;
    static const char *const paths[] = {"/", "/page.css", "/page.js"};
    const char *type, *text;
    size_t size, all = 0;
    for (int i = 0; i < 3; i++) {
        assert_true(yk__page_part(paths[i], &type, &text, &size));
        assert_int_equal(strlen(text), size);
        assert_true(size > 500);
        assert_null(strstr(text, "https:"));
        assert_null(strstr(text, "innerHTML"));
        all += size;
    }
    assert_true(all < 60000);
    assert_false(yk__page_part("/page", &type, &text, &size));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_dcgm_exporter), cmocka_unit_test(known_and_unknown), cmocka_unit_test(members),
        cmocka_unit_test(same_labels),      cmocka_unit_test(too_many),          cmocka_unit_test(counters),
        cmocka_unit_test(hostile_texts),    cmocka_unit_test(durations),         cmocka_unit_test(page_parts)};
    return cmocka_run_group_tests_name("metrics", tests, NULL, NULL);
}
