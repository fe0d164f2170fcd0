/*
 * value_wire.h - values as bytes between processes. Layer: rpc.
 *
 * A value is a kind (u8) and what belongs to it: bool u8; int and real 8 bytes; string and bytes u64 size and bytes;
 * list, tuple and set u32 count and items; dict u32 count, and for each item u8 whether the key is text, u32 size and
 * bytes of it, or i64, and the item; tensor u8 dtype, u8 dimensions, i64 sizes, and the elements in C order;
 * reference u32 number of the owner, u64 number of the reference, text8 name. Numbers are little-endian. A tensor whose
 * elements are in a memory file of the message (rpc_loan.h) is kind 32, and has u16 index of the file and u64 offset in
 * place of the elements. A tensor arrives without gradient, on cpu:0 unless 32 is added to its dtype: its device, u8
 * type and u16 index, follows the number of dimensions then (rpc_devices.h). 128 is added to the dtype of one that is
 * part of a graph of distributed autograd, and 64 where its elements are not in C order: u8 for each dimension follow
 * those, the largest stride first, and the sizes and elements are in this order.
 */
#ifndef YOKE_RPC_VALUE_WIRE_H
#define YOKE_RPC_VALUE_WIRE_H

#include <yoke/checkpoint.h>

#include "net/wire.h"

enum { YK__VALUE_WIRE_INT = 3 /* the first byte of a whole number */ };
#include "rpc/rpc_ref.h"

/* Appends the value (NULL: none); references, and tensors of a graph, are noted in `carried`. A tensor on a GPU is
 * copied to the host first, and is an error where carried->devices has no device for it; one without memory to read, a
 * value that is nested too deep, and a lack of memory are errors on record. */
yk_status yk__value_encode(const yk_value *value, yk__wire *out, yk__rpc_carried *carried) YK_MUST_CHECK;
/* The next value of the bytes: one reference, NULL and an error for what is no value. What a size or count claims is
 * compared with the bytes that are there before memory is taken for it. A reference is registered with its owner, which
 * may take a while. `arrived`: tensors of a graph are noted there; NULL: they are not. */
yk_value *yk__value_decode(yk__reader *reader, yk__rpc_arrived *arrived);
/* The number that stands for a dtype between processes, and back; false for a number that stands for none. */
unsigned yk__dtype_to_wire(yk_dtype dtype);
bool yk__dtype_from_wire(unsigned wire, yk_dtype *dtype);

#endif
