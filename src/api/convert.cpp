// One table says where each tensor lies in the C structs; masks, scores and options are read field by field.
//
// struct_size: a caller built with an older header has a struct that is a prefix of ours, ending where one of its members ends. It is
// copied into a zeroed one (zero is "not given"). A larger struct comes from a newer header and may ask for what this library
// does not know, so it is refused.
#include "api/convert.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <utility>

namespace tilewise::api {

namespace {

// Core's enumerations have the numbers of the C header.
static_assert(int{TILEWISE_BITS} == static_cast<int>(DType::kBits));
static_assert(int{TILEWISE_COMBINE} == static_cast<int>(Op::kCombine));
static_assert(int{TILEWISE_INTERNAL} == static_cast<int>(StatusCode::kInternal));
static_assert(int{TILEWISE_FAULT_LENGTH} == kFaultLength && int{TILEWISE_FAULT_NEW_ROWS} == kFaultNewRows &&
              int{TILEWISE_FAULT_CACHE_ROW} == kFaultCacheRow && int{TILEWISE_FAULT_PAGE} == kFaultPage &&
              int{TILEWISE_FAULT_POSITION} == kFaultPosition);

struct Field {
    Arg arg;
    size_t offset;  // of a tilewise_tensor in the struct
};

constexpr std::array kAttentionTensors = {
    Field{Arg::kQ, offsetof(tilewise_attention, q)},
    Field{Arg::kK, offsetof(tilewise_attention, k)},
    Field{Arg::kV, offsetof(tilewise_attention, v)},
    Field{Arg::kO, offsetof(tilewise_attention, o)},
    Field{Arg::kLse, offsetof(tilewise_attention, lse)},
    Field{Arg::kCuSeqlensQ, offsetof(tilewise_attention, lengths.cu_seqlens_q)},
    Field{Arg::kCuSeqlensK, offsetof(tilewise_attention, lengths.cu_seqlens_k)},
    Field{Arg::kSequsedQ, offsetof(tilewise_attention, lengths.seqused_q)},
    Field{Arg::kSequsedK, offsetof(tilewise_attention, lengths.seqused_k)},
    Field{Arg::kLeftpadK, offsetof(tilewise_attention, lengths.leftpad_k)},
    Field{Arg::kPrefixLens, offsetof(tilewise_attention, mask.prefix_lens)},
    Field{Arg::kMask, offsetof(tilewise_attention, mask.mask)},
    Field{Arg::kKeyBegin, offsetof(tilewise_attention, mask.key_begin)},
    Field{Arg::kKeyEnd, offsetof(tilewise_attention, mask.key_end)},
    Field{Arg::kAlibiSlopes, offsetof(tilewise_attention, score.alibi_slopes)},
    Field{Arg::kBias, offsetof(tilewise_attention, score.bias)},
    Field{Arg::kSink, offsetof(tilewise_attention, score.sink)},
    Field{Arg::kCacheSeqlens, offsetof(tilewise_attention, cache.cache_seqlens)},
    Field{Arg::kCacheBatchIdx, offsetof(tilewise_attention, cache.cache_batch_idx)},
    Field{Arg::kPageTable, offsetof(tilewise_attention, cache.page_table)},
    Field{Arg::kKNew, offsetof(tilewise_attention, cache.k_new)},
    Field{Arg::kVNew, offsetof(tilewise_attention, cache.v_new)},
    Field{Arg::kCuSeqlensKNew, offsetof(tilewise_attention, cache.cu_seqlens_k_new)},
    Field{Arg::kRotaryCos, offsetof(tilewise_attention, cache.rotary_cos)},
    Field{Arg::kRotarySin, offsetof(tilewise_attention, cache.rotary_sin)},
    Field{Arg::kRotarySeqlens, offsetof(tilewise_attention, cache.rotary_seqlens)},
    Field{Arg::kErrorFlag, offsetof(tilewise_attention, cache.error_flag)},
    Field{Arg::kGradO, offsetof(tilewise_attention, gradients.grad_o)},
    Field{Arg::kGradLse, offsetof(tilewise_attention, gradients.grad_lse)},
    Field{Arg::kGradQ, offsetof(tilewise_attention, gradients.grad_q)},
    Field{Arg::kGradK, offsetof(tilewise_attention, gradients.grad_k)},
    Field{Arg::kGradV, offsetof(tilewise_attention, gradients.grad_v)},
    Field{Arg::kGradBias, offsetof(tilewise_attention, gradients.grad_bias)},
    Field{Arg::kGradSink, offsetof(tilewise_attention, gradients.grad_sink)},
};

static_assert(std::is_sorted(kAttentionTensors.begin(), kAttentionTensors.end(),
                             [](const Field& a, const Field& b) { return a.offset < b.offset; }));

constexpr std::array kCombinationTensors = {
    Field{Arg::kPartialO, offsetof(tilewise_combination, partial_o)},
    Field{Arg::kPartialLse, offsetof(tilewise_combination, partial_lse)},
    Field{Arg::kO, offsetof(tilewise_combination, o)},
    Field{Arg::kLse, offsetof(tilewise_combination, lse)},
};

// Where the members behind the tensors that every call needs end: the sizes that an older header's struct can have.
constexpr std::array kAttentionSizes = {
    offsetof(tilewise_attention, lengths),
    offsetof(tilewise_attention, mask),
    offsetof(tilewise_attention, score),
    offsetof(tilewise_attention, cache),
    offsetof(tilewise_attention, gradients),
    offsetof(tilewise_attention, options),
    sizeof(tilewise_attention),
};
constexpr std::array kCombinationSizes = {offsetof(tilewise_combination, options), sizeof(tilewise_combination)};

// The caller's struct, or a zero-filled copy of a shorter one.
template <class Struct> class Sized {
public:
    Status read(const char* name, const Struct* given, std::span<const size_t> sizes) {
        if (given == nullptr) return null_struct(name);
        const size_t size = given->struct_size;
        if (size == sizeof(Struct)) {
            view_ = given;
            return {};
        }
        if (size > sizeof(Struct))
            return Status::invalid(fmt::format(
                "struct_size: {} of {} is more than the {} bytes that version {}.{}.{} of the library knows; a newer "
                "library is needed",
                size, name, sizeof(Struct), TILEWISE_VERSION_MAJOR, TILEWISE_VERSION_MINOR, TILEWISE_VERSION_PATCH));
        if (std::find(sizes.begin(), sizes.end(), size) == sizes.end())
            return Status::invalid(
                fmt::format("struct_size: {} is not a size of {}; sizeof({}) is {}", size, name, name, sizeof(Struct)));
        std::memcpy(&copy_.emplace(), given, size);
        view_ = &*copy_;
        return {};
    }
    const Struct& operator*() const { return *view_; }
    const Struct* operator->() const { return view_; }

private:
    static Status null_struct(const char* name) {
        return Status::invalid(fmt::format("{}: null; a pointer to the call's description is needed", name));
    }

    const Struct* view_ = nullptr;
    std::optional<Struct> copy_;
};

Status check_flags(const char* name, uint32_t flags, uint32_t known) {
    if ((flags & ~known) == 0) return {};
    return Status::invalid(fmt::format("{}: {:#x} has the unknown bits {:#x}; the bits {:#x} are known", name, flags,
                                       flags & ~known, known));
}

int alignment_of(const void* data) {
    const auto address = reinterpret_cast<uintptr_t>(data);
    return 1 << std::min(std::countr_zero(address), 4);  // countr_zero of a null pointer is 64
}

const tilewise_tensor& tensor_at(const void* owner, const Field& field) {
    return *reinterpret_cast<const tilewise_tensor*>(static_cast<const unsigned char*>(owner) + field.offset);
}

bool is_absent(const tilewise_tensor& tensor) {
    return tensor.dtype == TILEWISE_NONE && tensor.data == nullptr && tensor.rank == 0;
}

Status read_tensor(Arg arg, const tilewise_tensor& tensor, Call* call) {
    if (tensor.dtype == TILEWISE_NONE) {
        if (is_absent(tensor)) return {};
        return Status::invalid(
            fmt::format("{}: dtype is 0 (not given), but {} set; give a dtype or leave the tensor all zero",
                        name_of(arg), tensor.data != nullptr ? "data is" : "its shape is"));
    }
    if (tensor.dtype < 0 || tensor.dtype > TILEWISE_BITS)
        return Status::invalid(fmt::format("{}: dtype {} is unknown; 1 (f32) to {} (bits) are known", name_of(arg),
                                           tensor.dtype, static_cast<int>(TILEWISE_BITS)));
    if (tensor.rank < 0 || tensor.rank > kMaxRank)
        return Status::invalid(fmt::format("{}: rank {}; at most {} is allowed", name_of(arg), tensor.rank, kMaxRank));
    TensorDesc& desc = call->problem[arg];
    desc.dtype = static_cast<DType>(tensor.dtype);
    desc.rank = tensor.rank;
    std::copy_n(tensor.shape, tensor.rank, desc.shape.begin());
    std::copy_n(tensor.stride, tensor.rank, desc.stride.begin());
    desc.alignment = alignment_of(tensor.data);
    call->arguments.pointers[arg] = tensor.data;
    return {};
}

Status read_tensors(const void* owner, std::span<const Field> fields, Call* call) {
    for (const Field& field : fields) {
        if (Status status = read_tensor(field.arg, tensor_at(owner, field), call); !status.ok()) return status;
    }
    return {};
}

bool same_bytes(const void* a, const void* b, size_t begin, size_t end) {
    return std::memcmp(static_cast<const unsigned char*>(a) + begin, static_cast<const unsigned char*>(b) + begin,
                       end - begin) == 0;
}

bool same_layout(const tilewise_tensor& a, const tilewise_tensor& b) {
    constexpr size_t kBegin = offsetof(tilewise_tensor, dtype);
    return same_bytes(&a, &b, kBegin, sizeof a) && alignment_of(b.data) >= alignment_of(a.data);
}

// A distance in keys. Beyond the longest sequence all distances mean the same.
Status narrow(const char* name, int64_t value, int32_t* narrowed) {
    if (value < std::numeric_limits<int32_t>::min())
        return Status::invalid(fmt::format("{}: {} is negative; a number of keys is allowed", name, value));
    *narrowed = static_cast<int32_t>(std::min<int64_t>(value, kMaxSeqlen));
    return {};
}

Status read_window(const tilewise_mask& mask, MaskSpec* spec) {
    const bool is_causal = (mask.flags & TILEWISE_MASK_CAUSAL) != 0;
    if ((mask.flags & TILEWISE_MASK_WINDOW) == 0) {
        for (const auto& [name, value] :
             {std::pair{"window_left", mask.window_left}, {"window_right", mask.window_right}})
            if (value != 0)
                return Status::invalid(fmt::format(
                    "{}: {} without TILEWISE_MASK_WINDOW in flags; set the flag, or leave it 0", name, value));
        spec->window_right = is_causal ? 0 : kUnlimited;
        return {};
    }
    if (is_causal && mask.window_right != 0)
        return Status::invalid(fmt::format(
            "window_right: {} with TILEWISE_MASK_CAUSAL; a causal window ends at the diagonal, 0", mask.window_right));
    if (Status status = narrow("window_left", mask.window_left, &spec->window_left); !status.ok()) return status;
    return narrow("window_right", mask.window_right, &spec->window_right);
}

Status read_mask(const tilewise_mask& mask, MaskSpec* spec) {
    constexpr uint32_t kKnown = TILEWISE_MASK_CAUSAL | TILEWISE_MASK_WINDOW | TILEWISE_MASK_TOP_LEFT;
    if (Status status = check_flags("mask.flags", mask.flags, kKnown); !status.ok()) return status;
    if (Status status = read_window(mask, spec); !status.ok()) return status;
    spec->top_left = (mask.flags & TILEWISE_MASK_TOP_LEFT) != 0;
    spec->chunk = mask.chunk;
    if (Status status = narrow("block", mask.block, &spec->block); !status.ok()) return status;
    return narrow("prefix", mask.prefix, &spec->prefix);
}

Status read_score(const tilewise_score& score, ScoreSpec* spec) {
    if (Status status = check_flags("score.flags", score.flags, TILEWISE_SCORE_HAS_SCALE); !status.ok()) return status;
    spec->has_softmax_scale = (score.flags & TILEWISE_SCORE_HAS_SCALE) != 0;
    if (!spec->has_softmax_scale && score.softmax_scale != 0.0f)
        return Status::invalid(
            fmt::format("softmax_scale: {} without TILEWISE_SCORE_HAS_SCALE in flags; set the flag, or leave it 0 for "
                        "head_dim^-0.5",
                        score.softmax_scale));
    spec->softmax_scale = score.softmax_scale;
    spec->softcap = score.softcap;
    spec->dropout_p = score.dropout_p;
    spec->dropout_seed = score.dropout_seed;
    spec->dropout_offset = score.dropout_offset;
    return {};
}

Status read_options(const tilewise_options& options, ExecSpec* spec) {
    constexpr uint32_t kKnown = TILEWISE_DETERMINISTIC | TILEWISE_BATCH_INVARIANT;
    if (Status status = check_flags("options.flags", options.flags, kKnown); !status.ok()) return status;
    spec->deterministic = (options.flags & TILEWISE_DETERMINISTIC) != 0;
    spec->batch_invariant = (options.flags & TILEWISE_BATCH_INVARIANT) != 0;
    spec->num_splits = options.num_splits;
    spec->num_threads = options.num_threads;
    if (options.kernel != nullptr) spec->kernel = options.kernel;
    return {};
}

}  // namespace

Status read_call(int32_t op, const tilewise_attention* attention, Call* call) {
    if (op == TILEWISE_COMBINE)
        return Status::invalid(
            "op: TILEWISE_COMBINE does not take a tilewise_attention; use the *_combine functions with a "
            "tilewise_combination");
    if (op < TILEWISE_FORWARD || op > TILEWISE_COMBINE)
        return Status::invalid(fmt::format("op: {} is unknown; {} (forward) to {} (append) are allowed", op,
                                           int32_t{TILEWISE_FORWARD}, int32_t{TILEWISE_APPEND}));
    Sized<tilewise_attention> given;
    if (Status status = given.read("tilewise_attention", attention, kAttentionSizes); !status.ok()) return status;
    Problem& problem = call->problem;
    problem.op = static_cast<Op>(op);
    if (Status status = read_tensors(&*given, kAttentionTensors, call); !status.ok()) return status;
    if (Status status = read_mask(given->mask, &problem.mask); !status.ok()) return status;
    if (Status status = read_score(given->score, &problem.score); !status.ok()) return status;
    if (Status status = read_options(given->options, &problem.exec); !status.ok()) return status;
    problem.exec.rotary_interleaved = given->cache.rotary_interleaved != 0;
    problem.exec.max_seqlen_q = given->lengths.max_seqlen_q;
    problem.exec.max_seqlen_k = given->lengths.max_seqlen_k;
    return {};
}

Status read_call(const tilewise_combination* combination, Call* call) {
    Sized<tilewise_combination> given;
    if (Status status = given.read("tilewise_combination", combination, kCombinationSizes); !status.ok()) return status;
    call->problem.op = Op::kCombine;
    if (Status status = read_tensors(&*given, kCombinationTensors, call); !status.ok()) return status;
    return read_options(given->options, &call->problem.exec);
}

bool read_again(const tilewise_attention& known, const tilewise_attention& called, Arguments* arguments) {
    if (called.struct_size != sizeof called) return false;
    size_t compared = 0;
    for (const Field& field : kAttentionTensors) {
        if (!same_bytes(&known, &called, compared, field.offset)) return false;
        const tilewise_tensor& a = tensor_at(&known, field);
        const tilewise_tensor& b = tensor_at(&called, field);
        if (a.dtype == TILEWISE_NONE ? !is_absent(b) : !same_layout(a, b)) return false;
        arguments->pointers[field.arg] = b.data;
        compared = field.offset + sizeof(tilewise_tensor);
    }
    // Another text may lie where a name was.
    return same_bytes(&known, &called, compared, sizeof known) && called.options.kernel == nullptr;
}

}  // namespace tilewise::api
