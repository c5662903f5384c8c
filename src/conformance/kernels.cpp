// See kernels.hpp.
#include "conformance/kernels.hpp"

#include <nlohmann/json.hpp>

#include "conformance/element.hpp"

namespace tilewise::conformance {

std::vector<Kernel> list_kernels() {
    std::vector<Kernel> list;
    for (const std::string& text : kernels()) {
        const nlohmann::json object = nlohmann::json::parse(text);
        Kernel kernel{object.at("name"), object.at("device"), object.at("op"), {}};
        for (const std::string name : object.at("dtypes"))
            for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kF64})
                if (name == name_of(dtype)) kernel.dtypes.push_back(dtype);
        list.push_back(std::move(kernel));
    }
    return list;
}

bool is_reference(const Kernel& kernel) { return kernel.name.find("_reference_") != std::string::npos; }

}  // namespace tilewise::conformance
