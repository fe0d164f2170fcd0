/*
 * rank_page.h - the page of a rank: what it is doing, in memory that its launcher holds and reads. Layer: host.
 *
 * The launcher makes one page per process and incarnation in a memory file, and says where by the variable
 * YOKE_RANK_PAGE (host/progress.h). The rank maps it and writes; the launcher reads at any moment, also after the rank
 * was killed in the middle of a write, because the file is the launcher's. Others may read it by its path in /proc.
 *
 * Note [Fields of a page]: nobody ever waits for a page. Single numbers are atomic. What belongs together is a group of
 * fields that has a version of its own, which is odd while it is written: a writer that finds it odd leaves its note
 * out, a reader takes a group whose version was even before and is the same after. So what is read is whole, and a
 * process that was killed in the middle of a write leaves one group that is not read. The phase, which is to be
 * readable always, is one word: the kind, which of the texts it has, and since when.
 *
 * A phase that is inside another (YK__IN_PHASE) has no time of its own: it is as old as the last progress.
 *
 * Times are ticks (base/ticks.h), of the clock that `counted` names, since that is less than half of the cost; the
 * header has the ticks and the seconds (yk__now) of one moment.
 */
#ifndef YOKE_HOST_RANK_PAGE_H
#define YOKE_HOST_RANK_PAGE_H

#include "base/core.h"

enum {
    YK__PAGE_VERSION = 5, /* to be raised with every change of what follows */
    YK__PAGE_MAGIC = 0x65676150,
    YK__PAGE_RING = 256, /* operations: those under way, and the last that have ended */
    YK__PAGE_CALLS = 16, /* threads that wait for the answer to a call; those of more are not noted */
    YK__PAGE_COUNTERS = 64,
    YK__PAGE_TEXTS = 8,
    YK__PAGE_TEXT = 60
};

typedef enum yk__phase {
    YK__PHASE_NONE, /* not in yoke, or before it was called */
    YK__PHASE_JOINING,
    YK__PHASE_LOADING,
    YK__PHASE_FORWARD,
    YK__PHASE_BACKWARD,
    YK__PHASE_COMMUNICATION,
    YK__PHASE_OPTIMIZER,
    YK__PHASE_SAVING,
    YK__PHASE_OWN, /* a text of the program's (yk_progress_phase) */
    YK__PHASES
} yk__phase;
const char *yk__phase_name(unsigned phase); /* "forward" */

typedef enum yk__operation_what {
    YK__WHAT_COLLECTIVE, /* and messages between ranks */
    YK__WHAT_CALL,
    YK__WHAT_LOAD,
    YK__WHAT_SAVE,
    YK__WHATS
} yk__operation_what;
const char *yk__operation_what_name(unsigned what); /* "collective" */

/* One operation. Texts are cut. */
typedef struct yk__page_operation {
    uint64_t number;       /* of the group's collectives, or of this rank's messages; 0: the entry is empty */
    int64_t count;         /* elements, samples or bytes */
    uint64_t began, ended; /* ticks; ended 0: it is under way */
    int32_t world_size, peer, tag, what; /* peer, tag: -1 where there is none; what: yk__operation_what */
    char kind[16], dtype[12], reduction[8];
    char group[32]; /* the process group, the worker that is called (its index is `peer`), the end of the path */
} yk__page_operation;

typedef struct yk__page_slot {
    atomic_uint version; /* see Note [Fields of a page] */
    yk__page_operation operation;
} yk__page_slot;
_Static_assert(sizeof(yk__page_slot) == 128, "a slot is two lines of a cache");

