/*
 * rpc_ref.h - what values carry with them beyond their bytes: references to objects, on their way from one holder to
 * another, and tensors that are part of a graph (dist_autograd.h). Layer: rpc.
 *
 * Note [Passing references]
 * The owner of an object counts its holders: each reference of a worker has a number, and the owner's table has an
 * entry for each (rpc_serve.c). A worker A that passes a reference on to C pins it: A holds it until C has said TAKEN.
 * C asks the owner for an entry of its own (a call of kind ADD, which names the entry of A), and says TAKEN only when
 * the owner has answered:
 *
 *     A: pin, CALL or REPLY to C      C: ADD to the owner ... answer      C: TAKEN to A      A: unpin, maybe DROP
 *
 * So there is an entry at every moment, and the object stays. When a worker ends, the owner drops all its entries (its
 * connection has ended), and who passed something to it unpins that. An ADD that comes after A has ended finds no entry
 * of A's: C has a reference whose use is an error by name. A message that nobody decodes is answered by TAKEN as well.
 * tests/rpc/references.pml is a model of this.
 */
#ifndef YOKE_RPC_RPC_REF_H
#define YOKE_RPC_RPC_REF_H

#include <yoke/rpc.h>

#include "net/wire.h"

struct yk__rpc_link;
struct yk_dist_context;

/* The pins of a message that came: numbers of its sender's, who waits for TAKEN. */
typedef struct yk__rpc_pins {
    struct yk__rpc_link *link; /* over which it came, retained; NULL: the sender is this process */
    uint64_t first;
    uint32_t count; /* 0: none, or TAKEN was said */
} yk__rpc_pins;

/* The head of a list of arguments, and of a result. */
typedef struct yk__rpc_head {
    yk__rpc_pins pins;
    uint64_t context; /* of distributed autograd, in which the call runs; 0: none */
    uint64_t message; /* the number under which the sender keeps tensors of it that require a gradient; 0: none do */
} yk__rpc_head;

/* The references and tensors that an encoder found in a value. Zero memory is empty. */
typedef struct yk__rpc_carried {
    struct yk_dist_context *context;       /* NULL: tensors are sent without their graph */
    const struct yk__rpc_devices *devices; /* of the receiver; NULL: all tensors go to cpu:0 */
    yk_tensor **tensors;                   /* that require a gradient, retained */
    int tensor_count, tensor_room;
    uint64_t message;
    double deadline;          /* until which references wait for their objects; 0: as long as these are given */
    struct yk__rpc_pin *pins; /* of the references, the last one first; owned until yk__rpc_pin */
    uint32_t pin_count;
    uint64_t first_pin;
    size_t head; /* the position of the head in the message; 0: it has none, being an error */
} yk__rpc_carried;

/* The tensors of a graph that a decoder found, which the value retains, in the order of the message. */
typedef struct yk__rpc_arrived {
    yk_tensor **tensors;
    int count, room;
} yk__rpc_arrived;

/* ---- rpc_ref.c ---- */
/* Puts the head, u64 and u32 pins, u64 context, u64 message, before the value is encoded. It is filled in when the
 * message is sent. */
void yk__rpc_head_put(yk__wire *out, yk__rpc_carried *carried);
/* With the lock: pins what is carried for this connection (NULL: this process), and fills in the head of `data`. */
void yk__rpc_pin(yk__rpc_carried *carried, struct yk__rpc_link *link, unsigned char *data);
/* Drops the pins of a message that will not arrive, or that was TAKEN. With the lock. */
void yk__rpc_unpin(const struct yk__rpc_link *link, uint64_t first, uint32_t count);
/* The connection has ended. With the lock. */
void yk__rpc_unpin_all(const struct yk__rpc_link *link);
void yk__rpc_carried_clear(yk__rpc_carried *carried);
/* Reads the head of a message that came over the link (NULL: from this process). With the lock. */
void yk__rpc_head_read(yk__reader *reader, struct yk__rpc_link *link, yk__rpc_head *head);
/* Says TAKEN, once. With or without the lock. */
void yk__rpc_pins_taken(yk__rpc_pins *pins);

/* A reference inside a value. Waits until the owner has confirmed it; an error where there is no such object. */
yk_status yk__rpc_ref_encode(yk_ref *ref, yk__rpc_carried *carried, yk__wire *out) YK_MUST_CHECK;
/* One reference of this process's own, registered with the owner, or one whose use is an error; NULL and an error for
 * what is malformed. */
yk_ref *yk__rpc_ref_decode(yk__reader *reader);
/* The time until which this thread waits for owners while it decodes (0: as long as calls are given); gives the one
 * before. */
double yk__rpc_ref_until(double deadline);

#endif
