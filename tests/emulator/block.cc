/*
 * block.cc - carries out kernels: the threads of a block as fibres, between barriers in a seeded order. Tests only.
 *
 * A fibre runs until it waits (at a barrier, in a shuffle) or ends. When all have, what they wait for is looked at: a
 * barrier that all reached, a warp whose 32 lanes all brought something. Where neither is so, the kernel would hang or
 * worse on a GPU, and that is a fault. Switching is a few instructions of our own: no system call, as swapcontext has.
 * A thread that ends where one that has not begun is next leaves it its stack, and nothing is switched.
 */
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <utility>

#include "tests/emulator/emulator.h"
#include "tests/emulator/traffic.h"

#if defined(__SANITIZE_ADDRESS__)
#define HAS_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAS_ASAN 1
#endif
#endif
#ifdef HAS_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

namespace emulator
{

enum { WARP = 32, MOST_THREADS = 1024, STACK = 256 << 10, MOST_SHARED = 227 << 10 };

enum fibre_state { FRESH, READY, AT_BARRIER, IN_SHUFFLE, ENDED };

struct fibre {
    thread where;
    fibre_state state;
    void *stack_pointer;
    char *stack;
    size_t stack_bytes;
    void *fake_stack; /* of the address sanitizer */
    uint32_t mask;
    uint64_t value;
    unsigned source;
};

thread *current;

static struct machine_state {
    const char *name;
    int device;
    const std::function<void()> *body;
    fibre *fibres;         /* MOST_THREADS */
    fibre *running, *left; /* the fibre that was switched to last, and the one from which */
    fibre scheduler;       /* the caller of run_kernel; READY */
    bool faulted;
    char *shared;
    size_t shared_bytes;
    /* For one pass over a block's threads: their number, the number that have had their turn, the next one, and the
     * direction. */
    size_t threads, turns, next;
    bool backwards;
} &machine = *new machine_state(); /* never destroyed */

static uint64_t random_state = [] {
    const char *text = getenv("YOKE_EMULATOR_SEED");
    return 0x9E3779B97F4A7C15u * (uint64_t)(text ? atoll(text) + 1 : 1);
}();

uint32_t draw(uint32_t bound)
{
    random_state ^= random_state << 13; /* xorshift64 (Marsaglia, 2003) */
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)((random_state >> 32) * bound >> 32);
}

/* ---- fibres ---- */
/* Saves the registers that a call must preserve on this stack, its pointer in *from, and goes on where `to` was saved.
 */
extern "C" void emulator_switch(void **from, void *to);
#if defined(__x86_64__)
asm(".text\n"
    ".globl emulator_switch\n"
    ".hidden emulator_switch\n"
    ".type emulator_switch, @function\n"
    "emulator_switch:\n"
    "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n    pushq %r13\n    pushq %r14\n    pushq %r15\n"
    "    movq %rsp, (%rdi)\n"
    "    movq %rsi, %rsp\n"
    "    popq %r15\n    popq %r14\n    popq %r13\n    popq %r12\n    popq %rbx\n    popq %rbp\n"
    "    ret\n"
    ".size emulator_switch, .-emulator_switch\n");
enum { SAVED = 6 };
#elif defined(__aarch64__)
asm(".text\n"
    ".globl emulator_switch\n"
    ".hidden emulator_switch\n"
    ".type emulator_switch, %function\n"
    "emulator_switch:\n"
    "    sub sp, sp, #160\n"
    "    stp x19, x20, [sp, #0]\n    stp x21, x22, [sp, #16]\n    stp x23, x24, [sp, #32]\n"
    "    stp x25, x26, [sp, #48]\n    stp x27, x28, [sp, #64]\n    stp x29, x30, [sp, #80]\n"
    "    stp d8, d9, [sp, #96]\n    stp d10, d11, [sp, #112]\n    stp d12, d13, [sp, #128]\n    stp d14, d15, [sp, "
    "#144]\n"
    "    mov x9, sp\n    str x9, [x0]\n    mov sp, x1\n"
    "    ldp x19, x20, [sp, #0]\n    ldp x21, x22, [sp, #16]\n    ldp x23, x24, [sp, #32]\n"
    "    ldp x25, x26, [sp, #48]\n    ldp x27, x28, [sp, #64]\n    ldp x29, x30, [sp, #80]\n"
    "    ldp d8, d9, [sp, #96]\n    ldp d10, d11, [sp, #112]\n    ldp d12, d13, [sp, #128]\n    ldp d14, d15, [sp, "
    "#144]\n"
    "    add sp, sp, #160\n"
    "    ret\n"
    ".size emulator_switch, .-emulator_switch\n");
#else
#error "the emulator's fibres know x86-64 and aarch64"
#endif

