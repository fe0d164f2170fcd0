/*
 * emulator.h - runs kernels on the host, thread by thread, and checks what they do. Tests only.
 *
 * The kernels' own .cu files are compiled as C++ with tests/emulator/include/device/cuda/kernel.h in place of the real
 * one, and linked with stand-ins of the calls of the CUDA runtime that the backend makes, into a plug-in of the same
 * name. What it shows is that kernels compute the right numbers from memory that is theirs to read, whatever the order
 * of blocks and threads, and that the host's calls are in an order that CUDA's manual allows. It says nothing about
 * speed, about the GPU's rounding where it differs (exp and its kin), or about what nvcc makes of the code.
 *
 * Memory of a pretended device lies at addresses that the host cannot touch (PROT_NONE); the bytes are elsewhere. A
 * kernel gets from one to the other by checked_pointer alone, which knows every allocation. The threads of a block are
 * fibres that run one at a time from barrier to barrier, in an order drawn from YOKE_EMULATOR_SEED, as do blocks. What
 * a stream has queued is carried out late, and streams in any order that events allow.
 */
#ifndef YOKE_TESTS_EMULATOR_H
#define YOKE_TESTS_EMULATOR_H

#include <cstddef>
#include <cstdint>
#include <functional>
#include <type_traits>

#include <cuda_runtime_api.h>

/* Functions that each thread of a kernel, and each of its accesses, passes through: with the sanitizers' checks they
 * take longer than the kernels do. The emulator looks at the kernel's accesses itself. */
#define UNINSTRUMENTED __attribute__((no_sanitize("address", "undefined")))

namespace emulator
{

/* ---- the block that runs (block.cc) ---- */
struct thread {
    uint3 index, block;
    dim3 block_size, grid_size;
};
extern thread *current;

/* Stops the kernel with an error, printed with kernel, block and thread; the device is lost, as on a GPU. */
[[noreturn]] void fault(const char *format, ...) __attribute__((format(printf, 1, 2)));
void barrier();
/* The value that lane `source` of the warp brought; all 32 lanes must come. */
uint64_t shuffle(uint32_t mask, uint64_t value, unsigned source);
unsigned lane();
void *shared_memory();

/* Carries a kernel out now; false where it faulted. */
bool run_kernel(const char *name, int device, dim3 grid, dim3 block, size_t shared_bytes,
                const std::function<void()> &body);
/* A number from the seed's sequence, below `bound`. */
uint32_t draw(uint32_t bound);

/* ---- memory (memory.cc) ---- */
void *allocate(int device, size_t bytes); /* NULL: there is no more */
bool release(void *address);              /* false: nobody has it */
/* The host's address of the bytes [address, address + bytes), or NULL and why not; of any device where it is -1. */
void *bytes_of(const void *address, size_t bytes, int device, const char **why);
bool is_device_memory(const void *address);
void memory_figures(int device, size_t *left, size_t *total);
void *allocate_pinned(size_t bytes);
bool release_pinned(void *address);
bool is_pinned(const void *address, size_t bytes);

/* For a kernel: the same, or a fault. */
void *reach(const void *address, size_t bytes, size_t alignment, bool written);
/* The offset of an address in the device's memory. */
size_t offset_of(int device, const void *address);

/* ---- calls (runtime.cc) ---- */
/* Notes a call of the runtime, of a library, or a launch; emulator_calls gives the number of each. */
void count_call(const char *name);

/* ---- streams (runtime.cc) ---- */
cudaError_t queue_kernel(const char *name, const void *kernel, dim3 grid, dim3 block, size_t shared_bytes,
                         cudaStream_t stream, std::function<void()> body);

/* Queues work of a library on a stream of the present device; false where it is none. A failure in it is told by
 * library_fault, which loses the device as a kernel's does. */
bool queue_library(const char *call, cudaStream_t stream, std::function<void()> work);
/* The same for work that blocks until that of other ranks has come. `work` may be run several times, if the stream is
 * being captured: *captured. */
bool queue_blocking(const char *call, cudaStream_t stream, std::function<void()> work, bool *captured);
void library_fault(const char *call, const char *why);
int present_device();
int device_of_stream(cudaStream_t stream); /* -1: it is none */
/* bytes_of and draw, for threads that are not in a call of the runtime. */
void *locate(const void *address, size_t bytes, int device, const char **why);
uint32_t draw_locked(uint32_t bound);

/* A function of the backend: see src/device/cuda/cuda.h. */
extern "C" void cuda_note_launch(cudaError_t code);

/* Queues a kernel with its arguments, which are what they are now. */
template <typename... P, typename... A>
void launch(const char *name, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream,
            A... arguments)
{
    cudaError_t code = queue_kernel(name, reinterpret_cast<const void *>(kernel), grid, block, shared_bytes, stream,
                                    [=] { kernel(arguments...); });
    if (code)
        cuda_note_launch(code);
}

/* A pointer that is checked at every access. Arithmetic is free: only what is read or written counts. */
template <typename T> class checked_pointer
{
  public:
    explicit checked_pointer(T *from) : address(from)
    {
    }
    template <typename U> checked_pointer(const checked_pointer<U> &other) : address(other.raw())
    {
    }
    T &operator*() const
    {
        return *operator->();
    }
    T *operator->() const
    {
        return static_cast<T *>(reach(address, sizeof(T), alignof(T), !std::is_const<T>::value));
    }
    T &operator[](int64_t i) const
    {
        return *(*this + i);
    }
    checked_pointer operator+(int64_t i) const
    {
        return checked_pointer(
            reinterpret_cast<T *>(reinterpret_cast<uintptr_t>(address) + (uintptr_t)(i * (int64_t)sizeof(T))));
    }
    checked_pointer operator-(int64_t i) const
    {
        return *this + -i;
    }
    checked_pointer &operator+=(int64_t i)
    {
        return *this = *this + i;
    }
    explicit operator bool() const
    {
        return address != nullptr;
    }
    T *raw() const
    {
        return address;
    }

  private:
    T *address;
};

} // namespace emulator

#endif
