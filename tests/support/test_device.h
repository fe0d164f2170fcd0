/*
 * test_device.h - the devices that a test's tensors are on: the CPU's, or with YOKE_TEST_DEVICE=cuda the emulated
 * GPUs', cuda:0 where options name none (`make test-emulator`). A test that names devices takes them from here, and
 * reads a tensor's elements by host_data, so that it runs on both.
 */
#ifndef YOKE_TESTS_TEST_DEVICE_H
#define YOKE_TESTS_TEST_DEVICE_H

#include <stdbool.h>

#include <yoke/tensor.h>

/* YK_CPU, or what YOKE_TEST_DEVICE says; set before main. */
extern yk_device_type test_device_type;

/* Device `index` of that type; 0 is where options without a device put tensors. */
static inline yk_device test_device(int index)
{
    return (yk_device){(int16_t)test_device_type, (int16_t)index};
}

/* The size of a test's work: `usual`, or less where the emulator would take long. */
static inline int work_size(int usual, int emulated)
{
    return test_device_type == YK_CPU ? usual : emulated;
}

/* Sets the number of devices of each type; before the first tensor. */
void use_devices(int count);

/* Makes them ready for functions of the library's own that are given a device without a check; not before a fork. */
void start_devices(void);

/* The text with the devices of that type in place of the CPU's: "cpu:1" becomes "cuda:1" where tests run on GPUs, and
 * "2 cpu devices" "2 cuda devices". One of sixteen texts of the thread that take turns. */
const char *device_text(const char *text);

/* The elements of x in the host's memory, to be read: x's own where it is on a CPU, else a copy in x's memory order
 * (C order where x is not dense), which the current scope owns. NULL and an error where x is none. */
const void *host_data(yk_tensor *x);
/* x once its device has done what was queued; NULL where that failed: a GPU finds an index that is out of range late.
 */
yk_tensor *finished(yk_tensor *x);
/* x where options without a device put tensors now: what a loader gives, say, which is in the host's memory. */
yk_tensor *to_test_device(yk_tensor *x);
/* The address of the elements of x, to be compared: Tensor.data_ptr. */
const void *data_ptr(const yk_tensor *x);
/* Writes `size` bytes over those at `offset` bytes from the first element, on any device; x is dense. Not tracked, as a
 * write through yk_tensor_data. */
void host_write(yk_tensor *x, size_t offset, const void *bytes, size_t size);

#endif
