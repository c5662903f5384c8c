// x86-64: those of the three compiled instruction sets that this processor runs.
#include "kernels.hpp"

namespace tilewise::generate {

namespace base {
extern const Kernels kKernels;
}
namespace avx2 {
extern const Kernels kKernels;
}
namespace avx512 {
extern const Kernels kKernels;
}

std::span<const Kernels* const> available_kernels() {
    static constexpr const Kernels* kAll[] = {&avx512::kKernels, &avx2::kKernels, &base::kKernels};
    static const std::size_t first = [] {
        __builtin_cpu_init();
        if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
            __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) {
            return 0;
        }
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? 1 : 2;
    }();
    return std::span(kAll).subspan(first);
}

}  // namespace tilewise::generate
