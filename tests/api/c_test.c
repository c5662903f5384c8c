/* The C header from C11: compiles without a warning, and computes. A causal forward with zero scores: each row is the mean of the values it sees.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tilewise/tilewise.h>

enum { ROWS = 7, DIM = 3 };

static tilewise_tensor rows_of(float* data) {
    const tilewise_tensor tensor = {data, TILEWISE_F32, 4, {1, ROWS, 1, DIM, 0}, {ROWS * DIM, DIM, DIM, 1, 0}};
    return tensor;
}

static int fail(const char* what) {
    fprintf(stderr, "%s: %s\n", what, tilewise_last_error());
    return EXIT_FAILURE;
}

int main(void) {
    static float q[ROWS * DIM], k[ROWS * DIM], v[ROWS * DIM], o[ROWS * DIM];
    for (int i = 0; i < ROWS * DIM; ++i) v[i] = (float)(i / DIM);

    tilewise_attention call = {.struct_size = sizeof call, .mask = {.flags = TILEWISE_MASK_CAUSAL}};
    call.q = rows_of(q);
    call.k = rows_of(k);
    call.v = rows_of(v);
    call.o = rows_of(o);

    tilewise_device* device = NULL;
    if (tilewise_device_open("cpu", &device) != TILEWISE_OK) return fail("open");
    size_t bytes = 0;
    if (tilewise_workspace_bytes(device, TILEWISE_FORWARD, &call, &bytes) != TILEWISE_OK) return fail("workspace");
    void* workspace = bytes > 0 ? aligned_alloc(64, (bytes + 63) / 64 * 64) : NULL;
    if (tilewise_forward(device, &call, workspace, bytes, NULL) != TILEWISE_OK) return fail("forward");
    for (int i = 0; i < ROWS * DIM; ++i) {
        const float expected = (float)(i / DIM) / 2.0f;
        if (!(fabsf(o[i] - expected) < 1e-5f)) {
            fprintf(stderr, "o[%d] is %g, expected %g\n", i, o[i], expected);
            return EXIT_FAILURE;
        }
    }

    call.struct_size = 1;
    if (tilewise_forward(device, &call, workspace, bytes, NULL) != TILEWISE_INVALID_ARGUMENT)
        return fail("struct_size");
    if (strstr(tilewise_last_error(), "struct_size") == NULL) return fail("message");
    tilewise_plan* plan = NULL;
    if (tilewise_plan_create(device, (tilewise_op)1000, &call, &plan) != TILEWISE_INVALID_ARGUMENT) return fail("op");
    if (strncmp(tilewise_last_error(), "op: 1000", 8) != 0) return fail("message of op");
    free(workspace);

    void* memory = NULL;
    float back[DIM];
    if (tilewise_allocate(device, sizeof back, &memory) != TILEWISE_OK) return fail("allocate");
    if (tilewise_copy(device, memory, v + DIM, sizeof back, NULL) != TILEWISE_OK) return fail("copy");
    if (tilewise_copy(device, back, memory, sizeof back, NULL) != TILEWISE_OK) return fail("copy back");
    if (tilewise_synchronize(device, NULL) != TILEWISE_OK) return fail("synchronize");
    if (back[DIM - 1] != 1.0f) return fail("copied");
    if (tilewise_free(device, memory) != TILEWISE_OK) return fail("free");
    tilewise_device_close(device);
    return EXIT_SUCCESS;
}
