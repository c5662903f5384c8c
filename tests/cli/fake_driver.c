/* A stand-in for libcuda.so.1: two GPUs, a driver that refuses to start, or one that crashes, as FAKE_DRIVER says. It has the functions that
 * `tilewise doctor` asks for, with the driver interface's own signatures, so that the real path through dlopen is tested without a GPU. */
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

static int behaves(const char* how) {
    const char* wanted = getenv("FAKE_DRIVER");
    return wanted != NULL && strcmp(wanted, how) == 0;
}

EXPORT int cuInit(unsigned flags) {
    if (behaves("crash")) raise(SIGSEGV);
    return flags != 0 || behaves("refuse") ? 100 : 0;
}
EXPORT int cuDriverGetVersion(int* version) {
    *version = 13010;
    return 0;
}
EXPORT int cuDeviceGetCount(int* count) {
    *count = 2;
    return 0;
}
EXPORT int cuDeviceGet(int* device, int index) {
    *device = 40 + index;
    return 0;
}
EXPORT int cuDeviceGetName(char* name, int length, int device) {
    strncpy(name, device == 40 ? "First" : "Second", (size_t)length);
    return 0;
}
EXPORT int cuDeviceGetAttribute(int* value, int attribute, int device) {
    const int major = device == 40 ? 9 : 7;
    *value = attribute == 75 ? major : attribute == 76 ? 5 : -1;
    return 0;
}
EXPORT int cuDeviceTotalMem_v2(size_t* bytes, int device) {
    *bytes = (size_t)(device == 40 ? 2 : 1) << 30;
    return 0;
}
