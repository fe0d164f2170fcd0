/*
 * agent_messages.c - the values that launchers put into their store: reports, plans, orders. Layer: launch.
 *
 * Invariant: what is read was sent by a launcher of the job, but need not be well-formed or true: sizes and ranges are
 * checked, and text loses its control characters here, before it can reach a terminal.
 */
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "launch/agents.h"

enum {
    MOST_COUNTS = 4096,
    MOST_PROCESSES = 4096,
    MOST_GRACE = 1 << 30, /* seconds */
    /* A word of its own for each of so many ranks; a variable of the environment may have 128 KiB. */
    MOST_LISTENERS_TEXT = YK__MOST_LISTENERS * (YK__ADDRESS_TEXT + 8)
};

bool yk__agent_read_text(yk__reader *reader, char *text, size_t size)
{
    size_t length = yk__read_u32(reader);
    const unsigned char *bytes = yk__read_bytes(reader, length);
    if (!bytes || length >= size)
        return false;
    for (size_t i = 0; i < length; i++)
        text[i] = (bytes[i] >= 32 && bytes[i] != 127) || bytes[i] == '\n' || bytes[i] == '\t' ? (char)bytes[i] : '?';
    text[length] = '\0';
    return true;
}

void yk__agent_put_text(yk__wire *wire, const char *text)
{
    yk__wire_put_value(wire, text ? text : "", text ? strlen(text) : 0);
}

yk__wire yk__agent_report(unsigned kind, uint64_t id)
{
    yk__wire wire = {0};
    yk__wire_put_u8(&wire, kind);
    yk__wire_put_u64(&wire, id);
    return wire;
}

void yk__agent_plan_key(char key[32], uint64_t id)
{
    snprintf(key, 32, "plan/%016" PRIx64, id);
}

void yk__agent_put_facts(yk__wire *wire, const yk__agent_facts *facts)
{
    yk__wire_put_u32(wire, (uint32_t)facts->nodes);
    yk__wire_put_u32(wire, (uint32_t)(1e3 * facts->timeout + 0.5));
    yk__wire_put_u64(wire,
                     facts->grace < MOST_GRACE ? (uint64_t)(1e3 * facts->grace + 0.5) : (uint64_t)MOST_GRACE * 1000);
    yk__wire_put_u32(wire, (uint32_t)(facts->wanted + 1));
    yk__agent_put_text(wire, facts->host);
    yk__wire_put_u32(wire, facts->pid);
    yk__wire_put_u32(wire, (uint32_t)facts->listed);
    for (int i = 0; i < facts->listed; i++)
        yk__wire_put_u32(wire, (uint32_t)facts->counts[i]);
    yk__agent_put_text(wire, facts->listeners);
}

/* Text in new memory, NULL without. */
static char *read_new_text(yk__reader *r, size_t limit)
{
    size_t size = r->end - r->at >= 4 ? yk__load_u32(r->at) : limit;
    char *text = size < limit ? malloc(size + 1) : NULL;
    if (text && yk__agent_read_text(r, text, size + 1))
        return text;
    free(text);
    r->bad = true;
    return NULL;
}

bool yk__agent_read_facts(yk__reader *r, yk__agent_facts *facts)
{
    *facts = (yk__agent_facts){.nodes = (int)yk__read_u32(r)};
    facts->timeout = 1e-3 * yk__read_u32(r);
    uint64_t grace = yk__read_u64(r);
    facts->grace = 1e-3 * (double)grace;
    uint32_t number = yk__read_u32(r); /* 0: any */
    r->bad |= grace > (uint64_t)MOST_GRACE * 1000 || number > INT_MAX;
    facts->wanted = r->bad ? -1 : (int)number - 1;
    r->bad |= !yk__agent_read_text(r, facts->host, sizeof(facts->host));
    facts->pid = yk__read_u32(r);
    facts->listed = (int)yk__read_u32(r);
    if (r->bad || facts->listed < 1 || facts->listed > MOST_COUNTS ||
        !(facts->counts = calloc((size_t)facts->listed, sizeof(int))))
        return false;
    for (int i = 0; i < facts->listed; i++) {
        facts->counts[i] = (int)yk__read_u32(r);
        r->bad |= facts->counts[i] < 1 || facts->counts[i] > MOST_PROCESSES;
    }
    facts->listeners = read_new_text(r, MOST_LISTENERS_TEXT);
    if (yk__read_finished(r))
        return true;
    free(facts->counts);
    free(facts->listeners);
    facts->counts = NULL;
    facts->listeners = NULL;
    return false;
}

void yk__agent_put_end(yk__wire *wire, const yk__outcome *end)
{
    yk__wire_put_u8(wire, end->kind);
    const int numbers[] = {end->code, end->rank, end->local_rank, end->pid, end->status, end->signal};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
        yk__wire_put_u32(wire, (uint32_t)numbers[i]);
    yk__wire_put_u64(wire, (uint64_t)(end->seconds * 1e6));
    yk__agent_put_text(wire, end->host);
    yk__agent_put_text(wire, end->text);
    yk__agent_put_text(wire, end->tail);
}

bool yk__agent_read_end(yk__reader *reader, yk__outcome *end)
{
    *end = (yk__outcome){.kind = YK__RUN_DONE};
    unsigned kind = yk__read_u8(reader);
    int *numbers[] = {&end->code, &end->rank, &end->local_rank, &end->pid, &end->status, &end->signal};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
        *numbers[i] = (int)yk__read_u32(reader);
    end->seconds = (double)yk__read_u64(reader) * 1e-6;
    enum { TAIL = RELAY_TAIL + 16 };
    end->tail = malloc(TAIL);
    if (kind <= YK__RUN_HUNG && end->tail && yk__agent_read_text(reader, end->host, sizeof(end->host)) &&
        yk__agent_read_text(reader, end->text, sizeof(end->text)) && yk__agent_read_text(reader, end->tail, TAIL) &&
        end->code >= 0 && end->code < 256 && (end->code == 0) == (kind == YK__RUN_DONE) && end->signal >= 0 &&
        end->signal <= AGENT_MOST_SIGNAL && (end->signal > 0 || kind != YK__RUN_INTERRUPTED)) {
        end->kind = kind;
        return true;
    }
    yk__outcome_clear(end);
    return false;
}

void yk__agent_put_plan(yk__wire *wire, const yk__agent_plan *plan, const char *table)
{
    const int numbers[] = {plan->node, plan->local, plan->first, plan->world, plan->port};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
        yk__wire_put_u32(wire, (uint32_t)numbers[i]);
    yk__wire_put_u64(wire, (uint64_t)plan->restart);
    yk__wire_put_u64(wire, (uint64_t)plan->restarts);
    yk__agent_put_text(wire, table);
}

bool yk__agent_read_plan(yk__reader *reader, yk__agent_plan *plan, char **table)
{
    int *numbers[] = {&plan->node, &plan->local, &plan->first, &plan->world, &plan->port};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
        *numbers[i] = (int)yk__read_u32(reader);
    plan->restart = (int64_t)yk__read_u64(reader);
    plan->restarts = (int64_t)yk__read_u64(reader);
    *table = read_new_text(reader, MOST_LISTENERS_TEXT);
    if (yk__read_finished(reader) && plan->node > 0 && plan->local > 0 && plan->local <= MOST_PROCESSES &&
        plan->first >= 0 && plan->world > plan->local && plan->first <= plan->world - plan->local && plan->port > 0 &&
        plan->port < 65536 && plan->restart >= 0 && plan->restarts >= 0)
        return true;
    free(*table);
    *table = NULL;
    return false;
}
