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

#include "host/rank_info.h"
#include "launch/agents.h"

enum {
    MOST_COUNTS = 4096,
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

void yk__agent_plan_key(char key[32], uint64_t id, int waits)
{
    if (waits)
        snprintf(key, 32, "plan/%016" PRIx64 "/%u", id, (unsigned)waits % 1000000 + 1);
    else
        snprintf(key, 32, "plan/%016" PRIx64, id);
}

void yk__agent_put_facts(yk__wire *wire, const yk__agent_facts *facts)
{
    yk__wire_put_u32(wire, (uint32_t)facts->nodes);
    yk__wire_put_u32(wire, (uint32_t)facts->least);
    yk__wire_put_u32(wire, (uint32_t)(1e3 * facts->timeout + 0.5));
    yk__wire_put_u64(wire,
                     facts->grace < MOST_GRACE ? (uint64_t)(1e3 * facts->grace + 0.5) : (uint64_t)MOST_GRACE * 1000);
    yk__wire_put_u32(wire, (uint32_t)(facts->wanted + 1));
    yk__agent_put_text(wire, facts->host);
    yk__agent_put_text(wire, facts->machine);
    yk__wire_put_u32(wire, facts->pid);
    yk__wire_put_u32(wire, (uint32_t)facts->listed);
    for (int i = 0; i < facts->listed; i++)
        yk__wire_put_u32(wire, (uint32_t)facts->counts[i]);
    yk__agent_put_text(wire, facts->keeper);
    yk__agent_put_text(wire, facts->listeners);
    yk__wire_put_u32(wire, (uint32_t)facts->roles);
    for (int r = 0; r < facts->roles; r++) {
        yk__agent_put_text(wire, facts->rules[r].name);
        yk__wire_put_u8(wire, facts->rules[r].on_failure);
        yk__wire_put_u32(wire, (uint32_t)(facts->rules[r].restarts + 1));
        for (int i = 0; i < facts->listed; i++)
            yk__wire_put_u32(wire, (uint32_t)facts->role_counts[r * facts->listed + i]);
    }
}

void yk__agent_facts_clear(yk__agent_facts *facts)
{
    free(facts->counts);
    free(facts->keeper);
    free(facts->listeners);
    free(facts->rules);
    free(facts->role_counts);
    facts->counts = facts->role_counts = NULL;
    facts->keeper = facts->listeners = NULL;
    facts->rules = NULL;
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

/* The roles, whose processes together are those of the job. */
static bool read_roles(yk__reader *r, yk__agent_facts *facts)
{
    uint32_t roles = yk__read_u32(r);
    if (r->bad || roles > YK__MOST_ROLES)
        return false;
    facts->roles = (int)roles;
    facts->rules = calloc(roles + 1, sizeof(*facts->rules));
    facts->role_counts = calloc((size_t)roles * (size_t)facts->listed + 1, sizeof(int));
    if (!facts->rules || !facts->role_counts)
        return false;
    for (int k = 0; k < facts->roles; k++) {
        yk__role_rule *rule = &facts->rules[k];
        r->bad |= !yk__agent_read_text(r, rule->name, sizeof(rule->name)) || !rule->name[0];
        unsigned on_failure = yk__read_u8(r);
        uint32_t restarts = yk__read_u32(r);
        r->bad |= on_failure > YK__ON_FAILURE_RESTART || restarts > INT_MAX;
        rule->on_failure = r->bad ? YK__ON_FAILURE_END : (yk__on_failure)on_failure;
        rule->restarts = r->bad ? 0 : (int)restarts - 1;
        for (int i = 0; i < facts->listed && !r->bad; i++) {
            uint32_t count = yk__read_u32(r);
            r->bad |= count > YK__MOST_LOCAL;
            facts->role_counts[k * facts->listed + i] = r->bad ? 0 : (int)count;
        }
    }
    for (int i = 0; i < facts->listed && facts->roles && !r->bad; i++) {
        int sum = 0;
        for (int k = 0; k < facts->roles; k++)
            sum += facts->role_counts[k * facts->listed + i];
        r->bad |= sum != facts->counts[i];
    }
    return !r->bad;
}

bool yk__agent_read_facts(yk__reader *r, yk__agent_facts *facts)
{
    *facts = (yk__agent_facts){.nodes = (int)yk__read_u32(r)};
    facts->least = (int)yk__read_u32(r);
    facts->timeout = 1e-3 * yk__read_u32(r);
    uint64_t grace = yk__read_u64(r);
    facts->grace = 1e-3 * (double)grace;
    uint32_t number = yk__read_u32(r); /* 0: any */
    r->bad |= grace > (uint64_t)MOST_GRACE * 1000 || number > INT_MAX;
    facts->wanted = r->bad ? -1 : (int)number - 1;
    r->bad |= !yk__agent_read_text(r, facts->host, sizeof(facts->host));
    r->bad |= !yk__agent_read_text(r, facts->machine, sizeof(facts->machine));
    facts->pid = yk__read_u32(r);
    facts->listed = (int)yk__read_u32(r);
    if (r->bad || facts->listed < 1 || facts->listed > MOST_COUNTS ||
        !(facts->counts = calloc((size_t)facts->listed, sizeof(int))))
        return false;
    for (int i = 0; i < facts->listed; i++) {
        facts->counts[i] = (int)yk__read_u32(r);
        r->bad |= facts->counts[i] < 0 || facts->counts[i] > YK__MOST_LOCAL;
    }
    facts->keeper = read_new_text(r, YK__ADDRESS_TEXT);
    facts->listeners = read_new_text(r, MOST_LISTENERS_TEXT);
    if (read_roles(r, facts) && yk__read_finished(r))
        return true;
    yk__agent_facts_clear(facts);
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
    yk__agent_put_text(wire, end->role);
    yk__wire_put_u32(wire, (uint32_t)end->role_rank);
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
    if (kind <= YK__RUN_MEMBERS && end->tail && yk__agent_read_text(reader, end->host, sizeof(end->host)) &&
        yk__agent_read_text(reader, end->text, sizeof(end->text)) && yk__agent_read_text(reader, end->tail, TAIL) &&
        yk__agent_read_text(reader, end->role, sizeof(end->role)) &&
        (end->role_rank = (int)yk__read_u32(reader)) >= 0 && end->code >= 0 && end->code < 256 &&
        (end->code == 0) == (kind == YK__RUN_DONE) && end->signal >= 0 && end->signal <= AGENT_MOST_SIGNAL &&
        (end->signal > 0 || kind != YK__RUN_INTERRUPTED)) {
        end->kind = kind;
        return true;
    }
    yk__outcome_clear(end);
    return false;
}

void yk__agent_put_departure(yk__wire *wire, const yk__departure *d)
{
    const int numbers[] = {d->rank, d->local_rank, d->role_rank, d->pid, d->status, d->incarnation};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
        yk__wire_put_u32(wire, (uint32_t)numbers[i]);
    yk__wire_put_u8(wire, d->lost);
    yk__wire_put_u64(wire, (uint64_t)(d->seconds * 1e6));
    yk__agent_put_text(wire, d->role);
    yk__agent_put_text(wire, d->why);
}

bool yk__agent_read_departure(yk__reader *reader, yk__departure *d)
{
    *d = (yk__departure){.rank = (int)yk__read_u32(reader)};
    int *numbers[] = {&d->local_rank, &d->role_rank, &d->pid, &d->status, &d->incarnation};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
        *numbers[i] = (int)yk__read_u32(reader);
    unsigned lost = yk__read_u8(reader);
    d->lost = lost != 0;
    d->seconds = (double)yk__read_u64(reader) * 1e-6;
    return yk__agent_read_text(reader, d->role, sizeof(d->role)) &&
           yk__agent_read_text(reader, d->why, sizeof(d->why)) && yk__read_finished(reader) && lost <= 1 &&
           d->rank >= 0 && d->local_rank >= 0 && d->role_rank >= 0 && d->incarnation >= 0 &&
           (d->lost || d->incarnation > 0);
}

void yk__agent_put_plan(yk__wire *wire, const yk__agent_plan *plan, const char *table)
{
    const int numbers[] = {plan->node, plan->local, plan->first, plan->world, plan->port};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
        yk__wire_put_u32(wire, (uint32_t)numbers[i]);
    yk__wire_put_u64(wire, (uint64_t)plan->restart);
    yk__wire_put_u64(wire, (uint64_t)plan->restarts);
    yk__wire_put_u64(wire, (uint64_t)plan->attempt);
    yk__wire_put_u32(wire, (uint32_t)plan->nodes);
    yk__wire_put_u64(wire, (uint64_t)plan->orders);
    yk__wire_put_u8(wire, plan->joins);
    yk__agent_put_text(wire, table);
    yk__wire_put_u32(wire, (uint32_t)plan->roles);
    for (int r = 0; r < plan->roles; r++) {
        yk__wire_put_u32(wire, (uint32_t)plan->role[r].local);
        yk__wire_put_u32(wire, (uint32_t)plan->role[r].first);
        yk__wire_put_u32(wire, (uint32_t)plan->role[r].world);
    }
}

static bool read_role_parts(yk__reader *reader, yk__agent_plan *plan)
{
    uint32_t roles = yk__read_u32(reader);
    int local = 0;
    plan->roles = 0;
    if (reader->bad || roles > YK__MOST_ROLES)
        return false;
    for (uint32_t r = 0; r < roles; r++) {
        yk__role_part *part = &plan->role[r];
        *part = (yk__role_part){.local = (int)yk__read_u32(reader)};
        part->first = (int)yk__read_u32(reader);
        part->world = (int)yk__read_u32(reader);
        if (part->local < 0 || part->local > YK__MOST_LOCAL || part->first < 0 || part->world < part->local ||
            part->world > plan->world || part->first > part->world - part->local)
            return false;
        local += part->local;
    }
    plan->roles = (int)roles;
    return !roles || local == plan->local;
}

bool yk__agent_read_plan(yk__reader *reader, yk__agent_plan *plan, char **table)
{
    int *numbers[] = {&plan->node, &plan->local, &plan->first, &plan->world, &plan->port};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
        *numbers[i] = (int)yk__read_u32(reader);
    plan->restart = (int64_t)yk__read_u64(reader);
    plan->restarts = (int64_t)yk__read_u64(reader);
    plan->attempt = (int64_t)yk__read_u64(reader);
    plan->nodes = (int)yk__read_u32(reader);
    plan->orders = (int64_t)yk__read_u64(reader);
    unsigned joins = yk__read_u8(reader);
    plan->joins = joins != 0;
    *table = read_new_text(reader, MOST_LISTENERS_TEXT);
    if (read_role_parts(reader, plan) && yk__read_finished(reader) && plan->node > 0 && plan->local >= 0 &&
        plan->local <= YK__MOST_LOCAL && plan->first >= 0 && plan->world >= plan->local && plan->world > 0 &&
        plan->first <= plan->world - plan->local && plan->port > 0 && plan->port < 65536 && plan->restart >= 0 &&
        plan->restarts >= 0 && plan->attempt >= plan->restart && plan->node < plan->nodes && plan->orders >= 0 &&
        plan->orders < INT64_MAX / 2 && joins <= 1)
        return true;
    free(*table);
    *table = NULL;
    return false;
}