typedef struct yk__rank_page {
    /* The launcher's, before the process is started. */
    uint32_t magic, version, size;
    int32_t rank, world_size, local_rank, node, role_rank, incarnation;
    char role[64];

    /* The rank's, when it maps the page. */
    atomic_int pid; /* 0: none yet */
    atomic_bool counted;
    _Atomic uint64_t born_ticks;
    _Atomic double born;

    atomic_int groups;           /* that it is in */
    atomic_int worker;           /* its index among the workers of RPC, from 1; 0: it is none */
    atomic_int answers;          /* the signal on which it prints its stack, 0: none */
    _Atomic uint64_t progressed; /* ticks: when it last began or ended an operation, took a batch or a step */
    _Atomic double failed;       /* yk__now: when a group of its first failed, or could not be joined; 0: never */
    _Atomic uint64_t steps;      /* of optimizers, applied */
    _Atomic uint64_t stepped;    /* ticks: when the last of them was */
    _Atomic uint64_t samples;    /* that the program says it has trained on (yk_progress_loss) */
    _Atomic uint64_t losses;     /* how many losses the program has given; 0: `loss` means nothing */
    _Atomic double loss;         /* the last of them */
    _Atomic uint64_t phase;      /* see yk__page_phase */
    _Atomic uint64_t waited;     /* ticks that collectives and messages took until they ended, of each of them */
    /* Units of the phase's word that the rank was in each phase, without the one that it is in. Of threads that change
     * the phase at once one may be left out. */
    _Atomic uint64_t phase_times[YK__PHASES];
    /* A trace that another process asks for (host/profiler.h): it writes how many steps, and behind which one they
     * begin (0: behind the next), then raises the number of its request, which is odd; when it has the trace, or wants
     * none any more, it raises that again. The rank answers with the request's number, and a descriptor of its own with
     * the trace, or below 0 the reason why there is none. */
    atomic_uint trace_asked, trace_steps, trace_answered;
    atomic_int trace_file;
    _Atomic uint64_t trace_behind;
    /* Operations. The next takes ring[begun % YK__PAGE_RING], unless the one there is still under way: then the one
     * after that. */
    _Atomic uint64_t begun;
    atomic_uint texts; /* taken so far */
    struct {
        atomic_uint version;
        char text[YK__PAGE_TEXT];
    } text[YK__PAGE_TEXTS];
    struct {
        atomic_uint state; /* 0: free; 1: its name is being written; 2: in use */
        char name[52];
        _Atomic int64_t value;
    } counters[YK__PAGE_COUNTERS];
    yk__page_slot ring[YK__PAGE_RING] __attribute__((aligned(64)));
    /* Calls whose answer a thread waits for, so many that they would push the collectives out of the ring. */
    yk__page_slot calls[YK__PAGE_CALLS];
} yk__rank_page;

/* A page takes whole pages of memory, so that each rank can map its own. */
enum { YK__PAGE_SIZE = (sizeof(yk__rank_page) + 4095) / 4096 * 4096 };

/* ---- reading: any process that has the page mapped; what the rank has written there is not trusted --------------- */
/* True if these are pages of this version. */
bool yk__page_is_known(const yk__rank_page *page);
/* A time of the page as yk__now has it; 0 for 0. Call it soon after the page was read: it takes now for its measure. */
double yk__page_time(const yk__rank_page *page, uint64_t ticks);
/* So many ticks of the page in seconds. */
double yk__page_seconds(const yk__rank_page *page, uint64_t ticks);
/* Seconds that the rank was in a phase, up to the last change of phase. */
double yk__page_phase_seconds(const yk__rank_page *page, yk__phase phase);
/* One operation, whole and with texts that end; false where there is none, or it is being written. */
bool yk__page_read(const yk__page_slot *slot, yk__page_operation *operation);
/* Fills `text` for YK__PHASE_OWN, else makes it empty; *since as of yk__page_time. */
yk__phase yk__page_phase(const yk__rank_page *page, char text[YK__PAGE_TEXT], double *since);
/* The name of a counter, which ends; NULL where there is none. */
const char *yk__page_counter(const yk__rank_page *page, int index, char name[52], int64_t *value);

/* ---- the word of the phase: kind, text, and ticks since the page was born in units of 256 ------------------------ */
static inline uint64_t yk__page_phase_word(unsigned phase, unsigned text, uint64_t ticks)
{
    return (uint64_t)phase << 56 | (uint64_t)text << 48 | (ticks >> 8 & (((uint64_t)1 << 48) - 1));
}
static inline unsigned yk__page_phase_kind(uint64_t word)
{
    return (unsigned)(word >> 56);
}

#endif
