/*
 * graph.h - the services of recording and replay (yk_graph) to the layers above device/. Layer: device.
 *
 * Note [What a replay leaves out]
 * A replay repeats what was put on the device's queue, with the arguments that it was recorded with. What the function
 * does on the host besides is repeated by members: whoever keeps numbers on the host that go on with each step (the
 * steps of an optimizer) adds itself when the function calls it, and is told before each replay, to bring what has
 * changed since to the device, and after it, to let its numbers go on. What cannot be repeated at all (an answer from
 * the device that the host waits for, a collective that goes through the host) is named by yk__graph_forbid: a function
 * that did such a thing in its last call is not recorded.
 *
 * Note [Ranks record together]
 * A rank that replays a step meets the others in the collectives that it recorded, and nowhere on the host: a rank that
 * runs the same step as it is would wait for it there. So a member that several ranks share (a process group) lets them
 * vote before each call that is not a replay, and once more after the recording: all go on with it, or none. A replay
 * has no vote: what makes a recording stale must happen on all ranks alike.
 */
#ifndef YOKE_DEVICE_GRAPH_H
#define YOKE_DEVICE_GRAPH_H

#include "device/table.h"

/* The vote of a rank on its graph. */
typedef struct yk__graph_vote {
    int can;       /* be recorded, or replayed: -1 never, 0 not now, 1 yes */
    char why[320]; /* if not */
} yk__graph_vote;

typedef struct yk__graph_member {
    void *object; /* the member itself, borrowed; `release` gives back the reference that keeps it alive */
    void *notes;
    /* Brings what the recorded work reads to the device. *stale becomes a static text where the recorded work would no
     * longer be what the function does (its memory was replaced, a frozen number changed). */
    yk_status (*before)(void *object, void *notes, const char **stale);
    /* Called when the work was queued once: numbers on the host go on by that. */
    void (*after)(void *object, void *notes);
    /* Called before the function is called: notes of the call before are void. */
    void (*begin)(void *object, void *notes);
    void (*release)(void *object, void *notes);
    /* NULL, or: *vote becomes that of the rank that can least. All ranks call it. */
    yk_status (*decide)(void *object, void *notes, yk__graph_vote *vote);
} yk__graph_member;

/* The graph whose function this thread runs; NULL outside of one. */
yk_graph *yk__graph_current(void);
/* True while work that this thread puts on the device's queue is recorded, not carried out. */
bool yk__graph_records(yk_device device);
/* True while this thread records, on whatever device. */
bool yk__graph_recording(void);
/* Gives the recording up, which is no longer good; the function runs as it is from now on. */
void yk__graph_give_up(yk_graph *g, const char *why);
/* True if work on this device would be recorded: the current graph is of this device. */
bool yk__graph_is_of(const yk_graph *g, yk_device device);
/* The notes of the member for this object, NULL where there is none yet. */
void *yk__graph_notes(const yk_graph *g, const void *object);
/* True if there is a member that ranks decide by. */
bool yk__graph_is_shared(const yk_graph *g);
/* Takes the member over, on failure too. Not while recording: a member is there from the calls before. */
yk_status yk__graph_add(yk_graph *g, const yk__graph_member *member);
/* Says that the function of the current graph does something that a replay could not repeat, in the thread's operation:
 * `what` says what, `instead` what a program does in its place. Fails while it is recorded, else notes it. NULL: it
 * works on this device, which is forbidden where the graph is another's. YK_OK outside of a graph. */
yk_status yk__graph_forbid(yk_device device, const char *what, const char *instead);
/* The same in an operation that is named, on the graph's device. */
yk_status yk__graph_forbid_in(const char *operation, const char *what, const char *instead);
/* The stream for an operation on the device that draws random numbers. Where the call is recorded, its number of calls
 * counts from what *calls points to in the device's memory (Note [What changes from step to step]); else that is NULL.
 */
yk__stream yk__random_draw(yk_device device, const uint32_t **calls);

#endif
