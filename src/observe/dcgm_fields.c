/*
 * dcgm_fields.c - the fields of DCGM, and dcgm-exporter's files of collectors. Layer: observe.
 */
#include <stdlib.h>
#include <string.h>

#include "host/file.h"
#include "observe/dcgm_fields.h"

enum { MOST_BYTES = 1 << 20, MOST_COLLECTORS = 1000, COLUMNS = 3 };

/* Those with a type are the default, in this order. */
static const yk__dcgm_field fields[] = {
    {"DCGM_FI_DEV_SM_CLOCK", YK__DCGM_INTEGER, YK__GPU_SM_CLOCK, "gauge", "SM clock frequency (in MHz)."},
    {"DCGM_FI_DEV_MEM_CLOCK", YK__DCGM_INTEGER, YK__GPU_MEM_CLOCK, "gauge", "Memory clock frequency (in MHz)."},
    {"DCGM_FI_DEV_MEMORY_TEMP", YK__DCGM_INTEGER, YK__GPU_MEMORY_TEMP, "gauge", "Memory temperature (in C)."},
    {"DCGM_FI_DEV_GPU_TEMP", YK__DCGM_INTEGER, YK__GPU_TEMP, "gauge", "GPU temperature (in C)."},
    {"DCGM_FI_DEV_POWER_USAGE", YK__DCGM_REAL, YK__GPU_POWER_USAGE, "gauge", "Power draw (in W)."},
    {"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", YK__DCGM_INTEGER, YK__GPU_ENERGY, "counter",
     "Total energy consumption since boot (in mJ)."},
    {"DCGM_FI_DEV_PCIE_REPLAY_COUNTER", YK__DCGM_INTEGER, YK__GPU_PCIE_REPLAYS, "counter",
     "Total number of PCIe retries."},
    {"DCGM_FI_DEV_GPU_UTIL", YK__DCGM_INTEGER, YK__GPU_UTIL, "gauge", "GPU utilization (in %)."},
    {"DCGM_FI_DEV_MEM_COPY_UTIL", YK__DCGM_INTEGER, YK__GPU_MEM_COPY_UTIL, "gauge", "Memory utilization (in %)."},
    {"DCGM_FI_DEV_ENC_UTIL", YK__DCGM_INTEGER, YK__GPU_ENC_UTIL, "gauge", "Encoder utilization (in %)."},
    {"DCGM_FI_DEV_DEC_UTIL", YK__DCGM_INTEGER, YK__GPU_DEC_UTIL, "gauge", "Decoder utilization (in %)."},
    {"DCGM_FI_DEV_FB_FREE", YK__DCGM_INTEGER, YK__GPU_FB_FREE, "gauge", "Framebuffer memory free (in MiB)."},
    {"DCGM_FI_DEV_FB_USED", YK__DCGM_INTEGER, YK__GPU_FB_USED, "gauge", "Framebuffer memory used (in MiB)."},
    {"DCGM_FI_DEV_FB_RESERVED", YK__DCGM_INTEGER, YK__GPU_FB_RESERVED, "gauge",
     "Framebuffer memory reserved (in MiB)."},
    {"DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", YK__DCGM_INTEGER, YK__GPU_UNCORRECTABLE_ROWS, "counter",
     "Number of remapped rows for uncorrectable errors"},
    {"DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", YK__DCGM_INTEGER, YK__GPU_CORRECTABLE_ROWS, "counter",
     "Number of remapped rows for correctable errors"},
    {"DCGM_FI_DEV_ROW_REMAP_FAILURE", YK__DCGM_INTEGER, YK__GPU_ROW_REMAP_FAILURE, "gauge",
     "Whether remapping of rows has failed"},
    {"DCGM_FI_DRIVER_VERSION", YK__DCGM_DRIVER, YK__GPU_VALUES, "label", "Driver Version"},
    {"DCGM_FI_PROF_GR_ENGINE_ACTIVE", YK__DCGM_REAL, YK__GPU_GR_ENGINE_ACTIVE, "gauge",
     "Ratio of time the graphics engine is active."},
    {"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", YK__DCGM_REAL, YK__GPU_TENSOR_ACTIVE, "gauge",
     "Ratio of cycles the tensor (HMMA) pipe is active."},
    {"DCGM_FI_PROF_DRAM_ACTIVE", YK__DCGM_REAL, YK__GPU_DRAM_ACTIVE, "gauge",
     "Ratio of cycles the device memory interface is active sending or receiving data."},
    {"DCGM_FI_PROF_PCIE_TX_BYTES", YK__DCGM_INTEGER, YK__GPU_PCIE_TX_BYTES, "gauge",
     "The rate of data transmitted over the PCIe bus - including both protocol headers and data payloads - in bytes "
     "per "
     "second."},
    {"DCGM_FI_PROF_PCIE_RX_BYTES", YK__DCGM_INTEGER, YK__GPU_PCIE_RX_BYTES, "gauge",
     "The rate of data received over the PCIe bus - including both protocol headers and data payloads - in bytes per "
     "second."},
    {"DCGM_FI_PROF_SM_ACTIVE", YK__DCGM_REAL, YK__GPU_SM_ACTIVE, NULL, NULL},
    {"DCGM_FI_PROF_SM_OCCUPANCY", YK__DCGM_REAL, YK__GPU_SM_OCCUPANCY, NULL, NULL},
};

