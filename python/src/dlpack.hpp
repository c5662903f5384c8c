// The parts of the DLPack standard (version 1) that the module reads, with the standard's layout: a tensor, the two capsules of
// `__dlpack__`, and the table of C functions that a Python type may carry (torch >= 2.10). Declared here because no package that
// builds everywhere has version 1.3.
#pragma once

#include <cstdint>

namespace tilewise::python::dlpack {

enum DeviceType : std::int32_t { kCpu = 1, kCuda = 2, kCudaHost = 3, kCudaManaged = 13 };
enum TypeCode : std::uint8_t { kInt = 0, kUint = 1, kFloat = 2, kBfloat = 4, kBool = 6 };

struct Device {
    std::int32_t type;
    std::int32_t id;
};

struct DataType {
    std::uint8_t code;
    std::uint8_t bits;
    std::uint16_t lanes;
};

struct Tensor {
    void* data;
    Device device;
    std::int32_t ndim;
    DataType dtype;
    std::int64_t* shape;
    std::int64_t* strides;  // in elements; null: contiguous
    std::uint64_t byte_offset;
};

// What a capsule named "dltensor" holds.
struct ManagedTensor {
    Tensor tensor;
    void* context;
    void (*deleter)(ManagedTensor*);
};

struct Version {
    std::uint32_t major;
    std::uint32_t minor;
};

constexpr std::uint64_t kReadOnly = 1;

// What a capsule named "dltensor_versioned" holds.
struct VersionedTensor {
    Version version;
    void* context;
    void (*deleter)(VersionedTensor*);
    std::uint64_t flags;
    Tensor tensor;
};

// The table behind `__dlpack_c_exchange_api__`. A tensor that `borrow` fills lends its shape and strides from the object: they hold
// while the object lives and the GIL is kept. Functions return 0, or -1 with a Python exception set.
struct ExchangeApi {
    Version version;
    ExchangeApi* previous;  // the same type's table of an older major version, or null
    void* allocate;
    void* to_managed;
    void* from_managed;
    int (*borrow)(void* object, Tensor* out);
    int (*current_stream)(std::int32_t device_type, std::int32_t device_id, void** out);
};

}  // namespace tilewise::python::dlpack
