/* Says whether the fake driver can read a script: linked to the library, so that it knows its calls. */
#include <stdio.h>

int fakeNvmlCheckScript(const char *path, char *error, unsigned size);

int main(int count, char **words)
{
    char error[256] = "one path expected";
    if (count == 2 && fakeNvmlCheckScript(words[1], error, sizeof error) == 0) return 0;
    fprintf(stderr, "%s\n", error);
    return 1;
}
