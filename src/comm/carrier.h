/*
 * carrier.h - the table of functions by which a plug-in carries the data of the native backend between ranks, in place
 * of connections of TCP. Layer: comm.
 *
 * The backend of such a plug-in is native with a carrier (backend.h): its algorithms, its order of operations, its
 * control connections, by which ranks learn of failures, and its errors. Each rank counts as a host of its own, so that
 * all data go by the carrier.
 */
#ifndef YOKE_COMM_CARRIER_H
#define YOKE_COMM_CARRIER_H

#include <yoke/base.h>

/* Any thread may call any slot at any time, but `send` to and `receive` from one rank, and `flush`, are one thread's at
 * a time. None waits but where it says so. Data from one rank to another are a stream of bytes. */
typedef struct yk__comm_carrier {
    /* Opens this rank's end. *address, of *size bytes, is what the others connect to, and stays as long as the state.
     */
    yk_status (*open)(const char *group, int rank, int world_size, void **state, const void **address, size_t *size);
    /* Connects with a rank at the address that it got from `open`; `near`: it is on this machine, as far as is known.
     */
    yk_status (*connect)(void *state, int rank, bool near, const void *address, size_t size);
    /* Sends the first of these bytes: so many, whose memory is the caller's again. With 0 the memory is still the
     * carrier's, and the next call, until one gives more, has the same memory. */
    size_t (*send)(void *state, int rank, const char *from, size_t bytes);
    /* Receives as many bytes as are there; the same holds. */
    size_t (*receive)(void *state, int rank, char *to, size_t bytes);
    /* True if nothing more can be sent to this rank, or comes from it; `why` says why. */
    bool (*is_gone)(void *state, int rank, char *why, size_t size);
    /* A descriptor that can be read from when something has happened since `arm`; -1: there is none. */
    int (*descriptor)(void *state);
    /* True if the caller may sleep until the descriptor can be read from; false if there is something to do. */
    bool (*arm)(void *state);
    /* True when all that was sent is on its way without further calls. */
    bool (*flush)(void *state);
    /* Takes over from a caller that does not wait for `flush` any more: a thread goes on with it. */
    void (*flush_behind)(void *state);
    /* The group is broken: gives up all that is under way, and waits until no memory of callers is in use. */
    void (*drop)(void *state);
    /* Ends it; `whole`: what was sent is to arrive, for which it waits, `seconds` at most. */
    void (*close)(void *state, bool whole, double seconds);
} yk__comm_carrier;

#endif
