/* The statements of the script that speak of one GPU or one MIG slice. */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"

#define KEY_NAME(name) #name,
static const char *const KEY_NAMES[] = {KEYS(KEY_NAME)};

typedef struct {
    Script *script;
    Device *device;
    Where where;
    char *rest;
    Complaint *complaint;
} Statement;

static void reset_device(Device *device, Where where)
{
    memset(device->values, 0, sizeof device->values);
    device->fault = NVML_SUCCESS;
    device->process_count = device->slice_count = device->slice_sms = 0;
    device->name[0] = device->mig_profile[0] = '\0';
    int gpu = where.gpu, slice = where.slice;
    if (slice == NO_SLICE) {
        snprintf(device->uuid, sizeof device->uuid, "GPU-fa4e0000-0000-4000-8000-%012x", gpu);
        snprintf(device->pci, sizeof device->pci, "%08X:%02X:00.0", gpu / 16, 0x0f + 0x0c * (gpu % 16));
        snprintf(device->serial, sizeof device->serial, "16512230000%02d", gpu);
    } else {
        snprintf(device->uuid, sizeof device->uuid, "MIG-fa4e0000-0000-4000-8000-%08x%04x", gpu, slice);
    }
}

static bool run_text(const Statement *s, const char *text)
{
    for (const char *end; (end = strchr(text, '\n')) != NULL; text = end + 1) {
        char line[128];
        snprintf(line, sizeof line, "%.*s", (int)(end - text), text);
        if (!device_line(s->script, s->where, line, s->complaint)) return false;
    }
    return true;
}

static bool set_profile(const Statement *s)
{
    const char *text = profile_text(s->rest);
    if (s->where.slice != NO_SLICE) return complain(s->complaint, "a slice has no profile of its own: use mig");
    if (text == NULL) return complain(s->complaint, "unknown profile %s", s->rest);
    reset_device(s->device, s->where);
    return run_text(s, PROFILE_COMMON) && run_text(s, text);
}

/* SM counts, memory and BAR1 as nvidia-smi lists them for an H100 SXM. */
typedef struct { const char *name; unsigned sms; double mib, bar1_mib; } SliceSize;
static const SliceSize SLICES[] = {
    {"1g.10gb", 16, 9984, 16383}, {"1g.20gb", 26, 20096, 32767}, {"2g.20gb", 32, 20096, 32767},
    {"3g.40gb", 60, 40448, 65535}, {"4g.40gb", 64, 40448, 65535}, {"7g.80gb", 132, 81152, 131072},
};

static Value constant(double number) { return (Value){.shape = CONSTANT, .a = number}; }

static void make_slice(const Statement *s, int index, const SliceSize *size)
{
    static const Key ZEROS[] = {K_reserved_mib, K_bar1_used_mib, K_sm, K_occupancy, K_integer, K_tensor,
                                K_dram, K_fp64, K_fp32, K_fp16};
    static const Key INHERITED[] = {K_gpm, K_arch, K_cc, K_ecc, K_ecc_corrected, K_ecc_uncorrected};
    Device *slice = &s->script->slices[s->where.gpu][index];
    reset_device(slice, (Where){s->where.gpu, index});
    snprintf(slice->name, sizeof slice->name, "%.70s MIG %.15s", s->device->name, size->name);
    snprintf(slice->mig_profile, sizeof slice->mig_profile, "%s", size->name);
    slice->slice_sms = size->sms;
    slice->values[K_total_mib] = constant(size->mib);
    slice->values[K_bar1_total_mib] = constant(size->bar1_mib);
    for (size_t i = 0; i < sizeof ZEROS / sizeof *ZEROS; i++) slice->values[ZEROS[i]] = constant(0);
    for (size_t i = 0; i < sizeof INHERITED / sizeof *INHERITED; i++)
        slice->values[INHERITED[i]] = s->device->values[INHERITED[i]];
}

static bool set_mig(const Statement *s)
{
    char *rest = s->rest, *count = strsep(&rest, " ");
    nvml_u64 slices;
    if (s->where.slice != NO_SLICE || rest == NULL || !parse_unsigned(count, MAX_SLICES, &slices))
        return complain(s->complaint, "gpu N mig 0..%d PROFILE expected", MAX_SLICES);
    for (size_t i = 0; i < sizeof SLICES / sizeof *SLICES; i++) {
        if (strcmp(SLICES[i].name, rest) != 0) continue;
        s->device->slice_count = (unsigned)slices;
        for (int n = 0; n < (int)slices; n++) make_slice(s, n, &SLICES[i]);
        return true;
    }
    return complain(s->complaint, "unknown MIG profile %s", rest);
}

static bool add_process(const Statement *s)
{
    static const char *const KINDS[] = {[COMPUTE] = "compute", [GRAPHICS] = "graphics", [MPS] = "mps"};
    char *rest = s->rest, *pid = strsep(&rest, " "), *mib = strsep(&rest, " "), *word, *end = NULL;
    Process process = {.kind = COMPUTE, .mib = NAN};
    nvml_u64 number;
    if (!parse_unsigned(pid, 0xffffffff, &number) || mib == NULL)
        return complain(s->complaint, "process PID MIB [compute|graphics|mps] [SM_PERCENT] expected");
    process.pid = (unsigned)number;
    if (strcmp(mib, "-") != 0) {
        process.mib = strtod(mib, &end);
        if (*end != '\0' || !(process.mib >= 0)) return complain(s->complaint, "bad memory %s", mib);
    }
    while ((word = strsep(&rest, " ")) != NULL) {
        bool kind = false;
        for (unsigned i = 0; i < sizeof KINDS / sizeof *KINDS; i++) {
            if (strcmp(word, KINDS[i]) != 0) continue;
            process.kind = (ProcessKind)i;
            kind = true;
        }
        if (!kind && !value_parse(word, &process.sm)) return complain(s->complaint, "bad SM percent %s", word);
    }
    if (s->device->process_count == MAX_PROCESSES) return complain(s->complaint, "more than %d processes", MAX_PROCESSES);
    s->device->processes[s->device->process_count++] = process;
    return true;
}

