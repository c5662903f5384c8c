/* Tilewise: exact attention. The C interface, and the only binary interface of the library.
 *
 *   s[i,j] = softmax_scale * q[i].k[j];  softcap;  + ALiBi + bias;  mask;  p = softmax(s);  dropout;  o[i] = sum_j p[i,j] v[j]
 *
 * Describe a call in a tilewise_attention (start from zeros: every zero means "not given" or "off"), make a plan for a device, ask the
 * plan for its workspace, launch. The plan looks at shapes, strides and options only and can be kept for any number of
 * launches with other pointers. One-call forms (tilewise_forward ...) plan through a cache.
 *
 * Ownership: the caller owns every tensor and the workspace; a launch allocates nothing and keeps no pointer after it returns (CPU) or
 * after the stream has passed it (CUDA). Objects returned by *_open and *_create are released by *_close and *_destroy.
 * Threads: every function may be called from any thread; one plan may be launched from several threads at the same time with
 * distinct workspaces and outputs. Errors: a status, and tilewise_last_error() of the calling thread says which argument, its value and what
 * is allowed. The library never prints and never ends the process. After a status other than TILEWISE_OK no output was written,
 * unless the status is TILEWISE_DEVICE_ERROR.
 *
 * Two environment variables are read once, at the first plan: TILEWISE_FORCE_KERNEL names the kernel of every call that its operation fits
 * and that pins none itself; TILEWISE_NUM_THREADS is the number of CPU threads of every call that asks for none itself.
 */
#ifndef TILEWISE_TILEWISE_H
#define TILEWISE_TILEWISE_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#    if defined(TILEWISE_BUILDING)
#        define TILEWISE_API __declspec(dllexport)
#    else
#        define TILEWISE_API __declspec(dllimport)
#    endif
#else
#    define TILEWISE_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define TILEWISE_VERSION_MAJOR 0
#define TILEWISE_VERSION_MINOR 1
#define TILEWISE_VERSION_PATCH 0

typedef enum tilewise_status {
    TILEWISE_OK = 0,
    TILEWISE_INVALID_ARGUMENT = 1, /* the call contradicts itself or this contract */
    TILEWISE_UNSUPPORTED =
        2, /* well-formed, but no kernel of this build serves it on this device; the message lists the reasons */
    TILEWISE_OUT_OF_MEMORY = 3,
    TILEWISE_DEVICE_ERROR = 4,
    TILEWISE_INTERNAL = 5
} tilewise_status;

typedef enum tilewise_dtype {
    TILEWISE_NONE = 0, /* the tensor is not given */
    TILEWISE_F32 = 1,
    TILEWISE_F16 = 2,
    TILEWISE_BF16 = 3,
    TILEWISE_F64 = 4,
    TILEWISE_I32 = 5,
    TILEWISE_I64 = 6,
    TILEWISE_BOOL = 7, /* one byte an element, 0 is false */
    TILEWISE_BITS =
        8 /* eight booleans a byte, element j is bit j % 8 of byte j / 8; last dimension = bytes, strides in bytes */
} tilewise_dtype;

typedef enum tilewise_op {
    TILEWISE_FORWARD = 0,
    TILEWISE_BACKWARD = 1,
    TILEWISE_DECODE = 2, /* append k_new, v_new to the cache (if given), then attend */
    TILEWISE_APPEND = 3,
    TILEWISE_COMBINE = 4
} tilewise_op;

#define TILEWISE_MAX_RANK 5

/* A view of the caller's memory. Strides are in elements, may be 0 for a broadcast axis, are not negative, and are ignored for axes of
 * size 1. Any base address that is aligned to the element is served; 16 bytes and a contiguous last axis are the fast path. */
typedef struct tilewise_tensor {
    void* data;    /* ignored while planning, except for its alignment; null then means 16-byte aligned */
    int32_t dtype; /* tilewise_dtype; TILEWISE_NONE: not given */
    int32_t rank;
    int64_t shape[TILEWISE_MAX_RANK];
    int64_t stride[TILEWISE_MAX_RANK];
} tilewise_tensor;

