// Where the bytes of a tensor file come from: a file, or memory (the fuzz tests). A reader asks for ranges, so a file of many
// gigabytes costs only the tensors that are read from it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace tilewise::cli {

class ByteSource {
public:
    virtual ~ByteSource() = default;
    const std::string& name() const { return name_; }
    int64_t size() const { return size_; }
    // Fills `out` from `offset`; the range must lie inside [0, size()). Throws Failure where the file does not deliver.
    virtual void read(int64_t offset, std::span<std::byte> out) const = 0;

protected:
    explicit ByteSource(std::string name) : name_(std::move(name)) {}
    int64_t size_ = 0;

private:
    std::string name_;
};

class MemorySource : public ByteSource {
public:
    MemorySource(std::string name, std::span<const std::byte> bytes);
    void read(int64_t offset, std::span<std::byte> out) const override;

private:
    std::span<const std::byte> bytes_;
};

class FileSource : public ByteSource {
public:
    explicit FileSource(const std::string& path);
    ~FileSource() override;
    FileSource(const FileSource&) = delete;
    FileSource& operator=(const FileSource&) = delete;
    void read(int64_t offset, std::span<std::byte> out) const override;

private:
    int descriptor_ = -1;
};

}  // namespace tilewise::cli
