/*
 * traffic.cc - counts what kernels and libraries move, for predictions of a step's time. Tests only.
 *
 * YOKE_EMULATOR_TRAFFIC=FILE: each replay of a graph writes the file anew, one JSON object a line for each kernel and
 * call, in the order in which they were queued. Tests count between two marks (emulator_traffic_begin and _end). Bytes
 * are counted in two ways: those that all accesses ask for, and the sectors of 32 bytes that a launch touches, each
 * once: what a GPU's memory moves for it where caches hold what one launch reads again. A kernel's accesses by pointers
 * to const are reads, others writes; what stands for a library tells its own operands. A kernel is named by its address
 * in the plug-in, which `nm` knows.
 *
 * YOKE_EMULATOR_PRODUCTS=0: the libraries' stand-ins, which compute from the definition, write zeros in place of large
 * results, so that a step of a network ends in seconds.
 */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <map>
#include <string>
#include <sys/mman.h>

#include "tests/emulator/streams.h"
#include "tests/emulator/traffic.h"

using emulator::locked;

namespace
{

enum { SECTOR = 32, MOST_DEVICES = 16 };

struct counts {
    emulator::traffic_item item;
    std::string detail;
    double read, written, sectors_read, sectors_written, multiply_adds;
};

std::map<uint64_t, counts> &counted = *new std::map<uint64_t, counts>; // never destroyed, as the memory's tables
counts *running;
bool counting;

/* The number of the last launch that read, or wrote, each sector of a device's memory. */
struct sector_marks {
    uint32_t *read, *written;
} marks[MOST_DEVICES];
uint32_t launches;

uint32_t *marks_make(size_t bytes)
{
    void *made = mmap(nullptr, bytes / SECTOR * sizeof(uint32_t), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (made == MAP_FAILED)
        abort();
    return static_cast<uint32_t *>(made);
}

double mark(uint32_t *of, size_t offset, size_t bytes)
{
    double fresh = 0;
    for (size_t s = offset / SECTOR; s <= (offset + bytes - 1) / SECTOR; s++) {
        fresh += of[s] != launches ? (double)SECTOR : 0;
        of[s] = launches;
    }
    return fresh;
}

void begin()
{
    counted.clear();
    counting = true;
}

void end(const char *file)
{
    std::string part = std::string(file) + ".part";
    FILE *out = fopen(part.c_str(), "w");
    counting = false;
    for (const auto &each : counted) {
        const counts &c = each.second;
        Dl_info where = {};
        size_t kernel = 0;
        if (c.item.kernel && dladdr(c.item.kernel, &where))
            kernel = (size_t)(static_cast<const char *>(c.item.kernel) - static_cast<const char *>(where.dli_fbase));
        if (out)
            fprintf(out,
                    "{\"name\": \"%s\", \"kernel\": %zu, \"detail\": \"%s\", \"blocks\": %zu, \"threads\": %zu, "
                    "\"read\": %.0f, \"written\": %.0f, \"sectors_read\": %.0f, \"sectors_written\": %.0f, "
                    "\"multiply_adds\": %.0f}\n",
                    c.item.name, kernel, c.detail.c_str(), c.item.blocks, c.item.threads, c.read, c.written,
                    c.sectors_read, c.sectors_written, c.multiply_adds);
    }
    if (!out || fclose(out) || rename(part.c_str(), file)) {
        perror(file);
        abort();
    }
}

} // namespace

bool emulator::traffic_counted;

emulator::traffic_item emulator::traffic_queued(const char *name, const void *kernel, size_t blocks, size_t threads)
{
    static uint64_t last;
    return {++last, name, kernel, blocks, threads};
}

void emulator::traffic_run(const traffic_item &item, const std::function<void()> &work)
{
    if (!counting)
        return work();
    running = &counted[item.number];
    *running = {item, "", 0, 0, 0, 0, 0};
    launches++;
    traffic_counted = true;
    work();
    traffic_counted = false;
}

void emulator::traffic_access(int device, size_t offset, size_t bytes, bool written)
{
    sector_marks &m = marks[device];
    if (!m.read) {
        size_t left, total;
        memory_figures(device, &left, &total);
        m.read = marks_make(total), m.written = marks_make(total);
    }
    (written ? running->written : running->read) += (double)bytes;
    (written ? running->sectors_written : running->sectors_read) += mark(written ? m.written : m.read, offset, bytes);
}

void emulator::traffic_call(const char *detail, double read, double written, double multiply_adds)
{
    if (!traffic_counted)
        return;
    running->detail = detail;
    running->read += read, running->sectors_read += read;
    running->written += written, running->sectors_written += written;
    running->multiply_adds += multiply_adds;
}

void emulator::traffic_replay(const std::function<void()> &replay)
{
    static const char *const file = getenv("YOKE_EMULATOR_TRAFFIC");
    if (!file)
        return replay();
    {
        locked hold(lock);
        begin();
    }
    replay();
    locked hold(lock);
    end(file);
}

bool emulator::skips_product(double multiply_adds)
{
    static const char *const text = getenv("YOKE_EMULATOR_PRODUCTS");
    static const bool skips = text && strcmp(text, "0") == 0;
    return skips && multiply_adds > 1e6; /* the trials of NaN (nan_trial.c) are smaller */
}

/* Marks, for tests, which find them in the plug-in: what is carried out between them is counted. */
extern "C" __attribute__((visibility("default"))) void emulator_traffic_begin(void)
{
    locked hold(emulator::lock);
    begin();
}
extern "C" __attribute__((visibility("default"))) void emulator_traffic_end(const char *file)
{
    locked hold(emulator::lock);
    end(file);
}
