/* slots_test.c - every slot of the CUDA backend, emulated on the host, against the CPU's (tests/support/slot_cases.h).
 */
#include "device/table.h"
#include "tests/emulator/use_emulator.h"
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
    setenv("YOKE_CPU_ISA", "base", 1);
    if (!use_emulator())
        return 0;
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
