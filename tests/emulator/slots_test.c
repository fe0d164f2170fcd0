/* slots_test.c - every slot of the CUDA backend, emulated on the host, against the CPU's (tests/support/slot_cases.h).
 */
#include <libgen.h>
#include <unistd.h>

#include "device/table.h"
#include "tests/support/expect.h"
#include "tests/support/slot_cases.h"

static void run_case(void **state)
{
    const slot_case *c = *state;
    slot_report report = {0};
    c->run(c, &report);
    if (report.failed)
        fail_msg("%s", report.text);
    assert_true(report.compared > 0);
}

int main(void)
{
    char program[4096], folder[4200];
    ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 1);
    if (n < 0)
        return 1;
    program[n] = 0;
    snprintf(folder, sizeof(folder), "%s/emulator", dirname(dirname(dirname(program))));
    setenv("YOKE_BACKEND_PATH", folder, 1);
    setenv("YOKE_CPU_ISA", "base", 1);
    snprintf(program, sizeof(program), "%.4000s/yoke-cuda.so", folder);
    if (access(program, R_OK)) {
        printf("1..0 # SKIP this build has no emulator: it needs the headers of CUDA 12 or 13\n");
        return 0;
    }
    size_t count = 0;
    while (slot_cases()[count].name)
        count++;
    struct CMUnitTest *tests = calloc(count, sizeof(*tests));
    char(*names)[64] = calloc(count, sizeof(*names));
    for (size_t i = 0; i < count; i++) {
        snprintf(names[i], sizeof(names[i]), "%s %s", slot_cases()[i].group, slot_cases()[i].name);
        tests[i] =
            (struct CMUnitTest){.name = names[i], .test_func = run_case, .initial_state = (void *)&slot_cases()[i]};
    }
    int failed = _cmocka_run_group_tests("slots", tests, count, NULL, NULL);
    free(tests);
    free(names);
    return failed;
}
