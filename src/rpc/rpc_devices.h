/*
 * rpc_devices.h - the devices to which the tensors of a call go. Layer: rpc.
 *
 * Note [Device maps]
 * yk_rpc_init_options.device_maps says of each worker to which of its devices a tensor of a device of this one goes. A
 * caller tells the worker that it calls of its map in HELLO, and a result goes back by it, from `to` to `from`; where
 * it has no device for the result, the map of the worker that was called is taken. A tensor of a CPU for which neither
 * has one goes to cpu:0, a tensor of a GPU is an error where the message is put together. The bytes go by way of the
 * host: the copy there waits for the work that is queued on the tensor's device, and the receiver's copy is queued on
 * the device before what the function queues. The library's own calls take tensors of all devices, which arrive on
 * cpu:0 and are brought where they belong.
 */
#ifndef YOKE_RPC_RPC_DEVICES_H
#define YOKE_RPC_RPC_DEVICES_H

#include "net/wire.h"
#include "rpc/rpc_agent.h"

/* One reading of a map: a tensor on `from` goes to `to`. */
struct yk__rpc_way {
    yk_device from, to;
};

/* The devices of the receiver of a message. */
typedef struct yk__rpc_devices {
    bool itself; /* the receiver is this process: tensors stay where they are */
    bool back;   /* it has called, and this is the result */
    int count;
    char peer[YK__RPC_NAME];
    struct yk__rpc_way ways[4 * YK__RPC_MOST_WAYS]; /* the first that fits holds */
} yk__rpc_devices;

/* Checks the maps of rpc_init, and keeps a copy until clear. */
yk_status yk__devices_keep(const yk_rpc_device_map *maps) YK_MUST_CHECK;
void yk__devices_clear(void);
/* Those of a worker that is called, and of the caller of a call (with the lock). They give `devices`, or NULL for a
 * call of the library's own. */
const yk__rpc_devices *yk__devices_of_callee(yk__rpc_devices *devices, const yk__rpc_member *member, bool own);
const yk__rpc_devices *yk__devices_of_caller(yk__rpc_devices *devices, const yk_call *call);
/* The device to which the tensor goes; NULL `devices`: cpu:0. An error for one of a GPU that has none. */
yk_status yk__devices_find(const yk__rpc_devices *devices, const yk_tensor *x, yk_device *to) YK_MUST_CHECK;
/* Brings a tensor that came, on cpu:0, to its device: takes over the reference, and gives one, or NULL and an error. */
yk_tensor *yk__devices_bring(yk_tensor *x, yk_device device);

/* The map of this worker for another one, in HELLO: u8 count, and of each way two devices. */
void yk__devices_put(yk__wire *out, const yk__rpc_member *member);
bool yk__devices_read(yk__reader *r, yk__rpc_link *link);
/* A device: u8 type, u16 index. */
void yk__device_put(yk__wire *out, yk_device device);
yk_device yk__device_read(yk__reader *r);

#endif