/* Lengths. All int32, rank 1. Sequence n of a ragged q has rows cu_seqlens_q[n] .. cu_seqlens_q[n+1] - 1. */
typedef struct tilewise_lengths {
    tilewise_tensor cu_seqlens_q; /* (batch + 1): q is (total_q, h, d), lse (h, total_q) */
    tilewise_tensor cu_seqlens_k; /* (batch + 1): k is (total_k, hk, d) */
    tilewise_tensor seqused_q;    /* (batch): rows past it are not written; their gradients are 0 */
    tilewise_tensor
        seqused_k; /* (batch): keys past it are not seen (forward and backward; decode takes cache_seqlens) */
    tilewise_tensor leftpad_k; /* (batch): first valid key; positions count from it */
    int64_t max_seqlen_q;      /* upper bound of one ragged sequence; 0: total_q */
    int64_t max_seqlen_k;
} tilewise_lengths;

enum tilewise_mask_flags {
    TILEWISE_MASK_CAUSAL = 1, /* keys j <= i + offset */
    TILEWISE_MASK_WINDOW =
        2, /* window_left and window_right hold: i + offset - left <= j <= i + offset + right, -1 is unlimited */
    TILEWISE_MASK_TOP_LEFT = 4 /* offset = 0; otherwise offset = seqlen_k - seqlen_q of each sequence (bottom-right) */
};

/* Which keys a row sees: all conditions that are given must hold (prefix widens instead). */
typedef struct tilewise_mask {
    uint32_t flags; /* tilewise_mask_flags */
    int32_t chunk;  /* > 0: only keys of the same chunk as position i + offset */
    int64_t window_left;
    int64_t window_right; /* 0 with TILEWISE_MASK_CAUSAL */
    /* > 0: keys < prefix are visible to every row; with causal, window_right or block, not with window_left or chunk */
    int64_t prefix;
    int64_t block; /* > 0: only keys up to the end of the block of this many keys that holds position i + offset */
    tilewise_tensor prefix_lens; /* int32 (batch): a prefix of each sequence */
    tilewise_tensor
        mask; /* bool or bits (batch, h, seqlen_q, seqlen_k), broadcast by stride 0 or size 1: true is visible */
    tilewise_tensor
        key_begin;           /* int32 (batch, seqlen_q) or (total_q): first visible key of each row (document masks) */
    tilewise_tensor key_end; /* int32, same shape: one past the last visible key of each row */
} tilewise_mask;

enum tilewise_score_flags { TILEWISE_SCORE_HAS_SCALE = 1 /* softmax_scale holds; otherwise head_dim^-0.5 */ };

typedef struct tilewise_score {
    uint32_t flags;
    float softmax_scale; /* >= 0 */
    float softcap;       /* > 0: s = softcap * tanh(s / softcap) */
    float dropout_p;     /* in [0, 1) */
    uint64_t dropout_seed;
    uint64_t dropout_offset;
    tilewise_tensor alibi_slopes; /* f32 (h) or (batch, h): s -= slope * |i + seqlen_k - seqlen_q - j| */
    tilewise_tensor
        bias; /* f32, f16, bf16 (batch, h, seqlen_q, seqlen_k), broadcast by stride 0 or size 1; added after softcap */
    tilewise_tensor sink; /* f32 (h): exp(sink) enters the softmax denominator and lse */
} tilewise_score;

/* Bits of error_flag: what append found wrong in lengths and indices that lie on a device. */
enum tilewise_cache_fault {
    TILEWISE_FAULT_LENGTH = 1,    /* cache_seqlens is negative, or the new rows do not fit the cache */
    TILEWISE_FAULT_NEW_ROWS = 2,  /* cu_seqlens_k_new does not start at 0, decreases, or passes the rows of k_new */
    TILEWISE_FAULT_CACHE_ROW = 4, /* cache_batch_idx is no row of the cache, or of page_table */
    TILEWISE_FAULT_PAGE = 8,      /* page_table has an id that k has no page for, where a new row goes */
    TILEWISE_FAULT_POSITION = 16  /* rotary_cos has no row for the position of a new key or of a query */
};

