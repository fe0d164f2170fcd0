/* backend.h - the backends that there are: built into the library, or plug-ins. Layer: device. */
#ifndef YOKE_DEVICE_BACKEND_H
#define YOKE_DEVICE_BACKEND_H

#include "device/device_plugin.h"
#include "device/table.h"

const yk__backend *yk__cpu_backend(void);
/* The request that describes CUDA's plug-in, for `yoke doctor`, which does not start it. */
const yk__plugin_request *yk__cuda_plugin_request(void);
/* The name of the CPU kernels' instruction set that this process uses. */
const char *yk__cpu_isa(void);
/* The version of oneDNN, which this loads: major, minor, patch; false where it is not there. */
bool yk__onednn_version(int number[3]);

#endif
