/* The installed library answers to C: exits with 0 if it has a CPU and its version is that of the header. */
#include <stdio.h>
#include <string.h>
#include <tilewise/tilewise.h>

int main(void) {
    char expected[32];
    snprintf(expected, sizeof expected, "%d.%d.%d", TILEWISE_VERSION_MAJOR, TILEWISE_VERSION_MINOR,
             TILEWISE_VERSION_PATCH);
    return strcmp(tilewise_version(), expected) == 0 && tilewise_device_count(0) >= 1 ? 0 : 1;
}
