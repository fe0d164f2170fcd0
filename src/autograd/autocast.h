/*
 * autocast.h - the part of autocast that each thread has: the modes, and the casts of parameters that operations share.
 * Layer: autograd.
 */
#ifndef YOKE_AUTOGRAD_AUTOCAST_H
#define YOKE_AUTOGRAD_AUTOCAST_H

#include <yoke/autograd.h>

/* A bit for each type of device whose operations this thread casts for now; 0 inside of an operation that was cast. */
extern _Thread_local uint32_t yk__autocast_types;

/* Nothing is cast until yk__autocast_types is put back to what this returns: within an operation that is made of
 * others, which PyTorch casts as a whole or not at all. */
static inline uint32_t yk__autocast_pause(void)
{
    uint32_t before = yk__autocast_types;
    yk__autocast_types = 0;
    return before;
}

/* The thread's modes, and taking over those of another thread or of an earlier time until leave, which takes what enter
 * returned. A region like any other: it nests, and the outermost one ends the cache. */
yk_autocast yk__autocast_modes(void);
yk_autocast yk__autocast_enter(yk_autocast modes);

/* A cast of x that the outermost region has, borrowed; NULL where it has none that holds: x was written since, or a
 * backward is to reach x and cannot through this one. keep gives it one. */
yk_tensor *yk__autocast_cached(const yk_tensor *x, yk_dtype dtype);
yk_status yk__autocast_keep(yk_tensor *x, yk_tensor *cast);
/* True where casts of x to `dtype` are kept: those of f32 parameters to the dtype that the device's region computes
 * in. */
bool yk__autocast_keeps(const yk_tensor *x, yk_dtype dtype);

#endif
