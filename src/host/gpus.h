/*
 * gpus.h - how many GPUs this process may use, without starting their driver. Layer: host.
 */
#ifndef YOKE_HOST_GPUS_H
#define YOKE_HOST_GPUS_H

/*
 * The GPUs of NVIDIA's kernel driver that have a device file this process may open, less those that
 * CUDA_VISIBLE_DEVICES leaves out. -1 where that cannot be told without the driver's library: there is no such driver
 * (or one without these files: WSL, Jetson), or the variable names parts of a GPU (MIG-...). CUDA does not survive a
 * fork, so a process must be able to count before it forks. Source: torch.cuda.device_count.
 */
int yk__gpus_count(void);

/* Their numbers, in the order in which this process sees them, as the driver counts all GPUs of this host: by the PCI
 * bus, as NVML and dcgm-exporter do, while a process counts those that it may use. At most `most`; how many there are,
 * or -1, as above. */
int yk__gpus_list(int *numbers, int most);

/* The same of other folders, for tests: `driver` holds a folder for each GPU with a file "information", `devices` the
 * device files; `visible` NULL: all. */
int yk__gpus_list_in(const char *driver, const char *devices, const char *visible, int *numbers, int most);
int yk__gpus_count_in(const char *driver, const char *devices, const char *visible);

#endif