/* Other fields that files of dcgm-exporter name. */
static const yk__dcgm_field others[] = {
    {"DCGM_FI_DEV_XID_ERRORS", YK__DCGM_NONE, YK__GPU_VALUES, NULL, NULL},
    {"DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", YK__DCGM_NONE, YK__GPU_VALUES, NULL, NULL},
    {"DCGM_FI_DEV_VGPU_LICENSE_STATUS", YK__DCGM_NONE, YK__GPU_VALUES, NULL, NULL},
    {"DCGM_FI_DEV_POWER_VIOLATION", YK__DCGM_NONE, YK__GPU_VALUES, NULL, NULL},
    {"DCGM_FI_DEV_THERMAL_VIOLATION", YK__DCGM_NONE, YK__GPU_VALUES, NULL, NULL},
    {"DCGM_FI_DEV_SYNC_BOOST_VIOLATION", YK__DCGM_NONE, YK__GPU_VALUES, NULL, NULL},
    {"DCGM_FI_DEV_BOARD_LIMIT_VIOLATION", YK__DCGM_NONE, YK__GPU_VALUES, NULL, NULL},
    {"DCGM_FI_DEV_LOW_UTIL_VIOLATION", YK__DCGM_NONE, YK__GPU_VALUES, NULL, NULL},
    {"DCGM_FI_DEV_RELIABILITY_VIOLATION", YK__DCGM_NONE, YK__GPU_VALUES, NULL, NULL},
    {"DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", YK__DCGM_NONE, YK__GPU_VALUES, NULL, NULL},
    {"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", YK__DCGM_NONE, YK__GPU_VALUES, NULL, NULL},
    {"DCGM_FI_DEV_ECC_SBE_AGG_TOTAL", YK__DCGM_NONE, YK__GPU_VALUES, NULL, NULL},
    {"DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", YK__DCGM_NONE, YK__GPU_VALUES, NULL, NULL},
    {"DCGM_FI_DEV_RETIRED_SBE", YK__DCGM_NONE, YK__GPU_VALUES, NULL, NULL},
    {"DCGM_FI_DEV_RETIRED_DBE", YK__DCGM_NONE, YK__GPU_VALUES, NULL, NULL},
    {"DCGM_FI_DEV_RETIRED_PENDING", YK__DCGM_NONE, YK__GPU_VALUES, NULL, NULL},
    {"DCGM_FI_DEV_PCIE_TX_THROUGHPUT", YK__DCGM_NONE, YK__GPU_VALUES, NULL, NULL},
    {"DCGM_FI_DEV_PCIE_RX_THROUGHPUT", YK__DCGM_NONE, YK__GPU_VALUES, NULL, NULL},
    {"DCGM_FI_PROF_PIPE_FP64_ACTIVE", YK__DCGM_NONE, YK__GPU_VALUES, NULL, NULL},
    {"DCGM_FI_PROF_PIPE_FP32_ACTIVE", YK__DCGM_NONE, YK__GPU_VALUES, NULL, NULL},
    {"DCGM_FI_PROF_PIPE_FP16_ACTIVE", YK__DCGM_NONE, YK__GPU_VALUES, NULL, NULL},
    {"DCGM_EXP_CLOCK_EVENTS_COUNT", YK__DCGM_NONE, YK__GPU_VALUES, NULL, NULL},
    {"DCGM_EXP_XID_ERRORS_COUNT", YK__DCGM_NONE, YK__GPU_VALUES, NULL, NULL},
    {"DCGM_EXP_GPU_HEALTH_STATUS", YK__DCGM_NONE, YK__GPU_VALUES, NULL, NULL},
    {"DCGM_EXP_P2P_STATUS", YK__DCGM_NONE, YK__GPU_VALUES, NULL, NULL},
};
enum { FIELDS = sizeof(fields) / sizeof(*fields), OTHERS = sizeof(others) / sizeof(*others) };

static const yk__dcgm_field *field_at(int index)
{
    return index < FIELDS ? &fields[index] : &others[index - FIELDS];
}

static yk_status collector_add(yk__dcgm_collectors *c, const yk__dcgm_field *field, const char *type, const char *help)
{
    yk__dcgm_collector *more = yk__realloc(c->all, ((size_t)c->count + 1) * sizeof(*more));
    if (!more)
        return yk__error_code();
    c->all = more;
    yk__dcgm_collector *one = &more[c->count];
    *one = (yk__dcgm_collector){.field = field, .help = yk__strdup(help)};
    snprintf(one->type, sizeof(one->type), "%s", type);
    c->count += one->help != NULL;
    return one->help ? YK_OK : yk__error_code();
}

/* ---- files ------------------------------------------------------------------------------------------------------- */
static void trim(char **text)
{
    *text += strspn(*text, " \t");
    size_t size = strlen(*text);
    while (size && strchr(" \t\r", (*text)[size - 1]))
        (*text)[--size] = '\0';
}

