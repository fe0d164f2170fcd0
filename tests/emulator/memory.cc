/*
 * memory.cc - the pretended devices' memory, and pinned memory of the host. Tests only.
 *
 * Each device has an arena of addresses that nobody can touch; an arena of equal size holds the bytes. Which allocation
 * a place belongs to is looked up by its 256-byte piece, the alignment that cudaMalloc promises. Fresh memory is filled
 * with 0xFF: as floats NaN, as indices out of range.
 */
#include <cstdlib>
#include <cstring>
#include <map>
#include <sys/mman.h>
#include <vector>

#include "tests/emulator/emulator.h"

namespace emulator
{

enum { PIECE = 256, MOST_DEVICES = 16 };

struct allocation {
    size_t offset, bytes, room;
    bool live;
};
struct arena {
    char *addresses, *bytes;
    size_t size;                    /* of both; 0 where there are none yet */
    uint32_t *owner;                /* of each piece: 1 + the allocation's number, 0 none */
    const allocation *allocations;  /* all that there ever were, by number */
    std::map<size_t, size_t> holes; /* offset to size */
    size_t left;
};

/* Never destroyed: at the end of a process memory is still given back, in an order that nobody knows. */
static arena (&arenas)[MOST_DEVICES] = *reinterpret_cast<arena (*)[MOST_DEVICES]>(new arena[MOST_DEVICES]());
static std::vector<allocation> *const allocations = new std::vector<allocation>[MOST_DEVICES];
static std::map<uintptr_t, size_t> &pinned = *new std::map<uintptr_t, size_t>;

static size_t arena_bytes()
{
    static const size_t bytes = [] {
        const char *text = getenv("YOKE_EMULATOR_MEMORY"); /* MiB of each device */
        return (size_t)(text ? atoll(text) : 1024) << 20;
    }();
    return bytes;
}

static char *reserve(size_t bytes, int protection)
{
    void *memory = mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        abort();
    return static_cast<char *>(memory);
}

static arena &arena_of(int device)
{
    arena &a = arenas[device];
    if (!a.addresses) {
        a.addresses = reserve(arena_bytes(), PROT_NONE);
        a.bytes = reserve(arena_bytes(), PROT_READ | PROT_WRITE);
        a.owner =
            reinterpret_cast<uint32_t *>(reserve(arena_bytes() / PIECE * sizeof(uint32_t), PROT_READ | PROT_WRITE));
        a.size = arena_bytes();
        a.holes[PIECE] = arena_bytes() - PIECE; /* the first piece is nobody's */
        a.left = arena_bytes() - PIECE;
    }
    return a;
}

UNINSTRUMENTED static bool is_in(const arena &a, const void *address)
{
    return reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(a.addresses) < a.size;
}

/* -1: it is no device's. */
UNINSTRUMENTED static int device_of(const void *address)
{
    for (int d = 0; d < MOST_DEVICES; d++)
        if (is_in(arenas[d], address))
            return d;
    return -1;
}

void *allocate(int device, size_t bytes)
{
    arena &a = arena_of(device);
    size_t room = (bytes + PIECE - 1) / PIECE * PIECE + PIECE; /* with a piece after it that is nobody's */
    for (auto hole = a.holes.begin(); hole != a.holes.end(); ++hole) {
        if (hole->second < room)
            continue;
        size_t offset = hole->first, rest = hole->second - room;
        a.holes.erase(hole);
        if (rest)
            a.holes[offset + room] = rest;
        a.left -= room;
        allocations[device].push_back({offset, bytes, room, true});
        a.allocations = allocations[device].data();
        for (size_t p = offset / PIECE; p < (offset + room) / PIECE - 1; p++)
            a.owner[p] = (uint32_t)allocations[device].size();
        a.owner[(offset + room) / PIECE - 1] = 0;
        memset(a.bytes + offset, 0xFF, room);
        return a.addresses + offset;
    }
    return nullptr;
}

bool release(void *address)
{
    int device = device_of(address);
    if (device < 0)
        return false;
    arena &a = arenas[device];
    size_t offset = (size_t)(static_cast<char *>(address) - a.addresses);
    uint32_t owner = a.owner[offset / PIECE];
    if (!owner || allocations[device][owner - 1].offset != offset || !allocations[device][owner - 1].live)
        return false;
    allocation &gone = allocations[device][owner - 1];
    gone.live = false;
    size_t room = gone.room;
    a.left += room;
    auto behind = a.holes.lower_bound(offset);
    if (behind != a.holes.end() && behind->first == offset + room) {
        room += behind->second;
        behind = a.holes.erase(behind);
    }
    if (behind != a.holes.begin()) {
        auto before = std::prev(behind);
        if (before->first + before->second == offset) {
            before->second += room;
            return true;
        }
    }
    a.holes[offset] = room;
    return true;
}

/* Each access of a kernel comes here: the device that is asked for is looked at first. */
UNINSTRUMENTED void *bytes_of(const void *address, size_t bytes, int device, const char **why)
{
    int found = device >= 0 && is_in(arenas[device], address) ? device : device_of(address);
    *why = nullptr;
    if (found < 0)
        *why = "that is no device's memory";
    else if (device >= 0 && found != device)
        *why = "that is another device's memory";
    if (*why)
        return nullptr;
    arena &a = arenas[found];
    size_t offset = (size_t)(static_cast<const char *>(address) - a.addresses);
    uint32_t owner = a.owner[offset / PIECE];
    const allocation *whose = owner ? &a.allocations[owner - 1] : nullptr;
    if (!whose)
        *why = "that was never allocated";
    else if (!whose->live)
        *why = "that was freed";
    else if (offset + bytes > whose->offset + whose->bytes)
        *why = "that goes beyond the end of its allocation";
    return *why ? nullptr : a.bytes + offset;
}

size_t offset_of(int device, const void *address)
{
    return (size_t)(static_cast<const char *>(address) - arenas[device].addresses);
}

bool is_device_memory(const void *address)
{
    return device_of(address) >= 0;
}

void memory_figures(int device, size_t *left, size_t *total)
{
    *left = arena_of(device).left;
    *total = arena_bytes();
}

void *allocate_pinned(size_t bytes)
{
    void *memory = aligned_alloc(256, (bytes + 255) / 256 * 256);
    if (memory)
        pinned[reinterpret_cast<uintptr_t>(memory)] = bytes;
    return memory;
}

bool release_pinned(void *address)
{
    if (!pinned.erase(reinterpret_cast<uintptr_t>(address)))
        return false;
    free(address);
    return true;
}

bool is_pinned(const void *address, size_t bytes)
{
    uintptr_t at = reinterpret_cast<uintptr_t>(address);
    auto found = pinned.upper_bound(at);
    if (found == pinned.begin())
        return false;
    --found;
    return at + bytes <= found->first + found->second;
}

} // namespace emulator
