/*
 * textfile.h - metrics in a file that node_exporter reads. Layer: cli.
 */
#ifndef YOKE_CLI_MONITOR_TEXTFILE_H
#define YOKE_CLI_MONITOR_TEXTFILE_H

#include <stdio.h>

#include "base/core.h"

/* Writes a file that is renamed over `path`: who reads sees the old text or the new one, whole. Others may read it. It
 * is not made safe on the disk, since it is out of date in seconds. On an error the old file is there. */
yk_status textfile_write(const char *path, void (*write)(void *argument, FILE *to), void *argument);

#endif
