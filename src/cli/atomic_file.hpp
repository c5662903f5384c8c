// Writes a file so that it is either the complete new one or what was there before: the bytes go to a temporary name in the same
// folder, which is renamed at the end. Without `force` an existing file is refused, at the rename too, where nobody
// can have slipped in between.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace tilewise::cli {

// Throws Failure if `path` exists and `force` is false, or if its folder cannot be written: asked before long work begins.
void check_can_write(const std::string& path, bool force);

class AtomicFile {
public:
    AtomicFile(std::string path, bool force);
    ~AtomicFile();  // removes the temporary file unless committed
    AtomicFile(const AtomicFile&) = delete;
    AtomicFile& operator=(const AtomicFile&) = delete;

    void write(std::span<const std::byte> bytes);
    void write(std::string_view text);
    void commit();

private:
    std::string path_;
    std::string temporary_;
    bool force_ = false;
    int descriptor_ = -1;
};

}  // namespace tilewise::cli
