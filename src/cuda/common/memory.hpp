// Memory, streams and events of GPUs, for programs that do not link the CUDA runtime themselves. Private to the backend's host side.
#pragma once

#include "core/device_backend.hpp"

namespace tilewise::cuda {

MemoryFunctions memory_functions();
StreamFunctions stream_functions();
EventFunctions event_functions();

}  // namespace tilewise::cuda
