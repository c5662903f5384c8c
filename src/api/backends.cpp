// The kernels of this build: every backend whose folder was compiled in registers its rows once.
// This is the only place that names a backend; TILEWISE_HAS_* come from CMakeLists.txt.
#include "core/registry.hpp"

namespace tilewise {

#if defined(TILEWISE_HAS_CPU)
void register_cpu_backend(Registry& registry);
#endif

const Registry& default_registry() {
    static const Registry registry = [] {
        Registry rows;
#if defined(TILEWISE_HAS_CPU)
        register_cpu_backend(rows);
#endif
        return rows;
    }();
    return registry;
}

}  // namespace tilewise