/* Key-value cache. With a page table k and v are (num_pages, page_size, hk, d or dv). */
typedef struct tilewise_cache {
    tilewise_tensor
        cache_seqlens; /* int32 (batch): keys in the cache before appending, left padding included; required to append */
    tilewise_tensor cache_batch_idx;  /* int32 (batch): cache row (or page table row) of each sequence */
    tilewise_tensor page_table;       /* int32 (batch or more rows, max_pages): page ids */
    tilewise_tensor k_new;            /* (batch, n, hk, d), or (total_new, hk, d) with cu_seqlens_k_new */
    tilewise_tensor v_new;            /* (batch, n, hk, dv) or (total_new, hk, dv) */
    tilewise_tensor cu_seqlens_k_new; /* int32 (batch + 1) */
    tilewise_tensor
        rotary_cos; /* f32 or dtype of q (positions, rotary_dim / 2): rotates k_new and q, see docs/math.md */
    tilewise_tensor rotary_sin;
    tilewise_tensor rotary_seqlens; /* int32 (batch): position of the first new key instead of cache_seqlens */
    int32_t rotary_interleaved;     /* pairs (2t, 2t+1); otherwise (t, t + rotary_dim / 2) */
    /* In and out, optional, int32 (1): on a GPU, where lengths and indices cannot be checked before the launch, an append (of a decode
     * too) adds the bits of tilewise_cache_fault to it; without a fault it keeps its value. Set it to 0 first. A new row with a fault
     * is not written, and nothing is ever written outside of the cache. Attention reads nothing outside of it either: with a wrong
     * length, cache row or page id it sees other keys of the cache. On a CPU the same faults are refused before anything runs, so the
     * flag keeps its value. */
    tilewise_tensor error_flag;
} tilewise_cache;

/* Backward only. Gradients have the shapes of their tensors; any strides whose elements do not overlap. */
typedef struct tilewise_gradients {
    tilewise_tensor grad_o;    /* in */
    tilewise_tensor grad_lse;  /* in, f32, optional: gradient that arrives through lse */
    tilewise_tensor grad_q;    /* out */
    tilewise_tensor grad_k;    /* out */
    tilewise_tensor grad_v;    /* out */
    tilewise_tensor grad_bias; /* out, optional: shape of bias (axes of size 1 are summed), f32 or dtype of bias */
    tilewise_tensor grad_sink; /* out, optional: f32 (h) */
} tilewise_gradients;

enum tilewise_option_flags {
    TILEWISE_DETERMINISTIC = 1,  /* grad_q bitwise repeatable (everything else always is) */
    TILEWISE_BATCH_INVARIANT = 2 /* a row's bits do not depend on the batch, other rows, or the number of splits */
};

typedef struct tilewise_options {
    uint32_t flags;
    int32_t num_splits;  /* key splits of a forward or decode; 0: the plan chooses */
    int32_t num_threads; /* CPU threads; 0: one a core */
    const char* kernel;  /* name of the kernel to use, null: the plan chooses */
} tilewise_options;

/* b batch, h query heads, hk key-value heads (h % hk == 0), d head_dim 1..256, dv head_dim_v 1..512. q, k, v of one dtype. */
typedef struct tilewise_attention {
    size_t struct_size; /* sizeof(tilewise_attention) */
    tilewise_tensor q;  /* (b, sq, h, d) or ragged (total_q, h, d) */
    tilewise_tensor k;  /* (b, sk, hk, d), ragged (total_k, hk, d), or paged (num_pages, page_size, hk, d) */
    tilewise_tensor v;  /* (b, sk, hk, dv), ragged or paged likewise */
    tilewise_tensor o;  /* out, dtype of q: (b, sq, h, dv) or (total_q, h, dv); input of backward */
    tilewise_tensor
        lse; /* out, optional, f32: (b, h, sq) or (h, total_q), natural logarithm; required input of backward */
    tilewise_lengths lengths;
    tilewise_mask mask;
    tilewise_score score;
    tilewise_cache cache;
    tilewise_gradients gradients;
    tilewise_options options;
} tilewise_attention;

