// The outcome of a call inside the library: a code and a sentence that names the argument, its value and what is allowed.
// Functions return it by value; nothing in the library throws on purpose, prints or ends the process.
#pragma once

#include <string>
#include <utility>

namespace tilewise {

// Values are those of tilewise_status in the C header.
enum class StatusCode : int {
    kOk = 0,
    kInvalidArgument = 1,  // the call contradicts itself or the contract
    kUnsupported = 2,      // well-formed, but no kernel of this build serves it on this device
    kOutOfMemory = 3,
    kDeviceError = 4,  // the driver or a launch reported an error
    kInternal = 5,     // a fault of the library
};

class [[nodiscard]] Status {
public:
    Status() = default;
    Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}
    static Status invalid(std::string message) { return {StatusCode::kInvalidArgument, std::move(message)}; }
    static Status unsupported(std::string message) { return {StatusCode::kUnsupported, std::move(message)}; }

    bool ok() const { return code_ == StatusCode::kOk; }
    StatusCode code() const { return code_; }
    const std::string& message() const { return message_; }

private:
    StatusCode code_ = StatusCode::kOk;
    std::string message_;
};

}  // namespace tilewise
