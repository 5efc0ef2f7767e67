/* The gate that every call passes: log, re-read the script, find the handle, act out faults. One driver per process. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fake.h"

enum { NO_DEVICE = -3 };
static const double LOOK_EVERY_S = 0.002;
static const double WARM_S = 0.1;  /* an H200 renews its clocks, power and temperature every 100 ms */
static const Where SYSTEM = {NO_DEVICE, NO_SLICE};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Script scripts[2];
static Script *current;
static struct stat seen;
static double looked_at;
static unsigned generation, references;
static struct Handle handles[MAX_GPUS][1 + MAX_SLICES];

static double clock_seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

double realtime(void) { return clock_seconds(CLOCK_REALTIME); }

void sleep_seconds(double seconds)
{
    struct timespec rest = {(time_t)seconds, (long)(fmod(seconds, 1) * 1e9)};
    while (nanosleep(&rest, &rest) != 0 && errno == EINTR) continue;
}

/* The real library waits for the GPU without leaving the processor to others. */
static void spin_seconds(double seconds)
{
    double until = clock_seconds(CLOCK_THREAD_CPUTIME_ID) + seconds;
    while (clock_seconds(CLOCK_THREAD_CPUTIME_ID) < until) continue;
}

/* One write per call, so that a killed process leaves a whole log. */
static void log_call(const char *call, Where where)
{
    static int file = -2;
    if (file == -2) {
        const char *path = getenv("GPUMON_FAKE_NVML_LOG");
        file = path == NULL || *path == '\0' ? -1 : open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    }
    if (file < 0) return;
    char line[160], device[16] = "-";
    if (where.gpu >= 0) snprintf(device, sizeof device, "%d", where.gpu);
    if (where.slice >= 0) snprintf(device, sizeof device, "%d/%d", where.gpu, where.slice);
    int length = snprintf(line, sizeof line, "%.6f %d %s %s\n", realtime(), (int)getpid(), call, device);
    if (write(file, line, (size_t)length) < 0) file = -1;
}

/* ---- reading the script ---- */

static void carry(Device *fresh, const Device *old, double since, double until)
{
    for (unsigned key = 0; key < KEY_COUNT; key++)
        fresh->base[key] = old == NULL ? 0 : old->base[key] + value_integral(&old->values[key], since, until);
}

static void carry_all(Script *fresh, const Script *old)
{
    double changed = (double)seen.st_mtim.tv_sec + (double)seen.st_mtim.tv_nsec / 1e9;
    fresh->since = old == NULL ? fresh->loaded : fmax(old->since, fmin(realtime(), changed));
    for (unsigned i = 0; i < MAX_GPUS; i++) {
        carry(&fresh->devices[i], old ? &old->devices[i] : NULL, old ? old->since : 0, fresh->since);
        for (unsigned s = 0; s < fresh->devices[i].slice_count; s++) {
            bool existed = old != NULL && s < old->devices[i].slice_count;
            carry(&fresh->slices[i][s], existed ? &old->slices[i][s] : NULL, existed ? old->since : 0, fresh->since);
        }
    }
}

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* With the lock held. A script that became unreadable leaves the old one in force. */
static void look(void)
{
    const char *path = getenv("GPUMON_FAKE_NVML");
    double now = clock_seconds(CLOCK_MONOTONIC);
    struct stat found;
    if (current != NULL && now - looked_at < LOOK_EVERY_S) return;
    looked_at = now;
    if (path == NULL || stat(path, &found) != 0 || (current != NULL && same_file(&found, &seen))) return;
    seen = found;
    Script *fresh = current == &scripts[0] ? &scripts[1] : &scripts[0];
    Complaint complaint = {""};
    if (!script_parse(path, fresh, &complaint)) {
        fprintf(stderr, "fake nvml: %s\n", complaint.text);
        if (current == NULL) abort();
        return;
    }
    carry_all(fresh, current);
    current = fresh;
    generation++;
}

unsigned gate_generation(void) { return generation; }

/* ---- faults ---- */

static nvmlReturn_t act(Outcome outcome)
{
    if (outcome.deed == CRASH) {
        signal(SIGSEGV, SIG_DFL);
        raise(SIGSEGV);
    }
    if (outcome.deed == HANG && outcome.seconds < 0)
        for (;;) pause();
    if (outcome.deed == HANG) sleep_seconds(outcome.seconds);
    if (outcome.deed == BUSY) spin_seconds(outcome.seconds);
    return outcome.code;
}

static void open_session(Session *session)
{
    pthread_mutex_lock(&lock);
    session->locked = true;
    session->now = realtime();
    look();
    session->script = current;
}

void gate_leave(Session *session)
{
    if (session->locked) pthread_mutex_unlock(&lock);
    session->locked = false;
}

/* With the lock held. Whether the driver still has what this call asked of the GPU a moment ago. */
static bool is_warm(const char *call, Where where, double now)
{
    enum { CALLS = 64 };
    static struct { const char *call; double at; } made[MAX_GPUS][CALLS];
    if (where.gpu < 0) return false;
    for (unsigned i = 0; i < CALLS; i++) {
        if (made[where.gpu][i].call != NULL && made[where.gpu][i].call != call) continue;
        bool warm = made[where.gpu][i].call == call && now - made[where.gpu][i].at < WARM_S;
        made[where.gpu][i].call = call;  /* __func__: one address for each call */
        if (!warm) made[where.gpu][i].at = now;
        return warm;
    }
    return false;
}

