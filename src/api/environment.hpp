// What the environment asks for, read once, at the first use:
//   TILEWISE_FORCE_KERNEL=row   the kernel of every call that pins none itself and whose operation the row serves
//   TILEWISE_NUM_THREADS=n      the threads of every CPU call that asks for none itself
// A wrong value refuses every call, with a message that names the variable: it must not look as if it had worked.
#pragma once

#include "core/device.hpp"
#include "core/problem.hpp"
#include "core/status.hpp"

namespace tilewise::api {

Status apply_environment(const DeviceInfo& device, Problem* problem);

}  // namespace tilewise::api
