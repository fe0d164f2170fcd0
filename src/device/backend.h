/* backend.h - the backends that there are: built into the library, or plug-ins. Layer: device. */
#ifndef YOKE_DEVICE_BACKEND_H
#define YOKE_DEVICE_BACKEND_H

#include "device/device_plugin.h"
#include "device/table.h"

const yk__backend *yk__cpu_backend(void);
/* What the plug-in of CUDA must be, for `yoke doctor`, which does not start it. */
const yk__plugin_request *yk__cuda_plugin_request(void);
/* Which of the CPU kernels' instruction sets this process uses, as text. */
const char *yk__cpu_isa(void);
/* The version of oneDNN, which this loads: major, minor, patch; false where it is not there. */
bool yk__onednn_version(int number[3]);

#endif
