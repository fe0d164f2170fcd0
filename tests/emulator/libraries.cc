/*
 * libraries.cc - the loader of NVIDIA's libraries, for the emulator: finds the stand-ins of their calls. Tests only.
 *
 * YOKE_EMULATOR_LIBRARIES names what is "installed": "cublasLt,cudnn,nccl" where it is not set, "" for a machine that
 * has none. The driver's library is there but where YOKE_EMULATOR_DRIVER is 0.
 */
#include <cstdlib>
#include <cstring>

#include "tests/emulator/libraries.h"

namespace emulator
{
static const library *const all[] = {&driver_library, &blas_library, &dnn_library,
#if __has_include(<nccl.h>)
                                     &nccl_library
#endif
};
} // namespace emulator

static bool is_installed(const emulator::library *l)
{
    const char *driver = getenv("YOKE_EMULATOR_DRIVER"), *installed = getenv("YOKE_EMULATOR_LIBRARIES");
    if (l == &emulator::driver_library)
        return !driver || strcmp(driver, "0") != 0;
    return !installed || strstr(installed, l->name);
}

extern "C" {

void *emulator_dlopen(const char *file, int)
{
    for (const emulator::library *l : emulator::all)
        if (strstr(file, l->name) && is_installed(l))
            return const_cast<emulator::library *>(l);
    return nullptr;
}

void *emulator_dlsym(void *opened, const char *name)
{
    for (const emulator::function *f = static_cast<emulator::library *>(opened)->functions; f->name; f++)
        if (strcmp(f->name, name) == 0)
            return f->address;
    return nullptr;
}

const char *emulator_dlerror(void)
{
    return "the emulator has no such library";
}

int emulator_dlclose(void *)
{
    return 0;
}

} // extern "C"
