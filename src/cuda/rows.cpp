// Registers everything that the CUDA backend has. Nothing else of it is visible to core and api.
#include "cuda/shared/rows.hpp"
#include "cuda/sm80/backward_backend.hpp"
#include "cuda/sm80/decode_backend.hpp"
#include "cuda/sm80/f32_backend.hpp"
#include "cuda/sm80/forward_backend.hpp"
#if defined(TILEWISE_HAS_SM90)
#    include "cuda/sm90/forward_backend.hpp"
#endif
#if defined(TILEWISE_HAS_SM90) && defined(TILEWISE_UNPROVEN_KERNELS)
#    include "cuda/sm90/backward_backend.hpp"
#endif

namespace tilewise {

void register_cuda_backend(Registry& registry) {
#if defined(TILEWISE_HAS_SM90)
    cuda::sm90::register_forward_rows(registry);
#endif
#if defined(TILEWISE_HAS_SM90) && defined(TILEWISE_UNPROVEN_KERNELS)
    cuda::sm90::register_backward_rows(registry);
    cuda::sm90::register_two_pass_rows(registry);
#endif
    cuda::sm80::register_forward_rows(registry);
    cuda::sm80::register_decode_rows(registry);
    cuda::sm80::register_backward_rows(registry);
    cuda::sm80::register_f32_rows(registry);
    cuda::register_shared_rows(registry);
}

}  // namespace tilewise
