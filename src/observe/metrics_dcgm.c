/*
 * metrics_dcgm.c - GPUs in Prometheus' text format, as dcgm-exporter has them: names, types, help, labels and their
 * order, the form of values. Layer: observe.
 */
#include <math.h>
#include <string.h>

#include "observe/metrics.h"

static void gpu_labels(FILE *to, const yk__snapshot *s, const yk__gpu_sample *gpu, const yk__metrics_options *o)
{
    char number[32];
    int index = (int)(gpu - s->gpus);
    snprintf(number, sizeof(number), "%d", index);
    yk__metrics_label(to, true, "gpu", number);
    yk__metrics_label(to, false, "UUID", gpu->uuid);
    yk__metrics_label(to, false, "pci_bus_id", gpu->bus);
    snprintf(number, sizeof(number), "nvidia%d", index);
    yk__metrics_label(to, false, "device", number);
    yk__metrics_label(to, false, "modelName", gpu->gpu.name);
    if (o->host && o->label != YK__HOST_LABEL_NEW)
        yk__metrics_label(to, false, "Hostname", o->host);
    if (o->host && o->label != YK__HOST_LABEL_OLD)
        yk__metrics_label(to, false, "hostname", o->host);
    for (int i = 0; i < o->collectors->count; i++) {
        const yk__dcgm_collector *c = &o->collectors->all[i];
        if (c->field->kind == YK__DCGM_DRIVER && *s->driver)
            yk__metrics_label(to, false, c->field->name, s->driver);
    }
}

/* One family; nothing where no GPU tells its value. */
static void collector_write(FILE *to, const yk__snapshot *s, const yk__dcgm_collector *c, const yk__metrics_options *o)
{
    bool any = false;
    for (int i = 0; i < s->n_gpus; i++) {
        const yk__gpu_sample *gpu = &s->gpus[i];
        double value = gpu->values[c->field->value];
        if (!gpu->known || isnan(value))
            continue;
        if (!any)
            yk__metrics_family(to, c->field->name, c->type, c->help);
        any = true;
        fprintf(to, "%s{", c->field->name);
        gpu_labels(to, s, gpu, o);
        fprintf(to, c->field->kind == YK__DCGM_INTEGER ? "} %.0f\n" : "} %f\n", value);
    }
}

void yk__metrics_dcgm(FILE *to, const yk__snapshot *s, const yk__metrics_options *o)
{
    for (int i = 0; i < o->collectors->count; i++) {
        const yk__dcgm_collector *c = &o->collectors->all[i];
        if (c->field->kind == YK__DCGM_INTEGER || c->field->kind == YK__DCGM_REAL)
            collector_write(to, s, c, o);
    }
}