/* Splits a line at its commas, in place; a column in quotes may have some, and "" for a quote. How many columns there
 * are, of which COLUMNS are kept; -1 where a quote does not end. */
static int line_split(char *line, char *columns[COLUMNS])
{
    int count = 0;
    for (char *at = line; at; count++) {
        char *begin = at + strspn(at, " \t"), *to = begin, *from = begin;
        if (*begin == '"') {
            for (from++; *from && !(from[0] == '"' && from[1] != '"'); from++) {
                from += from[0] == '"';
                *to++ = *from;
            }
            if (!*from)
                return -1;
            from++;
            at = strchr(from, ',');
        } else {
            to = from = begin + strcspn(begin, ",");
            at = *from ? from : NULL;
        }
        at = at ? at + 1 : NULL;
        *to = '\0';
        if (count < COLUMNS)
            columns[count] = begin;
    }
    return count;
}

/* Reads a line that is no comment. */
static yk_status line_read(const char *path, int number, char *line, yk__dcgm_collectors *c)
{
    static const char *const types[] = {"gauge", "counter", "histogram", "summary", "label"};
    char *columns[COLUMNS], name[160], type[80];
    int count = line_split(line, columns);
    if (count != COLUMNS)
        return yk__fail(YK_ERR_FORMAT,
                        count < 0
                            ? "%s:%d: a quote does not end"
                            : "%s:%d: %d columns; expected FIELD, TYPE, HELP (a help with a comma stands in quotes)",
                        path, number, count);
    for (int i = 0; i < COLUMNS; i++)
        trim(&columns[i]);
    yk__escape(columns[0], strlen(columns[0]), name, sizeof(name));
    yk__escape(columns[1], strlen(columns[1]), type, sizeof(type));
    const char *names[FIELDS + OTHERS], *known = NULL;
    const yk__dcgm_field *field = NULL;
    for (int i = 0; i < FIELDS + OTHERS; i++) {
        names[i] = field_at(i)->name;
        if (strcmp(columns[0], names[i]) == 0)
            field = field_at(i);
    }
    if (!field) {
        const char *near = yk__nearest(columns[0], names, FIELDS + OTHERS);
        return yk__fail(YK_ERR_FORMAT, "%s:%d: unknown field '%s'%s%s%s", path, number, name,
                        near ? ", did you mean '" : "", near ? near : "", near ? "'?" : "");
    }
    for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++) {
        if (strcmp(columns[1], types[i]) == 0)
            known = types[i];
    }
    if (!known)
        return yk__fail(YK_ERR_FORMAT, "%s:%d: unknown type '%s'; expected gauge, counter, histogram, summary or label",
                        path, number, type);
    bool label = strcmp(known, "label") == 0;
    if (label != (field->kind == YK__DCGM_DRIVER) && field->kind != YK__DCGM_NONE)
        return yk__fail(YK_ERR_FORMAT, "%s:%d: %s is %s", path, number, field->name,
                        label ? "a number, and no label here" : "a text: its type is label");
    for (int i = 0; i < c->count; i++) {
        if (c->all[i].field == field)
            return yk__fail(YK_ERR_FORMAT, "%s:%d: %s stands there twice", path, number, field->name);
    }
    if (c->count == MOST_COLLECTORS)
        return yk__fail(YK_ERR_FORMAT, "%s:%d: more than %d fields", path, number, MOST_COLLECTORS);
    return collector_add(c, field, known, columns[2]);
}

static yk_status file_read(const char *path, yk__dcgm_collectors *c)
{
    unsigned char *data = NULL;
    size_t size = 0;
    yk_status status = yk__file_read(path, MOST_BYTES, &data, &size);
    char *text = status ? NULL : yk__calloc(1, size + 1), *rest = text, *line;
    if (text)
        memcpy(text, data, size);
    free(data);
    for (int number = 1; !status && rest && (line = strsep(&rest, "\n")); number++) {
        trim(&line);
        if (*line && *line != '#')
            status = line_read(path, number, line, c);
    }
    if (!status && text && !c->count)
        status = yk__fail(YK_ERR_FORMAT, "%s: there is no field in it", path);
    status = status || text ? status : yk__error_code();
    free(text);
    return status;
}

yk_status yk__dcgm_collectors_read(const char *path, yk__dcgm_collectors *c)
{
    yk_status status = YK_OK;
    *c = (yk__dcgm_collectors){0};
    if (path)
        status = file_read(path, c);
    for (int i = 0; !path && i < FIELDS && !status; i++) {
        if (fields[i].type)
            status = collector_add(c, &fields[i], fields[i].type, fields[i].help);
    }
    if (status)
        yk__dcgm_collectors_clear(c);
    return status;
}

void yk__dcgm_collectors_clear(yk__dcgm_collectors *c)
{
    for (int i = 0; i < c->count; i++)
        free(c->all[i].help);
    free(c->all);
    *c = (yk__dcgm_collectors){0};
}
