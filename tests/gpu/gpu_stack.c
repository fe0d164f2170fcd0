/*
 * gpu_stack.c - the stack of a case when a signal ended it, or when it was asked for (SIGQUIT, which `run` sends to a
 * case that takes too long): part of gpu_cases.c. The machine with the GPU has no debugger; `run` finds the names of
 * the addresses.
 */
#include <execinfo.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/gpu/gpu_checks.h"

enum { DEEPEST = 64, STACK = 1 << 16 };

static void print_stack(int number)
{
    void *frames[DEEPEST];
    const char *text = number == SIGQUIT ? "gpu_cases: asked where it is\n" : "gpu_cases: ended by a signal\n";
    int count = backtrace(frames, DEEPEST);
    if (write(2, text, strlen(text)) > 0)
        backtrace_symbols_fd(frames, count, 2);
    /* The handler was for one signal: it ends the program, as it would have without. */
    raise(number);
}

void gpu_stack_install(void)
{
    static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGQUIT};
    static char own[STACK]; /* the program's may be what ran over */
    const stack_t other = {.ss_sp = own, .ss_size = sizeof(own)};
    struct sigaction action = {.sa_handler = print_stack, .sa_flags = (int)(SA_RESETHAND | SA_ONSTACK | SA_NODEFER)},
                     old;
    void *frame;
    (void)backtrace(&frame, 1); /* loads what it needs, which a handler must not */
    sigemptyset(&action.sa_mask);
    sigaltstack(&other, NULL);
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
        if (sigaction(signals[i], NULL, &old) == 0 && old.sa_handler == SIG_DFL)
            sigaction(signals[i], &action, NULL);
}
