// Processors other than x86-64: what the compiler's default flags give, four lanes wide.
#include "kernels.hpp"

namespace tilewise::generate {

namespace base {
extern const Kernels kKernels;
}

std::span<const Kernels* const> available_kernels() {
    static constexpr const Kernels* kAvailable[] = {&base::kKernels};
    return kAvailable;
}

}  // namespace tilewise::generate
