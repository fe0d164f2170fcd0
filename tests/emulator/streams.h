/*
 * streams.h - streams, events and captures, as runtime.cc and capture.cc share them. Tests only.
 */
#ifndef YOKE_TESTS_EMULATOR_STREAMS_H
#define YOKE_TESTS_EMULATOR_STREAMS_H

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/emulator/emulator.h"

typedef std::shared_ptr<bool> moment; /* true once it has passed */

struct step {
    std::function<void()> run;
    moment after;         /* the step may be taken once this has passed, where it is set */
    bool host = false;    /* it may block: without the lock */
    bool program = false; /* a host function of the program */
};

/* A piece of a graph's work: each node runs after those that are named, which have smaller numbers. */
struct node {
    std::function<void()> run;
    std::vector<size_t> after;
    bool host = false; /* it may block: without the lock */
};
struct CUgraph_st {
    std::vector<node> nodes;
};

/* A capture under way; it ends with the stream that it began on. */
struct capture {
    CUstream_st *origin;
    cudaStreamCaptureMode mode;
    std::thread::id thread;
    bool broken = false;
    std::vector<node> nodes;
};

struct CUstream_st {
    int device = 0;
    std::deque<step> queue;
    bool busy = false;      /* a host function of its runs */
    bool driven = false;    /* there is a thread for it */
    int host_functions = 0; /* the number of those that wait in the queue */
    std::shared_ptr<struct capture> capture;
    std::vector<size_t> behind; /* the nodes that the next one of this stream follows */
    float clock = 0;            /* milliseconds that its work is said to have taken */
};
struct CUevent_st {
    int device = 0;
    moment recorded;
    bool timing = false;                     /* it was made to be timed */
    std::shared_ptr<float> time;             /* the stream's clock as it passed */
    std::shared_ptr<struct capture> capture; /* it was recorded in, */
    std::vector<size_t> behind;              /* after these */
};

namespace emulator
{

typedef std::lock_guard<std::recursive_mutex> locked;
extern std::recursive_mutex &lock; /* around everything here */
extern std::vector<CUstream_st *> &streams;

/* The code that a call returns, noted for cudaGetLastError. */
cudaError_t result(cudaError_t code);
/* Gives the caller what it asked for, unless the GPUs are lost in this call. */
template <typename T> cudaError_t give(T **to, T *made)
{
    cudaError_t code = result(cudaSuccess);
    if (code)
        delete made;
    else
        *to = made;
    return code;
}
/* A call that the manual forbids; the test fails by what comes of it, and the reader finds this. */
cudaError_t refuse(const char *call, const char *why, cudaError_t code = cudaErrorInvalidValue);
bool known(CUstream_st *stream);
/* True if the thread may make this call: CUDA makes no context where nobody asked for one. */
bool has_chosen(const char *call);
/* Queues what may block until another stream's has run, as a host function; not for a capture. */
void put_host(CUstream_st *stream, std::function<void()> work, bool program = false);

/* ---- capture.cc ---- */
/* Queues work on a stream, or adds it to the stream's capture, which is the calling thread's, unless a library has it
 * done by a thread of its own. */
cudaError_t put(CUstream_st *stream, std::function<void()> work, bool any_thread = false);
/* A call that may not be in a capture: the capture can only be ended from here on. */
cudaError_t break_capture(CUstream_st *stream, const char *call, const char *why, cudaError_t code);
/* True if the stream's capture is the calling thread's; else it is broken. CUDA takes in work that any thread puts
 * there. */
bool own_capture(CUstream_st *stream, const char *call);
/* True if a call that the modes of captures forbid (memory, waiting for anything, looking at any event) comes while one
 * is under way, which then is broken. */
bool breaks_capture(const char *call);
cudaError_t wait_in_capture(CUstream_st *stream, const CUevent_st *event);

} // namespace emulator

#endif
