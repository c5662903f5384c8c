// The kernels and device kinds of this build: every backend whose folder was compiled in registers its rows once.
// This is the only place that names a backend; TILEWISE_HAS_* come from CMakeLists.txt.
#include "core/device_backend.hpp"
#include "core/registry.hpp"

namespace tilewise {

#if defined(TILEWISE_HAS_CPU)
void register_cpu_backend(Registry& registry);
#endif
#if defined(TILEWISE_HAS_CUDA)
void register_cuda_backend(Registry& registry);
const DeviceBackend& cuda_device_backend();
#endif

const Registry& default_registry() {
    static const Registry registry = [] {
        Registry rows;
#if defined(TILEWISE_HAS_CPU)
        register_cpu_backend(rows);
#endif
#if defined(TILEWISE_HAS_CUDA)
        register_cuda_backend(rows);
#endif
        return rows;
    }();
    return registry;
}

const DeviceBackend* device_backend(DeviceKind kind) {
    if (kind == DeviceKind::kCpu) return &host_backend();
#if defined(TILEWISE_HAS_CUDA)
    return &cuda_device_backend();
#else
    return nullptr;
#endif
}

}  // namespace tilewise