/* The next of the pass that can run, or NULL: all had their turn. */
UNINSTRUMENTED static fibre *next_to_run()
{
    while (machine.turns < machine.threads) {
        fibre *f = &machine.fibres[machine.next];
        machine.turns++;
        if (machine.backwards)
            machine.next = machine.next ? machine.next - 1 : machine.threads - 1;
        else
            machine.next = machine.next + 1 < machine.threads ? machine.next + 1 : 0;
        if (f->state == FRESH || f->state == READY)
            return f;
    }
    return nullptr;
}

/* The first steps of a fibre when it is switched to. */
UNINSTRUMENTED static void arrive(fibre *f)
{
#ifdef HAS_ASAN
    const void *bottom;
    size_t size;
    __sanitizer_finish_switch_fiber(f->fake_stack, &bottom, &size);
    if (machine.left == &machine.scheduler) {
        machine.scheduler.stack = static_cast<char *>(const_cast<void *>(bottom));
        machine.scheduler.stack_bytes = size;
    }
#else
    (void)f;
#endif
}

static void begin(fibre *f);

/* The thread sanitizer keeps one list of frames for the thread, on which all fibres enter and leave functions; this one
 * and fibre_main are never left by a fibre that ends, and would fill it. */
__attribute__((no_sanitize("address", "undefined", "thread"))) static void switch_to(fibre *f, bool for_good)
{
    fibre *from = machine.running;
    if (f->state == FRESH)
        begin(f);
    machine.left = from;
    machine.running = f;
    current = f == &machine.scheduler ? nullptr : &f->where;
#ifdef HAS_ASAN
    __sanitizer_start_switch_fiber(for_good ? nullptr : &from->fake_stack, f->stack, f->stack_bytes);
#else
    (void)for_good;
#endif
    emulator_switch(&from->stack_pointer, f->stack_pointer);
    arrive(from);
}

__attribute__((no_sanitize("thread"))) static void fibre_main()
{
    arrive(machine.running);
    fibre *next;
    for (;;) {
        (*machine.body)();
        fibre *ended = machine.running;
        ended->state = ENDED;
        next = next_to_run();
        if (!next || next->state != FRESH)
            break;
        /* The fibre goes on as the next thread, on the same stack. */
        std::swap(ended->stack, next->stack);
        std::swap(ended->stack_bytes, next->stack_bytes);
        next->state = READY;
        machine.running = next;
        current = &next->where;
    }
    switch_to(next ? next : &machine.scheduler, true);
    abort();
}

/* Prepares a fibre's stack as if fibre_main had been called, and had saved its registers at once. */
UNINSTRUMENTED static void begin(fibre *f)
{
    if (!f->stack) {
        void *stack = mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (stack == MAP_FAILED)
            abort();
        f->stack = static_cast<char *>(stack);
        f->stack_bytes = STACK;
    }
    uintptr_t top = reinterpret_cast<uintptr_t>(f->stack + STACK) & ~(uintptr_t)15;
#if defined(__x86_64__)
    uint64_t *frame = reinterpret_cast<uint64_t *>(top) - (SAVED + 2);
    memset(frame, 0, (SAVED + 2) * sizeof(*frame));
    frame[SAVED] =
        reinterpret_cast<uint64_t>(&fibre_main); /* the return address: after it the stack is as after a call */
#else
    uint64_t *frame = reinterpret_cast<uint64_t *>(top - 160);
    memset(frame, 0, 160);
    frame[11] = reinterpret_cast<uint64_t>(&fibre_main); /* x30 */
#endif
    f->stack_pointer = frame;
    f->state = READY;
}

UNINSTRUMENTED static void wait_as(fibre_state state)
{
    machine.running->state = state;
    fibre *next = next_to_run();
    switch_to(next ? next : &machine.scheduler, false);
}

/* ---- what kernels call ---- */
static void report(const char *text)
{
    if (current)
        fprintf(stderr, "emulator: %s: block (%u, %u, %u), thread (%u, %u, %u): %s\n", machine.name, current->block.x,
                current->block.y, current->block.z, current->index.x, current->index.y, current->index.z, text);
    else
        fprintf(stderr, "emulator: %s: %s\n", machine.name, text);
    machine.faulted = true;
}

void fault(const char *format, ...)
{
    char text[500];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    report(text);
    switch_to(&machine.scheduler, true); /* the scheduler lets no fibre go on */
    abort();
}

void barrier()
{
    wait_as(AT_BARRIER);
}

UNINSTRUMENTED unsigned lane()
{
    const thread &t = *current;
    return (t.index.x + t.block_size.x * (t.index.y + t.block_size.y * t.index.z)) % WARP;
}

UNINSTRUMENTED uint64_t shuffle(uint32_t mask, uint64_t value, unsigned source)
{
    fibre *f = machine.running;
    if (mask != 0xFFFFFFFFu)
        fault("a shuffle with the mask %08x: the style allows the full one alone", mask);
    f->mask = mask;
    f->value = value;
    f->source = source;
    wait_as(IN_SHUFFLE);
    return f->value;
}

