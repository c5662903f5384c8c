// Reads ranges of a regular file with pread, or of memory.
#include "byte_source.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "error.hpp"

namespace tilewise::cli {

MemorySource::MemorySource(std::string name, std::span<const std::byte> bytes)
    : ByteSource(std::move(name)), bytes_(bytes) {
    size_ = static_cast<int64_t>(bytes.size());
}

void MemorySource::read(int64_t offset, std::span<std::byte> out) const {
    if (offset < 0 || offset > size_ || static_cast<int64_t>(out.size()) > size_ - offset) {
        throw Failure(fmt::format("{}: {} bytes at {} lie outside of its {} bytes", name(), out.size(), offset, size_));
    }
    // memcpy wants valid pointers even for no bytes, and an empty span may have none.
    if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
}

FileSource::FileSource(const std::string& path) : ByteSource(path) {
    descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor_ < 0) throw Failure(fmt::format("{}: cannot be opened: {}", path, std::strerror(errno)));
    struct stat info {};
    const bool known = ::fstat(descriptor_, &info) == 0;
    if (!known || !S_ISREG(info.st_mode)) {
        ::close(descriptor_);
        throw Failure(fmt::format("{}: is not a regular file", path));
    }
    size_ = info.st_size;
}

FileSource::~FileSource() { ::close(descriptor_); }

void FileSource::read(int64_t offset, std::span<std::byte> out) const {
    while (!out.empty()) {
        const ssize_t got = ::pread(descriptor_, out.data(), out.size(), offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0)
            throw Failure(fmt::format("{}: cannot be read at byte {}: {}", name(), offset, std::strerror(errno)));
        if (got == 0) throw Failure(fmt::format("{}: ends at byte {}, {} bytes early", name(), offset, out.size()));
        offset += got;
        out = out.subspan(static_cast<size_t>(got));
    }
}

}  // namespace tilewise::cli
