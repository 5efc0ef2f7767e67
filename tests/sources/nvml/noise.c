/* A driver library that prints to stdout when it is loaded, as some versions do. */
#include <unistd.h>

__attribute__((constructor)) static void noise(void)
{
    static const char text[] = "driver noise on stdout\n";
    if (write(STDOUT_FILENO, text, sizeof text - 1) < 0) _exit(3);
}