static bool put_event(const Statement *s, nvml_u64 mask, const char *data, const char *at)
{
    Script *script = s->script;
    Event event = {.gpu = s->where.gpu, .mask = mask};
    char *end = NULL;
    if (!parse_unsigned(data, ~0ull, &event.data)) return complain(s->complaint, "an event needs a number");
    if (at != NULL) event.at = strtod(at, &end);
    if (end != NULL && *end != '\0') return complain(s->complaint, "bad time %s", at);
    if (script->event_count == MAX_EVENTS) return complain(s->complaint, "more than %d events", MAX_EVENTS);
    for (unsigned i = 0; i < script->event_count; i++) {
        const Event *other = &script->events[i];
        event.ordinal += other->gpu == event.gpu && other->mask == mask && other->data == event.data && other->at == event.at;
    }
    script->events[script->event_count++] = event;
    return true;
}

static bool add_xid(const Statement *s)
{
    char *rest = s->rest, *code = strsep(&rest, " ");
    return put_event(s, NVML_EVENT_XID, code, rest);
}

static bool add_event(const Statement *s)
{
    char *rest = s->rest, *mask = strsep(&rest, " "), *data = strsep(&rest, " ");
    nvml_u64 bits;
    if (!parse_unsigned(mask, ~0ull, &bits)) return complain(s->complaint, "event MASK DATA [AT] expected");
    return put_event(s, bits, data, rest);
}

static bool set_fault(const Statement *s)
{
    return error_code(s->rest, &s->device->fault) || complain(s->complaint, "unknown fault %s", s->rest);
}

static bool set_text(const Statement *s, char *target, size_t size)
{
    if (strlen(s->rest) >= size) return complain(s->complaint, "text too long");
    strcpy(target, s->rest);
    return true;
}

static bool set_name(const Statement *s) { return set_text(s, s->device->name, sizeof s->device->name); }
static bool set_uuid(const Statement *s) { return set_text(s, s->device->uuid, sizeof s->device->uuid); }
static bool set_pci(const Statement *s) { return set_text(s, s->device->pci, sizeof s->device->pci); }
static bool set_serial(const Statement *s) { return set_text(s, s->device->serial, sizeof s->device->serial); }

static const struct { const char *word; bool (*apply)(const Statement *); } STATEMENTS[] = {
    {"profile", set_profile}, {"name", set_name}, {"uuid", set_uuid}, {"pci", set_pci}, {"serial", set_serial},
    {"process", add_process}, {"xid", add_xid}, {"event", add_event}, {"fault", set_fault}, {"mig", set_mig},
};

static bool set_value(const Statement *s, const char *word)
{
    for (unsigned key = 0; key < KEY_COUNT; key++) {
        if (strcmp(KEY_NAMES[key], word) != 0) continue;
        Value *value = &s->device->values[key];
        if (strcmp(s->rest, "auto") == 0) *value = (Value){.shape = UNSET};
        else if (!value_parse(s->rest, value)) return complain(s->complaint, "bad value %s", s->rest);
        return true;
    }
    return complain(s->complaint, "unknown key %s", word);
}

static bool apply(Statement *s, char *line)
{
    char copy[512];
    snprintf(copy, sizeof copy, "%s", line);
    s->rest = copy;
    char *word = strsep(&s->rest, " ");
    if (s->rest == NULL) return complain(s->complaint, "nothing after %s", word);
    for (size_t i = 0; i < sizeof STATEMENTS / sizeof *STATEMENTS; i++)
        if (strcmp(STATEMENTS[i].word, word) == 0) return STATEMENTS[i].apply(s);
    return set_value(s, word);
}

static bool apply_to_slices(Script *script, Where where, char *line, Complaint *complaint)
{
    int count = (int)script->devices[where.gpu].slice_count;
    for (int i = 0; i < count; i++) {
        Statement s = {script, &script->slices[where.gpu][i], {where.gpu, i}, NULL, complaint};
        if ((where.slice == ALL || where.slice == i) && !apply(&s, line)) return false;
    }
    return where.slice < count || complain(complaint, "GPU %d has %d slices: write its mig line first", where.gpu, count);
}

bool device_line(Script *script, Where where, char *line, Complaint *complaint)
{
    if (strncmp(line, "call ", 5) == 0) return call_line(script, where, line + 5, complaint);
    for (int gpu = 0; gpu < MAX_GPUS; gpu++) {
        if (where.gpu != ALL && where.gpu != gpu) continue;
        if (where.slice != NO_SLICE) {
            if (where.gpu == ALL && script->devices[gpu].slice_count == 0) continue;
            if (!apply_to_slices(script, (Where){gpu, where.slice}, line, complaint)) return false;
            continue;
        }
        Statement s = {script, &script->devices[gpu], {gpu, NO_SLICE}, NULL, complaint};
        if (!apply(&s, line)) return false;
    }
    return true;
}
