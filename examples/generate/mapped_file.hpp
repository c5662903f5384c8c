// A file's bytes, mapped read-only: pages are read when they are touched, and several processes share them.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace tilewise::generate {

class MappedFile {
public:
    explicit MappedFile(const std::string& path);
    ~MappedFile();
    MappedFile(const MappedFile&) = delete;
    MappedFile& operator=(const MappedFile&) = delete;

    std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(address_), size_}; }

private:
    void* address_ = nullptr;
    std::size_t size_ = 0;
};

}  // namespace tilewise::generate
