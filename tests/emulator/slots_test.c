/* slots_test.c - every slot of the CUDA backend, emulated on the host, against the CPU's (tests/support/slot_cases.h).
 */
#include "tests/emulator/run_slots.h"

int main(void)
{
    return run_slots(NULL);
}
