// The last error of each thread. Its text lives as long as the thread; where there is no memory for it, a constant stands in.
#include "api/fence.hpp"

#include <exception>

namespace tilewise::api {

namespace {

struct LastError {
    std::string text;
    const char* message = "";

    void set(const std::string& sentence) noexcept {
        try {
            text = sentence;
            message = text.c_str();
        } catch (...) {
            message = "out of memory, also for the description of an error";
        }
    }
};
thread_local LastError last;

}  // namespace

const char* last_error() noexcept { return last.message; }

tilewise_status report(const Status& status) noexcept {
    if (!status.ok()) last.set(status.message());
    return static_cast<tilewise_status>(status.code());
}

tilewise_status report_exception() noexcept {
    try {
        throw;
    } catch (const std::bad_alloc&) {
        last.message = "out of host memory";
        return TILEWISE_OUT_OF_MEMORY;
    } catch (const std::exception& e) {
        try {
            last.set(std::string("a fault of the library: ") + e.what());
        } catch (...) {
            last.message = "a fault of the library";
        }
    } catch (...) {
        last.message = "a fault of the library";
    }
    return TILEWISE_INTERNAL;
}

}  // namespace tilewise::api
