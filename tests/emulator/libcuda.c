/*
 * libcuda.c - as much of CUDA's driver as cuDNN wants to make plans for a GPU that is not there: it compiles kernels of
 * attention, and loads them. Tests only.
 *
 * What is loaded is nothing, and has a function of any name. There is no device, so that what else asks for one goes on
 * without.
 */
#define EXPORTED __attribute__((visibility("default")))
enum { DONE = 0, NO_DEVICE = 100, VERSION = 13000 };

EXPORTED int cuDriverGetVersion(int *version);
int cuDriverGetVersion(int *version)
{
    *version = VERSION;
    return DONE;
}

#define GIVES(name)                                                                                                    \
    EXPORTED int name(const void **made);                                                                              \
    int name(const void **made)                                                                                        \
    {                                                                                                                  \
        *made = "nothing";                                                                                             \
        return DONE;                                                                                                   \
    }
GIVES(cuLibraryLoadData)
GIVES(cuLibraryGetKernel)

#define ANSWERS(name, code)                                                                                            \
    EXPORTED int name(void);                                                                                           \
    int name(void)                                                                                                     \
    {                                                                                                                  \
        return code;                                                                                                   \
    }
ANSWERS(cuLibraryUnload, DONE)
ANSWERS(cuKernelSetAttribute, DONE)
/* These have to be there. */
ANSWERS(cuCtxGetCurrent, NO_DEVICE)
ANSWERS(cuCtxGetLimit, NO_DEVICE)
ANSWERS(cuCtxPopCurrent, NO_DEVICE)
ANSWERS(cuCtxPushCurrent, NO_DEVICE)
ANSWERS(cuDeviceGet, NO_DEVICE)
ANSWERS(cuDeviceGetCount, NO_DEVICE)
ANSWERS(cuGetErrorName, NO_DEVICE)
ANSWERS(cuGetErrorString, NO_DEVICE)
ANSWERS(cuInit, NO_DEVICE)
ANSWERS(cuKernelGetAttribute, NO_DEVICE)
ANSWERS(cuLaunchCooperativeKernel, NO_DEVICE)
ANSWERS(cuLaunchKernel, NO_DEVICE)
ANSWERS(cuLaunchKernelEx, NO_DEVICE)
ANSWERS(cuLibraryLoadFromFile, NO_DEVICE)
ANSWERS(cuLinkAddData, NO_DEVICE)
ANSWERS(cuLinkComplete, NO_DEVICE)
ANSWERS(cuLinkCreate, NO_DEVICE)
ANSWERS(cuLinkDestroy, NO_DEVICE)
ANSWERS(cuOccupancyMaxPotentialClusterSize, NO_DEVICE)
ANSWERS(cuStreamGetCtx, NO_DEVICE)
