/* backend.h - the backends that are built into the library. Layer: device. */
#ifndef YOKE_DEVICE_BACKEND_H
#define YOKE_DEVICE_BACKEND_H

#include "device/table.h"

const yk__backend *yk__cpu_backend(void);

#endif
