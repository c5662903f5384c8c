// The tensor file readers on right, wrong and damaged bytes.
// A damaged file must give either a Failure that begins with the file's name or a tensor (a flipped data byte is still data);
// anything else, a read outside of a buffer above all, is for the sanitizers to report. The fuzz uses fixed seeds.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "byte_source.hpp"
#include "error.hpp"
#include "npy.hpp"
#include "safetensors.hpp"

namespace tilewise::cli {
namespace {

using Bytes = std::vector<std::byte>;

Bytes bytes_of(const std::string& text) {
    const auto raw = std::as_bytes(std::span(text));
    return {raw.begin(), raw.end()};
}

// A version 1.0 file with the given dictionary and `data` bytes behind it.
Bytes npy_file(const std::string& dictionary, size_t data) {
    std::string file("\x93NUMPY\x01\x00", 8);
    file += static_cast<char>(dictionary.size() & 0xff);
    file += static_cast<char>(dictionary.size() >> 8);
    file += dictionary;
    for (size_t i = 0; i < data; ++i) file += static_cast<char>(i + 1);
    return bytes_of(file);
}

Bytes safetensors_file(const std::string& header, size_t data) {
    std::string file;
    for (int i = 0; i < 8; ++i) file += static_cast<char>(header.size() >> (8 * i) & 0xff);
    file += header;
    for (size_t i = 0; i < data; ++i) file += static_cast<char>(i + 1);
    return bytes_of(file);
}

HostTensor npy(const Bytes& bytes) { return read_npy(MemorySource("x.npy", bytes)); }

std::string npy_error(const Bytes& bytes) {
    try {
        npy(bytes);
    } catch (const Failure& failure) {
        return failure.what();
    }
    return "";
}

std::string safetensors_error(const Bytes& bytes, const std::string& name) {
    try {
        const MemorySource source("x.safetensors", bytes);
        SafetensorsFile(source).read(name);
    } catch (const Failure& failure) {
        return failure.what();
    }
    return "";
}

TEST(Npy, reads_every_type) {
    const std::vector<std::pair<std::string, DType>> types = {
        {"<f4", DType::kF32}, {"<f2", DType::kF16}, {"<V2", DType::kBF16}, {"|V2", DType::kBF16}, {"<f8", DType::kF64},
        {"<i4", DType::kI32}, {"<i8", DType::kI64}, {"|b1", DType::kBool}, {">b1", DType::kBool},
    };
    for (const auto& [descr, dtype] : types) {
        const Bytes file = npy_file("{'descr': '" + descr + "', 'fortran_order': False, 'shape': (2, 3), }\n",
                                    static_cast<size_t>(6 * size_of(dtype)));
        const HostTensor tensor = npy(file);
        EXPECT_EQ(tensor.dtype(), dtype) << descr;
        EXPECT_EQ(tensor.shape(), (std::vector<int64_t>{2, 3}));
        EXPECT_EQ(tensor.stride(), (std::vector<int64_t>{3, 1}));
        EXPECT_EQ(std::memcmp(tensor.bytes().data(), file.data() + file.size() - tensor.bytes().size(),
                              tensor.bytes().size()),
                  0);
    }
}

TEST(Npy, fortran_order_becomes_strides) {
    const HostTensor tensor = npy(npy_file("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3, 5)}", 120));
    EXPECT_EQ(tensor.stride(), (std::vector<int64_t>{1, 2, 6}));
    EXPECT_FALSE(tensor.is_contiguous());
}

TEST(Npy, takes_other_spellings_and_empty_arrays) {
    EXPECT_EQ(npy(npy_file("{\"shape\":(3,),'fortran_order':False,\"descr\":\"<f4\"}", 12)).shape().size(), 1U);
    EXPECT_EQ(npy(npy_file("{'descr': '<f4', 'fortran_order': False, 'shape': ()}", 4)).shape().size(), 0U);
    EXPECT_EQ(npy(npy_file("{'descr': '<f4', 'fortran_order': False, 'shape': (4, 0, 2)}", 0)).bytes().size(), 0U);
    std::string second = "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}";
    const std::string version_two =
        std::string("\x93NUMPY\x02\x00", 8) + static_cast<char>(second.size()) + std::string(3, '\0') + second + "abcd";
    EXPECT_EQ(npy(bytes_of(version_two)).bytes().size(), 4U);
}

TEST(Npy, names_what_is_wrong) {
    const auto with = [](const std::string& descr, const std::string& rest, size_t data) {
        return npy_error(npy_file("{'descr': '" + descr + "', " + rest + "}", data));
    };
    const std::string plain = "'fortran_order': False, 'shape': (2, 3)";
    const std::vector<std::pair<std::string, std::string>> cases = {
        {npy_error({}), "x.npy: magic: the file has 0 bytes"},
        {npy_error(Bytes(64)), "x.npy: magic: the file does not begin with"},
        {npy_error(bytes_of("\x93NUMPY\x07zzzzz")), "x.npy: version: 7.122"},
        {with(">f4", plain, 24), "descr: '>f4' is big-endian"},
        {with("|O", plain, 24), "descr: '|O' is not supported"},
        {with("<u2", plain, 12), "descr: '<u2' is not supported"},
        {with("<f4", plain, 23), "x.npy: shape: (2, 3) of f32 is 24 bytes, but 23 follow"},
        {with("<f4", plain, 25), "x.npy: shape: (2, 3) of f32 is 24 bytes, but 25 follow"},
        {with("<f4", "'fortran_order': 1, 'shape': (2,)", 8), "'fortran_order' is neither"},
        {with("<f4", "'fortran_order': False", 8), "'shape' is missing"},
        {with("<f4", plain + ", 'shape': (2,)", 8), "key 'shape' is unknown or given twice"},
        {with("<f4", plain + ", 'extra': (2,)", 8), "key 'extra' is unknown"},
        {with("<f4", "'fortran_order': False, 'shape': (-2,)", 8), "'shape' has something else than a number"},
        {with("<f4", "'fortran_order': False, 'shape': (99999999999999999999,)", 8), "more than 63 bits"},
        {with("<f4", "'fortran_order': False, 'shape': (4611686018427387904, 0, 4)", 0), "more elements than 63 bits"},
        {with("<f8", "'fortran_order': False, 'shape': (4611686018427387904,)", 8), "more bytes than 63 bits"},
        {npy_error(npy_file("{'descr': [('a', '<f4')], " + plain + "}", 24)), "'descr' is a record type"},
        {npy_error(npy_file("{'descr': '<f4', " + plain + "} junk", 24)), "text follows the dictionary"},
    };
    for (const auto& [message, wanted] : cases) {
        EXPECT_NE(message.find(wanted), std::string::npos) << "wanted: " << wanted << "\ngot: " << message;
    }
}

TEST(Npy, written_headers_read_back) {
    for (const std::vector<int64_t>& shape : {std::vector<int64_t>{}, {7}, {2, 3}, {1, 2, 3, 4}}) {
        for (const DType dtype : {DType::kF32, DType::kBF16, DType::kBool, DType::kF64}) {
            const std::string header = npy_header(dtype, shape);
            EXPECT_EQ(header.size() % 64, 0U);
            Bytes file = bytes_of(header);
            file.resize(file.size() + static_cast<size_t>(byte_count("x", dtype, shape)));
            const HostTensor tensor = npy(file);
            EXPECT_EQ(tensor.dtype(), dtype);
            EXPECT_EQ(tensor.shape(), shape);
        }
    }
}

constexpr const char* kTwoTensors =
    R"({"__metadata__":{"made":"by hand"},"q":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
    R"("k":{"dtype":"BF16","shape":[5],"data_offsets":[24,34]},"w":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[34,36]}})";

TEST(Safetensors, reads_by_name) {
    const Bytes file = safetensors_file(kTwoTensors, 36);
    const MemorySource source("x.safetensors", file);
    const SafetensorsFile parsed(source);
    EXPECT_EQ(parsed.entries().size(), 3U);
    const HostTensor k = parsed.read("k");
    EXPECT_EQ(k.dtype(), DType::kBF16);
    EXPECT_EQ(k.shape(), (std::vector<int64_t>{5}));
    EXPECT_EQ(k.bytes()[0], std::byte{25});
}

TEST(Safetensors, names_what_is_wrong) {
    const auto one = [](const std::string& fields, size_t data = 24) {
        return safetensors_error(safetensors_file("{\"q\":{" + fields + "}}", data), "q");
    };
    const Bytes good = safetensors_file(kTwoTensors, 36);
    Bytes long_header = good;
    long_header[7] = std::byte{0x7f};
    const std::string q = R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
    const std::vector<std::pair<std::string, std::string>> cases = {
        {safetensors_error({}, "q"), "x.safetensors: header length: the file has 0 bytes"},
        {safetensors_error(long_header, "q"), "x.safetensors: header length: 91513"},
        {safetensors_error(good, "v"), "has no tensor \"v\"; it holds q, k, w"},
        {safetensors_error(good, "w"), "x.safetensors: w: dtype: F8_E4M3 is not supported"},
        {safetensors_error(safetensors_file("{\"q\":", 0), "q"), "header: is not JSON"},
        {safetensors_error(safetensors_file("[1]", 0), "q"), "header: is not a JSON object"},
        {safetensors_error(safetensors_file("[[[[[[[[1]]]]]]]]", 0), "q"), "header: is nested deeper"},
        {safetensors_error(safetensors_file("{\"q\":" + q + ",\"q\":" + q + "}", 8), "q"), "header: names q twice"},
        {safetensors_error(safetensors_file("{\"q\":3}", 0), "q"), "q: is not a JSON object"},
        {one(R"("shape":[2,3],"data_offsets":[0,24])"), "q: dtype: is missing"},
        {one(R"("dtype":5,"shape":[2,3],"data_offsets":[0,24])"), "q: dtype: is not a string"},
        {one(R"("dtype":"F32","shape":[2,-3],"data_offsets":[0,24])"), "q: shape: -3 is not a size"},
        {one(R"("dtype":"F32","shape":[2,3.0],"data_offsets":[0,24])"), "q: shape: 3.0 is not a size"},
        {one(R"("dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,24])"),
         "q: shape: 18446744073709551615"},
        {one(R"("dtype":"F32","shape":[2,3],"data_offsets":[0])"), "q: data_offsets: has 1 numbers"},
        {one(R"("dtype":"F32","shape":[2,3],"data_offsets":[8,32])"), "q: data_offsets: [8, 32] does not lie"},
        {one(R"("dtype":"F32","shape":[2,3],"data_offsets":[24,0])"), "q: data_offsets: [24, 0] does not lie"},
        {one(R"("dtype":"F32","shape":[2,2],"data_offsets":[0,24])"), "holds 24 bytes, but (2, 2) of f32 is 16"},
        {one(R"("dtype":"F32","shape":[2,3],"data_offsets":[0,24])", 23),
         "q: data_offsets: [0, 24] does not lie in the 23"},
    };
    for (const auto& [message, wanted] : cases) {
        EXPECT_NE(message.find(wanted), std::string::npos) << "wanted: " << wanted << "\ngot: " << message;
    }
}

TEST(Safetensors, written_headers_read_back) {
    const std::vector<TensorToWrite> tensors = {{"out", DType::kF16, {2, 3, 4}}, {"lse", DType::kF32, {5}}};
    const std::string header = safetensors_header(tensors);
    EXPECT_EQ(header.size() % 64, 0U);
    Bytes file = bytes_of(header);
    file.resize(file.size() + 48 + 20);
    const MemorySource source("x.safetensors", file);
    const SafetensorsFile parsed(source);
    ASSERT_EQ(parsed.entries().size(), 2U);
    EXPECT_EQ(parsed.entries()[0].name, "out");
    EXPECT_EQ(parsed.read("lse").shape(), (std::vector<int64_t>{5}));
}

// Calls `read` on every truncation of `good` and on `count` copies with one to four changed bits, most of them in the header.
template <class Read> void fuzz(const Bytes& good, size_t header, int count, Read read) {
    for (size_t size = 0; size < good.size(); ++size) {
        const Bytes cut(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size));
        EXPECT_FALSE(read(cut).empty()) << "cut to " << size << " bytes";
    }
    std::mt19937 random(20240917);
    for (int i = 0; i < count; ++i) {
        Bytes damaged = good;
        const size_t range = i % 8 == 0 ? damaged.size() : header;
        for (unsigned flips = 1 + random() % 4; flips > 0; --flips) {
            damaged[random() % range] ^= static_cast<std::byte>(1U << random() % 8);
        }
        if (i % 3 == 0) damaged.resize(random() % (damaged.size() + 1));
        // Of its exact size on the heap, so that AddressSanitizer sees a read past the end.
        read(Bytes(damaged.begin(), damaged.end()));
    }
}

TEST(Fuzz, npy_survives_cut_and_flipped_files) {
    const std::string dictionary = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3, 4), }      \n";
    fuzz(npy_file(dictionary, 96), 10 + dictionary.size(), 20000, [](const Bytes& bytes) {
        const std::string message = npy_error(bytes);
        EXPECT_TRUE(message.empty() || message.starts_with("x.npy: ")) << message;
        return message;
    });
}

TEST(Fuzz, safetensors_survives_cut_and_flipped_files) {
    fuzz(safetensors_file(kTwoTensors, 36), 8 + std::strlen(kTwoTensors), 20000, [](const Bytes& bytes) {
        const std::string message = safetensors_error(bytes, "q");
        EXPECT_TRUE(message.empty() || message.starts_with("x.safetensors: ")) << message;
        return message;
    });
}

}  // namespace
}  // namespace tilewise::cli
