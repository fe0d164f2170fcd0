/*
 * run_slots.h - cases of tests/support/slot_cases.h as a test program of cmocka, on the emulated GPUs.
 */
#ifndef YOKE_TESTS_EMULATOR_RUN_SLOTS_H
#define YOKE_TESTS_EMULATOR_RUN_SLOTS_H

#include "base/isa.h"
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

/* Runs the slots of the groups that are named, ended by NULL; all where `groups` is NULL. */
static int run_slots(const char *const *groups)
{
    setenv("YOKE_CPU_ISA", "base", 1);
    if (!use_emulator())
        return 0;
    if (!yk__isa_usable(YK__LEVEL_base)) {
        printf("1..0 # SKIP GPUs are compared with the kernels of base, and this build has those of %s (make "
               "CPU_ISAS=all)\n",
               yk__isa_built());
        return 0;
    }
    size_t count = 0, chosen = 0;
    while (slot_cases()[count].name)
        count++;
    struct CMUnitTest *tests = calloc(count, sizeof(*tests));
    char(*names)[64] = calloc(count, sizeof(*names));
    for (size_t i = 0; i < count; i++) {
        const slot_case *c = &slot_cases()[i];
        bool wanted = groups == NULL;
        for (const char *const *group = groups; group && *group; group++)
            wanted |= strcmp(*group, c->group) == 0;
        if (!wanted)
            continue;
        snprintf(names[chosen], sizeof(names[chosen]), "%s %s", c->group, c->name);
        tests[chosen] = (struct CMUnitTest){.name = names[chosen], .test_func = run_case, .initial_state = (void *)c};
        chosen++;
    }
    int failed = _cmocka_run_group_tests("slots", tests, chosen, NULL, NULL);
    free(tests);
    free(names);
    return failed;
}

#endif