void *shared_memory()
{
    if (!machine.shared_bytes)
        fault("shared memory was not asked for in the launch");
    return machine.shared;
}

UNINSTRUMENTED void *reach(const void *address, size_t bytes, size_t alignment, bool written)
{
    uintptr_t at = reinterpret_cast<uintptr_t>(address), shared = reinterpret_cast<uintptr_t>(machine.shared);
    if (at % alignment)
        fault("%p is not aligned to %zu bytes", address, alignment);
    if (machine.shared_bytes && at >= shared && at < shared + MOST_SHARED) {
        if (at + bytes > shared + machine.shared_bytes)
            fault("byte %zu of %zu bytes of shared memory", (size_t)(at + bytes - shared), machine.shared_bytes);
        return const_cast<void *>(address);
    }
    const char *why;
    void *found = bytes_of(address, bytes, machine.device, &why);
    if (!found)
        fault("%zu bytes at %p: %s", bytes, address, why);
    if (traffic_counted)
        traffic_access(machine.device, offset_of(machine.device, address), bytes, written);
    return found;
}

/* ---- blocks ---- */
/* Makes the fibres ready whose barrier or shuffle is complete; true if there were any. */
UNINSTRUMENTED static bool release_waiting(size_t n)
{
    bool any = false;
    size_t ended = 0, waiting = 0;
    for (size_t i = 0; i < n; i++) {
        ended += machine.fibres[i].state == ENDED;
        waiting += machine.fibres[i].state == AT_BARRIER;
    }
    if (waiting == n) {
        for (size_t i = 0; i < n; i++)
            machine.fibres[i].state = READY;
        return true;
    }
    for (size_t warp = 0; warp < n; warp += WARP) {
        size_t lanes = n - warp < (size_t)WARP ? n - warp : (size_t)WARP, come = 0;
        for (size_t i = 0; i < lanes; i++)
            come += machine.fibres[warp + i].state == IN_SHUFFLE;
        if (come != WARP)
            continue;
        uint64_t brought[WARP];
        for (size_t i = 0; i < WARP; i++)
            brought[i] = machine.fibres[warp + i].value;
        for (size_t i = 0; i < WARP; i++) {
            machine.fibres[warp + i].value = brought[machine.fibres[warp + i].source];
            machine.fibres[warp + i].state = READY;
        }
        any = true;
    }
    if (!any) {
        char text[200];
        snprintf(text, sizeof(text),
                 "of %zu threads %zu wait at a barrier, %zu in a shuffle, and %zu have ended: no "
                 "barrier and no warp is complete",
                 n, waiting, n - waiting - ended, ended);
        report(text);
    }
    return any;
}

UNINSTRUMENTED static bool all_ended(size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (machine.fibres[i].state != ENDED)
            return false;
    return true;
}

UNINSTRUMENTED static void run_block(dim3 block, dim3 grid, uint3 place, size_t n)
{
    if (machine.shared_bytes)
        memset(machine.shared, 0xFF, machine.shared_bytes); /* NaN, and no index */
    uint3 index = {0, 0, 0};
    for (size_t i = 0; i < n; i++) {
        fibre &f = machine.fibres[i];
        f.where = {index, place, block, grid};
        f.state = FRESH;
        f.fake_stack = nullptr;
        if (++index.x == block.x) {
            index.x = 0;
            index.z += ++index.y == block.y;
            index.y %= block.y;
        }
    }
    for (;;) {
        machine.threads = n;
        machine.turns = 0;
        machine.next = draw((uint32_t)n);
        machine.backwards = draw(2);
        for (fibre *f; !machine.faulted && (f = next_to_run());)
            switch_to(f, false);
        if (machine.faulted || all_ended(n) || !release_waiting(n))
            return;
    }
}

bool run_kernel(const char *name, int device, dim3 grid, dim3 block, size_t shared_bytes,
                const std::function<void()> &body)
{
    size_t n = (size_t)block.x * block.y * block.z, blocks = (size_t)grid.x * grid.y * grid.z;
    machine.name = name;
    machine.device = device;
    machine.body = &body;
    machine.faulted = false;
    machine.running = &machine.scheduler;
    machine.scheduler.state = READY;
    if (!machine.fibres)
        machine.fibres = new fibre[MOST_THREADS]();
    if (!machine.shared)
        machine.shared = static_cast<char *>(aligned_alloc(128, MOST_SHARED));
    machine.shared_bytes = shared_bytes;
    size_t first = draw((uint32_t)blocks);
    bool backwards = draw(2);
    for (size_t k = 0; k < blocks && !machine.faulted; k++) {
        size_t b = (first + (backwards ? blocks - k : k)) % blocks;
        uint3 place = {(unsigned)(b % grid.x), (unsigned)(b / grid.x % grid.y), (unsigned)(b / grid.x / grid.y)};
        run_block(block, grid, place, n);
    }
    machine.shared_bytes = 0;
    return !machine.faulted;
}

} // namespace emulator
