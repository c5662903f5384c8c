// The encoder is looked up once; a failure is remembered, since a driver does not change under a running process.
#include "cuda/common/tensor_map.hpp"

#include "cuda/common/driver.hpp"

namespace tilewise::cuda {

Status tensor_map_encoder(TensorMapEncoder* encoder) {
    struct Lookup {
        void* function = nullptr;
        Status status = driver_function("cuTensorMapEncodeTiled", 12000, &function);
    };
    static const Lookup lookup;
    *encoder = reinterpret_cast<TensorMapEncoder>(lookup.function);
    return lookup.status;
}

}  // namespace tilewise::cuda