/* Merges attention over disjoint key sets: lse = log sum_n exp(partial_lse[n]), o = sum_n exp(partial_lse[n] - lse) partial_o[n].
 * A part whose lse is -inf counts nothing, whatever its partial_o holds; all parts empty: o = 0, lse = -inf. */
typedef struct tilewise_combination {
    size_t struct_size;
    tilewise_tensor partial_o;   /* f32, f16 or bf16 (splits, b, sq, h, dv) or ragged (splits, total_q, h, dv) */
    tilewise_tensor partial_lse; /* f32 (splits, b, h, sq) or (splits, h, total_q) */
    tilewise_tensor o;           /* out: (b, sq, h, dv) or (total_q, h, dv) */
    tilewise_tensor lse;         /* out, optional, f32 */
    tilewise_options options;
} tilewise_combination;

typedef struct tilewise_device tilewise_device;
typedef struct tilewise_plan tilewise_plan;
typedef struct tilewise_event tilewise_event;

/* "0.1.0" */
TILEWISE_API const char* tilewise_version(void);
/* "ok", "invalid argument", ... */
TILEWISE_API const char* tilewise_status_name(tilewise_status status);
/* Message of the last call of this thread that did not return TILEWISE_OK; never null; valid until this thread's next failing call. */
TILEWISE_API const char* tilewise_last_error(void);

/* Devices. A name is "cpu", "cuda:0", "cuda" (the GPU that is current in this thread), or "recorded:h200": a description to plan for, on
 * which nothing launches. Opening the CPU or a recorded device never starts the CUDA driver; opening a GPU, counting, and asking for the
 * name behind index 0 do. A GPU that is older than every kernel is listed, and plans for it are refused. */
TILEWISE_API int32_t tilewise_device_count(int32_t include_recorded);
TILEWISE_API const char* tilewise_device_name(int32_t index); /* 0 .. count(1) - 1, real devices first; null outside */
TILEWISE_API tilewise_status tilewise_device_open(const char* name, tilewise_device** device);
TILEWISE_API void tilewise_device_close(tilewise_device* device); /* null is allowed; plans stay valid */
/* JSON object: kind, name, and what the planner knows. Owned by the device. */
TILEWISE_API const char* tilewise_device_json(const tilewise_device* device);

/* Memory, streams and events of a device: all that a program needs to use a GPU without linking CUDA; one that has CUDA may use its own
 * instead, since memory is what cudaMalloc gives and a stream is a cudaStream_t. On the CPU they work on host memory, streams are
 * null, and everything is done on return. A recorded device has none of them.
 *
 * tilewise_copy takes host memory and memory of any device at either end; on the CPU both lie on the host. It and tilewise_fill are ordered
 * on `stream` (null: the device's default stream) and may return before they are done: neither read nor change or free the host memory of a
 * copy before tilewise_synchronize of that stream has returned. A copy followed by it is the synchronous copy. */
TILEWISE_API tilewise_status tilewise_allocate(const tilewise_device* device, size_t bytes,
                                               void** memory); /* 64-byte aligned or better; null for 0 bytes */
TILEWISE_API tilewise_status tilewise_free(
    const tilewise_device* device, void* memory); /* of tilewise_allocate; null is allowed; waits for its uses */
TILEWISE_API tilewise_status tilewise_copy(const tilewise_device* device, void* to, const void* from, size_t bytes,
                                           void* stream);
TILEWISE_API tilewise_status tilewise_fill(const tilewise_device* device, void* to, uint8_t value, size_t bytes,
                                           void* stream);
/* Waits for all work on the stream; reports what failed since the last time, kernels included. */
TILEWISE_API tilewise_status tilewise_synchronize(const tilewise_device* device, void* stream);
/* Ordered neither before nor after the default stream. */
TILEWISE_API tilewise_status tilewise_stream_create(const tilewise_device* device, void** stream);
TILEWISE_API tilewise_status tilewise_stream_destroy(const tilewise_device* device, void* stream); /* null is allowed */

