/* Causal attention from C: one plan, two launches. q (1, 4, 2, 8), k and v (1, 6, 1, 8) -> o (1, 4, 2, 8), lse (1, 2, 4).
 * The plan knows shapes only, so it is made once and launched on any data of these shapes; the caller owns all memory.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tilewise/tilewise.h>

enum { BATCH = 1, SEQLEN_Q = 4, SEQLEN_K = 6, HEADS_Q = 2, HEADS_KV = 1, HEAD_DIM = 8 };

/* A contiguous tensor of fp32. */
static tilewise_tensor tensor_f32(float* data, int32_t rank, const int64_t* shape) {
    tilewise_tensor tensor;
    memset(&tensor, 0, sizeof tensor);
    tensor.data = data;
    tensor.dtype = TILEWISE_F32;
    tensor.rank = rank;
    int64_t stride = 1;
    for (int32_t axis = rank - 1; axis >= 0; --axis) {
        tensor.shape[axis] = shape[axis];
        tensor.stride[axis] = stride;
        stride *= shape[axis];
    }
    return tensor;
}

/* 1 and a message on stderr if the call failed. */
static int failed(tilewise_status status, const char* what) {
    if (status == TILEWISE_OK) return 0;
    fprintf(stderr, "%s: %s: %s\n", what, tilewise_status_name(status), tilewise_last_error());
    return 1;
}

int main(void) {
    static float q[BATCH * SEQLEN_Q * HEADS_Q * HEAD_DIM], o[BATCH * SEQLEN_Q * HEADS_Q * HEAD_DIM];
    static float k[BATCH * SEQLEN_K * HEADS_KV * HEAD_DIM], v[BATCH * SEQLEN_K * HEADS_KV * HEAD_DIM];
    static float lse[BATCH * HEADS_Q * SEQLEN_Q];
    for (int row = 0; row < SEQLEN_K; ++row)
        for (int i = 0; i < HEAD_DIM; ++i) v[row * HEAD_DIM + i] = (float)row;

    const int64_t q_shape[] = {BATCH, SEQLEN_Q, HEADS_Q, HEAD_DIM}, k_shape[] = {BATCH, SEQLEN_K, HEADS_KV, HEAD_DIM};
    const int64_t lse_shape[] = {BATCH, HEADS_Q, SEQLEN_Q};
    tilewise_attention call;
    memset(&call, 0, sizeof call);
    call.struct_size = sizeof call;
    call.q = tensor_f32(q, 4, q_shape);
    call.k = tensor_f32(k, 4, k_shape);
    call.v = tensor_f32(v, 4, k_shape);
    call.o = tensor_f32(o, 4, q_shape);
    call.lse = tensor_f32(lse, 3, lse_shape);
    call.mask.flags = TILEWISE_MASK_CAUSAL;

    tilewise_device* cpu = NULL;
    tilewise_plan* plan = NULL;
    void* workspace = NULL;
    int error = failed(tilewise_device_open("cpu", &cpu), "device") ||
                failed(tilewise_plan_create(cpu, TILEWISE_FORWARD, &call, &plan), "plan");
    const size_t bytes = tilewise_plan_workspace_bytes(plan); /* 0 for a null plan */
    if (!error && bytes > 0) error = (workspace = aligned_alloc(64, (bytes + 63) / 64 * 64)) == NULL;

    for (int launch = 0; launch < 2 && !error; ++launch) {
        error = failed(tilewise_launch(plan, &call, workspace, bytes, NULL), "launch");
        /* All scores are 0, so a row is the mean of the keys it sees: 0 .. 2 for the first, 0 .. 5 for the last. */
        if (!error) printf("first row %g, last row %g, lse %g\n", o[0], o[(SEQLEN_Q - 1) * HEADS_Q * HEAD_DIM], lse[0]);
        for (int i = 0; i < SEQLEN_K * HEADS_KV * HEAD_DIM; ++i) v[i] += 1.0f;
    }

    free(workspace);
    tilewise_plan_destroy(plan);
    tilewise_device_close(cpu);
    return error;
}