/* Opens the session and acts out what the script says of this call; `told` = the script decided, a fault does not. */
static nvmlReturn_t begin(const char *call, Where where, Session *session, bool *told)
{
    log_call(call, where);
    open_session(session);
    if (references == 0) return NVML_ERROR_UNINITIALIZED;
    const Outcome *rule = find_rule(session->script, call, where);
    *told = rule != NULL;
    if (rule == NULL) return NVML_SUCCESS;
    Outcome outcome = *rule;
    if (outcome.deed == ANSWER) return outcome.code;
    if (outcome.deed == BUSY && is_warm(call, where, session->now)) outcome.seconds = outcome.warm_seconds;
    if (outcome.deed == JAM)
        for (;;) pause();  /* with the lock held: every other call of this process waits */
    gate_leave(session);
    nvmlReturn_t code = act(outcome);
    open_session(session);
    return code;
}

nvmlReturn_t gate_peek(Session *session)
{
    open_session(session);
    return references == 0 ? NVML_ERROR_UNINITIALIZED : NVML_SUCCESS;
}

static bool handle_place(nvmlDevice_t handle, Where *where)
{
    const struct Handle *first = &handles[0][0], *last = &handles[MAX_GPUS - 1][MAX_SLICES];
    if (handle < first || handle > last) return false;
    ptrdiff_t number = handle - first;
    *where = (Where){(int)(number / (1 + MAX_SLICES)), (int)(number % (1 + MAX_SLICES)) - 1};
    if (where->slice < 0) where->slice = NO_SLICE;
    return true;
}

nvmlDevice_t gate_handle(Where where)
{
    struct Handle *handle = &handles[where.gpu][where.slice == NO_SLICE ? 0 : where.slice + 1];
    handle->where = where;
    return handle;
}

nvmlReturn_t gate_enter(const char *call, nvmlDevice_t handle, Session *session)
{
    Where where;
    bool told = false;
    if (!handle_place(handle, &where)) return NVML_ERROR_INVALID_ARGUMENT;
    RETURN_IF(begin(call, where, session, &told));
    const Script *script = session->script;
    if ((unsigned)where.gpu >= script->gpus) return NVML_ERROR_GPU_IS_LOST;
    session->device = &script->devices[where.gpu];
    if (session->device->fault != NVML_SUCCESS && !told) return session->device->fault;
    if (where.slice == NO_SLICE) return NVML_SUCCESS;
    if ((unsigned)where.slice >= session->device->slice_count) return NVML_ERROR_INVALID_ARGUMENT;
    session->device = &script->slices[where.gpu][where.slice];
    return session->device->fault != NVML_SUCCESS && !told ? session->device->fault : NVML_SUCCESS;
}

nvmlReturn_t gate_enter_system(const char *call, Session *session)
{
    bool told;
    return begin(call, SYSTEM, session, &told);
}

nvmlReturn_t gate_init(const char *call, unsigned flags)
{
    log_call(call, SYSTEM);
    SESSION;
    open_session(&session);
    if (current == NULL) return NVML_ERROR_DRIVER_NOT_LOADED;
    Outcome outcome = current->init;
    const Outcome *rule = find_rule(current, call, SYSTEM);
    if (rule != NULL) outcome = *rule;
    if (outcome.deed != ANSWER) {
        gate_leave(&session);
        outcome.code = act(outcome);
        open_session(&session);
    }
    if (outcome.code == NVML_SUCCESS && current->gpus == 0 && !(flags & NVML_INIT_FLAG_NO_GPUS))
        return NVML_ERROR_GPU_NOT_FOUND;
    references += outcome.code == NVML_SUCCESS;
    return outcome.code;
}

nvmlReturn_t gate_shutdown(const char *call)
{
    SESSION;
    RETURN_IF(gate_enter_system(call, &session));
    references--;
    return NVML_SUCCESS;
}

/* ---- readings of the device in hand ---- */

bool has(const Session *session, Key key) { return value_present(&session->device->values[key]); }

double read_key(const Session *session, Key key)
{
    return value_at(&session->device->values[key], session->now);
}

nvml_u64 read_count(const Session *session, Key key, double scale)
{
    double value = read_key(session, key) * scale;
    return value > 0 ? (nvml_u64)(value + 0.5) : 0;
}

nvmlReturn_t answer_unsigned(const Session *session, Key key, double scale, unsigned *out)
{
    NEED(out != NULL);
    if (!has(session, key)) return NVML_ERROR_NOT_SUPPORTED;
    *out = (unsigned)read_count(session, key, scale);
    return NVML_SUCCESS;
}

nvmlReturn_t answer_text(const char *text, char *out, unsigned size)
{
    NEED(out != NULL);
    if (text[0] == '\0') return NVML_ERROR_NOT_SUPPORTED;
    if (strlen(text) >= size) return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(out, text);
    return NVML_SUCCESS;
}

double cumulative(const Session *session, Key key, double t)
{
    const Device *device = session->device;
    return device->base[key] + value_integral(&device->values[key], session->script->since, t);
}

bool mig_on(const Device *device)
{
    const Value *mode = &device->values[K_mig_mode];
    return device->slice_count > 0 || (mode->shape == CONSTANT && mode->a == 1);
}
