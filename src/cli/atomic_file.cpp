// Temporary file, then rename; without `force` the rename itself refuses to replace.
#include "atomic_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "error.hpp"

namespace tilewise::cli {
namespace {

[[noreturn]] void fail(const std::string& path, const char* what) {
    throw Failure(fmt::format("{}: {}: {}", path, what, std::strerror(errno)));
}

[[noreturn]] void refuse(const std::string& path) {
    throw Failure(fmt::format("{}: exists already; --force replaces it", path));
}

// Renames without replacing. Some file systems cannot do it in one step; the check then comes just before the rename.
void rename_new(const std::string& from, const std::string& to) {
    if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return;
    if (errno == EEXIST) refuse(to);
    if (errno != EINVAL && errno != ENOSYS) fail(to, "cannot be written");
    if (std::filesystem::exists(to)) refuse(to);
    if (std::rename(from.c_str(), to.c_str()) != 0) fail(to, "cannot be written");
}

}  // namespace

void check_can_write(const std::string& path, bool force) {
    std::error_code ignored;
    if (std::filesystem::is_directory(path, ignored)) throw Failure(fmt::format("{}: is a folder", path));
    if (!force && std::filesystem::exists(path, ignored)) refuse(path);
    std::filesystem::path folder = std::filesystem::path(path).parent_path();
    if (folder.empty()) folder = ".";
    if (::access(folder.c_str(), W_OK | X_OK) != 0) fail(path, "its folder cannot be written");
}

AtomicFile::AtomicFile(std::string path, bool force) : path_(std::move(path)), force_(force) {
    check_can_write(path_, force_);
    temporary_ = fmt::format("{}.part-{}", path_, ::getpid());
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor_ < 0) fail(temporary_, "cannot be created");
}

AtomicFile::~AtomicFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
    if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) fail(path_, "cannot be written");
        bytes = bytes.subspan(static_cast<size_t>(written));
    }
}

void AtomicFile::write(std::string_view text) { write(std::as_bytes(std::span(text))); }

void AtomicFile::commit() {
    // A full disk may be reported as late as here.
    const bool closed = ::close(descriptor_) == 0;
    descriptor_ = -1;
    if (!closed) fail(path_, "cannot be written");
    if (!force_)
        rename_new(temporary_, path_);
    else if (std::rename(temporary_.c_str(), path_.c_str()) != 0)
        fail(path_, "cannot be written");
    temporary_.clear();
}

}  // namespace tilewise::cli
