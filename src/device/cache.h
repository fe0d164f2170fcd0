/*
 * cache.h - what the allocator of a device keeps and counts (storage.c), for the file that reports it. Layer: device.
 */
#ifndef YOKE_DEVICE_CACHE_H
#define YOKE_DEVICE_CACHE_H

#include <pthread.h>

#include "device/table.h"

/* MAX_DEVICES: of one type; no back end has more. CLASSES: four for each power of two, so that a block is at most a
 * quarter larger than asked for. LEAST: bytes of the smallest block. */
enum { MAX_DEVICES = 64, CLASSES = 4 * 64, LEAST = 256 };

typedef struct yk__free_list {
    yk__storage **storages; /* with their blocks, which are all of the class's size */
    size_t count, capacity;
} yk__free_list;

/* A storage that nobody holds, and that other queues may still use. */
typedef struct yk__pending {
    yk__storage *storage;
    uint8_t unmarked; /* 1 << queue: those behind which there is no event yet */
    yk__event *events[YK__QUEUES];
} yk__pending;

struct yk__memory_pool {
    yk_device device;
    yk__free_list lists[CLASSES];
    pthread_t recorder;
    struct yk__memory_pool *next; /* of the device's */
};

typedef struct yk__cache {
    pthread_mutex_t lock;
    yk__free_list lists[YK__QUEUES][CLASSES];
    yk__pending *pending;
    size_t n_pending, pending_room;
    yk__memory_pool *pools, *open; /* open: of the recording under way, or NULL */
    size_t allocated, peak, reserved, peak_reserved;
    size_t limit;        /* of what is reserved; 0: none */
    yk__storage *newest; /* all that is allocated */
} yk__cache;

/* NULL where nothing was allocated on the device yet. */
yk__cache *yk__cache_existing(int type, int index);
/* Fails with YK_ERR_MEMORY: what was asked for, and who holds the device's memory. `why` is what the backend says,
 * which knows more than we do where the memory is not the host's, or "". (memory_report.c) */
yk_status yk__cache_fail_memory(yk__cache *c, yk_device device, size_t bytes, const char *why);

#endif
