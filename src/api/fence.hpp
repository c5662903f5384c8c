// What stands between the library and its C callers: no exception passes, and a failure leaves its sentence in the calling
// thread's last error. Every function of the C interface that can fail runs its body through one of the two fences here.
#pragma once

#include <new>
#include <string>

#include "core/status.hpp"
#include "tilewise/tilewise.h"

namespace tilewise::api {

// Never null; "" before the first failure of this thread.
const char* last_error() noexcept;

// Records the message of a failure and returns the status in its C form.
tilewise_status report(const Status& status) noexcept;
// For the exception that is being handled: out of memory, or a fault of the library.
tilewise_status report_exception() noexcept;

// `body` returns a Status.
template <class Body> tilewise_status fenced(Body&& body) noexcept {
    try {
        return report(body());
    } catch (...) {
        return report_exception();
    }
}

// `body` returns a C string; "" if it fails, so that a caller can always print the result.
template <class Body> const char* fenced_text(Body&& body) noexcept {
    try {
        return body();
    } catch (...) {
        report_exception();
        return "";
    }
}

// "device: null; ..." for a handle or out parameter that the caller left out.
inline Status null_argument(const char* name, const char* allowed) {
    return Status::invalid(std::string(name) + ": null; " + allowed);
}

}  // namespace tilewise::api
