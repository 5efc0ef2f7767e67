/* Numbers over time: parsing, the value at a moment, and the exact integral between two moments. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"

static const struct { const char *name; Shape shape; unsigned least, most; } WAVES[] = {
    {"sine", SINE, 3, 3},
    {"square", SQUARE, 3, 3},
    {"ramp", RAMP, 3, 4},
};

static unsigned parse_numbers(const char *text, double *numbers, unsigned most)
{
    unsigned count = 0;
    while (count < most) {
        char *end;
        numbers[count++] = strtod(text, &end);
        if (end == text || (*end != ':' && *end != '\0')) return 0;
        if (*end == '\0') return count;
        text = end + 1;
    }
    return 0;
}

static bool parse_wave(const char *text, Value *value)
{
    for (size_t i = 0; i < sizeof WAVES / sizeof *WAVES; i++) {
        size_t length = strlen(WAVES[i].name);
        if (strncmp(text, WAVES[i].name, length) != 0 || text[length] != ':') continue;
        double numbers[4] = {0};
        unsigned count = parse_numbers(text + length + 1, numbers, WAVES[i].most);
        if (count < WAVES[i].least || !(numbers[2] > 0)) return false;
        Shape shape = count == 4 ? RAMP_ONCE : WAVES[i].shape;
        *value = (Value){shape, numbers[0], numbers[1], numbers[2], numbers[3]};
        return true;
    }
    return false;
}

bool value_parse(const char *text, Value *value)
{
    if (strcmp(text, "unsupported") == 0) {
        *value = (Value){.shape = UNSUPPORTED};
        return true;
    }
    double number;
    if (parse_numbers(text, &number, 1) == 1) {
        *value = (Value){.shape = CONSTANT, .a = number};
        return true;
    }
    return parse_wave(text, value);
}

bool value_present(const Value *value)
{
    return value->shape != UNSET && value->shape != UNSUPPORTED;
}

double value_at(const Value *v, double t)
{
    double phase = v->c > 0 ? fmod(t, v->c) / v->c : 0;
    switch (v->shape) {
    case CONSTANT: return v->a;
    case SINE: return v->a + v->b * sin(2 * M_PI * phase);
    case SQUARE: return phase < 0.5 ? v->a : v->b;
    case RAMP: return v->a + (v->b - v->a) * phase;
    case RAMP_ONCE: return v->a + (v->b - v->a) * fmin(1, fmax(0, (t - v->d) / v->c));
    default: return 0;
    }
}

/* The integral from the start of a period to `t` seconds after it; `t` may lie in a later period. */
static double within_periods(const Value *v, double t)
{
    double periods = floor(t / v->c), rest = t - periods * v->c, mean = (v->a + v->b) / 2;
    switch (v->shape) {
    case SINE: return v->a * t + v->b * v->c / (2 * M_PI) * (1 - cos(2 * M_PI * rest / v->c));
    case SQUARE: return periods * mean * v->c + v->a * fmin(rest, v->c / 2) + v->b * fmax(0, rest - v->c / 2);
    case RAMP: return periods * mean * v->c + v->a * rest + (v->b - v->a) * rest * rest / (2 * v->c);
    default: return 0;
    }
}

static double ramp_once(const Value *v, double t)
{
    double run = fmin(v->c, fmax(0, t - v->d));
    double after = fmax(0, t - v->d - v->c);
    double before = fmin(t - v->d, 0);
    return v->a * before + v->a * run + (v->b - v->a) * run * run / (2 * v->c) + v->b * after;
}

double value_integral(const Value *v, double from, double to)
{
    switch (v->shape) {
    case CONSTANT: return isnan(v->a) ? 0 : v->a * (to - from);
    case RAMP_ONCE: return ramp_once(v, to) - ramp_once(v, from);
    case SINE:
    case SQUARE:
    case RAMP: {
        /* Counted from the start of the period, not from 1970: differences of huge numbers lose digits. */
        double start = fmod(from, v->c);
        return within_periods(v, start + (to - from)) - within_periods(v, start);
    }
    default: return 0;
    }
}
