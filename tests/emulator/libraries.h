/*
 * libraries.h - stand-ins of NVIDIA's libraries, which the loader of the emulator finds. Tests only.
 */
#ifndef YOKE_TESTS_EMULATOR_LIBRARIES_H
#define YOKE_TESTS_EMULATOR_LIBRARIES_H

#include "tests/emulator/emulator.h"

namespace emulator
{

struct function {
    const char *name;
    void *address;
};
struct library {
    const char *name;          /* part of its file's */
    const function *functions; /* ended by one without a name */
};
extern const library blas_library, dnn_library, nccl_library, driver_library;

/* queue_library of work that is said to take so long: the stream's clock goes on by it, which cudaEventElapsedTime
 * reads. (runtime.cc) */
bool queue_timed(const char *call, cudaStream_t stream, std::function<void()> work, float milliseconds);

/* A call in which a library allocates and loads: true where that broke a capture, as it does but in the relaxed mode.
 * And whether this thread captures a stream. (capture.cc) */
bool loading_breaks_capture(const char *call);
bool thread_captures();

/* True if the present device has room for a library's handle, which is not kept there here. (runtime.cc) */
bool has_room_for_handle();

} // namespace emulator

/* Plain C, as the files that call them are. */
extern "C" {
void *emulator_dlopen(const char *file, int flags);
void *emulator_dlsym(void *library, const char *name);
const char *emulator_dlerror(void);
int emulator_dlclose(void *library);
}

#endif
