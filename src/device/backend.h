/* backend.h - the backends that are built into the library. Layer: device. */
#ifndef YOKE_DEVICE_BACKEND_H
#define YOKE_DEVICE_BACKEND_H

#include "device/table.h"

const yk__backend *yk__cpu_backend(void);
/* Which of the CPU kernels' instruction sets this process uses, as text. */
const char *yk__cpu_isa(void);

#endif
