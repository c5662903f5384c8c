// Registers the rows of the shared kernels; see rows.hpp.
#include "cuda/shared/rows.hpp"

#include "cuda/shared/append.hpp"
#include "cuda/shared/combine.hpp"

namespace tilewise::cuda {

void register_shared_rows(Registry& registry) {
    registry.add(append_row());
    registry.add(combine_row());
}

}  // namespace tilewise::cuda
