/*
 * rpc_loan.h - tensors that are passed to a worker of the same host by naming the memory file that they are in.
 * Layer: rpc.
 *
 * Note [Loans]
 * A message that names files *lends* them: its type has the bit YK__RPC_LENT, behind its payload stand the files and
 * their number, and they stay as they are until the receiver sends RETURN with the call's number. The lender keeps a
 * *lease* for each such message; the receiver opens the files when the message comes and keeps a *loan*, which is held
 * by the message until it is decoded and by each tensor on the files. Where the connection ends before, the lender
 * gives the file up: it is not used again, and the receiver's mapping keeps what it shows.
 *
 * A tensor in memory of the program is copied once, into a file of a pool of those that came back. One of yk_rpc_alloc
 * is in a file already. The receiver maps the file privately: what it writes is its own.
 */
#ifndef YOKE_RPC_RPC_LOAN_H
#define YOKE_RPC_RPC_LOAN_H

#include "net/wire.h"
#include "rpc/rpc_shared.h"
#include "tensor/tensor.h"

struct yk__rpc_link;
typedef struct yk__lent_file yk__lent_file;
typedef struct yk__rpc_loan yk__rpc_loan;

/* The files that the message which a thread encodes lends; in a list, each with a reference. Zero memory is none. */
typedef struct yk__lender {
    yk__lent_file **files;
    size_t count, bytes, copied; /* bytes: of the tensors; copied: of those that were copied for it */
} yk__lender;
/* From here on tensors that this thread encodes may be lent, NULL: not any more. */
void yk__lender_use(yk__lender *lender);
/* Drops the references of the lender in use: what was encoded so far is not sent. */
void yk__lender_drop(void);
/* Drops the references. `ended`: the receiver may still have the files, and they are not to be used again. */
void yk__lender_clear(yk__lender *lender, bool ended);
/* Adds the file with the elements of a tensor, which is in C order in the host's memory; copied there where they are in
 * none. Gives its index in the message and the offset; false: the tensor is to be sent as it is. */
bool yk__lend(yk_tensor *x, unsigned *index, uint64_t *offset);
/* Appends the files to the message. */
void yk__lender_put(const yk__lender *lender, yk__wire *out);

/* The use that others make of the memory of a tensor of yk_rpc_alloc: none; some hold it; or it was lent to a worker
 * whose connection has ended, who may see it for ever. */
typedef enum yk__alloc_use { YK__ALLOC_FREE, YK__ALLOC_HELD, YK__ALLOC_GIVEN_UP } yk__alloc_use;
yk__alloc_use yk__alloc_used(const yk_tensor *x);
/* Its memory as another tensor of this process: it is held until that is released, and what is written to that is that
 * one's own. One reference; NULL and an error. */
yk_tensor *yk__alloc_snapshot(const yk_tensor *x);

/* The loan of a message with this payload to this process; the files are cut off the reader's end. NULL: malformed, or
 * no memory. With the agent's lock. */
yk__rpc_loan *yk__loan_new(struct yk__rpc_link *link, uint64_t number, yk__reader *payload);
/* The message was decoded, or is not wanted: tensors alone hold the loan. NULL is passed over. */
void yk__loan_settle(yk__rpc_loan *loan);
/* Tensors that this thread decodes may be of this loan; NULL: of none. Gives the one before: a reference that is
 * decoded waits for a call of its own. */
yk__rpc_loan *yk__loan_use(yk__rpc_loan *loan);
/* Bytes of a file of the loan in use, mapped until the storage is released; NULL and an error. */
yk__storage *yk__loan_map(unsigned index, uint64_t offset, size_t bytes);

/* Loans that were released and files that are gone, for the messages RETURN and FORGET. True if there may be some. */
bool yk__loans_waiting(void);
/* The number of a loan that was released, of a connection that has not ended; NULL when there is none left. */
struct yk__rpc_link *yk__loan_next_returned(uint64_t *number);
bool yk__lent_next_forgotten(uint64_t *inode);
/* While a thread gathers, it sends these messages itself, and the I/O thread is not woken for them. */
void yk__loans_gather(bool gathers);
/* The connection ended: nothing is returned over it any more. With the agent's lock. */
void yk__loans_orphan(struct yk__rpc_link *link);
/* The lender of that connection has no file of this inode any more. */
void yk__loans_forget(struct yk__rpc_link *link, uint64_t inode);

#endif
