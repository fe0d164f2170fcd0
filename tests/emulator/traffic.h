/*
 * traffic.h - counting of what kernels and libraries move, as the emulator's parts share it. Tests only. See
 * traffic.cc.
 */
#ifndef YOKE_TESTS_EMULATOR_TRAFFIC_H
#define YOKE_TESTS_EMULATOR_TRAFFIC_H

#include <cstddef>
#include <cstdint>
#include <functional>

namespace emulator
{

/* A thing that is queued: a kernel, or a call of a library or of the runtime. */
struct traffic_item {
    uint64_t number; /* in the order of queueing */
    const char *name;
    const void *kernel; /* or NULL */
    size_t blocks, threads;
};
traffic_item traffic_queued(const char *name, const void *kernel = nullptr, size_t blocks = 0, size_t threads = 0);
/* Carries `work` out; what it moves is the item's, where traffic is counted. Under the lock of everything. */
void traffic_run(const traffic_item &item, const std::function<void()> &work);
/* True if the work that runs is counted. */
extern bool traffic_counted;
/* An access of the kernel that runs, `offset` bytes after the first address of the device's memory. */
void traffic_access(int device, size_t offset, size_t bytes, bool written);
/* The bytes that the call that runs reads and writes, and its multiply-adds; `detail` tells its form. */
void traffic_call(const char *detail, double read, double written, double multiply_adds);
/* Around the replay of a graph: where YOKE_EMULATOR_TRAFFIC names a file, it is written anew. */
void traffic_replay(const std::function<void()> &replay);
/* True if a library's stand-in writes zeros in place of a result of so many multiply-adds: YOKE_EMULATOR_PRODUCTS=0. */
bool skips_product(double multiply_adds);

} // namespace emulator

#endif