/* A point in a stream, for timing: record one before and one after. Elapsed waits for `end`; both belong to one device. */
TILEWISE_API tilewise_status tilewise_event_create(const tilewise_device* device, tilewise_event** event);
TILEWISE_API tilewise_status tilewise_event_record(tilewise_event* event, void* stream);
TILEWISE_API tilewise_status tilewise_event_elapsed(const tilewise_event* begin, const tilewise_event* end,
                                                    double* seconds);
TILEWISE_API void tilewise_event_destroy(tilewise_event* event); /* null is allowed */

/* Kernels of this build. JSON object: name, device, op, dtypes, max_head_dim, max_head_dim_v, isa, features. Null outside 0 .. count - 1. */
TILEWISE_API int32_t tilewise_kernel_count(void);
TILEWISE_API const char* tilewise_kernel_json(int32_t index);

/* Plans. On failure *plan is null and tilewise_last_error() holds the reason; for TILEWISE_UNSUPPORTED it lists each kernel's. */
TILEWISE_API tilewise_status tilewise_plan_create(const tilewise_device* device, tilewise_op op,
                                                  const tilewise_attention* attention, tilewise_plan** plan);
TILEWISE_API tilewise_status tilewise_plan_create_combine(const tilewise_device* device,
                                                          const tilewise_combination* combination,
                                                          tilewise_plan** plan);
TILEWISE_API void tilewise_plan_destroy(tilewise_plan* plan); /* null is allowed */
TILEWISE_API size_t tilewise_plan_workspace_bytes(const tilewise_plan* plan);
TILEWISE_API const char* tilewise_plan_kernel(
    const tilewise_plan* plan);                                         /* name of the main kernel; owned by the plan */
TILEWISE_API const char* tilewise_plan_text(const tilewise_plan* plan); /* for people */
TILEWISE_API const char* tilewise_plan_json(const tilewise_plan* plan);

/* Runs a plan. Shapes, strides and options are those of the plan; data pointers (aligned at least as planned) and the dropout seed and
 * offset are those of this call. `workspace` holds at least the plan's bytes, 64-byte aligned (null if 0). `stream` is the caller's CUDA stream, null on a CPU; a CPU launch returns when it is done.
 * On a GPU every tensor and the workspace lie in memory of the plan's device (managed memory and host memory that is registered with CUDA will do), the
 * launch returns once its kernels are in the stream, it may be captured in a CUDA graph, and lengths and page ids are not checked. */
TILEWISE_API tilewise_status tilewise_launch(const tilewise_plan* plan, const tilewise_attention* attention,
                                             void* workspace, size_t workspace_bytes, void* stream);
TILEWISE_API tilewise_status tilewise_launch_combine(const tilewise_plan* plan, const tilewise_combination* combination,
                                                     void* workspace, size_t workspace_bytes, void* stream);

/* One call: plan (cached by problem and device), then launch. A workspace of tilewise_workspace_bytes is needed. */
TILEWISE_API tilewise_status tilewise_workspace_bytes(const tilewise_device* device, tilewise_op op,
                                                      const tilewise_attention* attention, size_t* bytes);
TILEWISE_API tilewise_status tilewise_workspace_bytes_combine(const tilewise_device* device,
                                                              const tilewise_combination* combination, size_t* bytes);
TILEWISE_API tilewise_status tilewise_forward(const tilewise_device* device, const tilewise_attention* attention,
                                              void* workspace, size_t workspace_bytes, void* stream);
TILEWISE_API tilewise_status tilewise_backward(const tilewise_device* device, const tilewise_attention* attention,
                                               void* workspace, size_t workspace_bytes, void* stream);
TILEWISE_API tilewise_status tilewise_decode(const tilewise_device* device, const tilewise_attention* attention,
                                             void* workspace, size_t workspace_bytes, void* stream);
TILEWISE_API tilewise_status tilewise_append(const tilewise_device* device, const tilewise_attention* attention,
                                             void* workspace, size_t workspace_bytes, void* stream);
TILEWISE_API tilewise_status tilewise_combine(const tilewise_device* device, const tilewise_combination* combination,
                                              void* workspace, size_t workspace_bytes, void* stream);

#ifdef __cplusplus
}
#endif

#endif /* TILEWISE_TILEWISE_H */
